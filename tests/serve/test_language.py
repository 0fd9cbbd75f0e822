"""Questions and errors are sent in Japanese to clients that ask for it, whole, in every protocol."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, Approve, MemoryJournal, ScriptedModel, call, tool

JAPANESE = {"accept-language": "ja,en;q=0.8"}
ENGLISH = re.compile(r"\b(?:Run|Allow|question|Options|Please|answer)\b")


@tool
async def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


def script(request: Any) -> Any:
    return "done" if any(message.role == "tool" for message in request.messages) else call("pay", yen=5)


@pytest.fixture
def http() -> httpx.AsyncClient:
    agent = Agent(ScriptedModel(script), tools=[pay], policies=[Approve("pay")], name="desk", journal=MemoryJournal())
    app = kaname.serve.app(agent, recover=False, mcp=False, a2a=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=JAPANESE, timeout=60)


async def test_question_of_a_run_is_in_the_language_of_the_client(http):
    run = (await http.post("/api/runs", json={"input": "pay"})).json()
    (listed,) = (await http.get("/api/questions")).json()["questions"]
    for one in (run["questions"][0], listed):
        assert "を実行しますか" in one["prompt"]
        assert not ENGLISH.search(one["prompt"])
        assert one["notice"]["text"].startswith("Run pay"), "the page chooses the language itself"
    plain = (await http.get("/api/questions", headers={"accept-language": "en"})).json()["questions"][0]
    assert plain["prompt"].startswith("Run pay")


@pytest.mark.parametrize("stream", [False, True])
async def test_question_in_a_chat_is_japanese_and_its_answer_is_understood(http, stream):
    said = [{"role": "user", "content": "pay"}]
    asked = (await http.post("/v1/chat/completions", json={"model": "desk", "messages": said})).json()
    text = asked["choices"][0]["message"]["content"]
    assert "を実行しますか" in text
    assert not ENGLISH.search(text)
    said += [{"role": "assistant", "content": text}, {"role": "user", "content": "たぶん"}]
    unclear = (await http.post("/v1/chat/completions", json={"model": "desk", "messages": said})).json()
    again = unclear["choices"][0]["message"]["content"]
    assert again.endswith(text)
    assert not ENGLISH.search(again)
    said += [{"role": "assistant", "content": again}, {"role": "user", "content": "はい"}]
    done = await http.post("/v1/chat/completions", json={"model": "desk", "messages": said, "stream": stream})
    assert "done" in done.text


@pytest.mark.parametrize("address", ["/ag-ui", "/v1/responses"])
async def test_question_of_another_protocol_is_japanese(http, address):
    messages = [{"role": "user", "content": "pay", "id": "1"}]
    body = {"threadId": "t", "runId": "r", "messages": messages} if address == "/ag-ui" else {"model": "desk", "input": "pay"}
    told = (await http.post(address, json=body)).text
    assert "pay" in told
    assert "Run pay" not in told


async def test_error_is_in_the_language_of_the_client_and_keeps_its_code(http):
    answer = (await http.get("/api/runs/no-such")).json()
    assert re.search("[ぁ-ん]", answer["detail"])
    assert answer["notice"]["text"].isascii()
    refused = (await http.get("/api/runs", headers={"host": "evil.example"})).json()
    assert re.search("[ぁ-ん]", refused["detail"])
