"""Wait for new facts in a journal: woken at once by this process, by polling for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from ..core.errors import JournalError

Look = Callable[[], Awaitable[int]]


class News:
    """`look` gives a number that changes when something was written. One look serves all who wait in an event loop."""

    def __init__(self, look: Look | None = None, seconds: float = 0.05) -> None:
        self._look, self._seconds = look, seconds
        self._anybody = False  # has ever asked
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()

    async def version(self) -> int:
        """Where it stands now: to be asked before reading, and given to `wait` after it."""
        mine = self._mine()
        self._anybody = True
        if self._look is not None:
            mine.move_to(await self._look())
        return mine.version

    async def wait(self, version: int) -> None:
        """Until it no longer stands there."""
        mine = self._mine()
        while mine.version == version:
            future = asyncio.get_running_loop().create_future()
            mine.waiters.add(future)
            if self._look is not None and (mine.looking is None or mine.looking.done()):
                mine.looking = asyncio.create_task(self._keep_looking(mine))
            try:
                await future
            finally:
                mine.waiters.discard(future)

    def tell(self) -> None:
        """This process has written something."""
        if not self._anybody:
            return
        for loop, waiting in tuple(self._loops.items()):
            if loop.is_closed():
                continue
            if self._look is None:  # nobody will look: who is busy with what came before must find that it moved
                loop.call_soon_threadsafe(waiting.advance)
            elif waiting.waiters:
                loop.call_soon_threadsafe(waiting.nudge)

    async def _keep_looking(self, mine: _Waiting) -> None:
        while mine.waiters:
            mine.nudged = asyncio.get_running_loop().create_future()
            await asyncio.wait([mine.nudged], timeout=self._seconds)
            assert self._look is not None
            try:
                mine.move_to(await self._look())
            except JournalError as problem:  # closed, or broken: those who wait are told
                mine.fail(problem)

    def _mine(self) -> _Waiting:
        return self._loops.setdefault(asyncio.get_running_loop(), _Waiting())


class _Waiting:
    def __init__(self) -> None:
        self.version = 0
        self.waiters: set[asyncio.Future[None]] = set()
        self.looking: asyncio.Task[None] | None = None
        self.nudged: asyncio.Future[None] | None = None

    def nudge(self) -> None:
        if self.nudged is not None and not self.nudged.done():
            self.nudged.set_result(None)

    def advance(self) -> None:
        self.move_to(self.version + 1)

    def move_to(self, version: int) -> None:
        """Whoever waits where it stood before is woken, whoever has found out that it moved."""
        if version != self.version:
            self.version = version
            for waiter in self.waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def fail(self, problem: JournalError) -> None:
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(problem)
