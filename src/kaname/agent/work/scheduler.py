"""Queue a run for every tick of the schedules. Any number of processes do it at the same time, without a leader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from logging import getLogger
from random import random
from typing import Any

from ...core.errors import AgentError, ConfigError
from ...kernel.stores import PAUSED, Marks
from ..agent import Agent
from .schedule import Schedule
from .submit import queue_of

_LONGEST, _PAUSE = 1.0, 5.0  # seconds between two looks at the clock, and after an error
_AHEAD = 60.0  # seconds by which the clocks of two machines may differ
log = getLogger("kaname.schedule")
Found = Mapping[str, tuple[Agent[Any], Schedule]]


def schedules_of(agents: Iterable[Agent[Any]]) -> Found:
    """Return the schedules of these agents by name. Raises `ConfigError` if two have the same name."""
    found: dict[str, tuple[Agent[Any], Schedule]] = {}
    for agent in agents:
        for name, one in agent.schedules.items():
            if name in found and found[name][0] is not agent:
                raise ConfigError.of("schedule.twice", "two agents have a schedule named {name!r}", name=name)
            found[name] = agent, one
    return found


def marks_of(agents: Iterable[Agent[Any]]) -> Marks:
    """Return the marks of the journal that the agents share."""
    journal = next(iter(agents)).journal
    queue_of(journal)
    assert journal.stores.marks is not None
    return journal.stores.marks


class Scheduler:
    """Queues the runs of schedules. A tick is a run id, so it does no harm if several processes queue the same one.

    The mark of a schedule says up to where its ticks are queued. It is raised after a run was queued: if the process dies in
    between, another process queues the same run, which is in the queue or in the journal already.

    Args:
        agents: The agents with their schedules.
        clock: Returns the time in seconds since 1970.
    """

    def __init__(self, agents: Iterable[Agent[Any]], clock: Callable[[], float] = time.time) -> None:
        self._agents, self._clock = list(agents), clock
        self._since: dict[str, float] = {}  # by mark: up to where this process knows that ticks were handled
        self._next: dict[str, float] = {}
        self._seen: set[str] | None = None  # the marks of the schedules at the last look
        schedules_of(self._agents)

    async def keep_checking(self) -> None:
        """Queue the runs that are due until the task is cancelled."""
        while True:
            try:
                await self.check()
                pause = min(_LONGEST, max(0.0, min(self._next.values(), default=float("inf")) - self._clock()))
            except AgentError as problem:
                log.warning("schedules cannot be checked now: %s", problem)
                pause = _PAUSE
            await asyncio.sleep(pause + random() / 10)  # so that several processes do not look at once

    async def check(self) -> None:
        """Queue the runs of all ticks that are due now."""
        found, now = schedules_of(self._agents), self._clock()
        if self._seen != (marks := {one.mark for _, one in found.values()}):
            await self._begin([one for _, one in found.values()], now)
            self._seen = marks
        if ahead := [one for _, one in found.values() if self._since[one.mark] > now]:  # the clock was set back
            await self._set_back(ahead, now)
        due = [(agent, one) for agent, one in found.values() if self._next[one.mark] <= now]
        known = await marks_of(self._agents).all() if due else {}
        for agent, one in due:
            mark, since = known.get(one.mark, 0.0), self._since[one.mark]
            since = max(since, mark) if mark <= now else since
            await self._submit(agent, one, [] if one.paused_mark in known else one.due(since, now))
            await marks_of(self._agents).raise_to({one.mark: now})
            if mark > now + _AHEAD:
                await self._set_back([one], now)
            self._note(one, now)

    async def _set_back(self, found: list[Schedule], now: float) -> None:
        """Let schedules count from now whose marks lie in the future: a clock was ahead, and the times until then are to come.

        A time that was queued then is a run that exists, so it is not due again.
        """
        marks = marks_of(self._agents)
        known = await marks.all()
        if wrong := [one for one in found if known.get(one.mark, 0.0) > now + _AHEAD]:
            told = ", ".join(sorted([one.name for one in wrong]))
            log.warning("schedules %s: their last runs lie in the future, so a clock was wrong; they count from now", told)
            await marks.remove([one.mark for one in wrong])
            await marks.enter({one.mark: now for one in wrong})
        for one in found:
            self._note(one, now)

    async def _submit(self, agent: Agent[Any], one: Schedule, ticks: list[float]) -> None:
        """Queue the runs of ticks. What is wrong with one schedule does not keep the others from their runs."""
        for tick in ticks:
            try:
                await agent.submit(one.user_input, run_id=one.run_id(tick), **one.how)
                log.info("schedule %s: queued run %s", one.name, one.run_id(tick))
            except ConfigError as problem:
                log.warning("schedule %s: no run is queued: %s", one.name, problem)

    async def _begin(self, found: list[Schedule], now: float) -> None:
        """Enter schedules that this process has not seen before. They count from now, or from where others have come.

        The marks of schedules that our agents do not have any more are removed: if they come back, they have missed nothing. An
        agent that never had a schedule in this process says nothing: another process may be the one that schedules.
        """
        marks, names = marks_of(self._agents), {agent.name for agent in self._agents if "schedules" in vars(agent)}
        if new := [one for one in found if one.mark not in self._since]:
            await marks.enter({one.mark: now for one in new})
        known, kept = await marks.all(), {one.mark for one in found}
        for one in new:
            self._note(one, known.get(one.mark, now))  # one in the future is set back by `check`
        gone = [mark for mark in known.keys() - kept if _agent_of(mark) in names and not mark.endswith(PAUSED)]
        if gone:
            await marks.remove(gone)
        for mark in self._since.keys() - kept:
            del self._since[mark], self._next[mark]

    def _note(self, one: Schedule, since: float) -> None:
        self._since[one.mark] = since
        self._next[one.mark] = one.next_tick(since) or float("inf")


def _agent_of(mark: str) -> str:
    """Return the agent whose schedule a mark belongs to (see `Schedule.mark`)."""
    return mark.partition("@")[2].partition(": ")[0]
