"""Run blocking functions off the event loop.

These are daemon threads, because the standard executor is joined when the loop closes: one hanging tool would keep a program
from ending. A call that was cancelled or timed out is left behind and delays nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isroutine
from queue import Empty, SimpleQueue
from typing import Any

from ..core.errors import Signal
from .boundary import Border


class AtWork:
    """The threads at work for one run and its children. `parent`: the threads of the run whose tool call opened this one.

    Cancelling a call does not end its thread, so the run checks this before it is released.
    """

    def __init__(self, parent: AtWork | None = None) -> None:
        self._lock, self._count, self._parent = threading.Lock(), 0, parent
        self._then: Callable[[], None] | None = None
        self._ending = False

    @property
    def busy(self) -> bool:
        return self._count > 0

    @property
    def is_over(self) -> bool:
        """Return True if no thread is at work, and what had to be done after the last one is done."""
        return not self._count and not self._ending

    def begin(self) -> None:
        with self._lock:
            self._count += 1
        if self._parent is not None:
            self._parent.begin()

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            then, self._then = (self._then, None) if not self._count else (None, self._then)
            self._ending = then is not None
        try:
            if then is not None:
                then()
        finally:
            self._ending = False
            if self._parent is not None:  # after the child is released, so that its parent finds it free
                self._parent.end()

    def when_idle(self, then: Callable[[], None]) -> bool:
        """Call `then` in the thread that ends last. Return False, and call nothing, if no thread is at work."""
        with self._lock:
            if self._count:
                self._then = then
            return self._count > 0


working_for: contextvars.ContextVar[AtWork | None] = contextvars.ContextVar("working_for", default=None)
"""Counter of the threads of the tool that is being called; None for a pure tool."""
inside: contextvars.ContextVar[AtWork | None] = contextvars.ContextVar("inside", default=None)
"""The threads of the run whose tool is being called."""
_IDLE_SECONDS = 10.0
_jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]] = SimpleQueue()
_lock = threading.Lock()
_idle = 0


def _forget_threads() -> None:
    """Start without threads in a forked child, which inherits none."""
    global _jobs, _lock, _idle
    _jobs, _lock, _idle = SimpleQueue(), threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def runs_on_loop(function: Callable[..., Any]) -> bool:
    """Return True if the function is async and needs no thread."""
    while isinstance(function, partial):
        function = function.func
    kind = function if isroutine(function) else type(function).__call__
    return iscoroutinefunction(kind) or isasyncgenfunction(kind)


async def off_loop(function: Callable[..., Any], /, *args: Any) -> Any:
    """Run a blocking function in a thread. If cancelled, it continues there; `working_for` counts it until it ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context, at_work = contextvars.copy_context(), working_for.get()

    def work() -> Any:
        try:
            return context.run(function, *args)
        finally:
            if at_work is not None:
                at_work.end()

    if at_work is not None:
        at_work.begin()
    _submit((work, loop, future))
    return await future


def _submit(job: tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]) -> None:
    global _idle
    with _lock:
        if spare := _idle > 0:
            _idle -= 1  # promised to this job, so that the next one starts a thread of its own
    _jobs.put(job)
    if not spare:
        threading.Thread(target=_work, name="kaname-tool", daemon=True).start()


def _work() -> None:
    global _idle
    while True:
        try:
            function, loop, future = _jobs.get(timeout=_IDLE_SECONDS)
        except Empty:
            with _lock:
                if _idle == 0:  # promised away in this very moment: the job is on its way
                    continue
                _idle -= 1
            return
        outcome: Any = None
        with Border(caught=(BaseException,)) as border:  # sys.exit() in a tool is the tool's failure, not this thread's end
            outcome = function()
        error = None if border.failure is None else border.failure.error
        if not loop.is_closed():
            with suppress(RuntimeError):  # the loop closed in between, and nothing waits for it
                loop.call_soon_threadsafe(_deliver, future, outcome, error)
        del function, future, outcome, error, border
        with _lock:
            _idle += 1


def _deliver(future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None and (isinstance(error, StopIteration) or not isinstance(error, Exception | Signal)):
        error = RuntimeError(f"{type(error).__name__}: {error}")  # a future must not carry these
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(outcome)
