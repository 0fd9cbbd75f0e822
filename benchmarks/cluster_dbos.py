"""The same work on DBOS: workflows of 20 steps on PostgreSQL, to compare with `cluster.py journal`.

    uv venv /tmp/dbos && uv pip install --python /tmp/dbos/bin/python dbos 'psycopg[binary]'
    /tmp/dbos/bin/python benchmarks/cluster_dbos.py

A step of kaname is a model call and a tool call, three facts; here it is two DBOS steps, a scripted model call and a tool call.
The server is a cluster of its own with real fsync, as in `cluster.py`. Hand-out: from `enqueue` to the first step.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from dbos import DBOS
from tests import postgres

STEPS, RUNS, EACH = 20, 50, 3


@DBOS.step()
async def ask(number: int) -> dict:
    return {"call": "add", "a": number, "b": number}


@DBOS.step()
async def add(a: int, b: int) -> int:
    return a + b


@DBOS.workflow()
async def work(task: str) -> str:
    for number in range(STEPS):
        asked = await ask(number)
        await add(asked["a"], asked["b"])
    return "done"


@DBOS.step()
async def note() -> float:
    return time.time()


@DBOS.workflow()
async def first() -> float:
    return await note()


async def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f}")
    await work("warm up")
    for runs in (1, RUNS):
        cpu, began = time.process_time(), time.perf_counter()

        async def one() -> None:
            for _ in range(EACH):
                await work("go")

        await asyncio.gather(*[one() for _ in range(runs)])
        steps, wall, cpu = runs * EACH * STEPS, time.perf_counter() - began, time.process_time() - cpu
        print(f"DBOS {runs:3} runs: {steps / wall:6.0f} steps/s, client {cpu / steps * 1e3:.3f} ms CPU a step", flush=True)
    await DBOS.register_queue_async("runs", polling_interval_sec=0.05)
    await asyncio.sleep(2)
    taken = []
    for _ in range(40):
        await asyncio.sleep(0.05)
        began = time.time()
        handle = await DBOS.enqueue_workflow_async("runs", first)
        taken.append(await handle.get_result() - began)
    taken.sort()
    print(
        f"DBOS hand-out (queue polled every 50 ms; its default is 1 s): p50 {taken[20] * 1e3:.0f} ms, p95 {taken[38] * 1e3:.0f} ms"
    )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    with postgres.cluster(fsync=True, options="-c max_connections=200 -c shared_buffers=256MB") as url:
        place = url.replace("postgresql://kaname@/shop", "postgresql+psycopg://kaname@/shop")
        DBOS(config={"name": "trial", "system_database_url": place, "log_level": "ERROR"})
        DBOS.launch()
        asyncio.run(main())
        DBOS.destroy()
