"""A standby becomes the primary server under load: with synchronous replication no acknowledged fact is lost."""

import asyncio
from contextlib import suppress

import pytest

from kaname import Agent, JournalError, PostgresJournal, ScriptedModel, call, tool
from kaname.strategies.stop import max_steps, no_repeats, per_tool
from tests import postgres


class Noting(PostgresJournal):
    """A journal that notes every fact that was acknowledged."""

    def __init__(self, url):
        super().__init__(url)
        self.noted = []

    async def append(self, events, epoch, **more):
        await super().append(events, epoch, **more)
        self.noted += [(event.run_id, event.seq) for event in events]


@tool(effect="pure")
async def look(number: int) -> str:
    """Look."""
    return f"seen {number}"


async def test_failover_to_a_synchronous_standby_loses_nothing_and_runs_go_on():
    if postgres.program("initdb") is None:
        pytest.skip("POSTGRESQL WAS NOT TRIED: it is not installed")
    with postgres.cluster(options="-c wal_level=replica") as first, postgres.replica(first, synchronous=True) as second:
        both = f"{postgres.folder_of(first)},{postgres.folder_of(second)}"
        journal = Noting(f"postgresql://kaname@/shop?host={both}&target_session_attrs=read-write&ttl=5&patience=60")
        script = [*[call("look", number=number) for number in range(40)], "done"]
        rules = [max_steps(100), no_repeats(None), per_tool(None)]
        agent = Agent(ScriptedModel(script), [look], journal=journal, stops=rules)
        await agent.run("warm")
        runs = [agent.run("go").start() for _ in range(10)]
        while len(journal.noted) < 300:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(postgres.stop, first)
        await asyncio.to_thread(postgres.promote, second)
        results = await asyncio.gather(*runs, return_exceptions=True)
        assert [getattr(one, "output", one) for one in results] == ["done"] * 10
        there = {(card.run_id, event.seq) for card in await journal.runs() async for event in journal.read(card.run_id)}
        assert set(journal.noted) <= there
        assert await journal.stores.health.verify() == []
        await journal.close()


@pytest.mark.nightly
async def test_failover_to_an_asynchronous_standby_that_is_behind_is_noticed():
    if postgres.program("initdb") is None:
        pytest.skip("POSTGRESQL WAS NOT TRIED: it is not installed")
    with postgres.cluster(options="-c wal_level=replica") as first, postgres.replica(first, synchronous=False) as second:
        both = f"{postgres.folder_of(first)},{postgres.folder_of(second)}"
        journal = Noting(f"postgresql://kaname@/shop?host={both}&target_session_attrs=read-write&ttl=5&patience=60")
        behind = asyncio.Event()

        @tool(effect="pure")
        async def wait(number: int) -> str:
            """Wait."""
            if number == 2:
                reached.set()
                await behind.wait()
            return "seen"

        reached = asyncio.Event()
        agent = Agent(ScriptedModel([call("wait", number=1), call("wait", number=2), "done"]), [wait], journal=journal)
        (await agent.run("warm").begun()).abort()
        await asyncio.sleep(1)
        await asyncio.to_thread(postgres.pause, second)  # the standby receives nothing any more
        run = agent.run("go").start()
        await reached.wait()
        acknowledged = len([one for one in journal.noted if one[0] == run.run_id])
        await asyncio.to_thread(postgres.stop, first)
        await asyncio.to_thread(postgres.promote, second)
        behind.set()
        with pytest.raises(JournalError, match="not found|was not written|taken over"):
            await run
        with suppress(JournalError):
            there = [event async for event in journal.read(run.run_id)]
            assert len(there) < acknowledged
        await journal.close()
