"""Design B: tool servers through FastMCP, and models through LiteLLM."""

import asyncio
import os

import pytest

from kaname import Agent, AgentConnectionError, ScriptedModel, call
from kaname.models import LiteLLM
from kaname.testing import WireServer
from kaname.testing.wire import reply
from tests.mcp_servers.everyday import make
from tests.parts import add
from tests.tools.test_mcp import STDIO, alive
from tests.tools.test_mcp_in_use import raw

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def agent(script, servers, tools=()):
    return Agent(ScriptedModel(script), tools, mcp_servers=servers, journal="memory")


@pytest.mark.requirement("B1")
@pytest.mark.parametrize("ending", ["exit", "error", "cancel"])
async def test_servers_connect_once_on_entry_and_are_gone_however_it_ends(ending):
    pids = []
    served = STDIO if ending == "exit" else raw("calm")  # a real one once; the others start faster

    async def use():
        async with agent(lambda request: "hi", {"everyday": served}) as made:
            server = made.servers.servers[0]
            pids.append(server.pid)
            await made.run("one")
            await made.run("two")
            assert server.pid == pids[0], "one connection serves all runs"
            assert alive(server.pid)
            if ending == "error":
                raise KeyError("a bug of the user's")
            if ending == "cancel":
                await asyncio.sleep(60)

    task = asyncio.create_task(use())
    if ending == "cancel":
        while not pids:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() if ending == "cancel" else isinstance(task.exception(), KeyError | None)
    assert not alive(pids[0])


@pytest.mark.requirement("B2")
async def test_available_tools_are_filled_on_entry_and_follow_the_server():
    made = agent([call("grow", name="fresh"), "ok"], {"everyday": make()}, [add])
    assert [tool["name"] for tool in made.available_tools] == ["add"]
    async with made:
        names = [tool["name"] for tool in made.available_tools]
        assert "slow" in names
        assert "fresh" not in names
        await made.run("go")
        async with asyncio.timeout(60):
            while "fresh" not in [tool["name"] for tool in made.available_tools]:
                await asyncio.sleep(0.02)


@pytest.mark.requirement("B5")
async def test_schemas_are_lossless_and_names_unique():
    async with agent(["hi"], {"one": make("one"), "two": make("two")}) as made:
        tools = {tool["name"]: tool["parameters"] for tool in made.available_tools}
    assert {"one__nested", "two__nested"} <= set(tools)
    schema = tools["one__nested"]
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["properties"]["root"] == {"$ref": "#/$defs/Node"}


@pytest.mark.requirement("B8")
async def test_a_server_that_must_be_there_and_is_not():
    with pytest.raises(AgentConnectionError, match="did not start"):
        async with agent(["hi"], {"gone": {"command": os.devnull, "required": True}}):
            pass


@pytest.mark.requirement("B12")
async def test_a_model_through_litellm_uses_a_tool_through_fastmcp():
    async with WireServer([reply(calls=[("add", {"a": 1, "b": 2})]), reply("3")]) as server:
        model = LiteLLM("openai/any", base_url=server.url, api_key="k")
        async with Agent(model, mcp_servers={"everyday": make()}, journal="memory") as made:
            result = await made.run("1 + 2?")
    assert result.output == "3"
    assert [step.observation for step in result.steps] == ["3", None]
    assert "add" in [tool["function"]["name"] for tool in server.requests[0]["tools"]]
