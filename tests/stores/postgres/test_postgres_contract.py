"""The journal in PostgreSQL keeps the same contract as the others."""

from itertools import count

import pytest

from kaname import PostgresJournal
from kaname.testing import JournalContract

_schemas = count(1)


class TestPostgresJournal(JournalContract):
    @pytest.fixture(autouse=True)
    def _server(self, server):
        self.server = server

    def make(self):
        return PostgresJournal(f"{self.server}&schema=contract_{next(_schemas)}&ttl=5")

    def reopen(self, journal):
        return PostgresJournal(journal.path)


class TestEncryptedPostgresJournal(TestPostgresJournal):
    @pytest.fixture(autouse=True)
    def _key(self, tmp_path):
        self.key = tmp_path / "key"
        self.key.write_text("0" * 64)
        self.key.chmod(0o600)

    def make(self):
        return PostgresJournal(f"{self.server}&schema=sealed_{next(_schemas)}&ttl=5&key_file={self.key}")
