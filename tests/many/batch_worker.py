"""A process that maps over questions with batch prices. Run it as `batch_worker.py URL FOLDER PROTOCOL CASES`.

CASES is JSON: a list of [name, when, fact]: a child is killed ("before" or "after" its fact of that number is appended), others
follow until all is done. Without a fact, a child is only killed by whoever watches. Each line of the output is a case that is over.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from kaname import Agent, SqliteJournal, tool
from kaname.agent.many.batches import BatchPrices
from kaname.models.prices import Price
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Deadly(SqliteJournal):
    """A journal whose process is killed at a fact."""

    when, left = "", 0

    async def append(self, events: Any, epoch: int, *, keep: bool = False) -> None:
        self.left -= 1
        if self.when == "before" and self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().append(events, epoch, keep=keep)
        if self.when == "after" and self.left == 0:
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


def main() -> None:
    url, folder, protocol, cases, runs = sys.argv[1:6]
    for name, when, fact in json.loads(cases):
        lives = 0
        while True:
            lives += 1
            child = os.fork()
            if not child:
                try:
                    asyncio.run(work(url, folder, protocol, name, when if lives == 1 else "", fact, int(runs)))
                except BaseException:
                    import traceback

                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status != -signal.SIGKILL:
                break
        print(json.dumps([name, lives, status]), flush=True)
        if lives == 1 and when:
            break  # there is no such fact any more


if __name__ == "__main__":
    main()
