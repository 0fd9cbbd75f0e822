"""What the SQLite journal costs, and what it survives.

uv run python benchmarks/journal.py                    # everything: about ten minutes
uv run python benchmarks/journal.py crowd session sums
uv run python benchmarks/journal.py lanes 3000         # so many kills
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from kaname import Agent, ScriptedModel, SqliteJournal, call, tool
from kaname.core.codec import encode_body
from kaname.core.events import Event, Opened, Received, Stopped
from kaname.core.messages import user
from kaname.core.steps import Stop
from kaname.stores.rows import fact_sum
from kaname.testing import crash

RECORDED, AT_ONCE, LONG, SHORT = 100_000, 200, 500, 5


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def adding() -> ScriptedModel:
    return ScriptedModel(lambda r: call("add", a=1, b=2) if r.messages[-1].role == "user" else "three")


async def fill(journal: SqliteJournal, runs: int) -> None:
    """As many ended runs, in sessions of five."""

    async def one(number: int) -> None:
        run = f"{number:011x}{os.urandom(7).hex()}"
        lease = await journal.claim(run)
        facts = (Opened(f"old-{number // 5}"), Received(user(f"question {number}")), Stopped(Stop("completed"), "an answer"))
        await journal.append([Event(run, n, float(number), "agent", f) for n, f in enumerate(facts, 1)], lease.epoch)

    for start in range(0, runs, 1000):
        await asyncio.gather(*[one(number) for number in range(start, min(start + 1000, runs))])


async def crowd() -> None:
    """200 runs at once, each of a new session, in a journal of 100,000 runs: the slowest of them."""
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.db")
        for recorded in (0, RECORDED):
            await fill(journal, recorded)
            agent = Agent(adding(), [add], journal=journal)
            await agent.run("warm")
            took: list[float] = []

            async def timed(number: int, agent: Agent = agent, took: list[float] = took, recorded: int = recorded) -> None:
                begun = time.perf_counter()
                await agent.run("go", session_id=f"new-{recorded}-{number}")
                took.append(time.perf_counter() - begun)

            await asyncio.gather(*[timed(number) for number in range(AT_ONCE)])
            print(f"{AT_ONCE} runs of new sessions at once, {recorded:,} runs recorded: slowest {max(took) * 1000:.0f} ms")
            begun = time.perf_counter()
            found = await journal.runs(status="failed")
            print(f"  runs(status='failed'), {len(found)} found: {(time.perf_counter() - begun) * 1000:.2f} ms")
        await journal.close()


async def session() -> None:
    """A session's next turn in a process that has not seen it: turn 5 and turn 500."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        figures: dict[int, list[tuple[float, float]]] = {SHORT: [], LONG: []}
        for turns in (SHORT, LONG):
            for attempt in range(5):
                journal, name = SqliteJournal(path), f"session of {turns}, {attempt if turns == SHORT else 0}"
                agent = Agent(adding(), [add], journal=journal)
                while len(await journal.runs(session=name, limit=turns)) < turns - 1:
                    await agent.run("go", session_id=name)
                await journal.close()
                cold = SqliteJournal(path)
                agent = Agent(adding(), [add], journal=cold)
                begun = time.process_time(), time.perf_counter()
                await agent.run("go", session_id=name)
                figures[turns].append(((time.process_time() - begun[0]) * 1000, (time.perf_counter() - begun[1]) * 1000))
                await cold.close()
        for place, clock in enumerate(("CPU", "wall")):
            short, long = (min(figure[place] for figure in figures[turns]) for turns in (SHORT, LONG))
            print(f"a turn, cold, {clock}: the {SHORT}th {short:.1f} ms, the {LONG}th {long:.1f} ms, {long / short:.1f} x")


async def sums() -> None:
    """What a checksum costs, for a small fact and a large one."""
    for name, text in (("small", "hello"), ("of 100 KB", "x" * 100_000)):
        kind, body = encode_body(Received(user(text)))
        begun = time.process_time()
        for _ in range(1000):
            fact_sum("run", 1, 1.0, "agent", kind, body)
        print(f"the checksum of a fact, {name}: {(time.process_time() - begun) * 1000:.2f} µs")


async def lanes(kills: int = 1000) -> None:
    """Two lanes of processes on one file, killed at uniformly random times."""
    for agent in ("parallel", "with_a_bank"):
        begun = time.perf_counter()
        target = f"tests.crash_agents.agents:{agent}"
        report = await asyncio.to_thread(crash.check_shared, target, "go", kills=kills // 2, timeout=3600)
        print(f"two lanes, {agent}: {report}, {time.perf_counter() - begun:.0f} s")


BENCHES = {"crowd": crowd, "session": session, "sums": sums, "lanes": lanes}


async def main() -> None:
    kills = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for name in [word for word in sys.argv[1:] if not word.isdigit()] or BENCHES:
        await (lanes(*kills) if name == "lanes" else BENCHES[name]())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the agents of the tests
    asyncio.run(main())
