"""A world of simulated processes: one scheduler with a time of its own, and a seed that decides everything.

Each process has an event loop. All of them run in one thread: the world picks a process that has something to do, runs one
callback of it, and picks again. Time passes only when no process has anything to do, and then at once. A process that is
killed is dropped between two callbacks, or in the middle of one with `Killed`; what it does after that reaches nothing.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from heapq import heappop, heappush
from itertools import count
from types import ModuleType
from typing import Any

from ...agent.work.scheduler import Scheduler
from ...core.errors import AgentError
from ...kernel import threads
from ...kernel.boundary import Border

MOST_STEPS = 100_000  # callbacks of one schedule, after which nothing will come of it
_THREAD = 0.004  # seconds that a function in a thread takes, at most
_RESTART = 0.5  # seconds until a killed process is started again, at most
_GHOSTS = 1_000  # callbacks that what is left of dead processes gets to end in
_LAST_WISHES = 50  # `finally` blocks of a dead task that await something
_BIRTH = 1_790_000_000.0  # when worlds begin, in seconds since 1970
_REAL: dict[str, Callable[..., Any]] = {
    "time": time.time,
    "monotonic": time.monotonic,
    "time_ns": time.time_ns,
    "sleep": time.sleep,
    "urandom": os.urandom,
}
_submit_really = threads._submit
_at_work: list[World] = []  # the world at work, if there is one
_thread = 0  # the thread in which it works


class Killed(BaseException):
    """The process was killed here. Nothing catches it, and what follows in `finally` reaches nothing."""


class Callback:
    """A callback that waits for its turn, or for a time."""

    __slots__ = ("args", "at", "callback", "context", "is_cancelled", "process")

    def __init__(
        self,
        process: Process | None,
        at: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...] = (),
        context: Any = None,
    ) -> None:
        self.process = process
        self.at = at
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class _Future(asyncio.Future[Any]):
    """A future with a number as its hash, so that a set of futures has the same order each time."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _Task(asyncio.Task[Any]):
    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **more: Any) -> None:
        self.number = number
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self.number


class Loop:
    """The event loop of one process, as far as asyncio needs it. The world runs its callbacks."""

    def __init__(self, process: Process) -> None:
        self._process, self._world, self._numbers = process, process.world, process.world.numbers
        self._self: Any = self  # as asyncio wants it

    def time(self) -> float:
        return self._world.now + self._process.monotonic_base

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self._process.alive

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        process = self._process
        handle = Callback(process, 0.0, callback, args, copy_context() if context is None else context)
        if process.takes_callbacks:
            process.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        process = self._process
        handle = Callback(process, when, callback, args, copy_context() if context is None else context)
        if process.takes_callbacks:
            self._world.add_timer(when - process.monotonic_base, handle)
        return handle

    def create_future(self) -> Any:
        future = _Future(loop=self._self)
        future.number = next(self._numbers)
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None, **more: Any) -> Any:
        task = _Task(next(self._world.numbers), coro, loop=self, name=name or "task", context=context)
        self._process.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()
        threads._submit((lambda: func(*args), self._self, future))
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore it: asyncio tells here of exceptions that nobody has read."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing."""

    async def shutdown_default_executor(self) -> None:
        """Do nothing."""


class Process:
    """A simulated process: an event loop, clocks, and whether it lives. `life`: how often its program was started before."""

    def __init__(self, world: World, name: str, life: int) -> None:
        self.world, self.name, self.life = world, name, life
        self.alive = self.takes_callbacks = True
        self.ready: deque[Callback] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.frozen_until = 0.0
        self.offset = 0.0  # seconds by which its wall clock is ahead
        self.monotonic_base = world.random.random() * 1000.0 - _BIRTH
        self.loop: Any = Loop(self)  # not an `AbstractEventLoop`: it has no network and no files
        self.belongings: dict[str, Any] = {}  # what it has opened, such as its journal; gone with it

    def __str__(self) -> str:
        return f"{self.name}{self.life or ''}"

    def monotonic(self) -> float:
        return self.world.now + self.monotonic_base

    def wall(self) -> float:
        return self.world.now + self.offset

    def later(self, delay: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call back after that time, if the process still lives."""
        self.world.add_timer(self.world.now + delay, Callback(self, 0.0, callback, args, copy_context()))

    def kill(self, why: str = "") -> None:
        """Kill the process. Everything that it still had to do is dropped."""
        if self.alive:
            self.alive = self.takes_callbacks = False
            self.ready.clear()
            self.world.tell(f"{self} is killed {why}".rstrip())
            self.world.bury(self)

    def freeze(self, seconds: float) -> None:
        """Execute nothing of the process for a while, as if it had been stopped."""
        self.frozen_until = self.world.now + seconds
        self.world.tell(f"{self} is frozen for {seconds:.1f} s")
        self.world.at(seconds, lambda: None)


Program = Callable[[Process], Awaitable[None]]


class World:
    """All processes of a schedule, and its time.

    Args:
        seed: It decides everything that is random.
        traced: Keep a line for everything that happens.
    """

    def __init__(self, seed: int | str, *, traced: bool = False) -> None:
        self.random = random.Random(seed)
        self.trace: list[str] | None = [] if traced else None
        self.birth = self.now = _BIRTH + self.random.randrange(86_400)
        self.numbers = count(1)
        self.here: Process | None = None
        self.processes: list[Process] = []
        self.problems: list[tuple[str, str]] = []  # names of broken promises, and what happened
        self.restarts = True  # killed programs are started again
        self.steps = self.kills = 0
        self.belongings: dict[str, Any] = {}  # what is outside of all processes
        self._timers: list[tuple[float, int, Callback]] = []
        self._programs: dict[str, Program] = {}
        self.running: set[str] = set()  # the programs that have not ended
        self._begin: Callable[[Process], None] = lambda process: None

    def tell(self, what: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            who = "" if self.here is None else str(self.here)
            self.trace.append(f"{self.now - self.birth:10.4f} {who:9} {what}")

    def report(self, promise: str, what: str) -> None:
        """Note a broken promise."""
        self.tell(f"BROKEN {promise}: {what}")
        if (promise, what) not in self.problems:
            self.problems.append((promise, what))

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def add_timer(self, at: float, handle: Callback) -> None:
        heappush(self._timers, (at, next(self.numbers), handle))

    def at(self, delay: float, callback: Callable[[], None]) -> None:
        """Call back after that time, outside of all processes."""
        self.add_timer(self.now + delay, Callback(None, 0.0, callback))

    def prepare(self, begin: Callable[[Process], None]) -> None:
        """Call `begin` with each new process before its program starts."""
        self._begin = begin

    def start(self, name: str, program: Program, life: int = 0) -> Process:
        """Start a program in a process of its own. If the process is killed, the program is started again, in another one."""
        process = Process(self, name, life)
        self.processes.append(process)
        self._programs[name] = program
        self.running.add(name)
        before, self.here = self.here, process
        asyncio._set_running_loop(process.loop)
        self._begin(process)
        process.loop.create_task(self._execute_program(process, program))
        self.here = before
        asyncio._set_running_loop(None if before is None else before.loop)
        return process

    async def _execute_program(self, process: Process, program: Program) -> None:
        with Border() as border:
            await program(process)
        if (failure := border.failure) is not None:
            kind = "typed-error" if isinstance(failure.error, AgentError) else "raw-exception"
            self.report(kind, f"the program of {process} ended with {failure} (at {failure.place})")
        self.running.discard(process.name)

    def bury(self, process: Process) -> None:
        """Start the program of a dead process again, after a while."""
        self.kills += 1
        if process.name in self.running and self.restarts:
            program = self._programs[process.name]
            self.at(self.random.random() * _RESTART, lambda: self._start_again(process, program))

    def _start_again(self, dead: Process, program: Program) -> None:
        process = self.start(dead.name, program, dead.life + 1)
        process.offset = dead.offset

    def rest(self, seconds: float) -> None:
        """Let what is left to do be done, such as the last write of a program that has ended."""
        self.running.add("rest")
        self.at(seconds, self.running.clear)
        self.run(seconds + 1.0)

    def run(self, longest: float) -> None:
        """Run until all programs have ended, or until it is clear that they never will."""
        until = self.now + longest
        goes_on = True
        while goes_on:
            with suppress(Killed), Border() as border:
                self._execute_until(until)
                goes_on = False
            if border.failure is not None:
                self.report("raw-exception", f"a callback of {self.here} raised {border.failure} (at {border.failure.place})")
        if self.running:
            names = ", ".join(sorted(self.running))
            why = "too many steps" if self.steps >= MOST_STEPS else f"{self.now - self.birth:.0f} s"
            self.report("never-ends", f"the programs of {names} have not ended after {why}")
        self.here = None
        asyncio._set_running_loop(None)

    def _execute_until(self, until: float) -> None:
        """Execute callbacks and let time pass. What a callback raises ends it; then it is called again."""
        running, timers, processes, chance = self.running, self._timers, self.processes, self.random.random
        set_loop = asyncio._set_running_loop
        while running and self.steps < MOST_STEPS:
            now = self.now
            able = [one for one in processes if one.ready and one.frozen_until <= now]
            if able:
                process = able[0] if len(able) == 1 else able[int(chance() * len(able))]
                callback = process.ready.popleft()
                if not callback.is_cancelled:
                    self.steps += 1
                    if self.here is not process:
                        self.here = process
                        set_loop(process.loop)
                    callback.context.run(callback.callback, *callback.args)
                continue
            if not timers or timers[0][0] > until:
                return
            at, _, callback = heappop(timers)
            if callback.is_cancelled:
                continue
            if at > now:
                self.now = at
            if callback.process is None:
                self.here = None
                callback.callback()
            elif callback.process.alive:
                callback.process.ready.append(callback)

    def end(self) -> None:
        """Kill what still lives, and let all tasks end, so that nothing of them is left in memory. They reach nothing."""
        self.restarts = False
        self._timers.clear()
        for process in self.processes:
            process.alive, process.takes_callbacks, process.frozen_until = False, True, 0.0
            self.here = process
            asyncio._set_running_loop(process.loop)
            for task in process.tasks:
                if not task.done():
                    self._end_task(task)
            for _ in range(_GHOSTS):
                if not process.ready:
                    break
                handle = process.ready.popleft()
                if handle.context is not None and not handle.is_cancelled:
                    with suppress(BaseException):
                        handle.context.run(handle.callback, *handle.args)
            process.takes_callbacks = False
            process.ready.clear()
            process.tasks.clear()
            process.belongings.clear()
        self.here = None
        asyncio._set_running_loop(None)

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        coro: Any = task.get_coro()
        for _ in range(_LAST_WISHES):
            with Border(caught=(BaseException,)) as border:
                coro.throw(Killed())  # not `close`: what awaits something in `finally` would stay as it is
            if border.failure is not None:
                break
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.cancel()


# The time of the world, for the code of kaname


def this_world() -> World | None:
    """Return the world in which this thread works now."""
    return _at_work[-1] if _at_work and threading.get_ident() == _thread else None


def _time() -> float:
    if not _at_work or threading.get_ident() != _thread:
        return float(_REAL["time"]())
    world = _at_work[-1]
    return world.now if world.here is None else world.here.wall()


def _time_ns() -> int:
    return int(_time() * 1e9)


def _monotonic() -> float:
    if not _at_work or threading.get_ident() != _thread:
        return float(_REAL["monotonic"]())
    world = _at_work[-1]
    return world.now if world.here is None else world.here.monotonic()


def _sleep(seconds: float) -> None:
    if this_world() is None:
        _REAL["sleep"](seconds)


def _urandom(size: int) -> bytes:
    world = this_world()
    return bytes(_REAL["urandom"](size)) if world is None else world.random.randbytes(size)


def _submit(job: Any) -> None:
    """Do the work of a thread: at one moment, a little later. If the process is killed before, it is not done."""
    world = this_world()
    if world is None or world.here is None:
        _submit_really(job)
        return
    work, _, future = job
    process = world.here

    def do() -> None:
        outcome: Any = None
        with Border() as border:
            outcome = work()
        error = None if border.failure is None else border.failure.error
        process.later(world.random.random() * _THREAD, threads._deliver, future, outcome, error)

    process.later(world.random.random() * _THREAD, do)


_SIMULATED: dict[str, Any] = {
    "time": _time,
    "monotonic": _monotonic,
    "time_ns": _time_ns,
    "sleep": _sleep,
    "urandom": _urandom,
}


@contextmanager
def simulated_time() -> Iterator[None]:
    """Let the code of kaname see the time and the chance of worlds, in this thread.

    Other threads keep the real ones. Functions that modules of kaname have imported by name are replaced there.
    """
    global _thread
    if _at_work or _thread:
        raise RuntimeError("a simulation is under way in this process already")
    _thread = threading.get_ident()
    replaced = [(module, name, value) for module, name in _places() if (value := getattr(module, name)) is not None]
    clock, level, known = Scheduler.__init__.__defaults__, logging.root.manager.disable, random.getstate()
    outer, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
    collecting = gc.isenabled()
    for module, name, value in replaced:
        setattr(module, name, _replacement(value))
    threads._submit = _submit
    Scheduler.__init__.__defaults__ = (_time,)
    logging.disable(logging.CRITICAL)
    sys.set_asyncgen_hooks(firstiter=None, finalizer=_close_generator)
    asyncio._set_running_loop(None)
    gc.disable()
    gc.freeze()  # what is there already is not looked at between schedules
    try:
        yield
    finally:
        gc.unfreeze()
        if collecting:
            gc.enable()
        asyncio._set_running_loop(outer)
        sys.set_asyncgen_hooks(*hooks)
        logging.disable(level)
        Scheduler.__init__.__defaults__ = clock
        threads._submit = _submit_really
        for module, name, value in replaced:
            setattr(module, name, value)
        random.setstate(known)
        _thread = 0


@contextmanager
def inside(world: World) -> Iterator[None]:
    """Let a world be the one at work."""
    random.seed(world.random.random())
    _at_work.append(world)
    try:
        yield
    finally:
        world.end()
        _at_work.pop()


def _replacement(value: Any) -> Any:
    return next(_SIMULATED[name] for name, real in _REAL.items() if real is value)


def _places() -> Iterator[tuple[ModuleType, str]]:
    """Yield where the functions stand that are replaced."""
    reals = set(_REAL.values())
    yield from [(time, name) for name in ("time", "monotonic", "time_ns", "sleep")]
    yield os, "urandom"
    for module in [one for name, one in tuple(sys.modules.items()) if name.startswith("kaname.") and one is not None]:
        if module is not sys.modules[__name__]:
            for name, value in tuple(vars(module).items()):
                if name in _REAL and value in reals:
                    yield module, name


def _close_generator(generator: Any) -> None:
    """Close a generator that nobody reads any more, in its process."""
    world = this_world()
    if world is not None and world.here is not None and world.here.alive:
        world.here.loop.create_task(generator.aclose())
