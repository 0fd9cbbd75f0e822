"""500 runs with random costs against one account, in one process and in four: what was spent, and how much could be used.

python benchmarks/budgets.py
"""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kaname import Agent, Budget, Price, ScriptedModel, SqliteJournal
from kaname.core.messages import ModelReply, Usage

RUNS, LIMIT = 500, 1.0


class Random(ScriptedModel):
    """Writes a random number of tokens within its bound, up to 1,000: about half a cent."""

    def __init__(self, seed: int) -> None:
        super().__init__(lambda request: "ok", price=Price(1.0, 10.0))
        self._random = random.Random(seed)

    async def reply(self, request, emit):
        await asyncio.sleep(self._random.random() * 0.01)
        said = await super().reply(request, emit)
        output = min(self._random.randrange(1000), request.settings.get("max_tokens") or 1000)
        usage = Usage(20, output)
        return ModelReply(said.message, said.stop_reason, Usage(20, output, cost=self._price.of(usage)))


async def work(path: str, first: int, last: int, bounded: bool) -> None:
    journal = SqliteJournal(path)
    settings = {"max_tokens": 1000} if bounded else {}
    budget = Budget(total=f"${LIMIT:g}")
    agents = [Agent(Random(n), policies=[budget], journal=journal, settings=settings) for n in range(first, last)]
    await asyncio.gather(*[agent.run("hi") for agent in agents])
    await journal.close()


async def measure(processes: int, bounded: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, begun, cpu = str(Path(folder) / "j.db"), time.monotonic(), time.process_time()
        if processes == 1:
            await work(path, 0, RUNS, bounded)
        else:
            share = RUNS // processes
            commands = [
                [sys.executable, __file__, path, str(n * share), str((n + 1) * share), str(int(bounded))]
                for n in range(processes)
            ]
            for started in [subprocess.Popen(command) for command in commands]:  # noqa: ASYNC220
                started.wait()
        journal = SqliteJournal(path)
        (balance,) = await journal.stores.ledger.balances()
        ended = {kind: len(await journal.runs(status=kind, limit=RUNS)) for kind in ("completed", "budget")}
        await journal.close()
        seconds, used = time.monotonic() - begun, time.process_time() - cpu
        print(
            f"{processes} processes, bound {'known' if bounded else 'not known'}: spent ${balance.spent:.4f} of ${LIMIT:g} "
            f"({balance.spent / LIMIT:.1%} usable, over {max(0.0, balance.spent - LIMIT):.4f}), {ended}, {seconds:.1f} s, CPU {used:.1f} s"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1"))
    else:
        for many in (1, 4):
            for known in (True, False):
                asyncio.run(measure(many, known))
