"""What a task of a graph costs: CPU a task for wide, deep, diamond and random graphs, time against the critical path, the check.

uv run python benchmarks/graph.py
"""

import asyncio
import random
import tempfile
import time

from kaname import Agent, Workflow, max_steps, no_repeats, tool
from kaname.strategies.graph.expression import template
from kaname.strategies.graph.strategy import GraphStrategy
from kaname.strategies.graph.task import Graph, Task, Use


@tool(effect="pure")
async def add(a: int = 0, b: int = 0) -> int:
    """Add."""
    return a + b


@tool(effect="pure")
async def wait(seconds: float) -> float:
    """Wait."""
    await asyncio.sleep(seconds)
    return seconds


def wide(n):
    return [Task(f"t{i}", Use("add", {"a": i})) for i in range(n)]


def deep(n):
    chain = [Task(f"t{i}", Use("add", template({"a": f"${{t{i - 1}}}", "b": 1}))) for i in range(1, n)]
    return [Task("t0", Use("add", {"a": 1})), *chain]


def diamond(n):
    """Rows of ten, each waiting for all of the row before."""
    return [
        Task(f"t{i}", Use("add", {"a": i}), after=tuple(f"t{j}" for j in range(i // 10 * 10 - 10, i // 10 * 10) if j >= 0))
        for i in range(n)
    ]


def scattered(n):
    chance = random.Random(1)
    return [
        Task(f"t{i}", Use("add", {"a": i}), after=tuple({f"t{chance.randrange(i)}" for _ in range(min(i, 3))}))
        for i in range(n)
    ]


def agent(tasks, journal, most=16):
    strategy = GraphStrategy(Graph("g", tuple(tasks), max_parallel=most))
    return Agent(None, [add, wait], strategy=strategy, stops=[max_steps(None), no_repeats(None)], journal=journal, name="g")


async def cost(shape, n, journal):
    made = agent(shape(n), journal)
    begun = time.process_time()
    result = await made.run("{}")
    spent = (time.process_time() - begun) * 1000 / n
    assert result.stop.kind == "completed"
    return spent


async def critical_path():
    chance = random.Random(2)
    tasks, ends = [], {}
    for i in range(200):
        after = tuple({f"t{chance.randrange(i)}" for _ in range(min(i, 2))})
        seconds = chance.uniform(0.01, 0.1)
        ends[f"t{i}"] = max([ends[name] for name in after], default=0) + seconds
        tasks.append(Task(f"t{i}", Use("wait", {"seconds": seconds}), after=after))
    begun = time.monotonic()
    await agent(tasks, "memory", most=200).run("{}")
    return time.monotonic() - begun, max(ends.values())


def checked():
    flow = Workflow("big", [add])
    before = None
    for i in range(100):
        before = flow.task(add, before if before is not None else 1, i)
    begun = time.process_time()
    assert flow.problems() == []
    return (time.process_time() - begun) * 1000


async def main():
    await cost(wide, 50, "memory")
    for shape in (wide, deep, diamond, scattered):
        small, large = await cost(shape, 250, "memory"), await cost(shape, 1000, "memory")
        disk = await cost(shape, 1000, tempfile.mktemp(suffix=".db"))
        print(f"{shape.__name__}: {small:.2f} ms a task at 250, {large:.2f} at 1,000 (memory); {disk:.2f} (SQLite)")
    took, best = await critical_path()
    print(f"200 random tasks of random times: {took:.2f} s, the critical path {best:.2f} s: {took / best:.2f} x")
    print(f"a graph of 100 tasks is checked in {checked():.1f} ms")


asyncio.run(main())
