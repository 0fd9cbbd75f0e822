"""Media of runs in PostgreSQL: stored once, read by the runs that use them, and gone with the last of these runs."""

import asyncio
import os
from base64 import b64encode

import asyncpg
import httpx
import pytest

import kaname
from kaname import Agent, Media, PostgresJournal, ScriptedModel, SqliteJournal, call, tool
from kaname.core.codec import dump
from kaname.core.events import Received, ToolFinished
from kaname.core.messages import ModelReply, assistant
from kaname.core.runs import UPLOAD
from kaname.kernel.bases import ModelBase
from kaname.serve.users import Caller
from kaname.stores.transfer import copy_journal


def photo(size=200_000):
    return Media(
        "image/png",
        b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8) + (8).to_bytes(4) * 2 + os.urandom(size - 16)).decode(),
        name="a.png",
    )


class Seeing(ModelBase):
    name = "seeing"

    def __init__(self):
        self.requests = []

    async def reply(self, request, emit):
        self.requests.append(request)
        return ModelReply(assistant("seen"), "end_turn")


@pytest.fixture
async def journal(url):
    made = PostgresJournal(url)
    yield made
    await made.close()


async def rows(url, query):
    connection = await asyncpg.connect(url.partition("&")[0])
    try:
        schema = url.partition("schema=")[2].partition("&")[0]
        return [tuple(row) for row in await connection.fetch(query.replace("kaname.", f"{schema}."))]
    finally:
        await connection.close()


async def pictures_in(journal, run_id):
    facts = [event.body async for event in journal.read(run_id)]
    return [part for fact in facts if isinstance(fact, Received) for part in fact.message.parts if isinstance(part, Media)]


async def test_picture_is_stored_once_and_read_by_runs_forks_and_sessions(journal, url):
    picture, model = photo(), Seeing()
    agent = Agent(model, journal=journal)
    first = await agent.run(["look", picture], session_id="s")
    await asyncio.gather(*[agent.run(["look again", picture]) for _ in range(8)])
    assert await rows(url, "SELECT count(*), sum(length(content)) FROM kaname.media") == [(1, 200_008)]
    assert await rows(url, "SELECT count(*) FROM kaname.uses") == [(9,)]
    assert (await rows(url, "SELECT max(length(body)) FROM kaname.facts"))[0][0] < 5_000
    assert await pictures_in(journal, first.run_id) == [picture]
    other = PostgresJournal(url)  # as another process
    again = Agent(model := Seeing(), journal=other)
    second = await again.run("and now?", session_id="s")
    assert picture in model.requests[0].messages[0].parts
    await again.fork(first.run_id, 2, user_input="what else?")
    assert picture in model.requests[1].messages[0].parts
    state = dump({"type": "media", "mime": "image/png", "data": picture.data})
    await other.keep_snapshot(second.run_id, second.state.seq, 7, state)
    assert (await rows(url, "SELECT max(length(state)) FROM kaname.snapshots"))[0][0] < 5_000
    assert picture.data in (await other.lineage(second.run_id, fold=7)).snapshot
    assert [change.event.run_id async for change in other.changes(wait=False)]
    assert await other.verify() == []
    await other.close()


async def test_picture_goes_with_its_last_run_and_a_run_at_the_same_time_keeps_it(journal, url):
    picture = photo(3_000)
    agent = Agent(ScriptedModel(lambda request: "seen"), journal=journal)
    runs = [(await agent.run(["look", picture])).run_id for _ in range(2)]
    await journal.delete(runs[0])
    assert await pictures_in(journal, runs[1]) == [picture]
    for _ in range(10):  # one run goes while another begins to use the same picture
        new, _ = await asyncio.gather(agent.run(["look", picture]), journal.delete(runs[1]))
        assert await pictures_in(journal, new.run_id) == [picture]
        runs[1] = new.run_id
    await journal.delete(runs[1])
    assert await rows(url, "SELECT count(*) FROM kaname.media") == [(0,)]
    assert await rows(url, "SELECT count(*) FROM kaname.uses") == [(0,)]


async def test_picture_of_another_run_cannot_be_read_by_its_hash(journal, url):
    picture = photo(3_000)
    agent = Agent(ScriptedModel(lambda request: "seen"), journal=journal)
    await agent.run(["look", picture])
    ((hash,),) = await rows(url, "SELECT hash FROM kaname.media")

    @tool(effect="pure")
    def find() -> dict:
        """Find."""
        return {"stored": hash}

    thief = Agent(ScriptedModel([call("find"), "done"]), [find], journal=journal)
    result = await thief.run("go")
    (found,) = [event.body async for event in journal.read(result.run_id) if isinstance(event.body, ToolFinished)]
    assert picture.data not in str(found)
    assert hash in str(found), "what a tool returns is not changed"


async def test_pictures_are_copied_to_a_file_and_back(journal, url, tmp_path):
    picture = photo(3_000)
    run = await Agent(ScriptedModel(lambda request: "seen"), journal=journal).run(["look", picture])
    file, back = SqliteJournal(tmp_path / "j.db"), PostgresJournal(url.replace("schema=", "schema=back_"))
    await copy_journal(journal, file)
    await copy_journal(file, back)
    assert len(file.media.of_run(run.run_id)) == 1
    assert await pictures_in(back, run.run_id) == [picture]
    await file.close()
    await back.close()


async def test_uploaded_file_is_the_runs_own_when_the_upload_is_gone(journal, url):
    content, ann = b"%PDF-" + os.urandom(200_000), Caller("ann", frozenset(["talk"]))
    model = Seeing()
    app = kaname.serve.app(Agent(model, journal=journal), who=lambda scope: ann, recover=False, mcp=False, audit=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
        headers = {"content-type": "application/octet-stream"}
        file_id = (await http.post("/api/media?name=a.pdf", content=content, headers=headers)).json()["file_id"]
        parts = [{"type": "file", "file": {"file_id": file_id}}]
        answer = await http.post("/api/runs", json={"input": [{"role": "user", "content": parts}]})
    while await journal.runs(starting=UPLOAD):
        await asyncio.sleep(0.01)
    (kept,) = await pictures_in(journal, answer.json()["run_id"])
    assert kept.content == content
    assert await rows(url, "SELECT run, length(content) FROM kaname.uses JOIN kaname.media USING (hash)") == [
        (answer.json()["run_id"], len(content))
    ]
