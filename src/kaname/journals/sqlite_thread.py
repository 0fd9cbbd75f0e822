"""A thread that owns a SQLite connection. Work queued while it commits is committed together: one sync for many runs."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ..core.errors import JournalError
from .sqlite_file import explain

Work = Callable[[sqlite3.Connection], Any]
_BATCH = 1_000


class _Job:
    __slots__ = ("future", "loop", "outcome", "work")

    def __init__(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        self.work, self.loop, self.future = work, loop, loop.create_future()
        self.outcome: Any = None

    def deliver(self) -> None:
        if self.future.done():  # cancelled meanwhile
            return
        if isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(self.outcome)


class SqliteThread:
    """`transact` runs work inside a transaction and returns when it is on disk; without `writes`, outside of any."""

    def __init__(self, open_connection: Callable[[], sqlite3.Connection], path: Path, *, writes: bool, name: str) -> None:
        self._open, self._path, self._writes = open_connection, path, writes
        self._name, self._starting, self._process = name, threading.Lock(), 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def transact(self, work: Work) -> asyncio.Future[Any]:
        if self._process != os.getpid():  # not started yet, or in another process than this one, which was forked from it
            self._start()
        job = _Job(work, asyncio.get_running_loop())
        self._jobs.put(job)
        return job.future

    def _start(self) -> None:
        with self._starting:  # the first work of two event loops may come at once
            if self._process != os.getpid():
                self._jobs, self._process = SimpleQueue(), os.getpid()
                self._thread = threading.Thread(target=self._serve, args=(self._jobs,), name=self._name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Finish what is queued, then end."""
        if self._thread is not None and self._process == os.getpid():
            self._jobs.put(None)
            self._thread.join()

    def _serve(self, queue: SimpleQueue[_Job | None]) -> None:
        connection: sqlite3.Connection | None = None
        ending = False
        while not ending:
            batch = _next_batch(queue)
            ending = batch[-1] is None
            jobs = [job for job in batch if job is not None]
            try:
                connection = connection or self._open()
                self._run(connection, jobs)
            except (sqlite3.Error, JournalError) as problem:
                for job in jobs:
                    job.outcome = self._explained(problem)
            _deliver(jobs)
        if connection is not None:
            connection.close()

    def _run(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        if not self._writes:
            for job in jobs:
                self._one(connection, job)
            return
        try:
            self._commit(connection, jobs)
        except sqlite3.Error:
            if len(jobs) == 1:
                raise
            for job in jobs:  # one job's trouble must not be the others': each again, alone
                try:
                    self._commit(connection, [job])
                except sqlite3.Error as problem:
                    job.outcome = self._explained(problem)

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                self._one(connection, job)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _one(self, connection: sqlite3.Connection, job: _Job) -> None:
        """A refusal (`JournalError`) is raised before anything is written, so the rest of the batch can go on."""
        try:
            job.outcome = job.work(connection)
        except JournalError as refusal:
            job.outcome = refusal
        except sqlite3.Error as problem:
            if self._writes:
                raise
            job.outcome = self._explained(problem)

    def _explained(self, problem: sqlite3.Error | JournalError) -> JournalError:
        return problem if isinstance(problem, JournalError) else explain(problem, self._path)


def _next_batch(queue: SimpleQueue[_Job | None]) -> list[_Job | None]:
    batch = [queue.get()]
    while batch[-1] is not None and len(batch) < _BATCH:
        try:
            batch.append(queue.get_nowait())
        except Empty:
            break
    return batch


def _deliver(jobs: Iterable[_Job]) -> None:
    """Wake every waiting loop once, whatever the number of its jobs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, mine in by_loop.items():
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(_deliver_all, mine)
            except RuntimeError:  # closed between the two lines: nobody waits any more
                continue


def _deliver_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.deliver()
