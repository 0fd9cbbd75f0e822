"""One user asks for much: the others are answered meanwhile, and the work ends when its client leaves."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, MemoryJournal, ScriptedModel, SqliteJournal
from kaname.core.events import Event, Opened, Received, Stopped
from kaname.core.messages import user
from kaname.core.steps import Stop
from kaname.kernel.ports import Journal
from kaname.kernel.stores import Digest
from kaname.serve.users import Caller, Users
from tests.parts import wait_until
from tests.properties import nightly
from tests.senses.files import picture
from tests.serve.serving import Served, client, serving

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
BLIND = "tests/serve/blind.py:agents"
MANY = 30


async def _record(journal: Journal, run_id: str, owner: str, words: list[str]) -> None:
    bodies = [Opened(user=owner), *[Received(user(one)) for one in words], Stopped(Stop("completed"))]
    lease = await journal.claim(run_id)
    now = time.time()
    await journal.append([Event(run_id, seq, now, "blind", body) for seq, body in enumerate(bodies, 1)], lease.epoch)
    await journal.release(run_id, lease.epoch)


def _store(folder: Path, run_id: str, owner: str, words: list[str]) -> None:
    async def record() -> None:
        journal = SqliteJournal(folder / "journal.db")
        await _record(journal, run_id, owner, words)
        await journal.close()

    asyncio.run(record())


WORDS = [f"{number} " + "word " * 50 for number in range(1_500)]


def _tokens(folder: Path) -> dict[str, str]:
    users = Users(folder / "users.json")
    return {name: users.add(name, ["talk"]) for name in ("greedy", "other")}


def _ask(served: Served, token: str, path: str, body: Any = None, accept: str = "*/*") -> socket.socket:
    """Send a request, and read nothing of the response."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
    head += f"accept: {accept}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    one = socket.create_connection(("127.0.0.1", served.port))
    one.sendall(head.encode() + data)
    one.setblocking(False)
    return one


def _is_answered(one: socket.socket) -> bool:
    try:
        return bool(one.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


@pytest.mark.parametrize("address", ["facts", *nightly("messages", "state")])
def test_another_user_is_answered_before_the_many_requests_of_one_are(tmp_path, address):
    tokens = _tokens(tmp_path)
    _store(tmp_path, "long", "greedy", WORDS)
    _store(tmp_path, "short", "other", WORDS[:2])
    with serving(tmp_path, agents=BLIND) as served, client(served, tokens["other"]) as http:
        assert http.get("/api/runs/short").status_code == 200
        asking = [_ask(served, tokens["greedy"], f"/api/runs/long/{address}") for _ in range(MANY)]
        wait_until(lambda: any(map(_is_answered, asking)))
        assert http.get("/api/runs/short").json()["status"] == "completed"
        answered = sum(map(_is_answered, asking))
        assert answered < MANY / 2, "it did not wait until those who came before it were answered"
        wait_until(lambda: all(map(_is_answered, asking)))
        for one in asking:
            one.close()


def test_reading_ends_when_its_clients_leave(tmp_path):
    tokens = _tokens(tmp_path)
    _store(tmp_path, "long", "greedy", WORDS)
    _store(tmp_path, "short", "greedy", WORDS[:2])
    with serving(tmp_path, "--log-level", "info", agents=BLIND) as served, client(served, tokens["greedy"]) as http:
        asking = [_ask(served, tokens["greedy"], "/api/runs/long/facts") for _ in range(MANY)]
        wait_until(lambda: any(map(_is_answered, asking)))
        for one in asking:
            one.close()
        assert http.get("/api/runs/short").json()["status"] == "completed"

        def statuses() -> list[int]:
            lines = [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]
            return [line["status"] for line in lines if line["path"] == "/api/runs/long/facts"]

        wait_until(lambda: len(statuses()) == MANY)
        assert statuses().count(408) > MANY / 2, "most had not been read yet"
        assert "Traceback" not in served.log.read_text()


def test_figures_count_a_run_once_and_again_when_it_goes_on(tmp_path):
    """What a digest says is believed, as long as the run has these facts."""
    with serving(tmp_path) as served, client(served) as http:
        run = http.post("/api/runs", json={"input": "go", "agent": "worker"}).json()["run_id"]
        first = http.get("/api/figures").json()
        assert first["read"] == 1
        assert [(one["name"], one["calls"]) for one in first["tools"]] == [("book", 3), ("transfer", 3)]
        assert http.get("/api/figures").json()["tools"] == first["tools"]

        async def change() -> None:
            journal = SqliteJournal(tmp_path / "journal.db")
            (digest,) = await journal.stores.digests.of([run])
            told = json.loads(digest.text)
            told["tools"] *= 5
            await journal.stores.digests.put([digest._replace(text=json.dumps(told))])
            await journal.close()

        asyncio.run(change())
        assert http.get("/api/figures").json()["tools"][0]["calls"] == 15, "its facts are not read again"
        http.post(f"/api/runs/{run}/rating", json={"rating": "good"})
        assert http.get("/api/figures").json()["tools"] == first["tools"], "it has other facts now"


def test_figures_make_a_digest_again_that_they_cannot_read(tmp_path):
    unreadable = ("", "{}", '{"form": 0, "tools": [], "models": []}', '{"form": 1, "tools": 7, "models": []}')
    with serving(tmp_path) as served, client(served) as http:
        run = http.post("/api/runs", json={"input": "go", "agent": "worker"}).json()["run_id"]
        first = http.get("/api/figures").json()

        async def damage(text: str) -> None:
            journal = SqliteJournal(tmp_path / "journal.db")
            (digest,) = await journal.stores.digests.of([run])
            await journal.stores.digests.put([Digest(run, digest.seq, text)])
            await journal.close()

        for text in unreadable:
            asyncio.run(damage(text))
            assert http.get("/api/figures").json()["tools"] == first["tools"], text


class SlowJournal(MemoryJournal):
    """A run is loaded when `may_read` is set. What `read` returns cannot be closed. `reading`, `facts`: how many were read."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read, self.reading, self.facts = asyncio.Event(), 0, 0

    async def lineage(self, run_id: str, *more: Any, **named: Any) -> Any:
        self.reading += 1
        await self.may_read.wait()
        return await super().lineage(run_id, *more, **named)

    def read(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        return _Facts(self, super().read(run_id, after))


class _Facts:
    def __init__(self, journal: SlowJournal, facts: AsyncIterator[Event]) -> None:
        self._journal, self._facts = journal, facts

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self._journal.facts += 1
        return await anext(self._facts)


def _visited(journal: SlowJournal) -> tuple[Agent, Any]:
    """Return an agent, and its application, in which a caller without the header `x-name` has no name."""
    agent = Agent(ScriptedModel(["hello", "hello"]), name="desk", journal=journal)
    roles = frozenset(["talk"])

    def who(scope: Any) -> Caller:
        return Caller(dict(scope["headers"]).get(b"x-name", b"").decode(), roles)

    return agent, kaname.serve.app(agent, who=who, recover=False, mcp=False, a2a=False)


def _visitor(app: Any, address: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(address, 1)), base_url="http://localhost")


async def test_visitors_without_a_name_take_turns_by_address():
    journal = SlowJournal()
    agent, app = _visited(journal)
    journal.may_read.set()
    await agent.run("hi", run_id="anyones")
    await agent.run("hi", run_id="anns", user_id="ann")
    journal.may_read.clear()
    journal.reading = 0
    async with _visitor(app, "192.0.2.1") as greedy, _visitor(app, "192.0.2.2") as other:
        async with asyncio.TaskGroup() as group:
            for _ in range(MANY):
                group.create_task(greedy.get("/api/runs/anyones"))
            while not journal.reading:
                await asyncio.sleep(0)
            answers = [
                group.create_task(other.get("/api/runs/anns", headers={"x-name": "ann"})),
                group.create_task(other.get("/api/runs/anyones")),
            ]
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert journal.reading == 4, "two of the address that asks for much, and those who came after it"
            journal.may_read.set()
        assert [answer.result().status_code for answer in answers] == [200, 200]


@pytest.mark.parametrize("address", ["events", "facts"])
async def test_facts_of_a_journal_of_ones_own_are_streamed(address):
    journal = SlowJournal()
    journal.may_read.set()
    agent, app = _visited(journal)
    await agent.run("hi", run_id="anyones")
    async with _visitor(app, "192.0.2.1") as http:
        answer = await http.get(f"/api/runs/anyones/{address}", headers={"accept": "text/event-stream"})
    assert answer.status_code == 200
    assert "hello" in answer.text
    assert "completed" in answer.text


@pytest.mark.parametrize("address", ["events", "facts"])
async def test_streams_that_are_not_read_hold_few_large_facts_and_no_place(address):
    journal = SlowJournal()
    journal.may_read.set()
    await _record(journal, "anyones", "", [f"{number} " + "x" * 40_000 for number in range(100)])
    _, app = _visited(journal)
    unread = 5
    waiting = asyncio.Semaphore(0)

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            waiting.release()
            await asyncio.Event().wait()

    async with _visitor(app, "192.0.2.1") as http:
        request = http.build_request("GET", f"/api/runs/anyones/{address}", headers={"accept": "text/event-stream"})
        head = {"type": "http", "method": "GET", "path": request.url.path, "headers": request.headers.raw}
        scope = {**head, "client": ("192.0.2.1", 1), "query_string": b""}
        streams = [asyncio.create_task(app(dict(scope), receive, send)) for _ in range(unread)]
        for _ in streams:
            await waiting.acquire()
        assert journal.facts <= 3 * unread
        assert (await http.get("/api/runs/anyones")).json()["status"] == "completed"
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


@pytest.mark.parametrize("address", ["events", "facts"])
def test_slow_reader_of_a_server_that_shuts_down_gets_whole_events_and_the_place_to_continue_from(tmp_path, address):
    sizes = [200_000 if number % 10 == 5 else 1_500 for number in range(300)]

    _store(tmp_path, "long", "", [f"{number} " + "x" * size for number, size in enumerate(sizes)])
    with serving(tmp_path, agents=BLIND) as served:
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        one.connect(("127.0.0.1", served.port))
        one.sendall(f"GET /api/runs/long/{address} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n".encode())
        answer = HTTPResponse(one)
        answer.begin()
        read = answer.read(100_000)
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not _listens(served))
        *frames, last, rest = (read + answer.read()).decode().split("\n\n")
        one.close()
    assert rest == ""
    assert last.startswith("event: closing\n")
    fields = [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in frames]
    told = [json.loads(one["data"]) for one in fields]
    assert len(told) < len(sizes), "it was not sent whole"
    ids = [int(one["id"]) for one in fields if "id" in one]
    assert ids == list(range(ids[0], ids[-1] + 1))
    if address == "events":
        assert json.loads(last.partition("data: ")[2])["data"] == {"status": "closing", "after": ids[-1]}


def _listens(served: Served) -> bool:
    try:
        socket.create_connection(("127.0.0.1", served.port)).close()
    except ConnectionRefusedError:
        return False
    return True


def _message(*lines: str, **look: Any) -> dict[str, Any]:
    url = f"data:image/png;base64,{b64encode(picture(*lines, **look)).decode()}"
    return {"input": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}}


def _at_work(served: Served) -> set[int]:
    """Return the processes of the server that read pictures and are computing."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == served.process.pid and b"senses.process.child" in (place / "cmdline").read_bytes():
                found |= {int(place.name)} if state == "R" else set()
        except OSError:  # it has ended meanwhile
            continue
    return found


@pytest.mark.nightly
@linux
@pytest.mark.slow
def test_picture_of_another_user_is_read_before_the_dense_ones_of_one_and_these_end_when_he_leaves(tmp_path):
    tokens = _tokens(tmp_path)
    dense = [f"{line} " + "the invoice of March was paid on Tuesday " * 4 for line in range(60)]
    with (
        serving(tmp_path, agents=BLIND) as served,
        client(
            served,
            tokens["other"],
        ) as http,
    ):
        look = {"size": 18, "width": 1900, "gap": 21}
        asking = [_ask(served, tokens["greedy"], "/api/runs", _message(f"{number}", *dense, **look)) for number in range(5)]
        wait_until(lambda: _at_work(served))
        told = http.post("/api/runs", json=_message("the key is under the mat"), timeout=600).json()
        assert "under the mat" in told["text"]
        assert sum(map(_is_answered, asking)) < 4
        left = _at_work(served)
        for one in asking:
            one.close()
        wait_until(lambda: not _at_work(served) & left)
    assert asyncio.run(_runs(tmp_path)) <= 4, "a run whose client left before it began never begins"


async def _runs(folder: Path) -> int:
    journal = SqliteJournal(folder / "journal.db")
    try:
        return len(await journal.runs(user="greedy"))
    finally:
        await journal.close()
