"""Wait for new facts in a journal: writes of this process wake at once, those of other processes are found by polling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from ..core.errors import JournalError

Look = Callable[[], Awaitable[int]]


class News:
    """A version number that changes with every write.

    `look` reads it; one call of it serves all waiting tasks of an event loop.
    """

    def __init__(self, look: Look | None = None, seconds: float = 0.05) -> None:
        self._look, self._seconds = look, seconds
        self._in_use = False  # `version` has been called
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()

    async def version(self) -> int:
        """Return the current version. Call it before reading, and pass the version to `wait` after reading."""
        mine = self._mine()
        self._in_use = True
        if self._look is not None:
            mine.move_to(await self._look())
        return mine.version

    async def wait(self, version: int) -> None:
        """Wait until the version differs from `version`."""
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
        """Wake the waiting tasks: this process has written something."""
        if not self._in_use:
            return
        here = _running_loop()
        for loop, waiting in tuple(self._loops.items()):
            if loop.is_closed():
                continue
            if self._look is None:  # no polling: a task that is still reading must find that the version changed
                waiting.advance() if loop is here else loop.call_soon_threadsafe(waiting.advance)
            elif waiting.waiters:
                waiting.nudge() if loop is here else loop.call_soon_threadsafe(waiting.nudge)

    async def _keep_looking(self, mine: _Waiting) -> None:
        while mine.waiters:
            mine.nudged = asyncio.get_running_loop().create_future()
            await asyncio.wait([mine.nudged], timeout=self._seconds)
            assert self._look is not None
            try:
                mine.move_to(await self._look())
            except JournalError as problem:  # closed or broken: the waiting tasks get the error
                mine.fail(problem)

    def _mine(self) -> _Waiting:
        return self._loops.setdefault(asyncio.get_running_loop(), _Waiting())


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread: waking it needs no system call."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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
        """Set the version, and wake the tasks that wait for a change."""
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
