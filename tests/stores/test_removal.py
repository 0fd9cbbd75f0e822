"""Deleted runs leave nothing behind: no rows, no text in the file, no space."""

import asyncio
import sqlite3
from contextlib import closing

from kaname import Agent, Approve, ScriptedModel, SqliteJournal, call
from kaname.stores.sqlite import removal
from kaname.stores.sqlite.file import connect
from kaname.testing.journal_lists import write
from tests.parts import add

SECRET = "the-pin-is-4711-and-nobody-may-know"


def rows(path, table):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def stored(path):
    """Everything that the disk holds of the journal."""
    return b"".join([one.read_bytes() for one in path.parent.glob(f"{path.name}*") if one.is_file()])


async def test_deleted_text_is_nowhere_in_the_files(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda r: f"I heard {r.messages[-1].text}"), journal=journal)
    for number in range(5):
        await agent.run(f"{SECRET} {number} " + "long " * 3_000, session_id="s")
    other = await agent.run("another text that stays", run_id="kept")
    assert SECRET.encode() in stored(path)
    await journal.delete((await journal.runs(session="s"))[-1].run_id, cascade=True)
    assert SECRET.encode() not in stored(path)
    assert (await agent.result(other.run_id)).output == "I heard another text that stays"
    assert await journal.verify() == []
    await journal.close()
    assert SECRET.encode() not in stored(path)


async def test_deleted_text_is_overwritten_between_rows_that_stay(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda r: "fine"), journal=journal)
    for number in range(30):
        await agent.run(SECRET if number == 15 else "short", run_id=f"r{number:02}")
    await journal.delete("r15")
    assert SECRET.encode() not in stored(path)
    await journal.close()
    with closing(connect(path, patience=1.0)) as connection:  # some builds of SQLite do so by themselves
        assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)


async def test_deletion_leaves_no_rows_of_the_run_in_any_table(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    for run in ("a", "b"):
        await write(journal, run, session="s")
        await journal.keep_snapshot(run, 2, 1, "{}")
    await write(journal, "outer")
    await write(journal, "inner", parent="outer")
    waiting = Agent(ScriptedModel([call("add", a=1, b=2)]), [add], policies=[Approve("add")], journal=journal)
    asked = await waiting.run("go")
    for run in ("a", "b", "outer", asked.run_id):
        await journal.delete(run)
    await journal.close()
    assert {table: rows(path, table) for table in ("runs", "facts", "snapshots", "stops")} == {
        "runs": 0, "facts": 0, "snapshots": 0, "stops": 0,
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT DISTINCT run FROM moves").fetchall() in ([], [("",)]), "a number without its run"


async def test_moves_of_runs_that_are_written_at_once_are_told_apart(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(
        ScriptedModel(lambda r: call("add", a=1, b=2) if r.messages[-1].role == "user" else "3"), [add], journal=journal
    )
    await asyncio.gather(*[agent.run("go", run_id=f"r{number}") for number in range(10)])
    for number in range(0, 10, 2):
        await journal.delete(f"r{number}")
    left = {change.event.run_id async for change in journal.changes(wait=False)}
    assert left == {"r1", "r3", "r5", "r7", "r9"}
    await journal.close()
    with closing(sqlite3.connect(path)) as connection:
        assert {run for (run,) in connection.execute("SELECT DISTINCT run FROM moves")} - {""} == left


async def test_space_of_deleted_runs_is_given_back_while_others_write(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda r: "x" * 50_000), journal=journal)
    for number in range(40):
        await agent.run("go", run_id=f"r{number}")
    cards = await journal.runs()
    full = path.stat().st_size
    writing = asyncio.create_task(_write_on(journal))
    assert len(await journal.prune(cards)) == 40
    freed = 0
    while (more := await journal.tidy())[0]:
        freed += more[0]
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await journal.tidy()
    assert freed > 1_500_000
    assert path.stat().st_size < full - 1_500_000
    assert await journal.verify() == []
    await journal.close()


async def _write_on(journal):
    number = 0
    while True:
        number += 1
        await write(journal, f"new {number}")
        await asyncio.sleep(0.002)


async def test_file_of_an_older_version_is_made_smaller_by_rewriting_it(tmp_path):
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as connection:  # as it was made before: space could not be given back
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda r: "x" * 50_000), journal=journal)
    for number in range(20):
        await agent.run("go", run_id=f"r{number}")
    await journal.prune(await journal.runs())
    freed, free = await journal.tidy()
    assert (freed, free > 500_000) == (0, True)
    freed, free = await journal.tidy(whole=True)
    assert (freed > 500_000, free) == (True, 0)
    await write(journal, "later")
    assert await journal.verify() == []
    await journal.close()


async def test_tidying_does_not_wait_for_a_reader(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    await write(journal, "r")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM runs").fetchone()
    await write(journal, "s")
    await asyncio.wait_for(journal.delete("r"), 60)
    assert removal.tidy(path)[0] >= 0
    reader.execute("COMMIT")
    reader.close()
    await journal.close()
