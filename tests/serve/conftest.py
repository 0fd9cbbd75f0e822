"""One server for the tests of a module that do not harm it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.serve.serving import Served, client, serving


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), also=getattr(request.module, "ALSO", "")) as running:
        yield running


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with client(served) as made:
        yield made
