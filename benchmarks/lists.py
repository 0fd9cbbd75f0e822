"""How long lists of a large journal take: runs by each filter, sessions, metrics.

uv run python benchmarks/lists.py                     # 120,000 runs in a temporary file
uv run python benchmarks/lists.py 20000 keep.db       # so many, in a file that is kept, and used again if it is there
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kaname import SqliteJournal
from kaname.core.events import Asked, Event, ModelReplied, Opened, Received, Stopped
from kaname.core.messages import ModelReply, Usage, assistant, user
from kaname.core.steps import CallModel, Stop
from kaname.memory.sessions import Sessions
from kaname.run.figures import figures

RUNS = 120_000
TIMES = 5


async def fill(journal: SqliteJournal, runs: int) -> None:
    """Runs of 20 agents and 1,000 users over the last 120 days; two of three in sessions of ten, a few waiting or failed."""
    chance, begun = random.Random(30), time.time() - 120 * 86_400

    async def one(number: int) -> None:
        run, seconds = f"{number:011x}{os.urandom(7).hex()}", begun + number * 120 * 86_400 / runs
        agent, whose = f"agent-{chance.randrange(20)}", f"user-{chance.randrange(1_000)}"
        session = f"s-{chance.randrange(max(1, runs // 15))}" if chance.random() < 0.67 else ""
        if session:  # a session's agent and user are always the same
            agent, whose = f"agent-{hash(session) % 20}", f"user-{hash(session) % 1_000}"
        end: Any = Stopped(Stop("failed" if chance.random() < 0.02 else "completed"), "an answer")
        reply = ModelReply(assistant("an answer"), "end_turn", Usage(800, 200, 0, 0.001))
        facts = (Opened(session, whose), Received(user(f"question {number}")), ModelReplied(reply, CallModel()))
        last = Asked("approve:1", "May it?") if chance.random() < 0.0005 else end
        lease = await journal.claim(run)
        await journal.append([Event(run, n, seconds + n, agent, f) for n, f in enumerate((*facts, last), 1)], lease.epoch)
        if last is not end:
            await journal.release(run, lease.epoch)

    for start in range(0, runs, 1_000):
        await asyncio.gather(*[one(number) for number in range(start, min(start + 1_000, runs))])


async def timed(what: str, call: Callable[[], Awaitable[Any]]) -> None:
    """Print the best wall-clock time of five calls, and the CPU time of the whole process for it."""
    best, cpu = float("inf"), 0.0
    for _ in range(TIMES):
        begun, used = time.perf_counter(), time.process_time()
        await call()
        if (took := time.perf_counter() - begun) < best:
            best, cpu = took, time.process_time() - used
    print(f"{what:<44}{best * 1000:>9.1f} ms   {cpu * 1000:>8.1f} ms CPU")


async def measure(path: Path, runs: int) -> None:
    journal = SqliteJournal(path)
    begun = time.perf_counter()
    there = await journal.runs(limit=1)
    print(f"opened in {time.perf_counter() - begun:.2f} s")
    if not there:
        await fill(journal, runs)
        print(f"{runs:,} runs written in {time.perf_counter() - begun:.0f} s")
    sessions, month = Sessions(journal), time.time() - 30 * 86_400
    one = (await sessions.all(limit=1))[0]
    await timed("runs()", lambda: journal.runs())
    await timed("runs(user)", lambda: journal.runs(user="user-7"))
    await timed("runs(user) of a user without runs", lambda: journal.runs(user="nobody"))
    await timed("runs(agent)", lambda: journal.runs(agent="agent-7"))
    await timed("runs(agent) of an agent without runs", lambda: journal.runs(agent="nobody"))
    await timed("runs(user, agent)", lambda: journal.runs(user="user-7", agent="agent-7"))
    await timed("runs(status=failed)", lambda: journal.runs(status="failed"))
    await timed("runs(status=interrupted): recovery's look", lambda: journal.runs(status="interrupted", limit=500))
    await timed("runs(user, status=waiting)", lambda: journal.runs(user="user-7", status="waiting"))
    await timed("runs(user, status=failed)", lambda: journal.runs(user="user-7", status="failed"))
    await timed("runs(agent, status=waiting)", lambda: journal.runs(agent="agent-7", status="waiting"))
    await timed("runs(session)", lambda: journal.runs(session=one.id))
    await timed("runs(since): the last seconds", lambda: journal.runs(since=time.time() - 5, limit=10_000))
    await timed("runs(since): 30 days, 10,000 of them", lambda: journal.runs(since=month, limit=10_000))
    await timed("sessions", lambda: sessions.all())
    await timed("sessions of a user", lambda: sessions.all(user="user-7"))
    await timed("sessions of an agent", lambda: sessions.all(agent="agent-7"))
    await timed("one session by its name", lambda: sessions.get(one.id, agent=one.agent, user=one.user))
    await timed("search the newest 1,000 sessions", lambda: sessions.search("question 1179"))
    await timed("doctor: the newest 100,000 facts", lambda: journal.verify(100_000))
    await timed("stats (figures of the last 1,000)", lambda: figures(journal))
    await journal.close()


async def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    with tempfile.TemporaryDirectory() as folder:
        await measure(Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder) / "journal.db", runs)


if __name__ == "__main__":
    asyncio.run(main())
