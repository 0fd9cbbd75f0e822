"""One sample of a time, in a fresh process: `python -m gate.sample ROW WHO URL JOURNAL` prints JSON.

The time is CPU time of this process, of all its threads. A fixed piece of work is timed before and after it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time

from .agents import Checked, load

CHUNKS, RUNS, STEPS = 2000, 200, 5


def calibrate() -> tuple[float, float]:
    """Return the CPU ms of a fixed piece of work, and how many times as long it took by the clock."""
    value = {"a": [1, 2, 3], "b": "x" * 50, "c": {"d": None, "e": True}}
    best, share = float("inf"), float("inf")
    for _ in range(3):
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(2500):
            json.dumps(json.loads(json.dumps(value)))
        spent = time.process_time() - cpu
        best, share = min(best, spent), min(share, (time.perf_counter() - wall) / spent)
    return best * 1000, share


async def _cpu(agent: Checked) -> float:
    begun = time.process_time()
    await agent.once()
    return time.process_time() - begun


async def step(who: str, url: str, journal: str) -> float:
    """Return the ms of a step in a run of ten."""
    warm, agent = (Checked(who, url, steps, journal=journal) for steps in (5, 10))
    for _ in range(3):
        await warm.once()
    await agent.once()
    return min([await _cpu(agent) for _ in range(6)]) / 10 * 1000


async def together(who: str, url: str, journal: str) -> float:
    """Return the ms of 200 runs of five steps at once."""
    agent = Checked(who, url, STEPS, journal=journal)
    for _ in range(3):
        await agent.once()
    await agent.together(5)
    gc.collect()
    begun = time.process_time()
    await agent.together(RUNS)
    return (time.process_time() - begun) * 1000


async def chunk(who: str, url: str, journal: str) -> float:
    """Return the µs of a chunk in an answer of 2,000."""
    short, long = (Checked(who, url, 0, chunks, journal=journal) for chunks in (10, CHUNKS))
    for _ in range(3):
        await short.once()
    await long.once()
    base = min([await _cpu(short) for _ in range(5)])
    return (min([await _cpu(long) for _ in range(3)]) - base) / (CHUNKS - 10) * 1e6


async def first(who: str, url: str, journal: str) -> float:
    """Return the ms in which an agent is built and runs for the first time. The import is added to it."""
    begun = time.process_time()
    await Checked(who, url, 1, journal=journal).once()
    return (time.process_time() - begun) * 1000


def main(row: str, who: str, url: str, journal: str) -> dict[str, float]:
    begun = time.process_time()
    load(who)
    imported = (time.process_time() - begun) * 1000
    before, contended = calibrate()
    if row == "import":
        took = imported
    elif row == "first":
        took = imported + asyncio.run(first(who, url, journal))
    else:
        took = asyncio.run({"step": step, "together": together, "chunk": chunk}[row](who, url, journal))
    after, later = calibrate()
    return {"took": took, "calibration": max(before, after), "contended": max(contended, later)}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
