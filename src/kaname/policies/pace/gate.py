"""The gate before one provider and key: it counts the calls under way, and lets waiting calls through in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Set
from itertools import count
from math import inf
from threading import RLock, Timer
from time import monotonic
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from .limits import PaceLimits

OWN = ("at_once", "requests", "tokens")
"""The reasons to wait that come from one's own limits. All others come from the provider."""


class ReportedRates(Protocol):
    """What a provider reports: the optional member `rates` of a model. Equal accounts share a gate.

    `bounded`: there is something to wait for. `wait` returns why a call has to wait, or "", and for how many seconds.
    """

    account: str
    bounded: bool

    def wait(self, now: float) -> tuple[str, float]: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...


class TooLong(Exception):
    """The provider must not be asked for so many seconds, which is longer than the call waits."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:g} s")
        self.seconds = seconds


class CountedUse:
    """An amount that was used at a time."""

    __slots__ = ("amount", "at")

    def __init__(self, at: float, amount: float) -> None:
        self.at, self.amount = at, amount


class SlidingWindow:
    """What was used in the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.total = seconds, 0.0
        self._uses: deque[CountedUse] = deque()

    def wait(self, amount: float, limit: float, now: float) -> float:
        """Return the seconds until `amount` fits under the limit. More than the limit fits when the window is empty."""
        uses = self._uses
        while uses and uses[0].at <= now - self.seconds:
            passed = uses.popleft()
            self.total = self.total - passed.amount if uses else 0.0
        missing = self.total + amount - limit
        if missing <= 0 or not uses:
            return 0.0
        for use in uses:
            missing -= use.amount
            if missing <= 0:
                break
        return max(0.001, use.at + self.seconds - now)

    def add(self, amount: float, now: float) -> CountedUse:
        use = CountedUse(now, amount)
        self._uses.append(use)
        self.total += amount
        return use

    def correct(self, use: CountedUse, amount: float) -> None:
        """Replace an estimate by the amount that was really used, unless the window has passed it."""
        if self._uses and use.at >= self._uses[0].at:
            self.total += amount - use.amount
            use.amount = amount


class PacedCall:
    """A call at a gate: it waits, or it is under way. `Gate.leave` must be called when it is over, however it ended.

    Args:
        limits: Its own limits.
        rates: What its provider reports, or None.
        tokens: The tokens that it is expected to use.
        user: Users take turns.
        session: The sessions of a user take turns.
        patience: Seconds for which it waits for its provider.
    """

    __slots__ = ("_future", "_loop", "limits", "number", "patience", "rates", "session", "tokens", "under_way", "user", "uses")

    def __init__(
        self,
        limits: PaceLimits,
        rates: ReportedRates | None,
        tokens: float = 0.0,
        user: str = "",
        session: str = "",
        patience: float = inf,
    ) -> None:
        self.limits, self.rates, self.tokens, self.patience = limits, rates, tokens, patience
        self.user, self.session, self.number, self.under_way = user, session, 0, False
        self.uses: list[tuple[SlidingWindow, CountedUse]] = []
        self._future: asyncio.Future[None] | None = None

    @property
    def kind(self) -> tuple[PaceLimits, int]:
        """Return a key that is equal for calls that wait for the same limits."""
        return self.limits, id(self.rates)

    async def turn(self) -> None:
        """Wait until the call is let through. Raises `TooLong`."""
        assert self._future is not None
        await self._future

    def get_in_line(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()

    def wake(self, problem: TooLong | None = None) -> None:
        """End the wait of the task, which may run in another thread."""
        if self._future is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle, problem)

    def _settle(self, problem: TooLong | None) -> None:
        if self._future is None or self._future.done():
            return
        if problem is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(problem)


class Gate:
    """The gate of one account: an address and a key. All threads and event loops of the process share it.

    Users take turns, then the sessions of a user. Within a session, the first call goes first. A call that has to wait does
    not hold up calls with other limits, or of another model.

    Args:
        clock: Returns the time in seconds. Tests pass their own.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock, self.lock = clock, RLock()
        self.at_work = 0
        self.limited = False  # a `Pace` has limits of its own here
        self.windows: dict[tuple[str, float], SlidingWindow] = {}
        self.waiting: list[PacedCall] = []
        self._numbers = count(1)
        self._turns: dict[tuple[str, ...], int] = {}  # of users, and of their sessions: the one with the lowest number is next
        self._timer: Timer | None = None
        self._rings_at = inf

    def watch(self, limits: PaceLimits) -> None:
        """Begin to count what these limits limit."""
        with self.lock:
            for kind, rate in limits.rates:
                self.windows.setdefault((kind, rate.seconds), SlidingWindow(rate.seconds))
                self.limited = True
            self.limited = self.limited or limits.at_once is not None

    def reason(self, call: PacedCall) -> tuple[str, float]:
        """Return the reason that a call has to wait, or "", and the seconds of the wait; 0 seconds if they are unknown."""
        with self.lock:
            now = self.clock()
            if call.limits.at_once is not None and self.at_work >= call.limits.at_once:
                return "at_once", 0.0
            for kind, rate in call.limits.rates:
                amount = call.tokens if kind == "tokens" else 1.0
                if late := self.windows[kind, rate.seconds].wait(amount, rate.amount, now):
                    return kind, late
            return ("", 0.0) if call.rates is None else call.rates.wait(now)

    def enter(self, call: PacedCall) -> bool:
        """Let the call through if it can be made now and no other call waits."""
        with self.lock:
            if self.waiting or self.reason(call)[0]:
                return False
            self._admit(call)
            return True

    def join(self, call: PacedCall) -> None:
        """Put a call into the queue. If it can be made now, it is under way when this returns."""
        call.get_in_line()
        with self.lock:
            call.number = next(self._numbers)
            for turn in (call.user,), (call.user, call.session):
                self._turns.setdefault(turn, call.number)
            self.waiting.append(call)
            self.pump()

    def leave(self, call: PacedCall, tokens: int | None = None) -> None:
        """End a call, or take one that was cancelled out of the queue. `tokens`: what it used, if that is known."""
        with self.lock:
            if call in self.waiting:
                self._remove(call)
            elif call.under_way:
                call.under_way = False
                self.at_work -= 1
                if call.rates is not None:
                    call.rates.end()
                for window, use in call.uses if tokens is not None else ():
                    window.correct(use, float(tokens or 0))
            self.pump()

    def _admit(self, call: PacedCall) -> None:
        now = self.clock()
        for (kind, _), window in self.windows.items():
            use = window.add(call.tokens if kind == "tokens" else 1.0, now)
            call.uses += [(window, use)] if kind == "tokens" else []
        if call.rates is not None:
            call.rates.begin()
        self.at_work += 1
        call.under_way = True

    def pump(self) -> None:
        """Let through every call whose turn it is, and set a timer for the next one."""
        if not self.waiting and self._timer is None:
            return
        with self.lock:
            blocked, soonest = set[tuple[PaceLimits, int]](), inf
            while (call := self._next(blocked)) is not None:
                reason, late = self.reason(call)
                if reason and reason not in OWN and late > call.patience:
                    self._remove(call)
                    call.wake(TooLong(late))
                elif reason:
                    blocked.add(call.kind)
                    soonest = min(soonest, late or inf)
                else:
                    self._turns[call.user,] = self._turns[call.user, call.session] = next(self._numbers)
                    self._remove(call)
                    self._admit(call)
                    call.wake()
            self._set_timer(soonest)

    def _next(self, blocked: Set[tuple[PaceLimits, int]]) -> PacedCall | None:
        """Return the call whose turn it is, among those that do not have to wait as others do."""
        turns = self._turns
        free = [call for call in self.waiting if call.kind not in blocked]
        return min(free, key=lambda one: (turns[one.user,], turns[one.user, one.session], one.number), default=None)

    def _remove(self, call: PacedCall) -> None:
        self.waiting.remove(call)
        if not self.waiting:
            self._turns.clear()

    def _set_timer(self, late: float) -> None:
        """Ring after so many seconds. The timer has a thread of its own, because the event loop of a call may end."""
        rings_at = self.clock() + late
        if self._timer is not None and rings_at < inf and abs(rings_at - self._rings_at) < 0.001:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at = None, rings_at
        if rings_at < inf:
            self._timer = Timer(late, self._ring)
            self._timer.daemon = True
            self._timer.start()

    def _ring(self) -> None:
        with self.lock:
            self._rings_at = -inf  # so that the next timer is set
            self.pump()


_gates: dict[str, Gate] = {}
_gates_of_models: WeakKeyDictionary[Any, Gate] = WeakKeyDictionary()  # of models that report nothing


def gate_of(model: Any, rates: ReportedRates | None) -> Gate:
    """Return the gate of a model's calls: by the account of its rates, or by the model itself if it reports none."""
    if rates is not None:
        return _gates.setdefault(rates.account, Gate())
    try:
        return _gates_of_models.setdefault(model, Gate())
    except TypeError:  # the model cannot be referred to weakly, and each `Pace` counts alone
        return Gate()
