"""Journals are copied between a file and a database, both ways."""

import pytest

from kaname import Agent, JournalError, PostgresJournal, RunBusy, ScriptedModel, SqliteJournal
from kaname.cli.main import main
from kaname.core.events import Interjected
from kaname.core.messages import user
from kaname.kernel.stores import Grant, QueuedRun
from kaname.stores import transfer
from kaname.stores.transfer import compare, copy_journal
from kaname.testing.journal_lists import write
from tests.parts import add, adding
from tests.stores.postgres.test_postgres_trouble import schema_of, sql
from tests.stores.silence import fall_silent


async def fill(journal):
    agent = Agent(ScriptedModel(lambda request: "fine"), name="clerk", journal=journal)
    for number in range(3):
        await agent.run(f"turn {number}", session_id="s", user_id="ken")
    await Agent(adding(), [add], journal=journal).run("go")
    await write(journal, "outer")
    await write(journal, "inner", parent="outer")
    await write(journal, "asks", session="t", end=None)
    journal.stores.ledger.settle("h", {"total": 1.25, "user ken": 0.5})
    await journal.stores.inbox.put("asks", Interjected(user("hello"), "ken", 1.5, id="1"))
    await journal.stores.grants.put(Grant("g1", "clerk", "ken", "pay", {"yen": {"at_most": 10}}, at=1.0))
    await journal.stores.grants.put(Grant("g2", "clerk", "ken", "pay", {}, revoked=2.0))
    await journal.stores.marks.raise_to({"daily@clerk: every 1s": 7.5, "daily@clerk: paused": 8.0})
    await write(journal, "last")


async def test_journal_goes_from_a_file_to_a_database_and_back(url, tmp_path):
    file, server, back = SqliteJournal(tmp_path / "a.db"), PostgresJournal(url), SqliteJournal(tmp_path / "b.db")
    await fill(file)
    there = await copy_journal(file, server)
    assert (there.runs, await copy_journal(file, server)) == (8, there), "a second copy finds everything there"
    assert await copy_journal(server, back) == there
    for copied in (server, back):
        assert [one.runs for one in await copied.sessions()] == [one.runs for one in await file.sessions()]
        assert [card.run_id for card in await copied.runs()] == [card.run_id for card in await file.runs()]
        assert await copied.stores.ledger.balances() == await file.stores.ledger.balances()
        assert await copied.stores.grants.all() == await file.stores.grants.all()
        assert await copied.stores.marks.all() == await file.stores.marks.all() != {}
        assert await copied.stores.inbox.letters("asks") == await file.stores.inbox.letters("asks") != []
        agent = Agent(ScriptedModel(lambda request: "fine"), name="clerk", journal=copied)
        result = await agent.run("on", session_id="s", user_id="ken")
        assert [message.text for message in result.state.messages if message.role == "user"] == [
            "turn 0",
            "turn 1",
            "turn 2",
            "on",
        ]
    for journal in (file, server, back):
        await journal.close()


async def test_copy_that_was_killed_can_be_repeated_at_once(url, tmp_path, monkeypatch):
    """Its process counts as alive for the `ttl`, and holds the run that it was copying."""
    file, killed, server = SqliteJournal(tmp_path / "a.db"), PostgresJournal(f"{url}&ttl=1"), PostgresJournal(f"{url}&ttl=1")
    await fill(file)
    lease = await killed.claim("outer")
    first = [event async for event in file.read("outer")][:1]
    await killed.append(first, lease.epoch)
    fall_silent(killed)
    with pytest.raises(RunBusy):
        await server.claim("outer")
    assert (await copy_journal(file, server)).runs == 8
    monkeypatch.setattr(transfer, "_NOTICED", 0)
    lease, other = await server.claim("asks"), PostgresJournal(f"{url}&ttl=1")
    with pytest.raises(RunBusy):  # it is executed there
        await copy_journal(file, other)
    await server.release("asks", lease.epoch)
    for journal in (file, server, other):
        await journal.close()


async def test_copy_that_differs_is_noticed(url, tmp_path):
    file, server = SqliteJournal(tmp_path / "a.db"), PostgresJournal(url)
    await write(file, "1")
    await copy_journal(file, server)
    await sql(url, f"UPDATE {schema_of(url)}.runs SET agent = 'another'")
    with pytest.raises(JournalError, match="run 1 differs"):
        await compare(file, server)
    lease = await file.claim("1")
    with pytest.raises(JournalError, match="run 1 differs"):
        await copy_journal(file, server)
    await file.release("1", lease.epoch)
    await file.close()
    await server.close()


def test_journal_is_copied_at_the_terminal(url, tmp_path, capsys):
    import asyncio

    async def make():
        journal = SqliteJournal(tmp_path / "a.db")
        await write(journal, "1")
        await journal.stores.queue.put([QueuedRun("2", "clerk")])
        await journal.close()

    asyncio.run(make())
    assert main(["journal", "copy", str(tmp_path / "a.db"), url]) == 0
    told = capsys.readouterr()
    assert "copied 1 run, 3 facts to postgresql://kaname@/shop" in told.out
    assert "1 queued run not copied" in told.err
    assert main(["runs", "list", "--journal", url]) == 0
    assert "hello 1" in capsys.readouterr().out
    assert main(["sessions", "list", "--journal", url]) == 0
    assert main(["journal", "copy", str(tmp_path / "none.db"), url]) == 2
