"""Several journals on one database: readers, stops, sessions and poolers."""

import asyncio
import gc

import pytest

from kaname import (
    Agent,
    ConfigError,
    PostgresJournal,
    RunBusy,
    RunNeeded,
    RunNotFound,
    ScriptedModel,
    SqliteJournal,
    call,
    tool,
)
from kaname.core.events import Custom, Event, Opened, Received, Stopped
from kaname.core.messages import user
from kaname.core.steps import Stop
from kaname.testing.journal_lists import write
from tests.parts import add, adding, listening
from tests.stores.postgres import pgbouncer


def looking(**more):
    @tool(effect="pure")
    async def look(number: int) -> str:
        """Look."""
        await asyncio.sleep(0.01)
        return f"seen {number}"

    script = [*[call("look", number=number) for number in range(4)], "done"]
    return Agent(ScriptedModel(script), [look], name="clerk", **more)


async def test_run_is_followed_from_another_journal_and_changes_miss_nothing(url):
    writing, reading = PostgresJournal(url), PostgresJournal(url)
    every = []

    async def listen():
        async for change in reading.changes():
            every.append(change)

    await reading.runs()
    listening = asyncio.create_task(listen())
    agent = looking(journal=writing)
    runs = [agent.run("go", run_id=f"r{number}").start() for number in range(8)]
    await runs[0].begun()
    followed = [event.seq async for event in reading.follow("r0")]
    results = await asyncio.gather(*runs)
    assert followed == list(range(1, results[0].state.seq + 1))
    wanted = {(f"r{number}", seq) for number, result in enumerate(results) for seq in range(1, result.state.seq + 1)}
    async with asyncio.timeout(60):
        while len(every) < len(wanted):
            await asyncio.sleep(0.02)
    assert {(change.event.run_id, change.event.seq) for change in every} == wanted
    places = [change.place for change in every]
    assert places == sorted(places)
    listening.cancel()
    await writing.close()
    await reading.close()


async def test_fact_of_a_slower_transaction_is_not_missed_by_who_reads_changes(server, url):
    """A transaction that began first and commits last has lower places. Nobody may read past it."""
    import asyncpg

    journal = PostgresJournal(url)
    await journal.runs()
    slow = await asyncpg.connect(server)
    transaction = slow.transaction()
    await transaction.start()
    await slow.fetchval("SELECT pg_current_xact_id()::text")  # it has its number
    lease = await journal.claim("r")
    await journal.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    assert [change async for change in journal.changes(wait=False)] == []
    assert [event.seq async for event in journal.read("r")] == [1]
    await transaction.rollback()
    await slow.close()
    assert [change.event.run_id async for change in journal.changes(wait=False)] == ["r"]
    await journal.release("r", lease.epoch)
    await journal.close()


async def test_run_is_stopped_from_another_journal_within_a_second(url):
    one, other = PostgresJournal(url), PostgresJournal(url)
    begun = asyncio.Event()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            begun.set()
            await asyncio.sleep(60)

    run = Agent(Slow(), journal=one).run("go").start()
    await begun.wait()
    await listening(one, run.run_id)
    before = asyncio.get_running_loop().time()
    assert await Agent(Slow(), journal=other).stop(run.run_id, "enough")
    result = await run
    assert (result.stop.kind, result.stop.detail) == ("cancelled", "enough")
    assert asyncio.get_running_loop().time() - before < 30, (
        "a second, and the rest for a busy machine: the model takes a minute"
    )
    await one.close()
    await other.close()


async def test_runs_of_a_session_take_turns_over_several_journals(url):
    journals = [PostgresJournal(url) for _ in range(3)]
    agents = [Agent(ScriptedModel(lambda request: "ok"), name="clerk", journal=journal) for journal in journals]

    async def talk(lane, agent):
        for number in range(4):
            assert (await agent.run(f"{lane}{number}", session_id="s", user_id="u")).output == "ok"

    await asyncio.gather(*[talk(lane, agent) for lane, agent in zip("abc", agents, strict=True)])
    cards = await journals[0].runs(session="s")
    assert [card.base for card in cards[:-1]] == [card.run_id for card in cards[1:]], "one after the other"
    state = (await agents[0].result(cards[0].run_id)).state
    assert len([message for message in state.messages if message.role == "user"]) == 12
    (session,) = await journals[1].sessions()
    assert len(session.runs) == 12
    for journal in journals:
        await journal.close()


async def test_journal_serves_several_event_loops_and_a_blocked_one_stays_alive(url):
    journal, other = PostgresJournal(url), PostgresJournal(url)
    agent = Agent(adding(), [add], journal=journal)
    results = await asyncio.gather(*[asyncio.to_thread(agent.run_sync, "go") for _ in range(4)])
    assert [result.output for result in results] == ["the sum is 7"] * 4
    lease = await journal.claim("r")
    await journal.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    import time

    time.sleep(1.5)  # more than twice the time to live: a program that computes must not look dead
    with pytest.raises(RunBusy):
        await other.claim("r")
    await journal.release("r", lease.epoch)
    await journal.close()
    await other.close()
    gc.collect()


async def test_next_run_of_a_session_and_a_delete_at_once(url):
    journal, other = PostgresJournal(url), PostgresJournal(url)
    for number in range(10):
        session = f"s{number}"
        agent = Agent(ScriptedModel(lambda request: "fine"), journal=journal)
        first = await agent.run("one", session_id=session)
        await asyncio.gather(agent.run("two", session_id=session), other.delete(first.run_id), return_exceptions=True)
        assert (await agent.run("three", session_id=session)).completed
    assert await journal.stores.health.verify() == []
    await journal.close()
    await other.close()


async def test_delete_waits_for_a_run_that_is_about_to_continue_from_it(server, url):
    import asyncpg

    journal, name = PostgresJournal(url), url.partition("schema=")[2].partition("&")[0]
    await write(journal, "a")
    await write(journal, "b")
    other = await asyncpg.connect(server)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(f"SELECT 1 FROM {name}.runs WHERE run = 'a' FOR KEY SHARE")  # as a run that continues from it
    await other.execute(f"UPDATE {name}.runs SET base = 'a' WHERE run = 'b'")
    deleting = asyncio.create_task(journal.delete("a"))
    await asyncio.sleep(0.3)
    assert not deleting.done()
    await transaction.commit()
    with pytest.raises(RunNeeded):
        await deleting
    transaction = other.transaction()
    await transaction.start()
    await other.execute(f"SELECT 1 FROM {name}.runs WHERE run = 'b' FOR UPDATE")  # as one that deletes it
    opening = asyncio.create_task(write(journal, "c", base="b"))
    await asyncio.sleep(0.3)
    assert not opening.done()
    await other.execute(f"DELETE FROM {name}.runs WHERE run = 'b'")
    await transaction.commit()
    with pytest.raises(RunNotFound):
        await opening
    await other.close()
    await journal.close()


async def test_run_that_is_called_off_while_it_begins_is_recorded_as_such(url):
    journal = PostgresJournal(url)
    agent = Agent(ScriptedModel(["never mind"]), journal=journal)
    await agent.run("warm")
    for number in range(40):
        run = agent.run("go").start()
        for _ in range(number % 6):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0005 * (number % 5))
        run.abort()
        await run
    assert await journal.runs(status="running") == []
    assert await journal.runs(status="interrupted") == []
    await journal.close()


async def test_text_that_postgres_cannot_hold_is_kept_in_facts(url):
    journal = PostgresJournal(url)
    lease = await journal.claim("r")
    facts = [Event("r", 1, 1.0, "a", Opened()), Event("r", 2, 1.0, "a", Received(user("zero \0 and half \ud83d a pair")))]
    await journal.append(facts, lease.epoch)
    assert await journal.ask_to_stop("r", "zero \0 and half \ud83d a pair")
    assert await journal.asked_to_stop("r") == "zero  and half ? a pair"
    await journal.append(
        [Event("r", 3, 1.0, "a", Custom("x", {"zero": "\0"})), Event("r", 4, 1.0, "a", Stopped(Stop("completed")))],
        lease.epoch,
    )
    assert [event async for event in journal.read("r")][2].body == Custom("x", {"zero": "\0"})
    assert (await journal.runs())[0].title == "zero  and half ? a pair"
    await journal.close()


async def test_user_whose_name_no_database_holds_is_refused_before_anything_is_recorded(url):
    journal = PostgresJournal(url)
    agent = Agent(ScriptedModel(["ok"]), journal=journal)
    for name in ("ken\0", "ken\ud83d"):
        with pytest.raises(ConfigError, match="user_id must be a string that can be encoded as UTF-8, without zeros"):
            await agent.run("go", user_id=name)
    assert await journal.runs() == []
    await journal.close()


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_everything_works_through_pgbouncer(url, mode, tmp_path):
    if pgbouncer.program() is None:
        pytest.skip("PGBOUNCER WAS NOT TRIED: it is not installed")
    with pgbouncer.pooled(url, mode) as through:
        journals = [PostgresJournal(through) for _ in range(2)]
        agents = [looking(journal=journal) for journal in journals]
        talks = [agent.run("go", session_id=f"{agents.index(agent)} {number}") for number in range(6) for agent in agents]
        results = await asyncio.gather(*talks)
        assert all(result.completed for result in results)
        run = agents[0].run("go", run_id="followed").start()
        await run.begun()
        assert [event.seq async for event in journals[1].follow("followed")] == list(range(1, (await run).state.seq + 1))
        assert (await journals[0].stores.ledger.reserve("h", ["total"], lambda found: [1.0]))[1]
        journals[0].stores.ledger.settle("h", {"total": 0.5})
        await agents[0].run("go")
        assert [balance.spent for balance in await journals[1].stores.ledger.balances()] == [0.5]
        slow = Agent(ScriptedModel(["x" * 4000], pace=0.01), journal=journals[0]).run("go").start()
        await slow.begun()
        await listening(journals[0], slow.run_id)
        assert await agents[1].stop(slow.run_id, "enough")
        assert (await slow).stop.kind == "cancelled"
        assert await journals[0].stores.health.verify() == []
        for journal in journals:
            await journal.close()


async def test_deleted_runs_are_gone_with_their_facts(url, tmp_path):
    journal, file = PostgresJournal(url), SqliteJournal(tmp_path / "j.db")
    for one in (journal, file):
        agent = Agent(ScriptedModel(lambda request: "fine"), journal=one)
        first = await agent.run("go", session_id="s")
        await agent.run("on", session_id="s")
        await one.delete(first.run_id, cascade=True)
        assert await one.runs() == []
        await one.close()
