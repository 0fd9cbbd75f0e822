"""A schema of its own for each test, on the PostgreSQL of the session."""

from itertools import count

import pytest

_schemas = count(1)


@pytest.fixture(scope="session")
def server(postgresql):
    pytest.importorskip("asyncpg")
    return postgresql


@pytest.fixture
def url(server):
    """An address with an empty schema. Processes that are silent for half a second count as dead."""
    return f"{server}&schema=s{next(_schemas)}&ttl=0.6&patience=5"
