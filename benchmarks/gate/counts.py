"""Counts that are the same on every machine: calls, timers, tasks, encodings, sends, commits, modules.

`python -m gate.counts KIND URL` counts in a fresh process and prints JSON. A count per step is that of a run of 120 steps without
that of a run of 20, divided by 100: the costs that a run has once are not in it.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import re
import selectors
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from . import meters
from .agents import OPEN, WAITING, Checked

Method = Callable[[Checked], Awaitable[Counter[str]]]

FEW, MANY, CHUNKS = 20, 120, 10  # steps, and chunks of an answer for each
OTHERS, A_WHILE = 20, 0.4  # runs next to the one that is counted, and the seconds after which they are idle
_FOLDERS = re.compile(r"^.*/site-packages/|^.*/python3\.\d+/|^.*/src/(?=kaname/)|^.*/benchmarks/(?=gate/)")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def function_name(code: Any) -> str:
    """Return a name that does not depend on the machine or on the line of the function."""
    if isinstance(code, str):
        return _ADDRESS.sub("", code)
    return f"{_FOLDERS.sub('', code.co_filename)} {code.co_qualname}"


class Steady(selectors.DefaultSelector):
    """A selector that reports data only when the loop has nothing else to do.

    How soon the server answers would otherwise decide how many rounds the event loop makes.
    """

    def select(self, timeout: float | None = None) -> Any:
        return [] if timeout is not None and timeout <= 0 else super().select(timeout)


async def _profile(agent: Checked) -> Counter[str]:
    """Return the function calls of one run, by function."""
    profiler = cProfile.Profile()
    profiler.enable()
    await agent.once()
    profiler.disable()
    counted: Counter[str] = Counter()
    for entry in profiler.getstats():
        counted[function_name(entry.code)] += entry.callcount
    return counted


async def _meter(agent: Checked) -> Counter[str]:
    """Return what the meters count during one run."""
    meters.COUNTED.clear()
    await agent.once()
    return Counter(meters.COUNTED)


async def _each(method: Method, few: Checked, many: Checked, divisor: int) -> dict[str, float]:
    await few.once()  # imports, schemas, connections
    gc.collect()
    gc.disable()  # collections happen at other moments on other machines
    first, second = await method(few), await method(many)
    gc.enable()
    second.subtract(first)
    return {name: count / divisor for name, count in second.items() if count}


async def _steps(method: Method, url: str, journal: Any = "memory") -> dict[str, float]:
    few, many = (Checked("kaname", url, steps, journal=journal) for steps in (FEW, MANY))
    return await _each(method, few, many, MANY - FEW)


async def _chunks(url: str) -> dict[str, float]:
    few, many = (Checked("kaname", url, 0, steps * CHUNKS) for steps in (FEW, MANY))
    return await _each(_profile, few, many, (MANY - FEW) * CHUNKS)


async def _beside(url: str) -> dict[str, float]:
    """Count the calls of a step while other runs of the same journal wait in their tools."""
    from kaname import MemoryJournal

    journal = MemoryJournal()
    waiting = asyncio.create_task(Checked("kaname", url, 1, journal=journal, tool="wait").together(OTHERS))
    for _ in range(OTHERS):
        await WAITING.acquire()
    await asyncio.sleep(A_WHILE)
    counted = await _steps(_profile, url, journal)
    OPEN.set()
    await waiting
    return counted


async def _sqlite(url: str) -> dict[str, float]:
    from kaname import SqliteJournal

    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.db")
        counted = await _steps(_meter, url, journal)
        await journal.close()
    return counted


def main(kind: str, url: str) -> dict[str, float]:
    """Count one kind."""
    if kind in ("meters", "sqlite"):
        meters.install()
    work: dict[str, Callable[[str], Coroutine[Any, Any, dict[str, float]]]] = {
        "calls": partial(_steps, _profile),
        "beside": _beside,
        "chunks": _chunks,
        "meters": partial(_steps, _meter),
        "sqlite": _sqlite,
    }
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Steady())) as runner:
        return runner.run(work[kind](url))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
