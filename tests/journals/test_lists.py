"""Lists of a journal cost what they show, not what is recorded: each is read along an index."""

import sqlite3
from contextlib import closing

import pytest

from kaname import SqliteJournal
from kaname.core.events import Event, Opened, Received, Stopped
from kaname.core.messages import user
from kaname.core.steps import Stop
from kaname.journals.sqlite import lists

FEW, MANY = 200, 2_000
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
    import asyncio

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
@pytest.mark.parametrize("more", [{}, {"before": 90}, {"since": "end"}], ids=str)
def test_page_of_runs_costs_the_same_in_a_large_journal(files, wanted, more):
    taken = {}
    for runs, path in files.items():
        since = runs - 5.0 if more.get("since") else 0.0
        before = 3 * runs // 2 if more.get("before") else 0
        taken[runs] = work(path, lambda c, s=since, b=before: lists.runs(c, RUNS | wanted, s, 0.0, b, 5))
    assert taken[MANY] <= 2 * taken[FEW] + 20, (wanted, more, taken)


@pytest.mark.parametrize("wanted", [{}, {"user": "u3"}, {"user": ""}, {"user": "nobody"}, {"session": "nothing"}], ids=str)
def test_page_of_sessions_costs_what_its_sessions_hold(files, wanted):
    taken = {}
    for runs, path in files.items():
        whole = {"session": "", "agent": "", "user": None} | wanted
        call = lambda c, w=whole, p=path: lists.sessions(c, w, 0, 5, lambda card, owner: card, p)  # noqa: E731
        with closing(sqlite3.connect(path)) as connection:
            held = sum(len(one.runs) for one in call(connection))
        taken[runs] = work(path, call) / max(1, held)
    assert taken[MANY] <= 2 * taken[FEW] + 20, (wanted, taken)
