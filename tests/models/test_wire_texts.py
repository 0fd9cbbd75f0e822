"""`WireServer` with plain texts for answers."""

import pytest

from kaname import Agent
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.testing import WireServer, reply


@pytest.mark.parametrize("kind", [OpenAI, OpenAIResponses, Anthropic])
async def test_a_text_is_a_reply_in_the_protocol_that_is_asked_for(kind):
    for script in (["hello"], lambda request: "hello"):
        async with WireServer(script) as server:
            agent = Agent(kind("any", base_url=server.url, api_key="test"), journal="memory")
            assert (await agent.run("Hi.")).output == "hello"
            await agent.close()


async def test_reply_is_importable_from_testing():
    async with WireServer([reply("hello")]) as server:
        agent = Agent(OpenAI("any", base_url=server.url, api_key="test"), journal="memory")
        assert (await agent.run("Hi.")).output == "hello"
        await agent.close()
