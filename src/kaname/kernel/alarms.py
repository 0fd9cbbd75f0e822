"""Time limits on code under way. A limit holds even if the code swallows the cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf
from operator import itemgetter
from typing import Any, TypeVar

from ..core.errors import JournalError, Signal

T = TypeVar("T")
_PRECISION = 0.001  # seconds by which an alarm may ring early


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
    alarm, before, heard = _Alarm(task), task.cancelling(), False
    try:
        alarms: _Alarms = loop._kaname_alarms  # type: ignore[attr-defined]
    except AttributeError:  # an attribute of the event loop, because they refer to it and must end with it
        alarms = loop._kaname_alarms = _Alarms()  # type: ignore[attr-defined]
    time = alarms.times[alarm] = loop.time() + seconds
    if time < alarms.next:
        alarms.wait_until(time)
    try:
        value = await work
    except (asyncio.CancelledError, Signal, JournalError) as problem:
        heard = True
        if alarm.rang and task.uncancel() <= before and isinstance(problem, asyncio.CancelledError):
            raise Late(f"it took longer than {seconds:g} s") from None
        raise
    finally:
        alarms.times.pop(alarm, None)
        if alarm.rang and not heard:  # the cancellation was swallowed, whatever the work has returned or raised
            stopped = task.uncancel() > before  # by the caller as well
            raise asyncio.CancelledError if stopped else Late(f"it took longer than {seconds:g} s")
    return value


class _Alarm:
    """The alarm of one piece of work. It cancels its task."""

    __slots__ = ("rang", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task, self.rang = task, False

    def ring(self) -> None:
        self.rang = True
        self.task.cancel()


class _Alarms:
    """The alarms of one event loop. One timer serves them all, because nearly every alarm is unset before it rings.

    Attributes: times: When each alarm rings. next: When the timer rings.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.times: dict[_Alarm, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.next = inf

    def wait_until(self, time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.next = time
        self._timer = self._loop.call_at(time, self._ring)

    def _ring(self) -> None:
        now, self.next, self._timer = self._loop.time() + _PRECISION, inf, None
        for _, alarm in sorted([(time, alarm) for alarm, time in self.times.items() if time <= now], key=itemgetter(0)):
            del self.times[alarm]
            alarm.ring()
        if self.times:
            self.wait_until(min(self.times.values()))
