"""One process of an agent under test. It runs until the run ends or waits, or until it is killed at the given moment."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.events import Event
from ..core.messages import ToolCall, ToolResult
from ..core.record import record, replace
from ..core.runs import RunInfo, SessionInfo, Tally
from ..kernel.approvals.port import Grants, HasGrants
from ..kernel.arguments import shown_arguments
from ..kernel.bases import options_of
from ..kernel.inbox.port import Inbox, inbox_of
from ..kernel.load import load
from ..kernel.ports import Action, Change, Journal, Lease, Lineage, Repair, ToolContext, Turn
from ..stores.default import choose
from .crash_places import when_free

RUN = "crash-check"


@record
class Death:
    """The moment of a kill: "before" or "after" the fact `fact` is written (`moment`), or `seconds` after the start."""

    moment: str = ""
    fact: int = 0
    seconds: float = 0.0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # the signal may take a moment; nothing more happens in this process


class WrappedJournal:
    """A journal that passes everything on to another one. A subclass overrides what it changes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def append(self, events: Sequence[Event], epoch: int, **more: Any) -> None:
        await self._journal.append(events, epoch, **more)

    async def claim(self, run_id: str, *, takeover: bool = False, turn: Turn | None = None) -> Lease:
        return await self._journal.claim(run_id, takeover=takeover, turn=turn)

    async def release(self, run_id: str, epoch: int) -> None:
        await self._journal.release(run_id, epoch)

    def read(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        return self._journal.read(run_id, after)

    async def lineage(self, run_id: str, upto: int | None = None, *, fold: int = 0) -> Lineage:
        return await self._journal.lineage(run_id, upto, fold=fold)

    async def keep_snapshot(self, run_id: str, seq: int, fold: int, state: str) -> None:
        await self._journal.keep_snapshot(run_id, seq, fold, state)

    def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        return self._journal.follow(run_id, after)

    def changes(self, after: int = 0, *, wait: bool = True) -> AsyncIterator[Change]:
        return self._journal.changes(after, wait=wait)

    async def ask_to_stop(self, run_id: str, reason: str) -> bool:
        return await self._journal.ask_to_stop(run_id, reason)

    async def asked_to_stop(self, run_id: str) -> str:
        return await self._journal.asked_to_stop(run_id)

    @property
    def inbox(self) -> Inbox:
        return inbox_of(self._journal)

    @property
    def grants(self) -> Grants:
        assert isinstance(self._journal, HasGrants)
        return self._journal.grants

    async def runs(self, **wanted: Any) -> list[RunInfo]:
        return await self._journal.runs(**wanted)

    async def sessions(self, **wanted: Any) -> list[SessionInfo]:
        return await self._journal.sessions(**wanted)

    async def count(self, **wanted: Any) -> list[Tally]:
        return await self._journal.count(**wanted)

    async def delete(self, run_id: str, *, cascade: bool = False) -> None:
        await self._journal.delete(run_id, cascade=cascade)

    async def prune(self, cards: Sequence[RunInfo], *, trial: set[str] | None = None) -> list[str]:
        return await self._journal.prune(cards, trial=trial)

    async def tidy(self, *, whole: bool = False) -> tuple[int, int]:
        return await self._journal.tidy(whole=whole)

    async def close(self) -> None:
        await self._journal.close()


class DyingJournal(WrappedJournal):
    """A journal that kills its process at the given fact."""

    def __init__(self, journal: Journal, death: Death) -> None:
        super().__init__(journal)
        self._death = death

    async def append(self, events: Sequence[Event], epoch: int, **more: Any) -> None:
        hit = any(event.seq == self._death.fact for event in events)
        if hit and self._death.moment == "before":
            die()
        await super().append(events, epoch, **more)
        if hit and self._death.moment == "after":
            die()


class WatchedTool:
    """A tool that logs, without buffering, when its own code starts and ends."""

    def __init__(self, tool: Action, log: Path) -> None:
        self._tool, self._log = tool, log
        self.name, self.description, self.parameters = tool.name, tool.description, tool.parameters
        self.effect, options = tool.effect, options_of(tool)
        repairs = {what: repair for what in ("undo", "reconcile") if (repair := getattr(options, what)) is not None}
        watched = {what: self._watch_repair(what, repair) for what, repair in repairs.items()}
        self.options = replace(options, **watched)

    def prepare(self, call: ToolCall) -> Any:
        return self._tool.prepare(call)

    def shown(self, prepared: Any) -> Mapping[str, Any]:
        return shown_arguments(self._tool, prepared).args

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        self._note("begin", context)
        result = await self._tool.act(prepared, context)
        self._note("end", context)
        return result

    def _watch_repair(self, what: str, repair: Repair) -> Repair:
        async def run(prepared: Any, context: ToolContext) -> ToolResult | None:
            found = await repair(prepared, context)
            self._note(f"{what}:{'nothing' if found is None else 'found'}", context)
            return found

        return run

    def _note(self, what: str, context: ToolContext) -> None:
        write_line(self._log, [what, self.effect, self.name, context.idempotency_key])


def write_line(path: Path, value: Any) -> None:
    """Append a line of JSON. It survives even if this process is killed at once."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, (json.dumps(value) + "\n").encode())
    os.close(descriptor)


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def watch(agent: Any, log: Path) -> None:
    """Replace the tools of the agent and of its team by watched ones."""
    for name, tool in agent.tools.items():
        if isinstance(tool, WatchedTool):  # an agent that names the one before it
            return
        agent.tools._tools[name] = WatchedTool(tool, log)
    for member in agent.team.members if agent.team is not None else ():
        watch(member, log)


def live(agent: Any, user_input: str, folder: Path, place: str, death: Death, answers: dict[str, Any] | None) -> dict[str, Any]:
    """Start (`answers` is None) or resume the run, and return how it ended. `place`: that of the journal."""
    agent.journal = DyingJournal(choose(place), death)
    watch(agent, folder / "effects.log")
    if death.seconds:
        timer = threading.Timer(death.seconds, die)
        timer.daemon = True
        timer.start()

    async def work() -> Any:
        if answers is None:
            return await agent.start_or_resume(RUN, user_input)  # a server may have written the first fact after the death
        state = await load(agent.journal, RUN)
        if state.stop is not None:  # it died after its end: nothing is left to do, unless somebody asked for more
            return agent._view(RUN, state)
        return await agent.resume(RUN, answers)

    async def go() -> Any:
        try:
            return await when_free(place, work)
        finally:
            await agent.journal.close()

    result = asyncio.run(go())
    return {"stop": result.stop.kind, "output": repr(result.output), "questions": list(result.questions)}


def random_death(longest: float, seed: int) -> Death:
    return Death(seconds=max(0.001, random.Random(seed).random() * longest))
