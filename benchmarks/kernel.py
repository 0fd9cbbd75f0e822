"""What the loop itself costs, with a scripted model: CPU time of this process, all threads.

uv run python benchmarks/kernel.py            # every figure, the best of eight
uv run python benchmarks/kernel.py step import
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kaname import Agent, MemoryJournal, Pace, ScriptedModel, SqliteJournal, State, call, max_steps, no_repeats, per_tool, tool
from kaname.core.messages import ModelReply, ModelRequest, ToolCall, Usage, assistant, user
from kaname.kernel.bases import ModelInfo
from kaname.models.http.rates import ProviderRates

ROUNDS = 8
NO_LIMITS = max_steps(None) | no_repeats(None) | per_tool(None)


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="pure", name="add")
def add_in_thread(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Steps:
    """A model that asks for a tool `steps` times and then answers. It costs next to nothing itself."""

    name = "steps"

    def __init__(self, steps: int) -> None:
        self.steps = steps

    async def reply(self, request: ModelRequest, emit: Any) -> ModelReply:
        done = len(request.messages) // 2  # one user message, then a call and its result for each step
        if done >= self.steps:
            return ModelReply(assistant("done"), "end_turn", Usage(10, 5))
        return ModelReply(assistant("", ToolCall("", "add", {"a": done, "b": 1})), "tool_use", Usage(10, 5))


class Deltas:
    name = "deltas"

    def __init__(self, count: int) -> None:
        self.count = count

    async def reply(self, request: ModelRequest, emit: Any) -> ModelReply:
        for _ in range(self.count):
            await emit("word ")
        return ModelReply(assistant("word " * self.count), "end_turn")


async def runs(journal: Any, steps: int, at_once: int, function: Any = add) -> None:
    agent = Agent(Steps(steps), [function], journal=journal, stops=NO_LIMITS)
    results = await asyncio.gather(*[agent.run(f"task {n}") for n in range(at_once)])
    assert all(result.output == "done" and len(result.steps) == steps + 1 for result in results)


async def cpu(work: Callable[[], Awaitable[Any]]) -> float:
    await work()  # warm: imports, schemas, pages
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.process_time()
        await work()
        best = min(best, time.process_time() - begun)
    return best


def row(name: str, value: float, unit: str, limit: float) -> None:
    mark = "ok  " if value <= limit else "OVER"
    wanted = f"limit {limit:g}" if limit < float("inf") else "no limit"
    print(f"{mark} {name:<76} {value:8.3f} {unit:<2}  {wanted:<10}  core {calibrate():.0f}", flush=True)


async def bench_step() -> None:
    for name, function in (("async tool", add), ("plain function, in a thread", add_in_thread)):
        took = await cpu(lambda function=function: runs(MemoryJournal(), 20, 50, function))
        row(f"a step, memory journal, 50 runs at once, {name}", took / 1000 * 1000, "ms", 0.15)
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.db")
        took = await cpu(lambda: runs(journal, 20, 50))
        row("a step, SQLite journal, 50 runs at once", took / 1000 * 1000, "ms", 0.45)
        took = await cpu(lambda: runs(journal, 20, 1))
        row("a step, SQLite journal, one run alone", took / 20 * 1000, "ms", float("inf"))
        await journal.close()


async def bench_pace() -> None:
    """What `Pace` adds to a model call: counting, with a provider that reports nothing, with one that reports, with limits."""

    async def took(policy: Pace | None, rates: ProviderRates | None) -> float:
        model, calls = Deltas(0), 5_000
        model.about = ModelInfo(rates=rates)  # type: ignore[attr-defined]
        view: Any = SimpleNamespace(agent=SimpleNamespace(model=model), state=State(), run_id="r")
        request = ModelRequest((user("hi"),))
        reply = ModelReply(assistant("x"), "end_turn")

        async def answer(given: ModelRequest) -> ModelReply:
            return reply

        async def work() -> None:
            for _ in range(calls):
                await (answer(request) if policy is None else policy.model(request, answer, view))

        return await cpu(work) / calls * 1e6

    alone, reports = await took(None, None), ProviderRates("x")
    headers = {f"x-ratelimit-{what}-{kind}": "100000000" for what in ("limit", "remaining") for kind in ("requests", "tokens")}
    reports.learn(200, headers)
    for name, policy, rates in (
        ("no limits known", Pace(), ProviderRates("y")),
        ("limits reported, far away", Pace(), reports),
        ("own limits, far away", Pace("100M/min", "100M/min", 100), None),
    ):
        row(f"Pace around a model call that need not wait, {name}", await took(policy, rates) - alone, "µs", 10)


async def bench_delta() -> None:
    agent = Agent(Deltas(20_000), journal="memory")

    async def read() -> None:
        seen = 0
        async for chunk in agent.run("go"):
            seen += chunk.type == "delta"
        assert seen == 20_000

    row("a delta, from the model to the reader", await cpu(read) / 20_000 * 1e6, "µs", 5)


async def bench_readers() -> None:
    """How much longer a run takes that 1,000 attentive readers in the same event loop read, at the pace of a real model."""

    async def read(reader: Any) -> None:
        async for _ in reader:
            pass

    async def took(readers: int) -> float:
        run = Agent(ScriptedModel(["word " * 100], pace=0.02), journal="memory").run("go")
        reading = [asyncio.create_task(read(run.subscribe())) for _ in range(readers)]
        await asyncio.sleep(0)
        begun = time.perf_counter()
        await run
        spent = time.perf_counter() - begun
        await asyncio.gather(*reading)
        return spent

    alone, together = min([await took(0) for _ in range(3)]), min([await took(1_000) for _ in range(3)])
    row("a run with 1,000 readers, against the same with none", (together / alone - 1) * 100, "%", 5)


async def bench_abort() -> None:
    """Wall-clock ms from setting the event to the result: inside a stream, a tool, a blocking tool, a wait for the reader."""

    @tool
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return ""

    @tool(name="nap")
    def block() -> str:
        """Block a thread."""
        time.sleep(60)
        return ""

    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.db")
        for name, model, tools in (
            ("a stream", ScriptedModel(["x" * 80_000], pace=0.01), []),
            ("a tool", ScriptedModel([call("nap")]), [nap]),
            ("a blocking tool", ScriptedModel([call("nap")]), [block]),
        ):
            worst = 0.0
            for _ in range(20):
                event = asyncio.Event()
                run = Agent(model, tools, journal=journal).run("go", abort_event=event).start()
                await asyncio.sleep(0.03)
                begun = time.perf_counter()
                event.set()
                assert (await run).stop.kind == "cancelled"
                worst = max(worst, time.perf_counter() - begun)
            row(f"an abort inside {name}, SQLite journal, the worst of 20", worst * 1000, "ms", 100)
        await journal.close()


async def bench_growth() -> None:
    short = await cpu(lambda: runs(MemoryJournal(), 10, 100)) / 1000
    long = await cpu(lambda: runs(MemoryJournal(), 1000, 1)) / 1000
    row("a step of 1,000 in one run, against a step of 10", long / short, "x", 1.2)


async def bench_import() -> None:
    for name, statement in (("import kaname", "import kaname"), ("…and its Agent and tool", "from kaname import Agent, tool")):
        code = f"import time; t = time.process_time(); {statement}; print(time.process_time() - t)"
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        best = min(float(subprocess.check_output([sys.executable, "-c", code], env=environment)) for _ in range(8))
        row(name, best * 1000, "ms", 60)


BENCHES = {
    "step": bench_step,
    "pace": bench_pace,
    "delta": bench_delta,
    "readers": bench_readers,
    "growth": bench_growth,
    "abort": bench_abort,
    "import": bench_import,
}


def calibrate() -> float:
    """CPU ms of a fixed piece of work: how fast this core is right now. Here it has been seen between 20 and 40."""
    value = {"a": [1, 2, 3], "b": "x" * 50, "c": {"d": None, "e": True}}

    def once() -> float:
        begun = time.process_time()
        for _ in range(2500):
            json.dumps(json.loads(json.dumps(value)))
        return time.process_time() - begun

    return min(once() for _ in range(3)) * 1000


async def main() -> None:
    print("core: CPU ms of a fixed piece of work, right after the row was measured; 20 is this machine at its best")
    for name in sys.argv[1:] or BENCHES:
        await BENCHES[name]()


if __name__ == "__main__":
    asyncio.run(main())
