"""A thread that owns a SQLite connection. Work queued while it commits is committed together: one sync for many runs."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ..core.errors import JournalError
from ..core.language import say
from ..kernel.boundary import Border
from .sqlite_file import count, explain

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


Queue = SimpleQueue["_Job | None"]


class SqliteThread:
    """`transact` runs work inside a transaction and returns when it is on disk; without `writes`, outside of any."""

    def __init__(
        self,
        open_connection: Callable[[], sqlite3.Connection],
        check: Callable[[], None],
        path: Path,
        *,
        writes: bool,
        name: str,
    ) -> None:
        self._open, self._check, self._path, self._writes = open_connection, check, path, writes
        self._name, self._starting, self._process = name, threading.Lock(), 0
        self._jobs: Queue = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def transact(self, work: Work) -> asyncio.Future[Any]:
        if self._closed:
            raise JournalError(say(f"the journal {self._path} is closed", f"ジャーナル {self._path} は閉じられています"))
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

    def stop(self, *, wait: bool = True) -> None:
        """Finish what is queued, then end."""
        self._closed = True
        if self._thread is not None and self._process == os.getpid():
            self._jobs.put(None)
            if wait:
                self._thread.join()

    def _serve(self, queue: Queue) -> None:
        connection: sqlite3.Connection | None = None
        ending = False
        while not ending:
            batch = _next_batch(queue)
            ending = batch[-1] is None
            jobs = [job for job in batch if job is not None]
            with Border() as border:  # whatever happens, somebody waits for an answer, and others will come
                connection = connection or self._open()
                self._check()
                self._run(connection, jobs)
            if border.failure is not None:
                for job in jobs:
                    job.outcome = self._explained(border.failure.error)
            _deliver(jobs)
            del batch, jobs
        if connection is not None:
            connection.close()
            count(self._path, -1)

    def _run(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        if self._writes:
            with Border() as border:
                self._commit(connection, jobs)
            if border.failure is None:
                return
            if _locked(border.failure.error):
                raise border.failure.error  # nobody else gets in either: to try each alone would only wait again
        for job in jobs:  # one job's trouble must not be the others': each alone
            with Border() as border:
                self._commit(connection, [job]) if self._writes else self._one(connection, job)
            if border.failure is not None:
                job.outcome = self._explained(border.failure.error)

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

    @staticmethod
    def _one(connection: sqlite3.Connection, job: _Job) -> None:
        """A refusal (`JournalError`) is raised before anything is written, so the rest of the batch can go on."""
        try:
            job.outcome = job.work(connection)
        except JournalError as refusal:
            job.outcome = refusal

    def _explained(self, problem: BaseException) -> JournalError:
        if isinstance(problem, JournalError):
            return problem
        explained = explain(problem, self._path)
        explained.__cause__ = problem
        return explained


def _locked(problem: BaseException) -> bool:
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _next_batch(queue: Queue) -> list[_Job | None]:
    batch = [queue.get()]
    while batch[-1] is not None and len(batch) < _BATCH and not queue.empty():  # this thread alone takes from it
        batch.append(queue.get())
    return batch


def _deliver(jobs: Iterable[_Job]) -> None:
    """Wake every waiting loop once, whatever the number of its jobs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, mine in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver_all, mine)


def _deliver_all(jobs: list[_Job]) -> None:
    for job in jobs:
        job.deliver()
