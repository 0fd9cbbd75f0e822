"""Runs in a FastAPI application, on a real server: a reader that goes away stops the run, unless it is detached."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from kaname import Agent, ScriptedModel
from tests.parts import Later

fastapi = Later("fastapi")
responses = Later("fastapi.responses")


class Talk:
    """An application that streams a long answer, and a browser that hangs up in the middle."""

    def __init__(self) -> None:
        self.agent = Agent(ScriptedModel(lambda request: "word " * 200, pace=0.01), journal="memory")
        self.app = fastapi.FastAPI()
        self.app.add_api_route("/ask", self.ask)

    async def ask(self, detached: bool = False) -> responses.StreamingResponse:
        run = self.agent.run("Talk.")
        if detached:
            run.detach()
        return responses.StreamingResponse((chunk.to_sse() async for chunk in run), media_type="text/event-stream")

    async def hang_up(self, path: str, app: Any = None) -> str:
        served = uvicorn.Server(uvicorn.Config(app or self.app, host="127.0.0.1", port=0, log_level="error"))
        serving = asyncio.create_task(served.serve())
        async with asyncio.timeout(30):
            while not served.started:
                await asyncio.sleep(0.01)
            port = served.servers[0].sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            await reader.readuntil(b"word")
            writer.close()
            while (await self.agent.journal.runs())[0].status == "running":
                await asyncio.sleep(0.01)
            served.should_exit = True
            await serving
        return (await self.agent.journal.runs())[0].status


@pytest.mark.parametrize(("path", "end"), [("/ask", "cancelled"), ("/ask?detached=true", "completed")])
async def test_reader_that_hangs_up_stops_the_run_unless_it_is_detached(path, end):
    assert await Talk().hang_up(path) == end


async def test_plain_application_of_the_docs_stops_the_run_as_well():
    page = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)\nasync for", page, re.S)
    assert program is not None
    talk, names = Talk(), {}
    exec(program[1], names)
    names["agent"] = talk.agent
    lifespan = names["application"]

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await lifespan(scope, receive, send)

    assert await talk.hang_up("/", application) == "cancelled"
