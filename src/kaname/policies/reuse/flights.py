"""One computation for many callers who want the same value at the same time, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

_PATIENCE = 2  # how many computations of others a caller waits for before it computes the value itself

_computing: ContextVar[frozenset[str]] = ContextVar("computing", default=frozenset())
"""The keys that the current task computes. Whatever it calls must not wait for them."""


class Landed(NamedTuple):
    """A value, and whether another caller computed it."""

    value: Any
    shared: bool


class Flights:
    """Computations under way, by key. Callers can be on several event loops and in threads.

    If a computation fails, is cancelled, or its value is not to be shared, the next caller computes it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way: dict[str, Future[tuple[Any] | None]] = {}

    async def share(self, key: str, compute: Callable[[], Awaitable[Any]], fits: Callable[[Any], bool]) -> Landed:
        """Return the value that another caller computes, or compute it. Call `release` once the value is stored.

        Args:
            key: What is computed.
            compute: Computes it.
            fits: Returns True if the value can be given to others.
        """
        for _ in range(_PATIENCE):
            if (flight := self._join(key)) is None:
                return await self._compute(key, compute, fits)
            if (landed := await asyncio.wrap_future(flight)) is not None:
                return Landed(landed[0], True)
        return Landed(await compute(), False)

    def share_now(self, key: str, compute: Callable[[], Any]) -> Landed:
        """Do the same in a thread, with a plain function."""
        for _ in range(_PATIENCE):
            if (flight := self._join(key)) is None:
                made, token = None, _computing.set(_computing.get() | {key})
                try:
                    made = (compute(),)
                    return Landed(made[0], False)
                finally:
                    _computing.reset(token)
                    self._land(key, made)
            if (landed := flight.result()) is not None:
                return Landed(landed[0], True)
        return Landed(compute(), False)

    def release(self, key: str) -> None:
        """Forget a computation that has ended: its value is stored, or is not to be stored."""
        with self._lock:
            if (flight := self._under_way.get(key)) is not None and flight.done():
                del self._under_way[key]

    async def _compute(self, key: str, compute: Callable[[], Awaitable[Any]], fits: Callable[[Any], bool]) -> Landed:
        made, token = None, _computing.set(_computing.get() | {key})
        try:
            value = await compute()
            made = (value,) if fits(value) else None
            return Landed(value, False)
        finally:
            _computing.reset(token)
            self._land(key, made)

    def _join(self, key: str) -> Future[tuple[Any] | None] | None:
        """Return the computation that is under way, or begin one and return None."""
        with self._lock:
            if (flight := self._under_way.get(key)) is not None:
                if key not in _computing.get() or flight.done():
                    return flight
                alone: Future[tuple[Any] | None] = Future()  # a computation that needs itself: nobody can wait for it
                alone.set_result(None)
                return alone
            flight = self._under_way[key] = Future()
            flight.set_running_or_notify_cancel()  # so that a caller who is cancelled does not cancel it for the others
            return None

    def _land(self, key: str, made: tuple[Any] | None) -> None:
        with self._lock:
            flight = self._under_way[key]
            if made is None:
                del self._under_way[key]
        flight.set_result(made)
