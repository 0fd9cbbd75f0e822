"""`Run`: await it for the result, iterate it for its chunks. One task, any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import AsyncExitStack, suppress
from contextvars import Context, copy_context
from inspect import iscoroutinefunction
from logging import getLogger
from time import monotonic, time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self
from weakref import WeakSet

from ..core.chunks import Chunk
from ..core.errors import ConfigError
from ..core.events import Event, Interjected, Stopped
from ..core.messages import NOTHING, Usage
from ..core.notices import notice
from ..core.state import State
from ..core.steps import Stop
from ..kernel.alarms import alarms_of
from ..kernel.channel import Channel, Reader
from ..kernel.loop import drive
from ..kernel.ports import Journal
from ..kernel.scope import Scope
from .result import OutputT, Result, View, read_result

_POLL, _A_WHILE = 0.02, 0.25  # seconds
GRACE = 10.0  # seconds that calls under way have to end when a process shuts down
_ENDING = 5.0  # seconds that runs have to end after that

Tell = Callable[..., Awaitable[bool]]
Begin = Callable[[Channel, AsyncExitStack], Awaitable[Scope]]
"""Opens a run, whose chunks go into the channel. The stack ends it."""


class Work:
    """The task behind a `Run`. It does not know the `Run`, so that one that nobody holds any more can be noticed."""

    def __init__(self, run_id: str, begin: Begin, view: View, journal: Journal, abort_event: Any) -> None:
        self.run_id, self.journal = run_id, journal
        self._begin, self.view, self._abort_event = begin, view, abort_event
        self.channel = Channel()
        self.aborted = ""
        self.letting_go = self.detached = False
        self.leaving = False  # a `let_go_of` is about it
        self.awaiting = 0
        self.begun = asyncio.Event()
        self.scope: Scope | None = None
        self.task: asyncio.Task[Result[Any]] | None = None
        self._listeners: list[asyncio.Task[None]] = []
        self._context: Context | None = None  # in which the journal is asked

    def reader(self, after: int | None, *, waits: bool = False, whole: bool = False) -> Reader:
        return self.channel.reader(lambda last: self.journal.read(self.run_id, last), after, waits=waits, whole=whole)

    def start(self) -> asyncio.Task[Result[Any]]:
        if self.task is None:
            self.task = asyncio.create_task(self._run())
            _live.add(self)
        return self.task

    def abort(self, reason: str) -> None:
        if self.task is not None and self.task.done():
            return
        self.aborted = self.aborted or reason
        if self.scope is not None:
            self.scope.stopping = True
        if self.task is None:
            return
        if _current_task() is self.task:  # by the run itself, in a sink or a tool
            self._cancel()
        else:  # perhaps by another thread
            self.task.get_loop().call_soon_threadsafe(self._cancel)

    def abandon(self) -> None:
        """Abort it because its caller has gone, unless it is to be left as it is."""
        if not self.letting_go:
            self.abort(_left_behind())

    def tell_to_end(self) -> None:
        """Begin no call any more, and leave the run as it is. Calls under way are not cut."""
        if self.task is not None and not self.task.done():
            self.letting_go = True
            if self.scope is not None:  # else it is let go as soon as it has begun
                self.scope.stopping = True

    def let_go(self) -> None:
        """Execute no further, and leave the run as it is."""
        self.tell_to_end()
        if self.scope is not None and self.task is not None and not self.task.done():
            self._cancel()

    def log_left(self) -> None:
        """Log the calls whose results are lost, or that a thread of an earlier call is left."""
        if self.scope is None:
            return
        for tool, effect in self.scope.acting.values():
            told = notice(
                "run.call_left",
                "the call of {tool} in run {run} did not end in time: it is in doubt whether it took effect",
                tool=tool,
                run=self.run_id,
            )
            if effect == "idempotent":
                told = notice(
                    "run.call_repeated",
                    "the call of {tool} in run {run} did not end in time: it is repeated when the run is resumed",
                    tool=tool,
                    run=self.run_id,
                )
            getLogger("kaname").warning("%s", told)
        if not self.is_acting and not self.scope.threads.is_over:
            told = notice("run.thread_left", "a thread of a tool of run {run} did not end in time", run=self.run_id)
            getLogger("kaname").warning("%s", told)

    @property
    def is_acting(self) -> bool:
        """Return True while a call is under way that is not pure, or a child that a call waits for."""
        return self.scope is not None and bool(self.scope.acting or self.scope.children)

    @property
    def is_at_work(self) -> bool:
        """Return True while it acts, or a thread of a tool is at work, also of a call that has timed out."""
        return self.is_acting or (self.scope is not None and not self.scope.threads.is_over)

    def leaves_resumable(self) -> bool:
        """Return True if a cancellation now leaves the run resumable: it was let go, or it is detached and the loop closes.

        Not if somebody wants it to stop.
        """
        return (self.letting_go or self.detached) and not self.aborted

    def _cancel(self) -> None:
        self.channel.end_soon()
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> Result[Any]:
        watcher = None if self._abort_event is None else asyncio.create_task(self._watch(self._abort_event))
        alarms = alarms_of(asyncio.get_running_loop())
        alarms.set(self, _A_WHILE)
        self._context, self.channel.leaves_resumable = copy_context(), self.leaves_resumable
        try:
            if self.aborted:
                raise asyncio.CancelledError
            async with AsyncExitStack() as stack:
                self.scope = scope = await self._begin(self.channel, stack)
                scope.leaves_resumable, self.channel.begun = self.leaves_resumable, True
                self.begun.set()
                await self._drive(scope)
                if scope.failure is not None:
                    scope.failure.run_id = scope.run_id
                    raise scope.failure
                if self.aborted or self.letting_go:
                    await asyncio.sleep(0)  # a cancellation that came too late is met here, and not by the caller
                return self.view(scope.run_id, scope.state)
        except asyncio.CancelledError:
            if not self.aborted and (not self.letting_go or self.scope is None):
                raise
            _stay()
            return await self._never_begun() if self.scope is None else self.view(self.run_id, self.scope.state)
        finally:
            self.begun.set()
            self.channel.close()
            _live.discard(self)
            _detached.discard(self)
            alarms.unset(self)
            for task in (watcher, *self._listeners):
                if task is not None:
                    task.cancel()
            resumable = self.leaves_resumable()
            self.channel.leaves_resumable = lambda: resumable
            if self.scope is not None:
                self.scope.let_go()

    def ring(self) -> None:
        """Begin to listen to other processes: to a request to stop, and to messages. Only a run that takes a while listens."""
        for listening in (self._wait_for_stop(), self._wait_for_messages()):
            self._listeners.append(asyncio.create_task(listening, context=self._context))
            self._listeners[-1].add_done_callback(_read_exception)

    async def _wait_for_stop(self) -> None:
        reason = await self.journal.asked_to_stop(self.run_id)
        self.abort(reason or notice("run.stopped_by_process", "the run was stopped from another process"))

    async def _wait_for_messages(self) -> None:
        await self.begun.wait()
        while (inbox := self.journal.stores.inbox) is not None and self.scope is not None:
            self._take(*await inbox.letters(self.run_id, self.scope.heard, wait=True))

    def hear(self, said: Interjected) -> None:
        """Pass a message, which is stored already, to the run: perhaps from another thread."""
        if self.task is not None:
            here, loop = _current_task(), self.task.get_loop()
            self._take(said) if here and here.get_loop() is loop else loop.call_soon_threadsafe(self._take, said)

    def _take(self, *letters: Interjected) -> None:
        if self.scope is not None and self.task is not None:
            self.scope.hear(*letters)
            if any(said.urgent for said in letters):
                from ..kernel.letters import interrupt

                interrupt(self.scope, self.task)

    async def _never_begun(self) -> Result[Any]:
        stopped = Stopped(Stop("cancelled", self.aborted or _left_behind()))
        self.channel.event(Event(self.run_id, 0, time(), "", stopped))
        return self.view(self.run_id, State(stop=stopped.stop))

    async def _drive(self, scope: Scope) -> None:
        """The loop, and an orderly end when it is cancelled: what was recorded stays, and the journal says how it ended."""
        try:
            if self.letting_go:
                raise asyncio.CancelledError
            await drive(scope)
        except asyncio.CancelledError:
            self.channel.end_soon()
            if self.leaves_resumable():
                await scope.write_pending()
            elif scope.state.stop is None:
                await scope.record(Stopped(Stop("cancelled", self.aborted or _left_behind())))
            if not self.aborted and not self.letting_go:
                raise
            _stay()
        finally:
            await scope.cancel_running()

    async def _watch(self, event: Any) -> None:
        """`asyncio.Event`, `threading.Event`, or anything with `is_set()`."""
        if iscoroutinefunction(getattr(event, "wait", None)):
            await event.wait()
        else:
            while not event.is_set():  # noqa: ASYNC110  a threading.Event cannot be awaited
                await asyncio.sleep(_POLL)
        self.abort(notice("run.stopped_by_caller", "the run was stopped by the caller"))


_live: WeakSet[Work] = WeakSet()  # what this process executes
_detached: set[Work] = set()  # nobody has to hold these


def find_live(journal: Journal, run_id: str) -> Work | None:
    """Return the run if this process executes it on that journal, else None."""
    return next((work for work in tuple(_live) if work.run_id == run_id and work.journal is journal), None)


async def let_go_of(
    runs: Iterable[Run[Any]],
    others: Iterable[asyncio.Task[Any]] = (),
    grace: float = GRACE,
    hurry: asyncio.Event | None = None,
) -> None:
    """Release runs because the process shuts down, with their children and tasks in the background; wait for them and `others`.

    No further call begins. Calls under way have `grace` seconds to end, until `hurry` is set or the waiting is cancelled, and
    their results are recorded. Pure calls are cut at once. What is left then is cut, and logged.
    """
    until, (works, inner) = monotonic() + grace, _with_children(runs)
    ours = {work for work in works if not work.leaving}  # not those that a server and its worker are both about
    for work in works:
        work.tell_to_end()
        work.leaving = True
    try:
        await _calls_end(works, ours, until, hurry)
    finally:
        for work in [one for one in works if one in ours and one.is_at_work]:
            work.log_left()
            if work.is_acting and work not in inner:  # the call that waits for a child cuts that
                work.let_go()
        tasks = [*[work.task for work in works if work.task is not None], *others]
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=_ENDING)
        finally:
            for task in tasks:
                task.cancel()


async def _calls_end(works: list[Work], ours: set[Work], until: float, hurry: asyncio.Event | None) -> None:
    """Wait for calls and threads, and release each run that is ours as soon as none of its calls is under way."""
    while True:
        resting = {work for work in ours if not work.is_acting}
        for work in resting:
            work.let_go()
        ours = ours - resting
        if monotonic() >= until or (hurry is not None and hurry.is_set()) or not any(work.is_at_work for work in works):
            return
        await asyncio.sleep(_POLL)


def _with_children(runs: Iterable[Run[Any]]) -> tuple[list[Work], set[Work]]:
    """Return the runs that this event loop executes: these, their children and their tasks in the background.

    Also return those among them for which a call waits.
    """
    found, inner = dict.fromkeys([run._work for run in runs]), set[Work]()
    todo = list(found)
    while todo:
        scope = todo.pop().scope
        children = () if scope is None else [run._work for run in scope.children]
        inner.update(children)
        fresh = [*children, *([] if scope is None else [run._work for run in scope.tasks])]
        todo += [work for work in fresh if work not in found]
        found |= dict.fromkeys(fresh)
    here = asyncio.get_running_loop()
    return [work for work in found if work.task is not None and work.task.get_loop() is here], inner


class Run(AsyncIterator[Chunk], Generic[OutputT]):
    """A run, as `agent.run(…)` returns it. It starts when it is awaited, iterated or started.

    After leaving an `async for` early, `await run` continues to the result. A run without references to it is cancelled, and so
    is one whose iteration is cancelled; `detach()` lets the run continue without them.

    Agents create runs; programs do not.

    Args:
        run_id: The id of the run.
        begin: Opens the run, and returns its scope. It gets the channel to the readers, and the stack that ends the run.
        view: Makes the result from the id and the state.
        journal: The journal of the run.
        abort_event: An `Event`. Setting it aborts the run.
        tell: Stores a message to the run, for `say`.
    """

    def __init__(
        self, run_id: str, begin: Begin, view: View, journal: Journal, abort_event: Any = None, tell: Tell | None = None
    ) -> None:
        if abort_event is not None and not hasattr(abort_event, "is_set"):
            raise ConfigError.of("run.abort_event", "abort_event must be an Event (is_set()), not {it!r}", it=abort_event)
        self.run_id = run_id
        self._work = Work(run_id, begin, view, journal, abort_event)
        self._reader: Reader | None = None
        self._tell = tell

    def start(self) -> Self:
        """Begin now, without waiting for it. What it shows can be read later."""
        self._own_reader()
        self._work.start()
        return self

    def subscribe(self, after: int | None = None, *, wait_for_me: bool = False) -> Reader:
        """Another reader, from now on; `after`: from the fact after that number on (0: from the first).

        A reader that is too slow loses deltas, never facts. `wait_for_me`: the run waits for this one before a delta is lost.
        It begins without waiting, and facts alone never make it wait: they can be read again.
        """
        return self._work.reader(after, waits=wait_for_me)

    def relay_to(self, channel: Channel | None) -> Self:
        """Show the run to the readers of a parent run too, which it waits for."""
        self._work.channel.relay_to(channel, self.run_id)
        return self

    def detach(self) -> Self:
        """Start it, and let it go on when nobody holds or reads it any more. `agent.attach(run.run_id)` finds it again.

        If the program ends before it does, it is interrupted, and `resume` goes on with it."""
        self._work.detached = True
        _detached.add(self._work)
        self._work.start().add_done_callback(_log_failure)
        return self

    async def begun(self) -> Self:
        """Start it, and wait until that is on disk, with the answers that were brought; what stands in the way is raised."""
        task = self._work.start()
        await self._work.begun.wait()
        if self._work.scope is None:
            await asyncio.shield(task)
        return self

    async def wait(self) -> None:
        """Wait until the run is not executed any more, however it ended. Cancelling the wait does not stop the run."""
        await asyncio.wait([self._work.start()])

    async def outcome(self) -> Result[OutputT]:
        """Return the result as soon as the run is not executed any more. A failure is in its `stop`, and is not raised."""
        await self.wait()
        work, task = self._work, self._work.start()
        known = None if task.cancelled() or task.exception() is not None else task.result()
        return await read_result(work.journal, self.run_id, work.view, known)

    @property
    def journal(self) -> Journal:
        """The journal that records it."""
        return self._work.journal

    def done(self) -> bool:
        """Return True if it was started and is not executed any more, however it ended."""
        return self._work.task is not None and self._work.task.done()

    @property
    def tasks(self) -> list[Run[Any]]:
        """The tasks in the background that it has begun here, and that are not over."""
        scope = self._work.scope
        return [] if scope is None else [one for run in scope.tasks for one in (run.tasks if run.done() else [run])]

    def over(self, then: Callable[[], None]) -> None:
        """Call `then` when it is not executed any more."""
        self._work.start().add_done_callback(lambda _: then())

    def abort(self, reason: str = "") -> None:
        """Stop it. The result is the best there is, its `stop.kind` is `cancelled`."""
        self._work.abort(reason or notice("run.stopped_by_caller", "the run was stopped by the caller"))

    async def say(self, message: Any, *, by: str = "", urgent: bool = False) -> bool:
        """Say something to the run while it works: see `Agent.say`."""
        await self.begun()
        assert self._tell is not None  # only runs of kaname's own have none
        return await self._tell(self.run_id, message, by=by, urgent=urgent)

    async def let_go(self) -> Result[OutputT]:
        """Stop executing it here, without ending it: `resume` goes on, in any process, and its limits are not renewed.

        For a program that shuts down. Its result's `stop.kind` is `released`, unless it was over.
        """
        self._work.start()
        self._work.let_go()
        return await self._result()

    def __await__(self) -> Generator[Any, None, Result[OutputT]]:
        return self._result().__await__()

    async def _result(self) -> Result[OutputT]:
        work = self._work
        task = work.start()
        work.awaiting += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if work.awaiting == 1:  # the last who waited for it was cancelled: so is the run
                await self._cancel_task()
            raise
        finally:
            work.awaiting -= 1

    async def _cancel_task(self) -> None:
        task = self._work.task
        if task is not None and not task.done() and not self._work.detached:
            task.cancel()
            await asyncio.wait([task])
            _read_exception(task)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        reader = self._reader or self._own_reader()
        task = self._work.task or self._work.start()
        if (chunk := reader.take()) is not None:
            return chunk
        try:
            chunk = await reader.get()
            if chunk is not None:
                return chunk
            await asyncio.wait([task])
        except asyncio.CancelledError:
            await self._cancel_task()
            raise
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
        raise StopAsyncIteration

    def _own_reader(self) -> Reader:
        if self._reader is None:
            shown = self._work.channel.first_fact  # and perhaps read by nobody
            self._reader = self._work.reader(shown - 1 if shown else None)
        return self._reader

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._work.detached:
            return
        self._work.abandon()
        if self._work.task is not None:
            await asyncio.wait([self._work.task])
            _read_exception(self._work.task)

    def __del__(self) -> None:
        task = self._work.task if hasattr(self, "_work") else None
        if task is not None and not task.done() and not self._work.detached:
            with suppress(RuntimeError):  # the loop is closed: the task is gone as well
                task.get_loop().call_soon_threadsafe(task.add_done_callback, _read_exception)
                task.get_loop().call_soon_threadsafe(self._work.abandon)

    if not TYPE_CHECKING:  # a type checker would take any attribute

        def __getattr__(self, name: str) -> Any:
            from .peers.names import raise_missing

            raise_missing(self, name, Result)

    @property
    def usage(self) -> Usage:
        """Tokens and money that the run has used so far."""
        return NOTHING if self._work.scope is None else self._work.scope.state.usage

    def __repr__(self) -> str:
        task = self._work.task
        return f"<Run {self.run_id}: {'not started' if task is None else 'over' if task.done() else 'under way'}>"


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        return None


def _log_failure(task: asyncio.Task[Any]) -> None:
    """A detached run may have nobody who hears how it failed. The log does; of one that began, the journal too."""
    if not task.cancelled() and (problem := task.exception()) is not None:
        told = " | ".join(str(problem).splitlines())  # a line of the log is one line
        getLogger("kaname").warning("a detached run failed: %s: %s", type(problem).__name__, told)


def _read_exception(task: asyncio.Task[Any]) -> None:
    """Read the task's exception, so that asyncio does not report it. The journal has recorded it."""
    if not task.cancelled():
        task.exception()


def _stay() -> None:
    """The cancellation was ours, and has done its work."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()


def _left_behind() -> str:
    return notice("run.caller_gone", "the caller no longer waits for the run")
