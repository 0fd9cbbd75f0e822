"""An agent from a file, with a tool server and rules; a real model without a key would be `model: local`.

It needs the extra `mcp` (`pip install '/path/to/kaname[mcp]'`).
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from kaname import Agent, load_config

SERVER = """
from fastmcp import FastMCP

server = FastMCP("voice")


@server.tool()
def shout(text: str) -> str:
    "Say it loudly."
    return text.upper()


server.run(show_banner=False)
"""
SCRIPT = [
    {"calls": [{"name": "shout", "args": {"text": "hello"}}, {"name": "shout", "args": {"text": "again"}}]},
    {"calls": [{"name": "calculator", "args": {"expression": "6 x 7"}}]},
    "HELLO, and 42.",
]
CONFIG = """
journal: memory
agents:
  helper:
    model: scripted/script.json
    tools: [calculator]
    guardrails: {tools: {shout: {max_calls: 1}}}
    stops: {max_steps: 5}
mcp_servers:
  voice: {command: "${PYTHON}", args: [server.py], cwd: "${FOLDER}"}
"""


async def main(folder: Path) -> None:
    (folder / "server.py").write_text(SERVER)
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    text = CONFIG.replace("${PYTHON}", sys.executable).replace("${FOLDER}", str(folder))
    (folder / "kaname.yaml").write_text(text)
    async with Agent.from_config(load_config(folder / "kaname.yaml")) as agent:
        print("tools:", ", ".join([tool["name"] for tool in agent.available_tools]))
        result = await agent.run("Say hello loudly, and what is six times seven?")
        refused = [step.observation or "" for step in result.steps if "limit of calls" in (step.observation or "")]
        print(refused[0].removeprefix("Error: "))
        print(result.output)


with tempfile.TemporaryDirectory() as name:
    asyncio.run(main(Path(name)))

# prints:
#   tools: calculator, shout
#   the limit of calls to shout is reached (1); continue without it
#   HELLO, and 42.
