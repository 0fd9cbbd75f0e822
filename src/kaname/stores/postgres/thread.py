"""A thread with an event loop, in which all connections of a journal live.

Runs can use one journal from several event loops, and a program can block its own for a long time: heartbeats must go on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from ...core.errors import AgentError, JournalError
from ...kernel.boundary import Border
from .errors import explain

T = TypeVar("T")


class Outcome(Protocol):
    """Something that a caller waits for: the future, its event loop, and what came of it."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    outcome: Any


class ThreadCall:
    """A call from another event loop, to be answered there."""

    __slots__ = ("future", "loop", "outcome", "task")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.task: asyncio.Task[None] | None = None
        self.outcome: Any = None


class PostgresThread:
    """Runs coroutines in its own event loop, from whichever event loop they are asked for.

    `where` is for errors. `at_end` is called in the thread when it ends, however it ends.
    """

    def __init__(self, where: str, at_end: Callable[[], None]) -> None:
        self._where, self._at_end, self._starting = where, at_end, threading.Lock()
        self.process, self.closed = 0, False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_here(self) -> bool:
        """Return True if the thread runs, and in this process: a forked child has only a copy without a thread."""
        return self.process == os.getpid()

    def start(self) -> None:
        with self._starting:
            if not self.is_here:
                self._tasks = set()
                self.loop = loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(loop, self._at_end), name="kaname-journal", daemon=True)
                self._thread.start()
                self.process = os.getpid()

    def submit(self, work: Callable[[], Awaitable[T]], *, gives_up: bool = False) -> asyncio.Future[T]:
        """Run the work in the thread, and return the future of its result.

        It is carried out even if the caller is cancelled meanwhile. `gives_up`: then it is cancelled, too.
        """
        if self.closed:
            raise JournalError.of("journal.closed", "the journal {path} is closed", path=self._where)
        assert self.loop is not None
        asked = ThreadCall()
        self.loop.call_soon_threadsafe(self._begin, work, asked)
        if gives_up:
            asked.future.add_done_callback(lambda future: self._give_up(asked) if future.cancelled() else None)
        return asked.future

    def _begin(self, work: Callable[[], Awaitable[Any]], asked: ThreadCall) -> None:
        assert self.loop is not None
        asked.task = task = self.loop.create_task(self._answer(work, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, work: Callable[[], Awaitable[Any]], asked: ThreadCall) -> None:
        with Border() as border:
            asked.outcome = await work()
        if border.failure is not None:
            problem = border.failure.error
            asked.outcome = problem if isinstance(problem, AgentError) else explain(problem, self._where)
        deliver([asked])

    def _give_up(self, asked: ThreadCall) -> None:
        def cancel() -> None:
            if asked.task is not None:
                asked.task.cancel()

        if self.loop is not None and not self.loop.is_closed():
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(cancel)

    async def stop(self) -> None:
        """End the thread, from another event loop. What is under way is cancelled."""
        loop, thread = self.loop, self._thread
        if loop is None or thread is None or not self.is_here:
            return
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)

    def stop_soon(self) -> None:
        """End the thread without waiting for it."""
        if self.loop is not None and self.is_here and not self.loop.is_closed():
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.loop.stop)


def _serve(loop: asyncio.AbstractEventLoop, at_end: Callable[[], None]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        at_end()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(asyncio.sleep(0), *left, return_exceptions=True))
        at_end()  # a task may have opened a connection meanwhile
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


def deliver(answers: Iterable[Outcome]) -> None:
    """Wake every waiting event loop once, whatever the number of its answers."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for one in answers:
        by_loop.setdefault(one.loop, []).append(one)
    for loop, mine in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
            loop.call_soon_threadsafe(_deliver_all, mine)


def _deliver_all(answers: list[Outcome]) -> None:
    for one in answers:
        if one.future.done():  # cancelled meanwhile
            continue
        if isinstance(one.outcome, BaseException):
            one.future.set_exception(one.outcome)
        else:
            one.future.set_result(one.outcome)
