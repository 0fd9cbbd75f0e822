"""Clients that leave before the end: closing a stream, or cancelling a call, stops the run; a setting lets it continue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, ConfigError, ScriptedModel
from tests.parts import Later, wait_until
from tests.serve.serving import PROTOCOLS, Served, client, serving

fastmcp = Later("fastmcp")
transports = Later("fastmcp.client.transports")
SAID = [{"role": "user", "content": "long"}]
PARTS = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "long"}]}]
DIALECTS = {
    "chat": ("/v1/chat/completions", {"model": "desk", "messages": SAID, "stream": True}),
    "responses": ("/v1/responses", {"model": "desk", "input": "long", "stream": True}),
    "vercel": ("/vercel/desk", {"messages": PARTS}),
    "ag-ui": ("/ag-ui/desk", {"threadId": "t", "runId": "r", "messages": [{"id": "1", **SAID[0]}]}),
}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Its runs take a while: a word every tenth of a second."""
    with serving(tmp_path_factory.mktemp("slow"), also=PROTOCOLS, KANAME_TEST_PACE="0.1") as served:
        yield served


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("keeping"), "--on-disconnect", "continue", KANAME_TEST_PACE="0.1") as served:
        yield served


def _left(http: httpx.Client, path: str, body: dict[str, Any]) -> str:
    """Begin a stream, and close it at its first words."""
    with http.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200
        next(answer.iter_raw())
        return answer.headers["x-run-id"]


def _ended(http: httpx.Client, run_id: str) -> dict[str, Any]:
    def run() -> dict[str, Any]:
        return http.get(f"/api/runs/{run_id}").json()

    wait_until(lambda: run()["status"] not in ("running", "waiting"))
    return run()


def _newest(http: httpx.Client) -> dict[str, Any]:
    return http.get("/api/runs", params={"limit": 1}).json()["runs"][0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_closing_the_stream_stops_the_run(slow, dialect):
    with client(slow) as http:
        run = _ended(http, _left(http, *DIALECTS[dialect]))
        assert (run["status"], run["stop"]["detail"]) == ("cancelled", "the client disconnected")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_closing_the_stream_stops_no_run_of_a_server_that_lets_them_continue(keeping, dialect):
    with client(keeping) as http:
        kept = _left(http, *DIALECTS[dialect])
        stopped = _left(http, "/api/runs", {"input": "long", "mode": "stream", "on_disconnect": "stop"})
        assert _ended(http, stopped)["status"] == "cancelled", "what a request says itself goes over the setting"
        assert http.get(f"/api/runs/{kept}").json()["status"] == "running"


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_leaving_an_answer_that_is_no_stream_stops_the_run(slow, dialect):
    path, body = DIALECTS[dialect]
    with client(slow) as http:
        with contextlib.suppress(httpx.ReadTimeout):
            http.post(path, json={**body, "stream": False}, timeout=1)
        assert _ended(http, _newest(http)["run_id"])["status"] == "cancelled"


def test_leaving_a_background_response_stops_nothing(slow):
    with client(slow) as http:
        run_id = _left(http, "/v1/responses", {"model": "desk", "input": "long", "stream": True, "background": True})
        stopped = _left(http, *DIALECTS["responses"])
        assert _ended(http, stopped)["status"] == "cancelled"
        assert http.get(f"/api/runs/{run_id}").json()["status"] == "running"


def test_leaving_after_the_question_leaves_the_run_waiting(slow):
    """A client may close its stream as soon as it has seen what is asked."""
    with client(slow) as http:
        body = {"model": "cashier", "messages": [{"role": "user", "content": "go"}], "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            run_id = answer.headers["x-run-id"]
            for line in answer.iter_lines():
                if "Run pay" in line:
                    break
        assert http.get("/readyz").status_code == 200
        assert http.get(f"/api/runs/{run_id}").json()["status"] == "waiting"


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_cancelling_a_call_of_mcp_stops_the_run(slow, mode):
    with client(slow) as http:
        before = _newest(http)["run_id"]
        async with fastmcp.Client(transports.StreamableHttpTransport(f"{slow.url}/mcp"), mode=mode) as mcp:
            calling = asyncio.create_task(mcp.call_tool("desk", {"task": "long"}))
            while _newest(http)["run_id"] == before:
                await asyncio.sleep(0.05)
            calling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await calling
            run = await asyncio.to_thread(_ended, http, _newest(http)["run_id"])
    assert (run["status"], run["stop"]["detail"]) == ("cancelled", "the client disconnected")


async def test_cancelling_a_call_of_mcp_that_asks_stops_the_run_that_waits(slow):
    asked = asyncio.Event()

    async def elicit(message, response_type, params, context):
        asked.set()
        await asyncio.Event().wait()

    with client(slow) as http:
        async with fastmcp.Client(
            transports.StreamableHttpTransport(f"{slow.url}/mcp"), mode="legacy", elicitation_handler=elicit
        ) as mcp:
            calling = asyncio.create_task(mcp.call_tool("cashier", {"task": "go"}))
            async with asyncio.timeout(60):
                await asked.wait()
            calling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await calling
            run = await asyncio.to_thread(_ended, http, _newest(http)["run_id"])
    assert run["status"] == "cancelled"


@pytest.mark.parametrize(
    ("in_file", "given", "meant"),
    [
        ("", None, "stop"),
        ("serve: {on_disconnect: continue}", None, "continue"),
        ("serve: {on_disconnect: continue}", "stop", "stop"),
    ],
)
def test_setting_comes_from_the_file_unless_the_program_gives_one(tmp_path, in_file, given, meant):
    file = tmp_path / "kaname.yaml"
    (tmp_path / "script.json").write_text('["hi"]')
    file.write_text(f"agents: {{desk: {{model: 'scripted/{tmp_path}/script.json'}}}}\njournal: journal.db\n{in_file}\n")
    assert kaname.serve.app(file, on_disconnect=given, mcp=False, a2a=False).service.on_disconnect == meant


def test_setting_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='on_disconnect must be "stop" or "continue"'):
        kaname.serve.app(Agent(ScriptedModel(["hi"]), journal="memory"), on_disconnect="wait", mcp=False, a2a=False)
