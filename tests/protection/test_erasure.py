"""Erase a user: nothing of 50 planted strings is left in any file, and other people's data is."""

from __future__ import annotations

import asyncio
import json
import shutil
from zipfile import ZipFile

import pytest

from kaname import (
    Agent,
    ConfigError,
    EncryptionError,
    JournalError,
    RunBusy,
    ScriptedModel,
    Sessions,
    SharedSession,
    SqliteJournal,
    call,
    erase_user,
    export_user,
    replace,
    tool,
    use_key,
)
from kaname.core.encryption import keys
from kaname.core.encryption.keys import create_key_file
from kaname.kernel.stores import Digest, Grant
from kaname.memory.files import MemoryFiles
from kaname.stores.audit.log import AuditLog
from tests.protection.planted import OTHER, PLANTED, USER, found_in_files, places, plant


@pytest.fixture(params=["plain", "encrypted"])
def folder(request, tmp_path):
    made = tmp_path / "data"
    made.mkdir()
    if request.param == "encrypted":
        create_key_file(tmp_path / "key")
        use_key(tmp_path / "key", places=[made])
    yield made
    keys.forget_keys()


def is_encrypted(folder):
    return keys.key_for(folder) is not None


async def test_erasure_leaves_none_of_50_planted_strings_in_any_file(folder):
    await plant(folder)
    before = found_in_files(folder)
    if is_encrypted(folder):  # only the trace and the list of users of the server are not encrypted
        assert {file for files in before.values() for file in files} <= {"trace.jsonl", "users.json"}
    else:
        assert set(before) == set(PLANTED)
    (folder / "users.json").unlink()  # the command `kaname user erase` removes the entry
    done = await erase_user(USER, places(folder))
    assert done.pending == ()
    assert found_in_files(folder) == {}
    assert done.journal.kept == 1
    assert done.journal.answers == 1
    assert done.journal.copies == (str(folder / "copy.db"),)
    assert done.memories
    assert done.traces
    again = await erase_user(USER, places(folder))
    assert (again.journal.runs, again.memories, again.traces) == (0, 0, 0)


async def test_digest_that_was_made_before_an_erasure_is_not_stored_after_it(tmp_path):
    await plant(tmp_path)
    journal = SqliteJournal(tmp_path / "journal.db")
    before = [Digest(card.run_id, card.seq, f"called {PLANTED[5]}", USER) for card in await journal.runs(user=USER)]
    done = await erase_user(USER, places(tmp_path))
    assert done.journal.kept == 1, "others continue from one of the runs"
    await journal.stores.digests.put(before)
    assert await journal.stores.digests.of([one.run_id for one in before]) == []
    (kept,) = [card for card in await journal.runs() if card.run_id in {one.run_id for one in before}]
    again = Digest(kept.run_id, kept.seq, "calls nothing", kept.user)
    await journal.stores.digests.put([again])
    assert [one.text for one in await journal.stores.digests.of([kept.run_id])] == ["calls nothing"]
    await journal.close()


async def test_data_of_other_people_survives_an_erasure(folder):
    await plant(folder)
    journal = SqliteJournal(folder / "journal.db")
    await journal.close()
    await erase_user(USER, places(folder))
    journal = SqliteJournal(folder / "journal.db")
    assert await journal.stores.health.verify() == []
    mine = await journal.runs(user=OTHER)
    assert {card.title for card in mine} == {"what Mia says", "Mia wants to send", "Mia waits"}
    hers = next(card.run_id for card in mine if card.title == "Mia waits")
    assert [said.message.text for said in await journal.stores.inbox.letters(hers)] == ["Mia says more"]
    (grant,) = await journal.stores.grants.all()
    assert (grant.id, grant.user, grant.by.startswith("erased-")) == ("g2", OTHER, True)
    sessions = Sessions(journal)
    (meeting,) = await sessions.all(user=OTHER)
    said = [one.text for one in await sessions.said(meeting)]
    assert "what Mia says" in said
    assert "fine, Mia" in said
    next_turn = Agent(ScriptedModel(lambda request: "I still know Mia"), journal=journal, name="both")
    result = await next_turn.run("and now?", session_id=SharedSession("meeting"), user_id=OTHER)
    assert result.output == "I still know Mia"
    files = MemoryFiles(folder / "memory")
    assert [one.text for one in files.of(OTHER).all()] == ["Mia lives in York"]
    assert [one.text for one in files.of(agent="desk").all()] == ["Mia likes tea"]
    files.close()
    await journal.close()


async def test_erasure_is_refused_while_a_run_of_the_user_is_executed(folder):
    await plant(folder)
    before = found_in_files(folder)
    journal, begun, go_on = SqliteJournal(folder / "journal.db"), asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await go_on.wait()
        return "done"

    agent = Agent(ScriptedModel([call("wait"), "done"]), [wait], journal=journal)

    async def work():
        return await agent.run("work", user_id=USER)

    run = asyncio.create_task(work())
    await asyncio.wait_for(begun.wait(), 60)
    with pytest.raises(RunBusy):
        await erase_user(USER, places(folder))
    assert set(found_in_files(folder)) >= set(before)
    go_on.set()
    await run
    await journal.close()
    await erase_user(USER, places(folder))


async def test_a_user_who_comes_back_after_an_erasure_is_recorded_again(folder):
    server = SqliteJournal(folder / "journal.db")  # a program that runs all the time
    agent = Agent(ScriptedModel(lambda request: "hello"), journal=server)
    await agent.run("one", user_id=USER, session_id="s")
    await erase_user(USER, places(folder))
    result = await agent.run("two", user_id=USER, session_id="s")
    (card,) = await server.runs(user=USER)
    assert (card.run_id, card.title) == (result.run_id, "two")
    assert [event.seq async for event in server.read(result.run_id)]
    await server.close()


async def test_copy_that_erasure_did_not_reach_cannot_be_read_after_it(tmp_path):
    create_key_file(tmp_path / "key")
    folder = tmp_path / "data"
    use_key(tmp_path / "key", places=[tmp_path])
    try:
        await plant(folder)
        shutil.copy(folder / "copy.db", tmp_path / "stolen.db")  # a copy that kaname does not know of
        await erase_user(USER, places(folder))
        restored = folder / "journal.db"
        for path in folder.glob("journal.db*"):
            if path.is_file() and path.name != "journal.db-keys":
                path.unlink()
        shutil.copy(tmp_path / "stolen.db", restored)
        journal = SqliteJournal(restored)
        assert await journal.stores.health.verify() == []
        texts = []
        for card in await journal.runs(user=USER):
            texts += [card.title, *[repr(event.body) async for event in journal.read(card.run_id) if event.seq > 1]]
        assert texts
        assert not [one for one in PLANTED for text in texts if one in text]
        assert "what Mia says" in {card.title for card in await journal.runs(user=OTHER)}
        await journal.close()
    finally:
        keys.forget_keys()


async def test_journal_without_its_user_keys_is_reported_and_not_taken_for_erased(tmp_path):
    create_key_file(tmp_path / "key")
    journal = SqliteJournal(tmp_path / "journal.db", key_file=tmp_path / "key")
    result = await Agent(ScriptedModel(["hello"]), journal=journal).run("hi", user_id="ken")
    await journal.close()
    (tmp_path / "journal.db-keys").unlink()
    journal = SqliteJournal(tmp_path / "journal.db", key_file=tmp_path / "key")
    with pytest.raises(Exception, match="journal.db-keys.*Restore this file from a backup"):
        _ = [event async for event in journal.read(result.run_id)]
    await journal.close()
    keys.forget_keys()


async def test_export_holds_everything_of_the_user_and_nothing_of_others(folder, tmp_path):
    await plant(folder)
    done = await export_user(USER, tmp_path / "out.zip", places(folder))
    assert (tmp_path / "out.zip").stat().st_mode & 0o077 == 0
    with ZipFile(done.path) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    whole = b"\n".join(texts.values())
    missing = [one for one in PLANTED if one.encode() not in whole]
    assert (
        len(missing) == 6
    )  # in Mia's runs: the summary, the answer, a message; of the agent: a memory; of the project: a value; a cache entry
    assert b"Mia" not in whole
    assert done.media == 2
    assert [name for name in texts if name.startswith("media/")] == ["media/00001.png", "media/00002.png"]
    assert b'"mia"' not in whole
    assert all(json.loads(line) for line in texts["facts.jsonl"].splitlines())
    with pytest.raises(ConfigError, match="already exists"):
        await export_user(USER, tmp_path / "out.zip", places(folder))
    with pytest.raises(ConfigError, match="nothing is stored about"):
        await export_user("nobody", tmp_path / "none.zip", places(folder))
    assert not (tmp_path / "none.zip").exists()
    journal = SqliteJournal(folder / "journal.db")
    await journal.stores.grants.put(Grant("g9", "desk", "zoe", "send", {}, by="zoe"))
    await journal.close()
    done = await export_user("zoe", tmp_path / "zoe.zip", places(folder))  # who has approved something, and run nothing
    with ZipFile(done.path) as archive:
        assert b"zoe" in archive.read("approvals.jsonl")


@pytest.mark.parametrize("damage", ["a page", "the beginning", "everything"])
async def test_damaged_file_of_keys_is_named_with_the_remedy(tmp_path, damage):
    create_key_file(tmp_path / "key")
    journal = SqliteJournal(tmp_path / "journal.db", key_file=tmp_path / "key")
    agent = Agent(ScriptedModel(["hello"]), journal=journal)
    result = await agent.run("hi", user_id="ken")
    await journal.close()
    keys.forget_keys()
    place = tmp_path / "journal.db-keys"
    data = bytearray(place.read_bytes())
    start, end = {"a page": (4096, len(data)), "the beginning": (0, 100), "everything": (0, len(data))}[damage]
    data[start:end] = bytes([7]) * (end - start)
    place.write_bytes(data)
    journal = SqliteJournal(tmp_path / "journal.db", key_file=tmp_path / "key")
    for work in (lambda: agent_of(journal).run("hi", user_id="ken"), lambda: read_all(journal, result.run_id)):
        with pytest.raises(JournalError, match="journal.db-keys.*damaged.*backup"):
            await work()
    await journal.close()
    keys.forget_keys()


def agent_of(journal):
    return Agent(ScriptedModel(["hello"]), journal=journal)


async def read_all(journal, run_id):
    return [event async for event in journal.read(run_id)]


class Letters:
    """Embeddings that only the program has."""

    name = "letters"

    def embed(self, texts):
        return [[1.0 + text.count(letter) for letter in "aeiou"] for text in texts]


async def test_memories_with_embeddings_of_the_program_are_exported_and_erased_without_them(folder, tmp_path):
    journal = SqliteJournal(folder / "journal.db")
    result = await Agent(ScriptedModel(["hello"]), journal=journal).run("hi", user_id=USER)
    await journal.close()
    files = MemoryFiles(folder / "memory", Letters())
    files.of(USER).add("likes sencha")
    files.of(agent="clerk").add("paints in blue", run=result.run_id)
    files.of(agent="clerk").add("opens at nine")
    files.close()
    done = await export_user(USER, tmp_path / "out.zip", places(folder))
    with ZipFile(done.path) as archive:
        assert "likes sencha" in archive.read("memories.jsonl").decode()
    files = MemoryFiles(folder / "memory")
    assert [one.text for one in files.of(USER).all()] == ["likes sencha"], "as `kaname memory list` reads them"
    with pytest.raises(ConfigError, match="created with the embeddings letters, not use-multilingual"):
        files.of(USER).search("tea")
    files.close()
    assert (await erase_user(USER, places(folder))).memories == 2
    files = MemoryFiles(folder / "memory", Letters())
    assert [one.text for one in files.of(agent="clerk").all(past=True)] == ["opens at nine"]
    files.close()


async def test_wrong_key_changes_nothing_and_names_the_file_and_the_remedy(tmp_path):
    create_key_file(tmp_path / "key")
    create_key_file(tmp_path / "other")
    folder = tmp_path / "data"
    use_key(tmp_path / "key", places=[folder])
    await plant(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*.db")}
    use_key(tmp_path / "other", places=[folder])
    with pytest.raises(EncryptionError, match=r"journal.db cannot be opened with the key from .*other.*Nothing was changed"):
        await erase_user(USER, places(folder))
    assert {path: path.read_bytes() for path in folder.rglob("*.db")} == before
    keys.forget_keys()


async def test_export_and_erasure_are_in_the_audit_log_which_names_the_user_no_more(folder, tmp_path):
    await plant(folder)
    log = AuditLog(folder / "audit.log")
    log.record("approval", actor=USER, subject="run:1", user=USER)
    known = replace(places(folder), audit=log.path)
    await export_user(USER, tmp_path / "out.zip", known)
    assert list(log.entries())[-1].kind == "export"
    (folder / "users.json").unlink()
    await erase_user(USER, known)
    assert USER.encode() not in log.path.read_bytes()
    assert [entry.kind for entry in log.entries()].count("erased") == 1
    assert log.verify() == []
    assert found_in_files(folder) == {}
