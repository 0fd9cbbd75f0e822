"""Stop calling a model that keeps failing, and find out with a single call when it works again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from threading import Lock
from time import monotonic
from typing import Any
from weakref import WeakValueDictionary

from ...core.errors import ContentFiltered, ContextTooLong, ModelDenied, ModelError, ModelNotFound, RequestRefused
from ...core.record import record
from ...kernel.bases import model_info

_AT_ONCE = (ModelDenied, ModelNotFound)  # the next call would fail in the same way
_WORKS = (RequestRefused, ContentFiltered, ContextTooLong)  # the model works, and only this request does not
_LONGEST_REST = 300.0  # seconds, however long the provider asks to wait


@record
class Limits:
    """When a breaker opens: after so many `failures` in a row within `window` seconds, for `pause` seconds."""

    failures: int
    window: float
    pause: float


class Breaker:
    """Counts the calls under way to one model, and opens when too many of them fail.

    While it is closed, all calls pass. While it is open, none do. After the pause exactly one call passes, the probe: if it
    succeeds the breaker closes, otherwise it opens again. A probe that is cancelled makes room for another. It needs no timer,
    and threads can share it.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = monotonic) -> None:
        self._limits, self._clock, self._lock = limits, clock, Lock()
        self._failed: deque[float] = deque()  # when the last calls failed, since one succeeded
        self._closed_until: float | None = None  # no calls before; None while all may pass
        self._probing = False
        self._era = 0  # what began before the breaker last changed no longer counts
        self.busy = 0
        self.error: ModelError | None = None  # of the call that opened it

    def enter(self) -> int | None:
        """Begin a call, and return a ticket for `leave`; None if the model must not be called now."""
        with self._lock:
            if self._closed_until is not None:
                if self._probing or self._clock() < self._closed_until:
                    return None
                self._probing = True
            self.busy += 1
            return self._era

    def leave(self, ticket: int, outcome: ModelError | bool | None) -> None:
        """End a call. `outcome`: True, its error, or None if it was broken off, which says nothing about the model."""
        with self._lock:
            self.busy -= 1
            if ticket != self._era:
                return
            works = outcome is True or isinstance(outcome, _WORKS)
            if self._closed_until is not None:  # this was the probe
                self._probing = False
                if works:
                    self._change(None)
                elif isinstance(outcome, ModelError):
                    self._open(outcome)
            elif works:
                self._failed.clear()
            elif isinstance(outcome, ModelError):
                self._count(outcome)

    @property
    def rest(self) -> float:
        """Return the seconds until a call may pass; 0 if one may pass now."""
        with self._lock:
            if self._closed_until is None:
                return 0.0
            left = self._closed_until - self._clock()
            return max(left, self._limits.pause / 3) if self._probing else max(0.0, left)

    def _count(self, error: ModelError) -> None:
        now = self._clock()
        self._failed.append(now)
        while self._failed[0] <= now - self._limits.window:
            self._failed.popleft()
        if isinstance(error, _AT_ONCE) or error.retry_after or len(self._failed) >= self._limits.failures:
            self._open(error)

    def _open(self, error: ModelError) -> None:
        self.error = error
        self._change(self._clock() + min(error.retry_after or self._limits.pause, _LONGEST_REST))

    def _change(self, closed_until: float | None) -> None:
        self._failed.clear()
        self._closed_until = closed_until
        self._era += 1


class Instance:
    """A model of a list, with the breaker that all agents of this process share for it."""

    def __init__(self, model: Any, limits: Limits) -> None:
        self.model: Any = model
        self.name = str(getattr(model, "name", type(model).__name__))
        self.breaker = _shared(model, limits)


class _Shared(Breaker):
    def __init__(self, limits: Limits, model: Any) -> None:
        super().__init__(limits)
        self._model = model  # so that no other object gets its id as long as this is shared


_breakers: WeakValueDictionary[tuple[Hashable, Limits], _Shared] = WeakValueDictionary()
_making = Lock()


def _shared(model: Any, limits: Limits) -> Breaker:
    """Return the breaker of a model: the same for two objects that call the same model at one address with one key."""
    known: Hashable = model_info(model).instance
    key = (id(model) if known is None else known, limits)
    with _making:
        found = _breakers.get(key)
        if found is None:
            found = _breakers[key] = _Shared(limits, model)
        return found
