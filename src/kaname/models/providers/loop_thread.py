"""Run a library that may block in a thread with its own event loop, so that it cannot block the caller's loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, TypeVar

T = TypeVar("T")
_LEAVING = 5.0  # seconds for what is still going on in the thread


class LoopThread:
    """A daemon thread with an event loop. Cancelling `run` or `start` reaches the work there, but does not wait for it."""

    def __init__(self, name: str) -> None:
        self._started = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def alive(self) -> bool:
        """Return False after `stop`, and in a forked child."""
        return self._thread.is_alive() and not self._stopped.is_set()

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await self._stopped.wait()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result here, while the work is done there."""
        return await asyncio.wrap_future(self.start(work))

    async def stop(self) -> None:
        """End the loop and its thread. A blocked thread is left behind; it ends with the program at the latest."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.to_thread(self._thread.join, _LEAVING)


class Handover:
    """A queue from another thread to one reader on the loop that created it. `put` never waits."""

    def __init__(self) -> None:
        self._loop, self._there = asyncio.get_running_loop(), asyncio.Event()
        self._items: deque[Any] = deque()
        self._waiting = False

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:  # a reader that is behind finds it anyway
            self._waiting = False
            self._loop.call_soon_threadsafe(self._there.set)

    async def next(self) -> Any:
        while not self._items:
            self._there.clear()
            self._waiting = True
            if not self._items:
                await self._there.wait()
        return self._items.popleft()
