"""Journeys: which files a real run passes through, and how often it moves from one to another.

A move is a call of a function in one file under src/kaname by a function in another. (Its return is not counted again.)
Frames of other packages are passed over: if kaname calls asyncio and asyncio calls kaname, that is a call from the one file of
kaname to the other. A coroutine or generator is counted when it begins, not each time it goes on after a pause. Each journey is
made twice, and the second time is measured; an agent that is run has run once before. So imports and caches do not count. The
baseline is that of Python 3.11.
"""

from __future__ import annotations

import asyncio
import dis
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from .source import SOURCE

_PREFIX = str(SOURCE) + "/"
_RESUME = dis.opmap["RESUME"]
_FROM_START = 0  # the argument of RESUME where a function begins; other values stand after a `yield` and an `await`


class Journey(NamedTuple):
    """What a run passes through: the number of files, of moves between them, and of calls; the moves by their two files."""

    files: int
    moves: int
    calls: int
    pairs: Counter[tuple[str, str]]


class Recorder:
    """Counts the moves between `start` and `stop`, in this thread and in threads that begin in between.

    Args:
        until: Counting ends with the call of this function, which is counted, too.
    """

    def __init__(self, until: str = "") -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.files: set[str] = set()
        self.calls = 0
        self._until, self._counts = until, False

    def start(self) -> None:
        self._counts = True
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def stop(self) -> None:
        self._counts = False
        sys.setprofile(None)
        threading.setprofile(None)

    def journey(self) -> Journey:
        return Journey(len(self.files), self.pairs.total(), self.calls, self.pairs)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._counts or not frame.f_code.co_filename.startswith(_PREFIX) or _goes_on(frame):
            return
        here = frame.f_code.co_filename[len(_PREFIX) :]
        self.files.add(here)
        self.calls += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(_PREFIX):
            caller = caller.f_back
        if caller is not None and (there := caller.f_code.co_filename[len(_PREFIX) :]) != here:
            self.pairs[there, here] += 1
        if f"{here}:{frame.f_code.co_name}" == self._until:
            self._counts = False


def _goes_on(frame: FrameType) -> bool:
    """Return True if a coroutine or generator goes on after a pause."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at] == _RESUME and code[at + 1] & 3 != _FROM_START


@asynccontextmanager
async def _recording(into: list[Recorder], until: str = "") -> AsyncIterator[None]:
    into.append(Recorder(until))
    into[-1].start()
    try:
        yield
    finally:
        into[-1].stop()


def _parts() -> tuple[Any, Any]:
    """A tool, and a script that calls it once and then answers."""
    from kaname import call, tool

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen} yen"

    def script(request: Any) -> Any:
        return "done" if request.messages[-1].role == "tool" else call("pay", yen=5)

    return pay, script


async def run_with_a_tool(into: list[Recorder]) -> None:
    """A run that calls one tool, with a scripted model and a journal in memory."""
    from kaname import Agent, ScriptedModel

    pay, script = _parts()
    agent = Agent(ScriptedModel(script), [pay], journal="memory")
    await agent.run("Pay.")
    async with _recording(into):
        result = await agent.run("Pay.")
    assert result.output == "done"


async def way_in(into: list[Recorder]) -> None:
    """The same run, from `Agent.run` to the first call of the loop."""
    from kaname import Agent, ScriptedModel

    pay, script = _parts()
    agent = Agent(ScriptedModel(script), [pay], journal="memory")
    await agent.run("Pay.")
    async with _recording(into, "kernel/loop.py:drive"):
        await agent.run("Pay.")


async def resume_with_an_answer(into: list[Recorder]) -> None:
    """A run that waits for an approval is resumed with the answer, and ends."""
    from kaname import Agent, Approve, ScriptedModel

    pay, script = _parts()
    agent = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], journal="memory")
    waiting = await agent.run("Pay.")
    (key,) = waiting.questions
    async with _recording(into):
        result = await agent.resume(waiting.run_id, {key: "yes"})
    assert result.output == "done"


async def served_approval(into: list[Recorder]) -> None:
    """Over HTTP, in one process: a run is started, waits, is answered, and ends."""
    import httpx

    import kaname.serve
    from kaname import Agent, Approve, ScriptedModel

    pay, script = _parts()
    agent = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], name="cashier", journal="memory")
    app = kaname.serve.app(agent, recover=False, mcp=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http, _recording(into):
        waiting = (await http.post("/api/runs", json={"input": "Pay."})).json()
        answers = {question["key"]: "yes" for question in waiting["questions"]}
        done = await http.post(f"/api/runs/{waiting['run_id']}/answers", json={"answers": answers, "mode": "wait"})
    assert done.json()["output"] == "done", done.text


async def delegation(into: list[Recorder]) -> None:
    """A run that delegates a task to a member of its team."""
    from kaname import Agent, ScriptedModel, call

    member = Agent(ScriptedModel(["Since 800."]), name="researcher", instructions="You look things up.")
    script = ScriptedModel([call("delegate_to_agent", agent="researcher", task="Since when?"), "Since 800."])
    lead = Agent(script, name="lead", team=[member], journal="memory")
    await lead.run("Since when?")
    async with _recording(into):
        result = await lead.run("Since when?")
    assert result.output == "Since 800."


async def queued_run(into: list[Recorder]) -> None:
    """A worker takes a queued run from a journal in SQLite, executes it, and stops."""
    from kaname import Agent, ScriptedModel, Worker

    pay, script = _parts()
    ended = asyncio.Event()

    def see(event: Any) -> None:
        if type(event.body).__name__ == "Stopped":
            ended.set()

    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(ScriptedModel(script), [pay], name="clerk", journal=Path(folder, "journal.db"), sinks=[see])
        await agent.submit("Pay.")
        worker = Worker([agent])
        async with _recording(into):
            working = asyncio.create_task(worker.work())
            await ended.wait()
            worker.stop()
            await working
        await agent.journal.close()


JOURNEYS: dict[str, Callable[[list[Recorder]], Any]] = {
    "run with one tool": run_with_a_tool,
    "the way in alone": way_in,
    "resume with an answer": resume_with_an_answer,
    "served approval": served_approval,
    "delegation": delegation,
    "queued run": queued_run,
}


def journey(name: str) -> Journey:
    """Make a journey twice, and return what the second one passed through."""

    async def twice() -> list[Recorder]:
        made: list[Recorder] = []
        for _ in range(2):
            await JOURNEYS[name](made)
        return made

    return asyncio.run(twice())[-1].journey()
