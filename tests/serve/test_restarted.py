"""A model fails after its first words: what the clients of every protocol get when another model answers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb

import kaname.serve
from kaname import Agent, MemoryJournal, Message, ModelReply
from kaname.core.errors import ModelUnavailable
from kaname.core.messages import Text, Thinking

AGAIN = "send the request again"


class Speaker:
    """Says or thinks its words; `breaks` off then, before the reply is complete."""

    def __init__(self, name: str, words: str, kind: str = "text", *, breaks: bool = False) -> None:
        self.name, self._words, self._kind, self._breaks = name, words, kind, breaks

    async def reply(self, request: Any, emit: Any) -> ModelReply:
        await emit(self._words, self._kind)
        if self._breaks:
            raise ModelUnavailable("broke off")
        part = Text(self._words) if self._kind == "text" else Thinking(self._words)
        return ModelReply(Message("assistant", (part,)), "end_turn")


def served(shown: str) -> tuple[Agent[Any], httpx.AsyncClient]:
    """The first model breaks off after a `text`, or after it has only been `thinking`."""
    first = Speaker("first", "half a", shown, breaks=True)
    agent = Agent([first, Speaker("second", "whole answer")], name="desk", journal=MemoryJournal())
    app = kaname.serve.app(agent, recover=False, mcp=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    return agent, httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)


STREAMS = {
    "chat": ("/v1/chat/completions", {"model": "desk", "messages": [{"role": "user", "content": "hi"}], "stream": True}),
    "responses": ("/v1/responses", {"model": "desk", "input": "hi", "stream": True}),
    "ag_ui": ("/ag-ui/desk", {"messages": [{"id": "1", "role": "user", "content": "hi"}]}),
    "vercel": ("/vercel/desk", {"messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}),
}


@pytest.mark.parametrize("dialect", STREAMS)
async def test_stream_that_cannot_take_words_back_ends_with_an_error(dialect: str) -> None:
    _, http = served("text")
    path, asked = STREAMS[dialect]
    async with http:
        told = (await http.post(path, json=asked)).text
    assert "half a" in told
    assert "whole" not in told
    assert AGAIN in told


@pytest.mark.parametrize("dialect", STREAMS)
async def test_stream_without_words_so_far_goes_on(dialect: str) -> None:
    _, http = served("thinking")
    path, asked = STREAMS[dialect]
    async with http:
        told = (await http.post(path, json=asked)).text
    assert "whole answer" in told
    assert AGAIN not in told


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_response_without_a_stream_holds_only_the_answer(dialect: str) -> None:
    _, http = served("text")
    path, asked = STREAMS[dialect]
    async with http:
        answer = await http.post(path, json={**asked, "stream": False})
    assert answer.status_code == 200
    assert "whole answer" in answer.text
    assert "half a" not in answer.text


async def test_kanames_own_stream_says_restarted() -> None:
    _, http = served("text")
    async with http:
        told = (await http.post("/api/runs", json={"agent": "desk", "input": "hi", "mode": "stream"})).text
    assert told.index("half a") < told.index('"restarted"') < told.index("whole answer")


async def test_a2a_client_gets_the_text_replaced() -> None:
    _, http = served("text")
    async with http:
        card = await A2ACardResolver(http, "http://localhost/a2a/desk").get_agent_card()
        config = ClientConfig(httpx_client=http, streaming=True, supported_protocol_bindings=["JSONRPC"])
        message = pb.Message(message_id="m1", role=pb.Role.ROLE_USER, parts=[pb.Part(text="hi")])
        request = pb.SendMessageRequest(message=message)
        events = [one async for one in ClientFactory(config).create(card).send_message(request)]
    text = ""
    for one in [one.artifact_update for one in events if one.HasField("artifact_update")]:
        said = "".join(part.text for part in one.artifact.parts)
        text = text + said if one.append else said
    assert text == "whole answer"
