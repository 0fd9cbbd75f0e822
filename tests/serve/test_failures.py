"""How a failure of the model's provider reaches the clients of every protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, MemoryJournal, Retry, ScriptedModel, call, tool
from kaname.core.errors import ModelUnavailable, RateLimited
from kaname.serve.dialects import conversation
from tests.parts import Later

openai = Later("openai")
types = Later("openai.types.responses")
LIMIT = "the provider's rate limit was reached"


@tool
async def act() -> str:
    """Do something."""
    return "done"


def script(request: Any) -> Any:
    """Fail at once, or after a tool was called."""
    words = next(message.text for message in request.messages if message.role == "user")
    if "act" in words and request.messages[-1].role == "user":
        return call("act")
    raise ModelUnavailable("down") if "down" in words else RateLimited("slow down", retry_after=7)


@pytest.fixture
async def http(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setattr(conversation, "_SILENCE", 60.0)  # also on a busy machine
    agent = Agent(ScriptedModel(script), [act], name="desk", journal=MemoryJournal(), policies=[Retry(1)])
    app = kaname.serve.app(agent, recover=False, mcp=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as made:
        yield made


def said(words: str) -> dict[str, Any]:
    return {"model": "desk", "messages": [{"role": "user", "content": words}]}


def chat(words: str) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {**said(words), "stream": True}


def responses(words: str) -> tuple[str, dict[str, Any]]:
    return "/v1/responses", {"model": "desk", "input": words, "stream": True}


def ag_ui(words: str) -> tuple[str, dict[str, Any]]:
    return "/ag-ui/desk", {"messages": [{"id": "1", "role": "user", "content": words}]}


def vercel(words: str) -> tuple[str, dict[str, Any]]:
    return "/vercel/desk", {"messages": [{"role": "user", "parts": [{"type": "text", "text": words}]}]}


def told(answer: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


async def test_limit_of_the_provider_is_a_429_in_chat_completions(http):
    answer = await http.post("/v1/chat/completions", json=said("go"))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert "x-should-retry" not in answer.headers, "nothing was done: a library can try again"
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    assert LIMIT in answer.json()["error"]["message"]
    (*_, last) = told(await http.post("/v1/chat/completions", json={**said("act"), "stream": True}))
    assert last["error"] == answer.json()["error"], "a stream that has begun ends with it"
    client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)
    with pytest.raises(openai.RateLimitError, match=LIMIT):
        await client.chat.completions.create(**said("go"))


async def test_limit_of_the_provider_after_a_tool_is_not_tried_again_by_a_library(http):
    for path, body in (("chat/completions", said("act")), ("responses", {"model": "desk", "input": "act"})):
        answer = await http.post(f"/v1/{path}", json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert answer.headers["x-should-retry"] == "false"


async def test_limit_of_the_provider_is_a_429_in_responses(http):
    answer = await http.post("/v1/responses", json={"model": "desk", "input": "go"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    failed = types.Response.model_validate(answer.json(), strict=True)
    assert (failed.status, failed.error.code) == ("failed", "rate_limit_exceeded")
    (*_, last) = told(await http.post("/v1/responses", json={"model": "desk", "input": "act", "stream": True}))
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "rate_limit_exceeded")
    again = await http.get(f"/v1/responses/{failed.id}")
    assert (again.status_code, again.json()["error"]) == (200, answer.json()["error"]), "what is fetched is there"
    client = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=http, max_retries=0)
    with pytest.raises(openai.RateLimitError, match=LIMIT):
        await client.responses.create(model="desk", input="go")


@pytest.mark.parametrize("shape", [chat, responses, ag_ui, vercel])
async def test_limit_of_the_provider_is_a_429_of_a_stream_that_has_said_nothing(http, shape):
    path, body = shape("go")
    answer = await http.post(path, json=body)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert LIMIT in answer.text
    if path.startswith("/v1/"):
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"


async def test_limit_of_the_provider_is_told_in_the_form_of_the_other_protocols(http):
    path, body = ag_ui("act")
    (*_, last) = told(await http.post(path, json=body))
    assert (last["type"], last["code"]) == ("RUN_ERROR", "RateLimited")
    path, body = vercel("act")
    (*_, last) = told(await http.post(path, json=body))
    assert last["type"] == "error"
    assert LIMIT in last["errorText"]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    task = (await http.post("/a2a/desk", json=body, headers={"a2a-version": "1.0"})).json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["metadata"] == {"error": "RateLimited"}


async def test_provider_that_is_down_is_a_502(http):
    answer = await http.post("/v1/chat/completions", json=said("down"))
    assert (answer.status_code, answer.headers["x-should-retry"]) == (502, "false")
    assert answer.json()["error"]["type"] == "ModelUnavailable"


async def _parts(going_on: asyncio.Event, ended: list[str]) -> AsyncIterator[bytes]:
    try:
        yield b"first"
        yield b""
        await going_on.wait()
        yield b"second"
        yield b"last"
    finally:
        ended.append("ended")


@pytest.mark.parametrize("way", [chat, responses, ag_ui, vercel])
async def test_stream_of_a_run_that_retries_in_vain_is_answered_with_the_limit(monkeypatch, way):
    """The agent as it is by default: five tries, which take longer than a head is held back otherwise."""
    monkeypatch.setattr("kaname.policies.failure.retry.PAUSE", 0.15)

    def refuse(request: Any) -> Any:
        raise RateLimited("slow down")

    app = kaname.serve.app(Agent(ScriptedModel(refuse), name="desk", journal=MemoryJournal()), recover=False, mcp=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as http:
        path, body = way("x")
        assert (await http.post(path, json=body)).status_code == 429


async def test_stream_of_a_run_that_is_silent_begins_all_the_same(monkeypatch):
    monkeypatch.setattr(conversation, "_SILENCE", 0.01)
    going_on, ended = asyncio.Event(), []
    ahead = conversation.PeekedStream(_parts(going_on, ended))
    assert await ahead.is_short() is False
    parts = ahead.parts()
    assert await anext(parts) == b"first"
    going_on.set()
    assert [part async for part in parts] == [b"second", b"last"]
    assert ended == ["ended"]


@pytest.mark.parametrize("read", [0, 1])
async def test_stream_that_is_left_while_its_run_is_silent_ends(monkeypatch, read):
    monkeypatch.setattr(conversation, "_SILENCE", 0.01)
    ended: list[str] = []
    ahead = conversation.PeekedStream(_parts(asyncio.Event(), ended))
    await ahead.is_short()
    parts = ahead.parts()
    assert await anext(parts) == b"first"
    if read:
        reading = asyncio.ensure_future(anext(parts))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    await parts.aclose()
    assert ended == ["ended"]
