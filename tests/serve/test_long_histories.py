"""Conversations of hundreds of messages: a run begins whether or not its client reads, in every protocol."""

from __future__ import annotations

import json
import socket

import pytest

from tests.parts import wait_until
from tests.properties import nightly
from tests.serve.serving import PROTOCOLS, Served, events

ALSO = PROTOCOLS

LENGTHS = (300, *nightly(600, 2000))


def said(length: int) -> list[dict[str, str]]:
    """A conversation of so many messages, which ends with a question."""
    turns = [{"role": ("user", "assistant")[number % 2], "content": f"word {number}"} for number in range(length - 1)]
    return [*turns, {"role": "user", "content": "add"}]


def as_chat(length: int, **more: object) -> tuple[str, dict]:
    return "/v1/chat/completions", {"model": "desk", "messages": said(length), **more}


def as_responses(length: int, **more: object) -> tuple[str, dict]:
    return "/v1/responses", {"model": "desk", "input": said(length), **more}


def as_ag_ui(length: int, **more: object) -> tuple[str, dict]:
    messages = [{"id": str(number), **one} for number, one in enumerate(said(length))]
    return "/ag-ui/desk", {"threadId": "t", "runId": "r", "messages": messages, **more}


def as_vercel(length: int, **more: object) -> tuple[str, dict]:
    messages = [{"role": one["role"], "parts": [{"type": "text", "text": one["content"]}]} for one in said(length)]
    return "/vercel/desk", {"messages": messages, **more}


def as_run(length: int, **more: object) -> tuple[str, dict]:
    return "/api/runs", {"agent": "desk", "input": said(length), **more}


WHOLE = (as_chat, as_responses, as_run)
STREAMED = (  # with the word that ends the stream
    (as_chat, {"stream": True}, "[DONE]"),
    (as_responses, {"stream": True}, "response.completed"),
    (as_ag_ui, {}, "RUN_FINISHED"),
    (as_vercel, {}, '"type":"finish"'),
    (as_run, {"mode": "stream"}, '"completed"'),
)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("shape", WHOLE)
def test_long_history_is_answered_as_a_whole(http, shape, length):
    path, body = shape(length)
    assert "the sum is 7" in http.post(path, json=body).text


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("shape", "more", "end"), STREAMED)
def test_long_history_is_answered_as_a_stream(http, shape, more, end, length):
    path, body = shape(length, **more)
    assert end in http.post(path, json=body).text


@pytest.mark.nightly
@pytest.mark.parametrize("length", [2000, *nightly(300, 600)])
def test_long_history_is_answered_in_the_background(http, length):
    path, body = as_responses(length, background=True)
    begun = http.post(path, json=body).json()
    wait_until(lambda: http.get(f"/v1/responses/{begun['id']}").json()["status"] != "in_progress")
    assert http.get(f"/v1/responses/{begun['id']}").json()["status"] == "completed"
    path, body = as_run(length, mode="detach")
    run = http.post(path, json=body).json()["run_id"]
    with http.stream("GET", f"/api/runs/{run}/events") as answer:
        assert list(events(answer.iter_lines()))[-1]["data"]["data"]["kind"] == "completed"


@pytest.mark.parametrize("length", [300, *nightly(2000)])
def test_session_with_a_long_history_goes_on_in_the_other_protocols(http, length):
    """MCP, A2A and Responses begin their runs on the history of the session, which they do not send themselves."""
    session = f"long-{length}"
    path, body = as_run(length, session_id=session)
    http.post(path, json=body)
    path, body = "/v1/responses", {"model": "desk", "input": "add", "conversation": session, "stream": True}
    assert "response.completed" in http.post(path, json=body).text
    call = {"name": "desk", "arguments": {"task": "add", "session_id": session}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    opened = http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}, headers=headers)
    headers |= {"mcp-session-id": opened.headers["mcp-session-id"]} if "mcp-session-id" in opened.headers else {}
    told = http.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, headers=headers)
    assert "the sum is 7" in told.text
    message = {"messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{"text": "add"}]}
    for method in ("SendMessage", "SendStreamingMessage"):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
        assert "TASK_STATE_COMPLETED" in http.post("/a2a/desk", json=body, headers={"a2a-version": "1.0"}).text


@pytest.mark.parametrize(("shape", "more", "end"), [*nightly(*STREAMED[:-1]), STREAMED[-1]])
def test_run_of_a_client_that_never_reads_begins_and_completes(served, http, shape, more, end):
    path, body = shape(600, **more)
    before = {run["run_id"] for run in http.get("/api/runs", params={"limit": 1000}).json()["runs"]}
    silent = _sent(served, path, body)

    def its_run_is_complete():
        now = http.get("/api/runs", params={"limit": 1000}).json()["runs"]
        return [run for run in now if run["run_id"] not in before and run["status"] == "completed"]

    wait_until(its_run_is_complete)
    silent.close()


def _sent(served: Served, path: str, body: dict) -> socket.socket:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    one = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    one.sendall(head.encode() + data)
    return one
