"""A conversation with a picture, thought, a tool and a typed answer, over the wire. Its parent kills it in the middle.

python -m tests.crash_agents.served openai|anthropic|responses URL JOURNAL RUN|-
"""

import asyncio
import sys

from pydantic import BaseModel

from kaname import Agent, Media, Message, SqliteJournal, tool
from kaname.core.messages import Text
from kaname.models import Anthropic, OpenAI, OpenAIResponses

ADAPTERS = {"openai": OpenAI, "anthropic": Anthropic, "responses": OpenAIResponses}


class Report(BaseModel):
    total: int


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def main(protocol, url, path, run):
    adapter = ADAPTERS[protocol]
    journal = SqliteJournal(path)
    agent = Agent(adapter("any", base_url=url, api_key="k"), [add], instructions="簡潔に。", output=Report, journal=journal)
    question = Message("user", (Text("これは何ですか"), Media("image/png", "iVBORw0KGgouLg==")))
    handle = agent.resume(run) if run != "-" else agent.run(question, run_id="the-run")
    print("output", (await handle).output.total, flush=True)
    await agent.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
