"""A journal of an earlier version is brought up to date when it is opened, and loses nothing."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kaname import Agent, Approve, JournalError, ScriptedModel, SqliteJournal, call, tool
from kaname.core.errors import JournalTooNew
from kaname.stores.sqlite import schema

OLD = Path(__file__).parent.parent / "corpora" / "journals" / "schema-2.sql"


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


def adding():
    def script(request):
        if request.messages[-1].role == "user":
            return call("add", a=3, b=4)
        return f"the sum is 7 ({sum(message.role == 'user' for message in request.messages)} asked)"

    return ScriptedModel(script)


def old_file(folder):
    path = folder / "journal.db"
    connection = sqlite3.connect(path)
    connection.executescript(OLD.read_text(encoding="utf-8"))
    connection.close()
    return path


async def test_an_old_journal_keeps_its_runs_and_goes_on(tmp_path):
    journal = SqliteJournal(old_file(tmp_path))
    agent = Agent(adding(), [add], journal=journal, instructions="Be brief.")
    assert await journal.verify() == []
    assert {card.run_id for card in await journal.runs()} >= {"turn-1", "turn-2", "turn-3", "waiting"}
    assert await journal.runs(run_id="empty") == [], "a claim that came to nothing is not kept"
    assert (await agent.resume("turn-3")).output == "the sum is 7 (3 asked)"
    assert (await agent.replay("turn-3")).same
    payer = Agent(ScriptedModel([call("pay", yen=5), "paid it"]), [pay], policies=[Approve("pay")], journal=journal)
    assert (await payer.resume("waiting", {"approve:c1_0": "yes"})).output == "paid it"
    await journal.close()


async def test_an_old_session_goes_on_from_its_last_turn_although_the_clock_was_set_back(tmp_path):
    journal = SqliteJournal(old_file(tmp_path))
    agent = Agent(adding(), [add], journal=journal, instructions="Be brief.")
    assert [card.run_id for card in await journal.runs(session="s")] == ["turn-3", "turn-2", "turn-1"]
    assert (await agent.run("and again", session_id="s", user_id="u")).output == "the sum is 7 (4 asked)"
    await journal.close()


async def test_two_that_open_an_old_journal_at_once_migrate_it_once(tmp_path):
    path = old_file(tmp_path)
    journals = [SqliteJournal(path) for _ in range(4)]
    found = await asyncio.gather(*[journal.runs() for journal in journals])
    assert all(cards == found[0] for cards in found)
    for journal in journals:
        await journal.close()


async def test_an_older_program_that_still_has_the_file_open_cannot_write_facts_without_checksums(tmp_path):
    path = old_file(tmp_path)
    older = sqlite3.connect(path, isolation_level=None)
    assert older.execute("SELECT count(*) FROM facts").fetchone()[0] > 0
    journal = SqliteJournal(path)
    before = [event async for event in journal.read("waiting")]
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        older.execute("INSERT INTO facts (run, seq, time, agent, type, body) VALUES ('waiting', 5, 1.0, 'a', 'Warned', '{}')")
    older.close()
    assert [event async for event in journal.read("waiting")] == before
    await journal.close()


async def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = old_file(tmp_path)
    connection = sqlite3.connect(path)
    before = list(connection.iterdump())
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE runs (again TEXT);"))
    journal = SqliteJournal(path)
    with pytest.raises(JournalError, match="already exists"):
        await journal.runs()
    await journal.close()
    assert list(connection.iterdump()) == before
    connection.close()


async def test_a_journal_from_the_future_is_not_touched(tmp_path):
    path = tmp_path / "journal.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
    connection.execute("CREATE TABLE dreams (sheep TEXT)")
    connection.commit()
    connection.close()
    journal = SqliteJournal(path)
    with pytest.raises(JournalTooNew, match="written by a newer version of kaname.*schema 99"):
        await journal.claim("r")
    with pytest.raises(JournalTooNew):
        await journal.runs()
    await journal.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("dreams",)]
    connection.close()


def file_of_schema_3(folder, monkeypatch):
    """The old file as version 3 had it, with the moves of a run that was deleted then."""
    path = old_file(folder)
    with monkeypatch.context() as patched, closing(sqlite3.connect(path, isolation_level=None)) as connection:
        patched.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:3])
        schema.migrate(connection, path)
        connection.execute("INSERT INTO moves (run, first, last) VALUES ('deleted', 1, 2), ('turn-1', 9, 9), ('gone', 1, 1)")
    return path


async def test_places_become_those_of_the_moves_and_moves_of_deleted_runs_go(tmp_path, monkeypatch):
    path = file_of_schema_3(tmp_path, monkeypatch)
    journal = SqliteJournal(path)
    assert [card.run_id for card in await journal.runs(session="s")] == ["turn-3", "turn-2", "turn-1"]
    (session,) = [one for one in await journal.sessions() if one.first.session == "s"]
    assert session.runs == ("turn-1", "turn-2", "turn-3")
    assert await journal.verify() == []
    before = max([change.place async for change in journal.changes(wait=False)])
    agent = Agent(adding(), [add], journal=journal, instructions="Be brief.")
    await agent.run("and again", session_id="s", user_id="u", run_id="next")
    assert (await journal.runs(limit=1))[0].place > before
    await journal.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM moves WHERE run IN ('deleted', 'gone')").fetchone() == (0,)
        first = "SELECT count(*) FROM runs WHERE place <> (SELECT min(place) FROM moves WHERE moves.run = runs.run)"
        assert connection.execute(first).fetchone() == (0,)


async def test_damaged_entry_stays_damaged(tmp_path, monkeypatch):
    path = file_of_schema_3(tmp_path, monkeypatch)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET title = 'another' WHERE run = 'turn-2'")
    journal = SqliteJournal(path)
    with pytest.raises(JournalError, match="turn-2.*does not match"):
        await journal.runs(run_id="turn-2")
    assert any("turn-2" in problem for problem in await journal.verify())
    await journal.close()
