"""Clients that do not read what they asked for: cut after a while, whatever the answer; they cost next to no memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, ScriptedModel
from kaname.serve import guard
from kaname.serve.encoding import PIECE, Json, Shared, join_parts, pieces, share
from tests.parts import wait_until
from tests.properties import nightly
from tests.serve.serving import Served, client, serving

LARGE = "tests/serve/large.py:agents"
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
STREAM = "text/event-stream"
CHAT = {"model": "large", "messages": [{"role": "user", "content": "x"}]}
ANSWERS = (
    ("GET", "/api/runs/{run}", None, "*/*"),
    ("GET", "/api/runs/{run}/story", None, "*/*"),
    ("GET", "/api/runs/{run}/messages", None, "*/*"),
    ("GET", "/api/runs/{run}/facts", None, "*/*"),
    ("GET", "/api/runs/{run}/facts", None, STREAM),
    ("GET", "/api/runs/{run}/events", None, STREAM),
    ("GET", "/v1/responses/resp_{run}", None, "*/*"),
    ("POST", "/api/runs", {"agent": "large", "input": "x"}, "*/*"),
    ("POST", "/v1/chat/completions", CHAT, "*/*"),
    ("POST", "/v1/chat/completions", {**CHAT, "stream": True}, STREAM),
    ("POST", "/v1/responses", {"model": "large", "input": "x", "stream": True}, STREAM),
    ("POST", "/ag-ui/large", {"messages": [{"id": "1", "role": "user", "content": "x"}]}, STREAM),
    ("POST", "/vercel/large", {"messages": [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]}, STREAM),
    ("POST", "/a2a/large", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}}, "*/*"),
    ("POST", "/a2a/large", {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}}, STREAM),
)  # fmt: skip


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("impatient")
    (folder / "go").touch()
    with serving(folder, agents=LARGE, KANAME_TEST_PATIENCE="1.0") as served:
        yield served


def ask(served: Served, method: str, path: str, body: Any = None, accept: str = "*/*", buffer: int = 8_192) -> socket.socket:
    """Send a request, and read nothing of the answer."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\na2a-version: 1.0\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n" if data else ""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    one.connect(("127.0.0.1", served.port))
    one.sendall(f"{head}\r\n".encode() + data)
    return one


def connections(served: Served) -> int:
    """Count the connections of clients that the server holds open."""
    folder = Path(f"/proc/{served.process.pid}")
    held = set()
    for name in os.listdir(folder / "fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            held.add(os.readlink(folder / "fd" / name))
    listening = "0A"
    rows = [line.split() for line in (folder / "net" / "tcp").read_text().splitlines()[1:]]
    ours = [row for row in rows if int(row[1].rpartition(":")[2], 16) == served.port and row[3] != listening]
    return sum(f"socket:[{row[9]}]" in held for row in ours)


def large_run(served: Served) -> str:
    with client(served) as http:
        http.timeout = 60
        return http.post("/api/runs", json={"agent": "large", "input": "x"}).json()["run_id"]


@linux
def test_client_that_does_not_read_is_cut_whatever_the_answer(impatient):
    """All of them at once: each is answered, and none is left."""
    run = large_run(impatient)
    with socket.create_connection(("127.0.0.1", impatient.port)):
        wait_until(lambda: connections(impatient))
    wait_until(lambda: not connections(impatient))
    asking = [(one, ask(impatient, one[0], one[1].format(run=run), *one[2:])) for one in ANSWERS]
    for answer, one in asking:
        assert select.select([one], [], [], 60)[0], f"{answer} was answered"
    wait_until(lambda: not connections(impatient))
    for _, one in asking:
        one.close()


@pytest.mark.parametrize("path", ["/api/runs/{run}", "/api/runs/{run}/events"])
def test_client_that_reads_slowly_gets_everything(impatient, path):
    """Longer than the server's patience in all, but something of it each time."""
    one = ask(impatient, "GET", path.format(run=large_run(impatient)), buffer=65_536)
    one.settimeout(60)
    read, began = b"", time.monotonic()
    end = b"0\r\n\r\n" if path.endswith("events") else b"}"
    while not read.endswith(end):
        piece = one.recv(40_000)
        assert piece, "it was cut"
        read += piece
        if time.monotonic() - began < 2:
            time.sleep(0.1)
    assert len(read) > 2_000_000
    assert time.monotonic() - began > 1.5
    one.close()


@linux
@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/runs/{run}/events", *nightly("/api/runs/{run}", "/api/runs/{run}/facts")])
def test_many_clients_that_do_not_read_share_one_copy(tmp_path, path):
    """A text of 2 MB, a hundred of them: each held more than 5 MB once."""
    (tmp_path / "go").touch()
    with serving(tmp_path, agents=LARGE) as served:
        run = large_run(served)
        before = memory(served)
        accept = STREAM if path.endswith("facts") else "*/*"
        readers = [ask(served, "GET", path.format(run=run), accept=accept) for _ in range(100)]
        for one in readers:
            assert select.select([one], [], [], 120)[0], "it was answered"
        assert memory(served) - before < 150, "MB"
        for one in readers:
            one.close()


@linux
@pytest.mark.slow
def test_many_clients_that_follow_a_run_and_do_not_read_share_one_copy(tmp_path):
    with serving(tmp_path, agents=LARGE) as served, client(served) as http:
        run = http.post("/api/runs", json={"agent": "large", "input": "x", "mode": "detach"}).json()["run_id"]
        readers = [ask(served, "GET", f"/api/runs/{run}/events") for _ in range(100)]
        for one in readers:
            assert select.select([one], [], [], 60)[0], "it is followed"
        before = memory(served)
        (tmp_path / "go").touch()
        wait_until(lambda: http.get("/api/runs").json()["runs"][0]["status"] == "completed")
        assert memory(served) - before < 100, "MB"
        for one in readers:
            one.close()


def memory(served: Served) -> float:
    """MB that the server has in memory."""
    lines = Path(f"/proc/{served.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


@linux
def test_server_without_descriptors_says_so_once_and_recovers(tmp_path):
    with serving(tmp_path, agents=LARGE) as served:
        with client(served) as http:
            assert http.get("/healthz").status_code == 200
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        many: list[socket.socket] = []

        def short() -> bool:
            """Fill up what an earlier connection, closed late, has left: the server drops what it cannot accept."""
            many.extend(socket.create_connection(("127.0.0.1", served.port)) for _ in range(100 if not many else 1))
            return "out of file descriptors" in served.log.read_text()

        wait_until(short)
        for one in many:
            one.close()
        with client(served) as http:

            def answered() -> Any:
                with contextlib.suppress(
                    httpx.TransportError
                ):  # a connection that came before the others were closed is dropped
                    return http.get("/healthz")

            assert wait_until(answered).status_code == 200
            assert http.post("/api/runs", json={"agent": "small", "input": "x"}).json()["output"] == "small"
        wait_until(lambda: "there are file descriptors again" in served.log.read_text())
        assert served.log.read_text().count("out of file descriptors") == 1


@pytest.mark.parametrize("ours", [True, False])
async def test_answer_that_is_not_taken_ends_under_any_server(tmp_path, monkeypatch, ours):
    """Another server than ours cannot be told to cut a connection: the answer is given up."""
    monkeypatch.setattr(guard, "PATIENCE", 0.2)
    agents = kaname.serve.app(Agent(ScriptedModel(["word " * 100_000]), name="large", journal=tmp_path / "j.db"))
    run, cut, sent = await agents.service.agent().run("go"), asyncio.Event(), []

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) > 3:
            await cut.wait()  # the buffers are full

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": f"/api/runs/{run.run_id}", "query_string": b"", "http_version": "1.1",
             "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)}  # fmt: skip
    async with asyncio.timeout(60):
        await agents({**scope, **({"kaname.abort": cut.set} if ours else {})}, receive, send)
    assert cut.is_set() == ours
    assert max(len(message.get("body", b"")) for message in sent) == PIECE
    await agents.closing()


def test_large_answers_that_say_the_same_are_held_once():
    text = "größer " * 50_000
    first, second = Json({"text": text}), Json({"text": text})
    assert first.body is second.body
    assert Json({"text": text + "."}).body is not first.body
    part, same = share(text.encode()), share(text.encode())
    assert isinstance(part, Shared)
    assert part is same
    assert b"".join(pieces(part)) == text.encode()
    assert max(map(len, pieces(part))) == PIECE
    assert join_parts([b"a", b"b", part, b"c"]) == [b"ab", part, b"c"]
    assert share(b"small") == b"small"
