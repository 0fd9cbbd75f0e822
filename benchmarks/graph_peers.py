"""The same graph of 200 tasks in kaname, LangGraph, DBOS and Prefect: time, CPU, and the time against the critical path.

    python benchmarks/graph_peers.py kaname|kaname-sqlite|langgraph|langgraph-sqlite|dbos|prefect [ROUNDS]

in an environment that has the library. Each task waits for up to three earlier ones and adds up what they gave; in the second
half of the measurement it sleeps 10 to 100 ms as well. The sum of all tasks is checked, so that nobody leaves one out.
"""

import asyncio
import operator
import os
import random
import sys
import tempfile
import time
from typing import Annotated, TypedDict

TASKS = 200
CHANCE = random.Random(1)
AFTER = [sorted({CHANCE.randrange(number) for _ in range(min(number, 3))}) for number in range(TASKS)]
SECONDS = [CHANCE.uniform(0.01, 0.1) for _ in range(TASKS)]


def expected():
    sums = []
    for number, after in enumerate(AFTER):
        sums.append((number + sum([sums[one] for one in after])) % 1_000_003)
    return sums[-1]


def critical_path():
    ends = []
    for seconds, after in zip(SECONDS, AFTER, strict=True):
        ends.append(seconds + max([ends[one] for one in after], default=0))
    return max(ends)


async def work(number, values, sleeps):
    if sleeps:
        await asyncio.sleep(SECONDS[number])
    return (number + sum(values)) % 1_000_003


def scratch(suffix):
    return os.path.join(tempfile.mkdtemp(), f"graph{suffix}")


def with_kaname(journal):
    from kaname import Workflow, tool

    @tool(effect="pure")
    async def add(number: int, values: list[int], sleeps: bool) -> int:
        """Add."""
        return await work(number, values, sleeps)

    def made(sleeps):
        graph = Workflow("graph", [add], max_parallel=TASKS, journal=journal)
        tasks = []
        for number, after in enumerate(AFTER):
            tasks.append(graph.task(add, number=number, values=[tasks[one] for one in after], sleeps=sleeps))
        graph.promise(tasks[-1])

        async def run():
            return (await graph.run()).output

        return run

    return made


def with_langgraph(saver):
    from langgraph.graph import END, START, StateGraph

    class Values(TypedDict):
        given: Annotated[dict, operator.or_]

    def made(sleeps):
        graph = StateGraph(Values)

        def node(number):
            async def run(state):
                return {"given": {number: await work(number, [state["given"][one] for one in AFTER[number]], sleeps)}}

            return run

        for number in range(TASKS):
            graph.add_node(f"t{number}", node(number))
        used = {one for after in AFTER for one in after}
        for number, after in enumerate(AFTER):
            graph.add_edge([f"t{one}" for one in after] if after else START, f"t{number}")
            if number not in used:
                graph.add_edge(f"t{number}", END)

        async def run():
            async with saver() as kept:
                app = graph.compile(checkpointer=kept)
                out = await app.ainvoke({"given": {}}, {"configurable": {"thread_id": "1"}, "recursion_limit": 1000})
                return out["given"][TASKS - 1]

        return run

    return made


def langgraph_memory():
    from contextlib import asynccontextmanager

    from langgraph.checkpoint.memory import InMemorySaver

    @asynccontextmanager
    async def saver():
        yield InMemorySaver()

    return with_langgraph(saver)


def langgraph_sqlite():
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    return with_langgraph(lambda: AsyncSqliteSaver.from_conn_string(scratch(".db")))


async def _all(start, sleeps):
    """Every task as a coroutine that waits for those before it: for libraries whose graph is the program itself."""
    running = []
    for number, after in enumerate(AFTER):
        running.append(asyncio.ensure_future(start(number, [running[one] for one in after], sleeps)))
    return (await asyncio.gather(*running))[-1]


def with_dbos():
    from dbos import DBOS

    DBOS(config={"name": "graph", "system_database_url": f"sqlite:///{scratch('.sqlite')}", "log_level": "ERROR"})

    @DBOS.step()
    async def step(number, values, sleeps):
        return await work(number, values, sleeps)

    async def start(number, before, sleeps):
        return await step(number, [await one for one in before], sleeps)

    @DBOS.workflow()
    async def flow(sleeps):
        return await _all(start, sleeps)

    DBOS.launch()
    return lambda sleeps: lambda: flow(sleeps)


def with_prefect():
    os.environ.update(
        PREFECT_HOME=scratch(""), PREFECT_LOGGING_LEVEL="ERROR", DO_NOT_TRACK="1", PREFECT_SERVER_ANALYTICS_ENABLED="0"
    )
    from prefect import flow, task

    @task
    async def step(number, values, sleeps):
        return await work(number, values, sleeps)

    async def start(number, before, sleeps):
        return await step(number, [await one for one in before], sleeps)

    @flow
    async def whole(sleeps):
        return await _all(start, sleeps)

    return lambda sleeps: lambda: whole(sleeps)


PEERS = {
    "kaname": lambda: with_kaname("memory"),
    "kaname-sqlite": lambda: with_kaname(scratch(".db")),
    "langgraph": langgraph_memory,
    "langgraph-sqlite": langgraph_sqlite,
    "dbos": with_dbos,
    "prefect": with_prefect,
}


async def main(peer, rounds):
    made, best = PEERS[peer](), []
    for sleeps in (False, True):
        run = made(sleeps)
        if not sleeps:
            await run()  # what a library loads at first
        took = []
        for _ in range(rounds):
            begun, cpu = time.monotonic(), time.process_time()
            assert await run() == expected()
            took.append((time.monotonic() - begun, time.process_time() - cpu))
        best.append(min(took))
    (wall, cpu), (slept, _) = best
    print(
        f"{peer}: {TASKS} tasks in {wall * 1000:.0f} ms, {cpu * 1000:.0f} ms of CPU ({cpu * 1000 / TASKS:.2f} a task); "
        f"with sleeping tasks {slept:.2f} s, {slept / critical_path():.2f} x the critical path",
        flush=True,
    )


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3))
