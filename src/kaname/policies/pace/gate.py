"""The gate before one provider and key: it counts the calls under way, and lets waiting calls through one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from threading import RLock
from time import monotonic
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from .limits import PaceLimits
from .queue import CountedUse, FairQueue, SlidingWindow


class ReportedRates(Protocol):
    """The limits that a provider reports: the optional member `rates` of a model. Equal accounts share a gate."""

    account: str
    bounded: bool

    @property
    def counts_tokens(self) -> bool: ...
    def wait(self, tokens: float, now: float) -> tuple[str, float]: ...
    def begin(self, tokens: float) -> Any: ...
    def sending(self, sent: Any) -> None: ...
    def end(self, sent: Any) -> None: ...


class UnknownRates:
    """The rates of a model that reports none."""

    bounded = counts_tokens = False

    def __init__(self, account: str) -> None:
        self.account = account

    def wait(self, tokens: float, now: float) -> tuple[str, float]:
        return "", 0.0

    def begin(self, tokens: float) -> None:
        pass

    def sending(self, sent: Any) -> None:
        pass

    def end(self, sent: Any) -> None:
        pass


class TooLong(Exception):
    """The provider must not be asked for so many seconds, which is longer than a call waits."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{seconds:g} s")
        self.seconds = seconds


class Ticket:
    """The right to make one call. `close` must be called when the call is over, however it ended."""

    __slots__ = ("_lane", "_sent", "_uses")

    def __init__(self, lane: PaceLane, sent: Any, uses: list[tuple[SlidingWindow, CountedUse]]) -> None:
        self._lane, self._sent, self._uses = lane, sent, uses

    def use(self) -> None:
        """Say that this task makes the call."""
        self._lane.rates.sending(self._sent)

    def close(self, tokens: int | None = None) -> None:
        """Free the place. `tokens`: what the call used, if that is known."""
        gate = self._lane.gate
        with gate.lock:
            if tokens is not None:
                for window, use in self._uses:
                    window.correct(use, tokens)
            gate.at_work -= 1
            self._lane.rates.end(self._sent)
            if gate.waiting:
                gate.pump()


class Waiter:
    """A call that waits for its ticket."""

    __slots__ = ("future", "loop", "session", "ticket", "tokens", "user")

    def __init__(self, user: str, session: str, tokens: float) -> None:
        self.user, self.session, self.tokens = user, session, tokens
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Ticket] = self.loop.create_future()
        self.ticket: Ticket | None = None

    def wake(self, outcome: Ticket | TooLong) -> None:
        """Give the outcome to the task that waits, which may run in another thread."""
        if asyncio._get_running_loop() is self.loop:
            self._settle(outcome)
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: Ticket | TooLong) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Ticket):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)


class PaceLane:
    """The calls at a gate that have the same limits and the same model."""

    def __init__(self, gate: Gate, limits: PaceLimits, rates: ReportedRates) -> None:
        self.gate, self.limits, self.rates = gate, limits, rates
        self.queue: FairQueue[Waiter] = FairQueue()
        self.requests = None if limits.requests is None else gate.window("requests", limits.requests.seconds)
        self.tokens = None if limits.tokens is None else gate.window("tokens", limits.tokens.seconds)

    def reason(self, tokens: float, now: float) -> tuple[str, float]:
        """Return why a call has to wait, or "", and for how many seconds; 0 seconds if that is unknown."""
        limits, late = self.limits, 0.0
        if limits.at_once is not None and self.gate.at_work >= limits.at_once:
            return "at_once", 0.0
        if self.requests is not None and (late := self.requests.wait(1.0, limits.requests.amount, now)):  # type: ignore[union-attr]
            return "requests", late
        if self.tokens is not None and (late := self.tokens.wait(tokens, limits.tokens.amount, now)):  # type: ignore[union-attr]
            return "tokens", late
        return self.rates.wait(tokens, now)

    def enter(self, tokens: float) -> Ticket | None:
        """Return a ticket if the call can be made now and no other call waits."""
        gate = self.gate
        with gate.lock:
            now = gate.clock()
            return None if gate.waiting or self.reason(tokens, now)[0] else self.admit(tokens, now)

    def admit(self, tokens: float, now: float) -> Ticket:
        gate = self.gate
        uses = []
        for (kind, _), window in gate.windows.items():
            use = window.add(tokens if kind == "tokens" else 1.0, now)
            if kind == "tokens":
                uses.append((window, use))
        gate.at_work += 1
        return Ticket(self, self.rates.begin(tokens), uses)

    def join(self, waiter: Waiter) -> None:
        """Put a call into the queue. If it can be made now, it has its ticket when this returns."""
        with self.gate.lock:
            self.queue.add(waiter)
            self.gate.waiting += 1
            self.gate.pump()

    def leave(self, waiter: Waiter) -> None:
        """Take a call that was cancelled out of the queue, or return its ticket."""
        with self.gate.lock:
            if waiter.ticket is not None:
                waiter.ticket.close()
            elif self.queue.remove(waiter):
                self.gate.waiting -= 1
                self.gate.forget_timer()
                self.gate.pump()


class Gate:
    """The gate of one account: an address and a key. All threads and event loops of the process share it.

    Args:
        clock: Returns the time in seconds. Tests pass their own.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock, self.lock = clock, RLock()
        self.at_work = self.waiting = 0
        self.limited = False  # a lane has limits of its own
        self.windows: dict[tuple[str, float], SlidingWindow] = {}
        self._lanes: dict[tuple[PaceLimits, int], PaceLane] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_loop: asyncio.AbstractEventLoop | None = None
        self._rings_at = inf

    def window(self, kind: str, seconds: float) -> SlidingWindow:
        return self.windows.setdefault((kind, seconds), SlidingWindow(seconds))

    def lane(self, limits: PaceLimits, rates: ReportedRates) -> PaceLane:
        """Return the lane of these limits and rates."""
        with self.lock:
            found = self._lanes.get((limits, id(rates)))
            if found is None:
                found = self._lanes[limits, id(rates)] = PaceLane(self, limits, rates)
                own = (limits.requests, limits.tokens, limits.at_once)
                self.limited = self.limited or own != (None, None, None)
            return found

    def pump(self) -> None:
        """Let through every call whose turn it is, and set a timer for the next one. Lanes take turns."""
        now, progress = self.clock(), True
        soonest, head = inf, None
        while progress:
            progress, soonest, head = False, inf, None
            for key, lane in list(self._lanes.items()):
                if not lane.queue:
                    continue
                first = lane.queue.first()
                reason, late = lane.reason(first.tokens, now)
                too_long = late > lane.limits.longest_wait and reason not in ("requests", "tokens")
                if not reason or too_long:
                    self._lanes[key] = self._lanes.pop(key)  # the last in turn now
                    lane.queue.take()
                    self.waiting -= 1
                    if too_long:
                        first.wake(TooLong(late))
                    elif not first.loop.is_closed():
                        first.ticket = lane.admit(first.tokens, now)
                        first.wake(first.ticket)
                    progress = True
                elif 0 < late < soonest:
                    soonest, head = late, first
        self._set_timer(soonest, head, now)

    def _set_timer(self, late: float, head: Waiter | None, now: float) -> None:
        if head is None:
            self.forget_timer()
        elif head.loop is not self._timer_loop or now + late < self._rings_at:
            self.forget_timer()
            self._timer_loop, self._rings_at = head.loop, now + late
            if asyncio._get_running_loop() is head.loop:
                self._start_timer(late)
            elif not head.loop.is_closed():
                head.loop.call_soon_threadsafe(self._start_timer, late)

    def _start_timer(self, late: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(late, self.ring)

    def ring(self) -> None:
        """Let through the calls whose time has come."""
        with self.lock:
            self._rings_at = inf
            self.pump()

    def forget_timer(self) -> None:
        """Cancel the timer. One of another event loop still rings, which does no harm."""
        if self._timer is not None and asyncio._get_running_loop() is self._timer_loop:
            self._timer.cancel()
        self._timer, self._timer_loop, self._rings_at = None, None, inf


_gates: dict[str, Gate] = {}
_unknown: WeakKeyDictionary[Any, tuple[Gate, UnknownRates]] = WeakKeyDictionary()


def lane_of(model: Any, rates: ReportedRates | None, limits: PaceLimits) -> PaceLane:
    """Return the lane of a model's calls: by the account of its rates, or by the model itself if it reports none."""
    if rates is not None:
        return _gates.setdefault(rates.account, Gate()).lane(limits, rates)
    try:
        gate, unknown = _unknown[model]
    except (KeyError, TypeError) as problem:
        gate, unknown = Gate(), UnknownRates(str(getattr(model, "name", "")))
        if isinstance(problem, KeyError):  # otherwise the model cannot be referred to weakly, and each `Pace` counts alone
            _unknown[model] = gate, unknown
    return gate.lane(limits, unknown)
