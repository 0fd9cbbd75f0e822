"""The queues of runs keep one contract, in a file and in a database."""

import asyncio
from itertools import count

import pytest

from kaname import Agent, ScriptedModel, SqliteJournal
from kaname.kernel.stores import QueuedRun
from kaname.testing import QueueContract
from tests.stores.postgres.conftest import server  # noqa: F401
from tests.stores.silence import look_dead

_schemas = count(1)


async def test_run_that_was_gone_on_with_since_it_was_looked_at_is_not_queued(tmp_path):
    agent = Agent(ScriptedModel(["done"]), name="clerk", journal=tmp_path / "journal.db")
    result, queue = await agent.run("go"), agent.journal.stores.queue
    (card,) = await agent.journal.runs(run_id=result.run_id)
    assert await queue.put([QueuedRun(result.run_id, "clerk", seq=card.seq - 1)]) == []
    assert await queue.put([QueuedRun(result.run_id, "clerk", seq=card.seq)]) == [result.run_id]
    await agent.close()


class TestSqliteQueue(QueueContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.path = tmp_path / "journal.db"

    def make(self):
        first, second = SqliteJournal(self.path), SqliteJournal(self.path)
        return first, first.stores.queue, second, second.stores.queue

    async def kill(self, journal, queue):
        look_dead(journal)


class TestPostgresQueue(QueueContract):
    @pytest.fixture(autouse=True)
    def _server(self, server):  # noqa: F811
        self.server = server

    def make(self):
        from kaname import PostgresJournal

        url = f"{self.server}&schema=queue_{next(_schemas)}&ttl=0.5"
        first, second = PostgresJournal(url), PostgresJournal(url)
        return first, first.stores.queue, second, second.stores.queue

    async def kill(self, journal, queue):
        look_dead(journal)
        await asyncio.sleep(1.0)


class TestProcrastinateQueue(TestPostgresQueue):
    has_keys, shares_workers = False, True

    def make(self):
        from kaname import PostgresJournal

        url = f"{self.server}&schema=procrastinate_{next(_schemas)}&ttl=0.5&queue=procrastinate"
        first, second = PostgresJournal(url), PostgresJournal(url)
        return first, first.stores.queue, second, second.stores.queue

    async def kill(self, journal, queue):
        await asyncio.sleep(1.0)
