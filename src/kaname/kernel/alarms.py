"""Alarms of an event loop. A time limit on code under way holds even if the code swallows the cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from ..core.errors import JournalError, Signal

T = TypeVar("T")
_PRECISION = 0.001  # seconds by which an alarm may ring early
_PAUSE = 0.005  # seconds at least between two looks at all alarms: an alarm may ring so much late


class Late(TimeoutError):
    """The time was up first."""


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Run within a time limit, like `asyncio.timeout` but cheaper: this stands around every call of every step.

    Raises `Late` if the time is up, also if the work swallows the cancellation and returns a value or raises another error.
    A signal that it raises and a failure of the journal are passed on.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)
    assert task is not None
    alarms, alarm, before, heard = alarms_of(loop), _TimeLimit(task), task.cancelling(), False
    alarms.set(alarm, seconds)
    try:
        value = await work
    except (asyncio.CancelledError, Signal, JournalError) as problem:
        heard = True
        if alarm.rang and task.uncancel() <= before and isinstance(problem, asyncio.CancelledError):
            raise Late(f"it took longer than {seconds:g} s") from None
        raise
    finally:
        alarms.unset(alarm)
        if alarm.rang and not heard:  # the cancellation was swallowed, whatever the work has returned or raised
            stopped = task.uncancel() > before  # by the caller as well
            raise asyncio.CancelledError if stopped else Late(f"it took longer than {seconds:g} s")
    return value


class Alarm(Protocol):
    """What happens when a time has come. It is compared by identity."""

    def ring(self) -> None: ...


class _TimeLimit:
    """The alarm of one piece of work. It cancels its task."""

    __slots__ = ("rang", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task, self.rang = task, False

    def ring(self) -> None:
        self.rang = True
        self.task.cancel()


class Alarms:
    """The alarms of one event loop. One timer serves them all, because nearly every alarm is unset before it rings."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._times: dict[Alarm, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf  # when the timer rings

    def set(self, alarm: Alarm, seconds: float) -> None:
        time = self._times[alarm] = self._loop.time() + seconds
        if time < self._next:
            self._wait_until(time)

    def unset(self, alarm: Alarm) -> None:
        """Unset an alarm, if it has not rung."""
        self._times.pop(alarm, None)

    def _wait_until(self, time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = time
        self._timer = self._loop.call_at(time, self._ring)

    def _ring(self) -> None:
        now, self._next, self._timer = self._loop.time() + _PRECISION, inf, None
        try:
            for _, alarm in sorted([(time, alarm) for alarm, time in self._times.items() if time <= now], key=itemgetter(0)):
                del self._times[alarm]
                alarm.ring()
        finally:
            if self._times:
                self._wait_until(max(min(self._times.values()), now + _PAUSE))


def alarms_of(loop: asyncio.AbstractEventLoop) -> Alarms:
    """Return the alarms of an event loop. They are an attribute of it, because they refer to it and must end with it."""
    try:
        return loop._kaname_alarms  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        made = loop._kaname_alarms = Alarms(loop)  # type: ignore[attr-defined]
        return made
