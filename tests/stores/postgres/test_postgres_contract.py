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
