"""Several processes on one SQLite file: each keeps its locks, and nobody's facts are lost."""

import asyncio
import os
import sys
import textwrap

import pytest

from kaname import Agent, ScriptedModel, SqliteJournal
from tests import warm

_HOLDS_A_LOCK = """
    import fcntl, os, struct, sys

    descriptor = os.open(sys.argv[1], os.O_RDWR)
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0x40000002, 510, 0)  # where SQLite's shared locks are
    kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
    print(pid if kind != fcntl.F_UNLCK else 0)
"""
_LISTS_RUNS = """
    import asyncio, sys
    from kaname import SqliteJournal

    async def main():
        journal = SqliteJournal(sys.argv[1])
        print(len(await journal.runs()))
        await journal.close()

    asyncio.run(main())
"""


def other_process(program, path):
    """What another process prints. It is another one on purpose: to open a journal here would drop the locks of this one."""
    found = warm.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)], capture_output=True, text=True, check=True, timeout=180
    )
    return int(found.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the lock table in Linux's form")
async def test_a_process_keeps_its_locks_whatever_it_opens_again(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(["hello"]), journal=journal)
    await agent.run("hi")
    assert other_process(_HOLDS_A_LOCK, path) == os.getpid()
    await agent.run("hi again")
    await journal.runs()
    another = SqliteJournal(path)  # a second object on the same file: it opens connections of its own
    await another.runs()
    assert other_process(_HOLDS_A_LOCK, path) == os.getpid()
    await another.close()
    await journal.close()


async def test_a_process_that_lists_runs_and_leaves_takes_nothing_away(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda request: f"turn {len(request.messages) // 2 + 1}"), journal=journal)
    for turn in range(1, 5):
        assert (await agent.run("and?", session_id="s")).output == f"turn {turn}"
        log = os.stat(f"{path}-wal").st_ino
        assert await asyncio.to_thread(other_process, _LISTS_RUNS, path) == turn
        assert os.stat(f"{path}-wal").st_ino == log
    await journal.close()
    assert other_process(_LISTS_RUNS, path) == 4
