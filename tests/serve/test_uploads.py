"""Files in requests: one limit of 20 MB, on the page, in the guard and in a run."""

from __future__ import annotations

import asyncio
import re
import time
import tracemalloc
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

import kaname
from kaname import Agent, ConfigError, Media, MemoryJournal, Message, ScriptedModel, SqliteJournal
from kaname.core.events import Event, Opened, Received, Stopped
from kaname.core.reading.media_types import LARGEST_FILE
from kaname.core.runs import UPLOAD, is_own_run
from kaname.core.steps import Stop
from kaname.serve.changes import Changes
from kaname.serve.guard import RequestLimits
from kaname.serve.service import Service
from kaname.serve.users import OWNER, Caller
from kaname.stores.sqlite.erasure import erase_user_from
from tests.properties import nightly

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


# Files that are sent as they are


FILE = {"content-type": "application/octet-stream"}


def named(*ids: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": "read it"}, *[{"type": "file", "file": {"file_id": one}} for one in ids]]
    return {"input": [{"role": "user", "content": parts}], "mode": "wait", **more}


async def upload(http: httpx.AsyncClient, content: Any, name: str = "a.pdf") -> str:
    answer = await http.post("/api/media", params={"name": name}, content=content, headers=FILE)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["file_id"])


async def uploads_in(journal: Any) -> list[str]:
    return [one.run_id for one in await journal.runs(starting=UPLOAD)]


def of_several(journal: Any, callers: list[Caller], **more: Any) -> tuple[httpx.AsyncClient, list[Media]]:
    """Serve an agent. The caller is the one whose place in `callers` the header `x-place` names."""
    seen: list[Media] = []

    def script(request: Any) -> str:
        last = [message for message in request.messages if message.role == "user"][-2:]
        seen.extend([part for message in last for part in message.parts if isinstance(part, Media)])
        return "read"

    def who(scope: Any) -> Caller:
        return callers[int(dict(scope["headers"]).get(b"x-place", b"0"))]

    agent = Agent(ScriptedModel(script), name="clerk", journal=journal)
    app = kaname.serve.app(agent, who=who, recover=False, mcp=False, audit=False, **more)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60), seen


@pytest.mark.parametrize("kind", ["memory", *nightly("sqlite")])
async def test_uploaded_file_of_20_mb_is_named_in_a_message_and_gone_afterwards(kind, tmp_path):
    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "journal.db")
    http, seen = of_several(journal, [TALKER])
    content = b"%PDF-" + bytes(LARGEST_FILE - 5)
    file_id = await upload(http, content)
    answer = await http.post("/api/runs", json=named(file_id))
    assert answer.json()["output"] == "read"
    assert [(one.content == content, one.mime, one.name) for one in seen] == [(True, "application/pdf", "a.pdf")]
    while await uploads_in(journal):
        await asyncio.sleep(0.01)
    run_id, hash = answer.json()["run_id"], sha256(content).hexdigest()
    assert (await http.get(f"/api/runs/{run_id}/media/{hash}")).content == content
    again = await http.post("/api/runs", json=named(file_id))
    assert again.status_code == 404
    assert "upload it again" in again.text
    await journal.close()


@pytest.mark.parametrize("encrypted", [True, *nightly(False)])
async def test_upload_is_stored_while_it_arrives_and_never_held_whole(encrypted, tmp_path, monkeypatch):
    if encrypted:
        monkeypatch.setenv("KANAME_KEY", "0f" * 32)
    journal = SqliteJournal(tmp_path / "journal.db")
    http, _ = of_several(journal, [TALKER])
    await upload(http, b"%PDF-1")  # what is loaded with the first one does not count
    stored: list[int] = []

    async def arriving():
        for _ in range(20):
            yield bytes(1_000_000)
            stored.append(sum([one.seq for one in await journal.runs(starting=UPLOAD)]))

    tracemalloc.start()
    await upload(http, arriving(), "a.bin")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stored[0] < stored[10] < stored[-1], "pieces are stored before the last one has arrived"
    assert most < 12_000_000, "bytes held at once, of a file of 20,000,000"
    await journal.close()


async def test_upload_that_breaks_off_is_no_file_and_is_removed(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    http, _ = of_several(journal, [TALKER], limits=RequestLimits(files=3_000_000))
    seen: list[str] = []

    async def too_much():
        for _ in range(4):
            yield bytes(1_000_000)
            seen.extend(await uploads_in(journal))

    assert (await http.post("/api/media", content=too_much(), headers=FILE)).status_code == 413
    answer = await http.post("/api/runs", json=named(seen[0].removeprefix(UPLOAD)))
    assert answer.status_code == 404
    while await uploads_in(journal):
        await asyncio.sleep(0.01)
    assert journal.media.of_run(seen[0]) == []
    await journal.close()


async def test_uploaded_file_reaches_a_fork_and_a_message_to_a_run():
    http, seen = of_several(MemoryJournal(), [TALKER])
    run_id = (await http.post("/api/runs", json={"input": "hi", "session_id": "s"})).json()["run_id"]
    answer = await http.post(f"/api/runs/{run_id}/fork", json=named(await upload(http, b"%PDF-1")))
    assert answer.json()["output"] == "read"
    said = named(await upload(http, b"%PDF-2"))["input"][0]
    assert (await http.post(f"/api/runs/{run_id}/messages", json={"input": said})).json()["under_way"] is False
    await http.post("/api/runs", json={"input": "go on", "session_id": "s"})
    assert [one.content for one in seen] == [b"%PDF-1", b"%PDF-2"]


async def test_larger_upload_is_refused_while_it_arrives():
    http, _ = served()
    sent = []

    async def endless():
        while True:
            sent.append(1)
            yield bytes(1_000_000)

    answer = await http.post("/api/media", content=endless(), headers=FILE)
    assert answer.status_code == 413
    assert answer.json()["detail"] == "the files of a message can have 20,000,000 bytes in all"
    assert len(sent) == 21


async def test_uploads_of_one_message_share_the_limit():
    http, seen = served(limits=RequestLimits(files=1_000))
    ids = [await upload(http, b"%PDF-" + bytes(600)) for _ in range(2)]
    answer = await http.post("/api/runs", json=named(*ids))
    assert (answer.status_code, answer.json()["detail"]) == (413, "the files of a message can have 1,000 bytes in all")
    assert not seen


async def test_upload_belongs_to_its_user():
    journal, eve = MemoryJournal(), Caller("eve", frozenset(["talk", "approve:all"]))
    http, seen = of_several(journal, [TALKER, eve])
    file_id = await upload(http, b"%PDF-secret")
    (run_id,) = await uploads_in(journal)
    hash = sha256(b"%PDF-secret").hexdigest()
    for one in (file_id, run_id, hash, f"../{file_id}", ""):
        answer = await http.post("/api/runs", json=named(one), headers={"x-place": "1"})
        assert answer.status_code == 404, one
    for address in (f"/api/runs/{run_id}", f"/api/runs/{run_id}/facts", f"/api/runs/{run_id}/media/{hash}"):
        assert (await http.get(address, headers={"x-place": "1"})).status_code in (403, 404)
    assert not seen
    assert (await http.post("/api/runs", json=named(file_id))).json()["output"] == "read"


async def test_upload_is_in_no_list_of_runs():
    journal = MemoryJournal()
    http, _ = of_several(journal, [OWNER])
    await upload(http, b"%PDF-1", "needle.pdf")
    run_id = (await http.post("/api/runs", json={"input": "needle"})).json()["run_id"]
    for asked in ({}, {"q": "needle"}):
        assert [one["run_id"] for one in (await http.get("/api/runs", params=asked)).json()["runs"]] == [run_id]
    watching = Changes(Service([Agent(ScriptedModel(["hi"]), journal=journal)])).watch()
    assert [run for run, _, _ in await anext(watching)] == [run_id]
    await watching.aclose()
    assert [is_own_run(one) for one in await journal.runs()] == [True, False]


async def test_run_is_no_upload():
    http, _ = served()
    run_id = (await http.post("/api/runs", json=message(b"%PDF-1"))).json()["run_id"]
    assert (await http.post("/api/runs", json=named(run_id))).status_code == 404


async def test_upload_needs_the_role_and_the_type_of_a_message():
    http, _ = served(READER)
    assert (await http.post("/api/media", content=b"%PDF-1", headers=FILE)).status_code == 403
    http, _ = served()
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "application/json", ""):
        answer = await http.post("/api/media", content=b"%PDF-1", headers={"content-type": kind})
        assert (answer.status_code, kind) == (415, kind)
    program = await http.post("/api/media", params={"name": "photo.png"}, content=b"\x7fELF" + bytes(50), headers=FILE)
    assert program.status_code == 400
    assert "is not what it claims to be" in program.text


async def test_upload_that_no_message_names_is_deleted_after_an_hour(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    service = Service([Agent(ScriptedModel(["hi"]), journal=journal)])
    for run_id, created in (("upload~old", time.time() - 3700), ("upload~new", time.time())):
        lease = await journal.claim(run_id)
        facts = [
            Opened(user="ann"),
            Received(Message("user", (Media.of(b"%PDF-" + bytes(9_000)),))),
            Stopped(Stop("completed")),
        ]
        await journal.append([Event(run_id, seq, created, "upload", one) for seq, one in enumerate(facts, 1)], lease.epoch)
    sweeping = asyncio.create_task(service.keep_removing_unstored())
    while len(left := await uploads_in(journal)) > 1:
        await asyncio.sleep(0.01)
    sweeping.cancel()
    assert left == ["upload~new"]
    assert journal.media.of_run("upload~old") == []
    await journal.close()


async def test_upload_is_erased_with_its_user(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    http, _ = of_several(journal, [TALKER])
    await upload(http, b"%PDF-" + bytes(9_000))
    (run_id,) = await uploads_in(journal)
    assert len(journal.media.of_run(run_id)) == 1
    await erase_user_from(journal, "ann")
    assert (await uploads_in(journal), journal.media.of_run(run_id)) == ([], [])
    await journal.close()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_file_that_one_server_has_received_is_named_at_another(encrypted, tmp_path, monkeypatch):
    """Two servers with a connection each. The second has served the user before, so that it knows the user's key already."""
    if encrypted:
        monkeypatch.setenv("KANAME_KEY", "0f" * 32)
    journals = [SqliteJournal(tmp_path / "journal.db") for _ in range(2)]
    (one, _), (other, seen) = [of_several(journal, [TALKER, Caller("bob", frozenset(["talk"]))]) for journal in journals]
    await other.post("/api/runs", json={"input": "hi", "mode": "wait"})
    content = b"%PDF-" + bytes(900_000)
    file_id = await upload(one, content)
    assert (await other.post("/api/runs", json=named(file_id), headers={"x-place": "1"})).status_code == 404
    assert (await other.post("/api/runs", json=named(file_id))).json()["output"] == "read"
    assert [part.content for part in seen] == [content]
    while await uploads_in(journals[0]):
        await asyncio.sleep(0.01)
    assert (await one.post("/api/runs", json=named(file_id))).status_code == 404
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not (encrypted and any(content[:100] in one or b64encode(content)[:100] in one for one in stored))
    for journal in journals:
        await journal.close()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_upload_of_an_erased_user_is_gone_for_every_server(encrypted, tmp_path, monkeypatch):
    if encrypted:
        monkeypatch.setenv("KANAME_KEY", "0f" * 32)
    journals = [SqliteJournal(tmp_path / "journal.db") for _ in range(2)]
    (one, seen), (other, _) = [of_several(journal, [TALKER]) for journal in journals]
    await other.post("/api/runs", json={"input": "hi", "mode": "wait"})  # it knows the user's key from now on
    file_id = await upload(one, b"%PDF-" + bytes(9_000))
    await erase_user_from(journals[0], "ann")
    assert (await other.post("/api/runs", json=named(file_id))).status_code == 404
    again = await upload(other, b"%PDF-2")
    assert (await one.post("/api/runs", json=named(again))).json()["output"] == "read"
    assert [part.content for part in seen] == [b"%PDF-2"], "it is sealed with a key that both servers know"
    for journal in journals:
        await journal.close()
