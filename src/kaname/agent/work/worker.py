"""A worker: takes runs from the queue of a journal and executes them, a few at a time.

Runs that a crash has interrupted are put into the queue, too, so that there is one way to take a run up. A run that fails again
and again is set aside with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from logging import getLogger
from random import random
from time import time
from typing import Any, get_args

from ...core.durations import backoff
from ...core.errors import AgentError, ConfigError, InvalidState, RunBusy, RunExists, RunNotFound, RunSuperseded, SessionBusy
from ...core.events import Asked, Event
from ...core.notices import notice
from ...core.runs import UNDER_WAY, RunInfo
from ...kernel.load import read_run
from ...kernel.stores import AGAIN, DEFAULT_QUEUE, QueuedRun, QueueState, Wanted
from ...run.request import RunRequest
from ...run.run import GRACE, Run, find_live, let_go_of
from ..agent import Agent
from .deaths import DEATHS, SERVED, SUSPECT, deaths, is_served, pause_left
from .order import encode_reason, request_for
from .scheduler import Scheduler
from .submit import queue_of

Begin = Callable[[Run[Any]], Awaitable[Run[Any]]]
_WAIT = 1.0  # seconds, then the worker looks by itself: for delayed runs, and where notifications do not arrive
_AT_ONCE = 32  # runs that are taken at once
_OPENING = 16  # runs that are opened at the same time
_PAGE = 500  # runs that are read at once
_TRIAL = 60.0  # seconds for which a suspect runs alone
_BUSY, _TURN = 1.0, 0.3  # seconds until a run is tried again that another process executes, or whose conversation is busy
_LONGEST = 60.0  # seconds of the longest pause after an error
_MOVES = ("message", "tool_call", "tool_response", "usage", "error")
log = getLogger("kaname.worker")


async def begin_detached(run: Run[Any]) -> Run[Any]:
    """Start the run and return when it is on disk."""
    return await run.detach().begun()


class Worker:
    """Executes the runs in the queue of a journal, and queues those of schedules, until `stop` is called.

    Args:
        agents: The agents whose runs it executes. They must share one journal.
        concurrency: How many runs it executes at the same time (default: 8).
        queues: The queues that it serves.
        per_key: How many runs with the same key are executed at the same time, over all workers (default: no limit).
        deps: What tools find in `ToolContext.deps`.
        grace: Seconds that tool calls under way have to end after `stop` (default: 10).
        begin: Starts a run; for a server that keeps track of its runs.
    """

    def __init__(
        self,
        agents: Iterable[Agent[Any]],
        *,
        concurrency: int = 8,
        queues: Iterable[str] = (DEFAULT_QUEUE,),
        per_key: int = 0,
        deps: Any = None,
        grace: float = GRACE,
        begin: Begin = begin_detached,
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        journals = {id(agent.journal): agent.journal for agent in self._agents.values()}
        if len(journals) != 1:
            raise ConfigError.of("worker.agents", "a worker needs agents that share one journal: Agent(…, journal=…)")
        (self._journal,) = journals.values()
        self._queue, self._scheduler = queue_of(self._journal), Scheduler(self._agents.values())
        for agent in self._agents.values():
            agent.origin = {**agent.origin, SERVED: agent.name}
        self._wanted = Wanted(tuple(self._agents), tuple(queues), per_key)
        self._concurrency, self._deps, self._begin = concurrency, deps, begin
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, Run[Any]] = {}
        self._past: list[Run[Any]] = []  # runs that are over, and whose tasks in the background are not
        self._expiring: dict[str, tuple[int, float]] = {}  # waiting runs: their number of facts, and when the question expires
        self._left: dict[str, int] = {}  # interrupted runs that are not ours, and their number of facts
        self._paused: set[str] = set()  # runs that have not begun, and have waited because their workers died
        self._trouble = ""  # why no runs can be taken
        self._stopping, self._changed = asyncio.Event(), asyncio.Event()
        self._grace, self._hurry = grace, asyncio.Event()
        self._opening, self._alone, self._taking = asyncio.Semaphore(_OPENING), asyncio.Semaphore(1), asyncio.Lock()

    @property
    def executing(self) -> int:
        """Return the number of runs that this worker executes now."""
        return len(self._tasks)

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more runs, release those under way, and let `work` return. Other workers resume them.

        Tool calls under way have `grace` seconds to end, except pure ones. `at_once`: cut them, also after an earlier `stop`.
        """
        self._stopping.set()
        if at_once:
            self._hurry.set()
        self._changed.set()

    async def work(self) -> None:
        """Take runs and execute them until `stop` is called, or this task is cancelled."""
        others = [asyncio.create_task(work()) for work in (self._keep_tending, self._scheduler.keep_checking)]
        try:
            while not self._stopping.is_set():
                self._changed.clear()
                room = min(self._concurrency - len(self._tasks), _AT_ONCE)
                taken = await self._take(room) if room > 0 else 0
                if taken < room or room <= 0:
                    await self._wait(listening=room > 0)
        finally:
            for task in others:
                task.cancel()
            await self._drain()

    async def _take(self, room: int) -> int:
        """Take runs and begin to execute them. Return their number."""
        async with self._taking:
            try:
                taken = await self._queue.take(self._wanted, room)
            except AgentError as problem:
                self._report(problem)
                return 0
            self._report(None)
            for item in taken:
                self._tasks[item.run_id] = task = asyncio.create_task(self._execute(item))
                task.add_done_callback(partial(self._forget, item.run_id))
        return len(taken)

    def _report(self, problem: AgentError | None) -> None:
        """Log what keeps the worker from taking runs, once, and the end of it."""
        told = "" if problem is None else str(problem)
        if told and told != self._trouble:
            log.warning("no runs can be taken: %s", told)
        elif self._trouble and not told:
            log.info("runs can be taken again")
        self._trouble = told

    async def _wait(self, *, listening: bool) -> None:
        """Wait until there may be something to do: a run was queued, one has ended, or the worker stops."""
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(self._changed.wait())]
        if listening:
            waiting.append(asyncio.create_task(self._queue.wait(_WAIT)))
        done, _ = await asyncio.wait(waiting, timeout=_WAIT, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if any(not task.cancelled() and task.exception() is not None for task in done):
            await asyncio.sleep(_WAIT)  # the journal is away

    def _forget(self, run_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(run_id, None)
        if (run := self._runs.pop(run_id, None)) is not None:
            self._past = [one for one in (*self._past, run) if one.tasks]
        self._changed.set()

    async def _drain(self) -> None:
        """Release the runs under way, so that other workers resume them."""
        self._stopping.set()
        await let_go_of([*self._runs.values(), *self._past], self._tasks.values(), self._grace, self._hurry)

    async def _keep_tending(self) -> None:
        """Return runs of dead workers to the queue, and put runs into it that were interrupted outside of it."""
        while True:
            try:
                async with self._taking:  # else a run that is being taken would look as if nobody executed it
                    rescued = await self._queue.rescue(self._tasks.keys())
                for run_id in rescued:
                    log.info("run %s is returned to the queue: its worker is gone", run_id)
                await self._sweep()
                await self._measure()
                await self._expire()
            except AgentError as problem:
                self._report(problem)
            await asyncio.sleep(self._queue.pace * (0.75 + random() / 2))  # so that several workers do not look at once

    async def _measure(self) -> None:
        """Tell sinks that take it how many runs are queued, and how many this worker executes."""
        takers = {id(sink): sink.measure for agent in self._agents.values() for sink in agent.sinks if hasattr(sink, "measure")}
        if takers:
            counts = {**dict.fromkeys(get_args(QueueState), 0), **await self._queue.count()}
            for measure in takers.values():
                measure("kaname.worker.executing", self.executing)
                for state, number in counts.items():
                    measure("kaname.queue.runs", number, state=state)

    async def _sweep(self) -> None:
        before, found = 0, list[QueuedRun]()
        while cards := await self._journal.runs(status="interrupted", before=before, limit=_PAGE):
            before = cards[-1].place
            ours = [card for card in cards if await self._is_ours(card)]
            for parent in {card.parent for card in cards if card.parent}:
                await self._revive_tasks(parent)
            found += [QueuedRun(card.run_id, card.agent, queue=self._wanted.queues[0], seq=card.seq) for card in ours]
        if found:
            await self._queue.put(found)

    async def _is_ours(self, card: RunInfo) -> bool:
        """Return True if a worker has to resume the run."""
        if card.parent or card.agent not in self._agents or self._left.get(card.run_id) == card.seq:
            return False
        if card.run_id in self._tasks or find_live(self._journal, card.run_id) is not None:
            return False
        async with self._opening:
            with suppress(RunNotFound):  # deleted meanwhile
                first = await read_run(self._journal, card.run_id, 1)
                if is_served(first) or is_served(await read_run(self._journal, card.run_id)):
                    return True
        self._left[card.run_id] = card.seq
        return False

    async def _expire(self) -> None:
        """Resume runs whose questions have expired. The last fact of a waiting run is its question; it is read once."""
        before, known = 0, dict[str, tuple[int, float]]()
        while cards := await self._journal.runs(status="waiting", before=before, limit=_PAGE):
            before = cards[-1].place
            for card in [card for card in cards if card.parent or card.agent in self._agents]:
                seq, until = self._expiring.get(card.run_id, (0, 0.0))
                if seq != card.seq:
                    facts = [event.body async for event in self._journal.read(card.run_id, card.seq - 1)]
                    until = facts[-1].until if facts and isinstance(facts[-1], Asked) else 0.0
                known[card.run_id] = card.seq, until
                if until and time() >= until and card.parent:
                    await self._revive_tasks(card.parent)
                elif until and time() >= until:
                    await self._queue.put([QueuedRun(card.run_id, card.agent, queue=self._wanted.queues[0], seq=card.seq)])
        self._expiring = known

    async def _revive_tasks(self, run_id: str) -> None:
        """Resume work in the background whose run has ended."""
        card = next(iter(await self._journal.runs(run_id=run_id, limit=1)), None)
        if card is not None and card.status not in UNDER_WAY and card.agent in self._agents:
            self._past.append(run := self._agents[card.agent].resume(run_id))
            await run

    async def _execute(self, item: QueuedRun) -> None:
        """Execute one run, and say what became of it."""
        try:
            await self._do(item)
        except (RunBusy, RunSuperseded):  # another process executes it, or has just begun to
            await self._later(item, _BUSY)
        except SessionBusy:
            await self._later(item, _TURN)
        except RunNotFound:
            with suppress(AgentError):
                await self._queue.finish(item.run_id)
        except (ConfigError, InvalidState, RunExists) as problem:  # it would be the same the next time
            await self._put_aside(item, str(problem))
        except AgentError as problem:
            if item.attempts >= DEATHS and item.reason:  # without a reason, its workers died before
                await self._put_aside(item, str(problem))
            else:
                log.warning("run %s cannot be executed now: %s", item.run_id, problem)
                await self._later(item, backoff(item.attempts, 2.0, _LONGEST), str(problem))

    async def _later(self, item: QueuedRun, seconds: float, reason: str = "") -> None:
        with suppress(AgentError):  # the journal is away: the run is rescued
            await self._queue.retry(item.run_id, seconds, encode_reason(reason))

    async def _put_aside(self, item: QueuedRun, reason: str) -> None:
        log.warning("run %s is set aside: %s", item.run_id, reason)
        with suppress(AgentError):
            await self._queue.set_aside(item.run_id, encode_reason(reason))

    async def _do(self, item: QueuedRun) -> None:
        cards, request = await self._journal.runs(run_id=item.run_id, limit=1), request_for(item, self._deps)
        if cards and cards[0].status not in ("interrupted", "waiting"):  # another executes it: if that dies, it is found again
            await self._queue.finish(item.run_id)
            return
        facts = await read_run(self._journal, item.run_id) if cards else []
        died = deaths(facts)
        if died >= DEATHS and (item.reason != AGAIN or item.attempts > 1):
            message = notice("worker.deaths", "its process died {died} times without any progress of the run", died=died)
            await self._put_aside(item, message)
            return
        if left := pause_left(died, time() - facts[-1].time) if facts else self._pause(item):
            await self._later(item, left)
            return
        if died >= SUSPECT or _is_suspect(item, facts):
            async with self._alone:
                run = await self._start(item, request)
                if run is not None:
                    await _wait_for_progress(run)
        else:
            run = await self._start(item, request)
        if run is None:
            await self._queue.retry(item.run_id)
            return
        await run.wait()
        await self._settle(item)

    def _pause(self, item: QueuedRun) -> float:
        """Return the seconds to wait before a run is started that has not begun, although workers have taken it and died.

        Another run may have killed them, so this one is never set aside for it. It waits once, and until it can be started
        alone, back in the queue: a crash meanwhile has nothing to do with it.
        """
        if not _is_suspect(item, ()):
            return 0.0
        if item.run_id not in self._paused:
            self._paused.add(item.run_id)
            log.warning(
                "run %s has not begun, and %d workers that took it died; it is tried alone", item.run_id, item.attempts - 1
            )
            return pause_left(item.attempts - 1, 0.0)
        return _BUSY if self._alone.locked() else 0.0

    async def _start(self, item: QueuedRun, request: RunRequest) -> Run[Any] | None:
        """Begin the run. Return None if the worker stops. If it stops meanwhile, the run is released at once."""
        async with self._opening:
            if self._stopping.is_set():
                return None
            run = self._runs[item.run_id] = self._agents[item.agent].run_request(request)
            run = self._runs[item.run_id] = await self._begin(run)
        self._paused.discard(item.run_id)
        return run

    async def _settle(self, item: QueuedRun) -> None:
        """Finish the entry of a run that ended or waits. One that was interrupted here goes back to the queue."""
        cards = await self._journal.runs(run_id=item.run_id, limit=1)
        if not cards or cards[0].status != "interrupted":
            await self._queue.finish(item.run_id)
        elif self._stopping.is_set():
            await self._queue.retry(item.run_id)
        else:
            await self._later(item, _BUSY, notice("worker.interrupted", "the run was interrupted"))


def _is_suspect(item: QueuedRun, facts: Sequence[Event]) -> bool:
    """Return True if workers that took the run died before it began. A reason says that it failed in another way."""
    return not facts and not item.reason and item.attempts > SUSPECT


async def _wait_for_progress(run: Run[Any]) -> None:
    """Wait until the run has made progress, is not executed any more, or was watched long enough."""
    reader = run.subscribe()
    with suppress(TimeoutError):
        async with asyncio.timeout(_TRIAL):
            while (chunk := await reader.get()) is not None and chunk.type not in _MOVES:
                pass
    reader.close()
