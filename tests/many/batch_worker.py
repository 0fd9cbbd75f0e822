"""A process that maps over questions with batch prices. Run it as `batch_worker.py URL FOLDER PROTOCOL CASES RUNS ROW`.

CASES is JSON: a list of [name, when, fact]. For each, a child is killed "before" or "after" it appends the facts of that number,
and others follow until all is done; with ROW, only after the last. Each line of the output is a case, its lives and its exit code.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from typing import Any

import httptools  # noqa: F401  before the fork
import msgspec  # noqa: F401
import pydantic  # noqa: F401

from kaname import Agent, SqliteJournal, tool
from kaname.models.batches import anthropic
from kaname.models.prices import Price
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.run.many.batches import BatchPrices

anthropic.PAUSE = 0.01


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Deadly(SqliteJournal):
    """A journal whose process is killed at a fact."""

    when, left = "", 0

    async def append(self, events: Any, epoch: int, *, keep: bool = False) -> None:
        self.left -= 1
        now = self.left == 0
        if now and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await super().append(events, epoch, keep=keep)
        if now and self.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)


def agent(url: str, protocol: str, journal: Any) -> Agent[str]:
    kind = OpenAI if protocol == "openai" else Anthropic
    model = kind("any", base_url=url, api_key="sk-batch-test-key", price=Price(10.0, 100.0))
    return Agent(model, [add], journal=journal)


async def work(url: str, folder: str, protocol: str, name: str, when: str, fact: int, runs: int) -> None:
    journal = Deadly(os.path.join(folder, f"{name}.db"))
    journal.when, journal.left = when, fact
    one = agent(url, protocol, journal)
    found = await one.map([f"{name}: {n}" for n in range(runs)], job="job", batch=BatchPrices(poll=0.005))
    await one.close()
    await journal.close()
    said = [result.output for result in found]
    assert said == [f"done: {name}: {n}" for n in range(runs)], said
    assert all(abs((result.usage.cost or 0) - 3 * 0.01) < 1e-9 for result in found), [result.usage for result in found]


def live(arguments: tuple[Any, ...]) -> int:
    """Do the work in a child, and return its exit code."""
    child = os.fork()
    if not child:
        try:
            asyncio.run(work(*arguments))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    url, folder, protocol, cases, runs, row = sys.argv[1:7]
    listed, lives = json.loads(cases), 0
    for place, (name, when, fact) in enumerate(listed):
        lives = lives + 1 if row else 1
        status = live((url, folder, protocol, name, when, fact, int(runs)))
        if row and place + 1 < len(listed):
            continue
        while status == -signal.SIGKILL:
            lives += 1
            status = live((url, folder, protocol, name, "", 0, int(runs)))
        print(json.dumps([name, lives, status]), flush=True)


if __name__ == "__main__":
    main()
