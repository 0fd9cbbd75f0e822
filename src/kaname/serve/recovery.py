"""Recover runs that a crash or a restart has interrupted, a few at a time. A run that fails again and again is set aside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from logging import getLogger
from random import random
from time import time
from typing import Any

from ..agent.run import Run
from ..core.errors import AgentError, RunBusy, RunNotFound
from ..core.events import Event, Opened, Resumed, ToolStarted, Warned
from ..core.runs import RunInfo
from ..kernel.load import read_run
from .service import SERVED, Service

_EVERY = 5.0  # seconds between two searches
_AT_ONCE = 16  # runs that are opened at the same time
_PAGE = 500  # runs that are read at once
DEATHS = 10  # crashes without progress of the run in between, after which it is set aside
_SUSPECT = 2  # crashes after which a run may be their cause: it is resumed alone, so that other runs are not blamed
_TRIAL = 60.0  # seconds for which it runs alone
_LONGEST = 15.0  # seconds of the longest pause before it is resumed again
_MOVES = ("message", "tool_call", "tool_response", "usage", "error")
log = getLogger("kaname.serve")


class Recovery:
    """Resume interrupted runs that a server has started. Runs of scripts are left to the scripts."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._room, self._alone = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(1)
        self._busy: set[str] = set()
        self.set_aside: set[str] = set()  # until the next start of the server
        self._tasks: set[asyncio.Task[None]] = set()

    async def keep_looking(self) -> None:
        """Look for interrupted runs at the start and every few seconds: another server on this journal may have crashed."""
        while not self._service.closing:
            try:
                await self.look()
            except AgentError as problem:
                log.warning("looking for interrupted runs: %s", problem)
            await asyncio.sleep(_EVERY * (0.75 + random() / 2))  # so that several servers do not search at the same moment

    async def look(self) -> None:
        """Find the interrupted runs of the served agents, and resume each in a task."""
        async for card in self._interrupted_runs():
            known = card.run_id in self._busy or card.run_id in self.set_aside
            if not known and not card.parent and card.agent in self._service.agents and not self._service.is_here(card.run_id):
                self._busy.add(card.run_id)
                task = asyncio.create_task(self._recover(card))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _interrupted_runs(self) -> AsyncIterator[RunInfo]:
        """Yield all interrupted runs, a page at a time: runs of scripts, which are not resumed, must not hide the others."""
        before = 0
        while cards := await self._service.journal.runs(status="interrupted", before=before, limit=_PAGE):
            for card in cards:
                yield card
            before = cards[-1].place

    async def _recover(self, card: RunInfo) -> None:
        try:
            async with self._room:
                facts = await read_run(self._service.journal, card.run_id)
            if not _is_served(facts):
                self.set_aside.add(card.run_id)
                return
            died = deaths(facts)
            if died >= DEATHS:
                self.set_aside.add(card.run_id)
                log.warning("run %s: its server died %d times without any progress of the run. It is set aside; "
                            "POST /api/runs/%s/resume tries it again", card.run_id, died, card.run_id)  # fmt: skip
                return
            if is_too_early(died, time() - facts[-1].time):
                return  # a later search resumes it
            if died >= _SUSPECT:
                async with self._alone:
                    await _wait_for_progress(await self._resume(card))
            else:
                async with self._room:
                    await self._resume(card)
        except (RunBusy, RunNotFound):  # another server was quicker
            pass
        except AgentError as problem:
            log.warning("run %s cannot be taken up: %s", card.run_id, problem)
        finally:
            self._busy.discard(card.run_id)

    async def _resume(self, card: RunInfo) -> Run[Any]:
        run = await self._service.begin(self._service.agents[card.agent].resume(card.run_id))
        log.info("run %s is resumed", card.run_id)
        if not self._service.is_here(card.run_id) and (await read_run(self._service.journal, card.run_id))[-1].seq == card.seq:
            self.set_aside.add(card.run_id)  # there was nothing to resume
        return run

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


async def _wait_for_progress(run: Run[Any]) -> None:
    """Wait until the run has made progress, is not executed any more, or was watched long enough."""
    reader = run.subscribe()
    with suppress(TimeoutError):
        async with asyncio.timeout(_TRIAL):
            while (chunk := await reader.get()) is not None and chunk.type not in _MOVES:
                pass
    reader.close()


def is_too_early(died: int, since: float) -> bool:
    """Return True during the pause after the last crash. A clock that was set back does not prolong the pause."""
    return died > 1 and 0 <= since < min(2.0 ** (died - 1), _LONGEST)


def deaths(facts: Sequence[Event]) -> int:
    """Count the server crashes in a row that interrupted this run, without a reply, a result or a question of the run in
    between.

    A server that was shut down in order has released the run, and does not count.
    """
    count = 0
    for fact in reversed(facts):
        if isinstance(fact.body, Resumed):
            count += fact.body.died
        elif not isinstance(fact.body, ToolStarted | Warned):  # a tool that crashes the process is started again each time
            break
    return count


def _is_served(facts: Sequence[Event]) -> bool:
    first: Any = facts[0].body
    origin = first.recipe.get("origin") if isinstance(first, Opened) else None
    return isinstance(origin, dict) and SERVED in origin
