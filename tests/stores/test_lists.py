"""Lists of a journal cost what they show, not what is recorded: each is read along an index."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from kaname import SqliteJournal
from kaname.core.events import Event, Opened, Received, Stopped
from kaname.core.messages import user
from kaname.core.steps import Stop
from kaname.stores.sqlite import lists, reading
from kaname.testing.journal_lists import write

FEW, MANY = 100, 1_000
RUNS = {"run": "", "starting": "", "session": "", "agent": "", "user": None, "parent": "", "status": ""}
FILTERS = [
    {},
    {"user": "u3"},
    {"user": ""},
    {"user": "nobody"},
    {"agent": "a3"},
    {"agent": "nobody"},
    {"status": "failed"},
    {"status": "waiting"},
    {"status": "blocked"},
    {"session": "s3"},
    {"session": "s3", "user": "u3", "agent": "a3", "status": "completed"},
    {"user": "u3", "agent": "a3"},
    {"user": "nobody", "agent": "a3"},
    {"user": "", "agent": "nobody"},
    {"user": "u3", "status": "waiting"},
    {"agent": "a3", "status": "waiting"},
    {"parent": "r000003"},
    {"starting": "r00000"},
    {"run": "r000007"},
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small and a large journal with the same ends: the last runs of both are alike."""

    async def fill(path, runs):
        journal = SqliteJournal(path)

        async def one(number):
            run, back = f"r{number:06}", runs - number
            whose = f"u{back % 20}" if back % 3 else ""
            opened = Opened(
                f"s{back % 40}" if back % 2 else "", whose, parent=(f"r{number - 1:06}", "c") if back % 50 == 0 else None
            )
            bodies = (opened, Received(user(f"q {number}")), Stopped(Stop("failed" if back % 7 == 0 else "completed")))
            lease = await journal.claim(run)
            await journal.append(
                [Event(run, n, 1.0 + number, f"a{back % 20}", b) for n, b in enumerate(bodies, 1)], lease.epoch
            )

        for number in range(runs):
            await one(number)
        await journal.close()

    made = {}
    for runs in (FEW, MANY):
        made[runs] = tmp_path_factory.mktemp("lists") / f"{runs}.db"
        asyncio.run(fill(made[runs], runs))
    return made


def work(path, call):
    """How many steps SQLite's machine takes for it, in tens."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        steps = [0]
        call(connection)  # its statements are prepared
        connection.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 10)
        call(connection)
        return steps[0]


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
@pytest.mark.parametrize("more", [{}, {"before": "the last"}, {"since": "end"}], ids=str)
def test_page_of_runs_costs_the_same_in_a_large_journal(files, wanted, more):
    taken = {}
    for runs, path in files.items():
        since = runs - 5.0 if more.get("since") else 0.0
        before = runs - 10 if more.get("before") else 0
        taken[runs] = work(path, lambda c, s=since, b=before: lists.runs(c, RUNS | wanted, s, 0.0, b, 5))
    assert taken[MANY] <= 2 * taken[FEW] + 20, (wanted, more, taken)


@pytest.fixture(scope="module")
def talks(tmp_path_factory):
    """The same for sessions of five runs each, half of them of one user."""
    made = {runs: tmp_path_factory.mktemp("talks") / f"{runs}.db" for runs in (FEW, MANY)}

    async def fill(path, runs):
        journal = SqliteJournal(path)
        for number in range(runs):
            talk = (runs - number - 1) // 5
            await write(journal, f"r{number:06}", session=f"s{talk}", whose="one" if talk % 2 else f"u{talk % 10}")
        await journal.close()

    for runs, path in made.items():
        asyncio.run(fill(path, runs))
    return made


@pytest.mark.parametrize("before", [0, 70])
@pytest.mark.parametrize("wanted", [{}, {"user": "one"}, {"user": "u4"}, {"user": "nobody"}, {"session": "s3"}], ids=str)
def test_page_of_sessions_costs_the_same_in_a_large_journal(talks, wanted, before):
    taken = {}
    for runs, path in talks.items():
        whole = {"session": "", "agent": "", "user": None} | wanted
        at = before and before + runs - FEW
        taken[runs] = work(path, lambda c, w=whole, p=path, b=at: lists.sessions(c, w, b, 1, lambda card, owner: card, p))
    assert taken[MANY] <= 1.5 * taken[FEW] + 30, (wanted, taken)


def test_page_of_sessions_takes_as_many_statements_as_one_session(talks):
    whole, taken = {"session": "", "agent": "", "user": None}, {}
    for limit in (1, 100):
        with closing(sqlite3.connect(talks[MANY], isolation_level=None)) as connection:
            said: list[str] = []
            connection.set_trace_callback(said.append)
            found = lists.sessions(connection, whole, 0, limit, lambda card, owner: card, talks[MANY])
        assert [len(one.runs) for one in found] == [5] * limit
        taken[limit] = len(said)
    assert taken[100] == taken[1]


def test_check_of_a_large_journal_reads_as_many_facts_as_that_of_a_small_one(files):
    taken = {}
    for runs, path in files.items():
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            said: list[str] = []
            connection.set_trace_callback(said.append)
            assert reading.verify(connection, path, 60) == []
        taken[runs] = len(said)
    assert taken[MANY] == taken[FEW]
