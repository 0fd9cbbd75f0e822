"""A thread that serves a SQLite connection. Work queued during a commit is committed together: one sync for many runs.

Passing work to a thread and its result back costs more than writing a fact. If the disk has been fast and no other work is
queued, the caller therefore does the work itself, with the same connection and the same code: its event loop then stands still
for less time than passing the work would take. If the disk is slow, or another process locks the file, the thread does it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ...core.errors import JournalError
from ...kernel.boundary import Border
from .errors import explain
from .file import JournalFile, disconnect

Work = Callable[[sqlite3.Connection], Any]
_BATCH = 1_000
_RETRY_SECONDS = 1.0
_QUICK = 0.0005  # seconds that a commit usually takes
_NEWEST = 0.3  # how much of what is usual the last one makes
_POLL = 0.002


class _Job:
    """A piece of work for the connection.

    `insisting`: it is retried until it succeeds, and its failures are not reported. `failed` is called at once with a failure,
    even if no caller waits any more. `joins`: nobody waits for it, so that it is done together with the next job.
    """

    __slots__ = ("failed", "future", "insisting", "joins", "loop", "outcome", "work")

    def __init__(
        self,
        work: Work,
        loop: asyncio.AbstractEventLoop | None = None,
        insisting: bool = False,
        failed: Callable[[JournalError], None] | None = None,
        joins: bool = False,
    ) -> None:
        self.work, self.insisting, self.failed, self.joins = work, insisting, failed, joins
        self.outcome: Any = None
        if loop is not None:
            self.loop, self.future = loop, loop.create_future()

    def deliver(self) -> None:
        if self.future.done():  # cancelled meanwhile
            return
        if not isinstance(self.outcome, BaseException):
            self.future.set_result(self.outcome)
        elif self.insisting:
            self.future.set_result(None)
        else:
            self.future.set_exception(self.outcome)


Signals = SimpleQueue[bool]  # that there is something to do; `False` for the last


class SqliteThread:
    """A thread with one connection. `transact` returns when the work is on disk; without `writes`, there is no transaction.

    `patience`: seconds to wait while another process writes.
    """

    def __init__(
        self,
        open_connection: Callable[[], sqlite3.Connection],
        check: Callable[[], None],
        path: Path,
        *,
        writes: bool,
        name: str,
        patience: float = 0.0,
    ) -> None:
        self._open, self._check, self._path, self._writes = open_connection, check, path, writes
        self._name, self._patience, self._starting, self._process = name, patience, threading.Lock(), 0
        self._closed = False
        self._begin_empty()

    def _begin_empty(self) -> None:
        self._jobs: deque[_Job] = deque()  # only the holder of the connection takes jobs, so that they keep their order
        self._signals: Signals = SimpleQueue()
        self._using = threading.Lock()  # the connection: one at a time, the thread or a caller
        self._connection: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None
        self._usual = 0.005  # seconds that commits take lately; at first they are not known to be quick

    async def transact(self, work: Work, *, alone: bool = False, failed: Callable[[JournalError], None] | None = None) -> Any:
        """Run the work and return its result. `work` may be called more than once: if a batch fails, each job is retried
        alone.

        `alone`: the caller knows of no other work to commit now. `failed` is called with a failure before any later work is
        done.
        """
        if alone and (done := self._do_here(work)) is not None:
            if isinstance(done.outcome, JournalError):
                if failed is not None:
                    failed(done.outcome)
                raise done.outcome
            return done.outcome
        return await self.submit(work, failed=failed)

    def submit(
        self,
        work: Work,
        *,
        insisting: bool = False,
        failed: Callable[[JournalError], None] | None = None,
        joins: bool = False,
    ) -> asyncio.Future[Any]:
        """Queue the work for the thread, and return its future.

        `insisting`: if the disk or a lock prevents it, it is retried until it is done or the journal is closed. `joins`: it is
        done in the same transaction as the next work, if that comes before the event loop turns.
        """
        if self._closed:
            raise JournalError.of("journal.closed", "the journal {path} is closed", path=self._path)
        if self._process != os.getpid():  # not started yet, or in another process than this one, which was forked from it
            self._start()
        job = _Job(work, loop := asyncio.get_running_loop(), insisting, failed, joins)
        self._jobs.append(job)
        if joins:
            loop.call_soon(self._signal_if_queued)
        else:
            self._signals.put(True)
        return job.future

    def _signal_if_queued(self) -> None:
        if self._jobs:
            self._signals.put(True)

    def _start(self) -> None:
        with self._starting:  # the first work of two event loops may come at once
            if self._process != os.getpid():
                self._begin_empty()
                self._process = os.getpid()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._jobs, self._signals), name=self._name, daemon=True
                )
                self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Finish the queued work, then end."""
        self._closed = True
        if self._thread is not None and self._process == os.getpid():
            self._signals.put(False)
            if wait:
                self._thread.join()

    def _do_here(self, work: Work) -> _Job | None:
        """Do the work in the caller's thread, if that is fast and nothing is queued before it.

        Return None if it was not done.
        """
        if self._usual > _QUICK or self._process != os.getpid() or not self._using.acquire(blocking=False):
            return None
        try:
            joining: list[_Job] = []
            while self._connection is not None and self._jobs and self._jobs[0].joins:
                joining.append(self._jobs.popleft())
            job = _Job(work)
            if self._connection is None or self._jobs or not self._commit_here(self._connection, [*joining, job]):
                self._jobs.extendleft(reversed(joining))
                return None
            if joining:
                _deliver(joining)
            return job
        finally:
            self._using.release()

    def _commit_here(self, connection: sqlite3.Connection, jobs: list[_Job]) -> bool:
        """Commit the jobs, the last of which is the caller's. Return False if the thread has to try it."""
        with Border() as border:
            self._check()
            self._commit(connection, jobs, patience=0.0)
        if border.failure is None:
            return True
        if len(jobs) > 1 or _is_locked(border.failure.error):
            return False
        jobs[0].outcome = self._explain(border.failure.error)
        return True

    def _serve(self, queue: deque[_Job], signals: Signals) -> None:
        unfinished: list[_Job] = []
        going_on = True
        while going_on:
            going_on = _wait(signals, _RETRY_SECONDS if unfinished else None)
            with self._using:
                jobs = [queue.popleft() for _ in range(min(len(queue), _BATCH))]
                self._do(unfinished + jobs)
                unfinished = [job for job in unfinished + jobs if job.insisting and isinstance(job.outcome, JournalError)]
            _deliver(jobs)
            if queue:
                signals.put(True)
            del jobs
        with self._using:
            if self._connection is not None:
                disconnect(self._connection, self._path)
                self._connection = None

    def _do(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        with Border() as border:  # whatever happens, callers wait for their results, and the thread must live on
            self._connection = self._connection or self._open()
            self._check()
            self._run(self._connection, jobs)
        for job in jobs:
            if border.failure is not None:
                job.outcome = self._explain(border.failure.error)
            if job.failed is not None and isinstance(job.outcome, JournalError):
                job.failed(job.outcome)

    def _run(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        if self._writes:
            with Border() as border:
                self._commit(connection, jobs, self._patience)
            if border.failure is None:
                return
            if _is_locked(border.failure.error):
                raise border.failure.error  # the file is locked for all: trying each job alone would only wait again
        for job in jobs:  # one job's trouble must not be the others': each alone
            with Border() as border:
                self._commit(connection, [job], self._patience) if self._writes else _one(connection, job)
            if border.failure is not None:
                job.outcome = self._explain(border.failure.error)

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job], patience: float) -> None:
        _begin(connection, patience)
        began = time.monotonic()
        try:
            for job in jobs:
                _one(connection, job)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._usual += _NEWEST * (time.monotonic() - began - self._usual)

    def _explain(self, problem: BaseException) -> JournalError:
        if isinstance(problem, JournalError):
            return problem
        explained = explain(problem, self._path)
        explained.__cause__ = problem
        return explained


def _begin(connection: sqlite3.Connection, patience: float) -> None:
    """Begin to write. The wait for locks is here, because SQLite's own timeout would block an event loop."""
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as problem:
            if not _is_locked(problem) or time.monotonic() >= until:
                raise
            time.sleep(_POLL)


def _one(connection: sqlite3.Connection, job: _Job) -> None:
    """Do one job. A refusal (`JournalError`) is raised before anything is written, so the rest of the batch can continue."""
    try:
        job.outcome = job.work(connection)
    except JournalError as refusal:
        job.outcome = refusal


def _is_locked(problem: BaseException) -> bool:
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _wait(signals: Signals, seconds: float | None) -> bool:
    """Wait until there is work, or until `seconds` have passed. Return False if the thread must end."""
    try:
        going_on = signals.get(timeout=seconds)
        while going_on and not signals.empty():  # this thread alone takes from it
            going_on = signals.get()
    except Empty:
        return True
    return going_on


def _deliver(jobs: list[_Job]) -> None:
    """Wake every waiting loop once, whatever the number of its jobs."""
    if len(jobs) == 1:
        by_loop = {jobs[0].loop: jobs}
    else:
        by_loop = {}
        for job in jobs:
            by_loop.setdefault(job.loop, []).append(job)
    here = asyncio._get_running_loop()
    for loop, mine in by_loop.items():
        if loop is here:
            _deliver_all(mine)
            continue
        with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
            loop.call_soon_threadsafe(_deliver_all, mine)


def _deliver_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.deliver()


async def data_version(reader: SqliteThread) -> int:
    """Return a number that changes when any other connection writes to the file."""
    (version,) = await reader.transact(lambda connection: connection.execute("PRAGMA data_version").fetchone())
    return int(version)


def shut_down(place: JournalFile, held: Mapping[str, object], *threads: SqliteThread, wait: bool = False) -> None:
    """Stop the threads. While a run is held, this process stays its owner: a tool of it may still be at work."""
    for thread in threads:
        thread.stop(wait=wait)
    if place.keys is not None:
        place.keys.close()
    if not held:
        place.release_owner()
