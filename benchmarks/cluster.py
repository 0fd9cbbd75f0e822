"""Steps a second and CPU a step of the PostgreSQL journal, beside SQLite: python benchmarks/cluster.py [runs]

A step is one model call and one pure tool: three facts. The server is a cluster of its own with real fsync.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests import postgres

from kaname import Agent, PostgresJournal, ScriptedModel, SqliteJournal, call, tool
from kaname.strategies.stop import max_steps, no_repeats, per_tool

STEPS = 20


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def server_cpu(folder: str) -> float:
    master = psutil.Process(int((Path(folder) / "data/postmaster.pid").read_text().split()[0]))
    return sum(sum(one.cpu_times()[:2]) for one in [master, *master.children()])


def make_agent(journal):
    script = [*[call("add", a=number, b=number) for number in range(STEPS)], "done"]
    return Agent(ScriptedModel(script), [add], journal=journal, stops=[max_steps(100), no_repeats(None), per_tool(None)])


async def measure(name, journal, runs, folder, followers=0):
    agent = make_agent(journal)
    await agent.run("warm up")
    each = 6 if runs == 1 else 3
    statements = journal._own.statements if isinstance(journal, PostgresJournal) else 0
    server, cpu, wall = server_cpu(folder), time.process_time(), time.perf_counter()

    async def one():
        for _ in range(each):
            result = await agent.run("go")
            assert result.stop.kind == "completed", result.stop

    await asyncio.gather(*[one() for _ in range(runs)])
    steps = runs * each * STEPS
    wall, cpu, server = time.perf_counter() - wall, time.process_time() - cpu, server_cpu(folder) - server
    statements = (journal._own.statements - statements) / steps if isinstance(journal, PostgresJournal) else 0
    print(
        f"{name:12} {runs:3} runs: {steps / wall:6.0f} steps/s, client {cpu / steps * 1e3:.3f} ms, "
        f"server {server / steps * 1e3:.3f} ms CPU a step, {statements:.2f} statements a step",
        flush=True,
    )
    await journal.close()


async def main():
    with postgres.cluster(fsync=True) as url, tempfile.TemporaryDirectory() as folder:
        home = url.partition("host=")[2]
        for runs in (1, 50):
            await measure("SQLite", SqliteJournal(os.path.join(folder, f"{runs}.db")), runs, home)
            await measure("PostgreSQL", PostgresJournal(f"{url}&schema=r{runs}"), runs, home)


if __name__ == "__main__":
    asyncio.run(main())
