"""One PostgreSQL for the tests of this folder, and a schema of its own for each test."""

from itertools import count

import pytest

from tests import postgres

_schemas = count(1)


@pytest.fixture(scope="session")
def server():
    if postgres.program("initdb") is None:
        pytest.skip("POSTGRESQL WAS NOT TRIED: it is not installed")
    pytest.importorskip("asyncpg")
    with postgres.cluster() as url:
        yield url


@pytest.fixture
def url(server):
    """An address with an empty schema. Processes that are silent for half a second count as dead."""
    return f"{server}&schema=s{next(_schemas)}&ttl=0.6&patience=5"
