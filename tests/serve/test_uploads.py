"""Files in requests: one limit of 20 MB, on the page, in the guard and in a run."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

import kaname
from kaname import Agent, ConfigError, Media, MemoryJournal, ScriptedModel
from kaname.core.reading.media_types import LARGEST_FILE
from kaname.serve.guard import RequestLimits
from kaname.serve.users import Caller

TALKER, READER = Caller("ann", frozenset(["talk"])), Caller("bob", frozenset(["read"]))


def served(who: Caller = TALKER, **more: Any) -> tuple[httpx.AsyncClient, list[Media]]:
    seen: list[Media] = []

    def script(request: Any) -> str:
        seen.extend([part for part in request.messages[-1].parts if isinstance(part, Media)])
        return "read"

    agent = Agent(ScriptedModel(script), name="clerk", journal=MemoryJournal())
    app = kaname.serve.app(agent, who=lambda scope: who, recover=False, mcp=False, **more)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60), seen


def message(content: bytes) -> dict[str, Any]:
    data = f"data:application/pdf;base64,{b64encode(content).decode()}"
    parts = [{"type": "text", "text": "read it"}, {"type": "file", "file": {"filename": "a.pdf", "file_data": data}}]
    return {"input": [{"role": "user", "content": parts}], "mode": "wait"}


async def test_file_of_20_mb_arrives_whole():
    http, seen = served()
    content = b"%PDF-" + bytes(LARGEST_FILE - 5)
    answer = await http.post("/api/runs", json=message(content))
    assert answer.json()["output"] == "read"
    assert [one.content for one in seen] == [content]


async def test_larger_file_is_refused_everywhere_with_the_limit():
    http, seen = served()
    answer = await http.post("/api/runs", json=message(b"%PDF-" + bytes(LARGEST_FILE)))
    assert answer.status_code == 400
    assert "a.pdf is larger than 20,000,000 bytes" in answer.text
    assert (await http.post("/api/runs", json=message(b"%PDF-" + bytes(25_000_000)))).status_code == 413
    with pytest.raises(ConfigError, match="larger than 20,000,000 bytes"):
        await Agent(ScriptedModel(["hi"])).run(["read", Media.of(b"%PDF-" + bytes(LARGEST_FILE), name="a.pdf")])
    assert not seen


async def test_reader_cannot_send_large_bodies():
    http, _ = served(READER)
    answer = await http.post("/api/runs", json=message(b"%PDF-" + bytes(5_000_000)))
    assert answer.status_code in (403, 413)


async def test_large_bodies_that_arrive_at_once_are_limited_and_leave_their_place_when_they_are_gone():
    http, _ = served(limits=RequestLimits(body=1_000))
    more, begun = asyncio.Event(), []

    async def slow():
        yield b'{"input": "' + b"x" * 2_000
        begun.append(1)
        await more.wait()
        yield b'"}'

    async def send() -> int:
        return (await http.post("/api/runs", content=slow(), headers={"content-type": "application/json"})).status_code

    sending = [asyncio.create_task(send()) for _ in range(8)]
    while len(begun) < 8:
        await asyncio.sleep(0)
    assert await send() == 503
    more.set()
    assert {await one for one in sending} <= {200, 201}
    assert await send() in (200, 201)


def test_page_has_the_same_limit():
    text = (Path(kaname.__file__).parent / "serve/page/static/views/media.js").read_text("utf-8")
    assert int(re.search(r"LARGEST = ([\d_]+);", text)[1]) == LARGEST_FILE
