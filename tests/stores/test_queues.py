"""The queues of runs keep one contract, in a file and in a database."""

import asyncio
from itertools import count

import pytest

from kaname import SqliteJournal
from kaname.testing import QueueContract
from tests.stores.postgres.conftest import server  # noqa: F401
from tests.stores.silence import look_dead

_schemas = count(1)


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
    options = ""

    @pytest.fixture(autouse=True)
    def _server(self, server):  # noqa: F811
        self.server = server

    def make(self):
        from kaname import PostgresJournal

        url = f"{self.server}&schema=queue_{next(_schemas)}&ttl=0.5{self.options}"
        first, second = PostgresJournal(url), PostgresJournal(url)
        return first, first.stores.queue, second, second.stores.queue

    async def kill(self, journal, queue):
        look_dead(journal)
        await asyncio.sleep(1.0)


class TestEncryptedPostgresQueue(TestPostgresQueue):
    @pytest.fixture(autouse=True)
    def _key(self, tmp_path):
        key = tmp_path / "key"
        key.write_text("0" * 64)
        key.chmod(0o600)
        self.options = f"&key_file={key}"


class TestProcrastinateQueue(TestPostgresQueue):
    has_keys, shares_workers = False, True

    def make(self):
        from kaname import PostgresJournal

        url = f"{self.server}&schema=procrastinate_{next(_schemas)}&ttl=0.5&queue=procrastinate"
        first, second = PostgresJournal(url), PostgresJournal(url)
        return first, first.stores.queue, second, second.stores.queue

    async def kill(self, journal, queue):
        await asyncio.sleep(1.0)
