"""What a journal keeps besides facts keeps one contract: in memory, in a file, in an encrypted file and in a database."""

from itertools import count

import pytest

from kaname import MemoryJournal, PostgresJournal, SqliteJournal
from kaname.testing import StoresContract
from tests.stores.postgres.conftest import server  # noqa: F401

_schemas = count(1)


class TestMemoryStores(StoresContract):
    def make(self):
        return MemoryJournal()


class TestSqliteStores(StoresContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.path = tmp_path / "journal.db"

    def make(self):
        return SqliteJournal(self.path)


class TestEncryptedStores(TestSqliteStores):
    def make(self):
        key = self.path.with_name("key")
        key.write_text("0" * 64)
        key.chmod(0o600)
        return SqliteJournal(self.path, key_file=key)


class TestPostgresStores(StoresContract):
    @pytest.fixture(autouse=True)
    def _server(self, server):  # noqa: F811
        self.server = server

    def make(self):
        return PostgresJournal(f"{self.server}&schema=stores_{next(_schemas)}&ttl=5")
