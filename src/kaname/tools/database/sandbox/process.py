"""Client of the worker process: starts it on first use, sends one request at a time, and kills it when it takes too long."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from subprocess import DEVNULL, PIPE, Popen
from threading import BoundedSemaphore, Lock, Thread
from typing import IO, Any
from weakref import finalize

from ....core.errors import ConfigError
from ..engines.base import QueryFailed, QueryLimits, Rows, out_of_time
from ..statement import StatementRefused
from ..tables import Column, Table

_STARTING = 30.0  # seconds
_LATE = 1.0  # seconds over the limit, in which the engine's own limit should have worked
_AT_ONCE = 4  # workers; further questions wait
START = (
    "import json, sys; sys.path[:] = json.loads(sys.stdin.readline()); "
    "from kaname.tools.database.sandbox.worker import main; main()"
)


class WorkerTimeout(Exception):
    """The worker did not answer in time."""


class Child:
    """One worker process. Its command line contains nothing about the database."""

    def __init__(self, opening: dict[str, Any], start: str) -> None:
        command = [sys.executable, "-I", "-c", start]
        try:
            self._process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True)
        except OSError as problem:
            text = f"no process for the database: {problem}"
            raise QueryFailed(text) from problem
        self.made_by = os.getpid()
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        self.end = finalize(self, _end, self._process, self.made_by)
        self._killed = False
        Thread(target=_read_answers, args=[self._process.stdout, self._answers], name="kaname-database", daemon=True).start()
        self._send([str(Path(entry or ".").absolute()) for entry in sys.path])
        self.ask(opening, _STARTING)

    def is_alive(self) -> bool:
        return not self._killed and self._process.poll() is None and self.made_by == os.getpid()

    def kill(self) -> None:
        self._killed = True
        with suppress(ProcessLookupError):
            self._process.kill()

    def _send(self, data: Any) -> None:
        with suppress(BrokenPipeError):  # the missing answer reports it
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(data).encode() + b"\n")
            self._process.stdin.flush()

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        self._send(request)
        try:
            line = self._answers.get(timeout=seconds)
        except Empty:
            self.kill()
            raise WorkerTimeout from None
        if not line:
            raise QueryFailed(self._why_ended())
        said: dict[str, Any] = json.loads(line)
        self._killed = self._killed or said["last"]
        for kind, error in (("refused", StatementRefused), ("failed", QueryFailed), ("config", ConfigError)):
            if kind in said:
                raise error(said[kind])
        return said

    def _why_ended(self) -> str:
        code = self._process.wait()
        return (
            f"the database's process has ended ({code}): the query asked for too much memory or broke the engine; ask for less"
        )


def _read_answers(answers: IO[bytes], heard: SimpleQueue[bytes]) -> None:
    with suppress(OSError, ValueError):  # closed while it was read
        for line in answers:
            heard.put(line)
    heard.put(b"")


def _end(process: Popen[bytes], made_by: int) -> None:
    if made_by != os.getpid():  # in a fork: it is our parent's
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


class DatabaseCall:
    """One running request, which can be cancelled."""

    def __init__(self) -> None:
        self._lock, self._off = Lock(), False
        self._child: Child | None = None

    def hold(self, child: Child | None) -> None:
        with self._lock:
            self._child = child
            if self._off and child is not None:
                child.kill()

    @property
    def is_cancelled(self) -> bool:
        return self._off

    def cancel(self) -> None:
        with self._lock:
            self._off = True
            if self._child is not None:
                self._child.kill()


class WorkerPool:
    """The workers of one tool. One is kept; more are started while several requests run at once."""

    def __init__(self, opening: dict[str, Any], start: str = START) -> None:
        self._opening, self._start = opening, start
        self._idle: list[Child] = []
        self._lock, self._free = Lock(), BoundedSemaphore(_AT_ONCE)

    def tables(self, limits: QueryLimits) -> tuple[list[Table], list[str], list[str]]:
        """Return the tables, the chosen names that do not exist, and the names of all tables."""
        said = self._ask({"seconds": limits.seconds}, limits, DatabaseCall())
        tables = [Table(name, tuple([_column(*one) for one in columns]), *rest) for name, columns, *rest in said["tables"]]
        return tables, said["unknown"], said["names"]

    def query(self, sql: str, limits: QueryLimits, call: DatabaseCall) -> tuple[Rows, bool]:
        """Return the rows, and True if the tables have changed."""
        said = self._ask({"sql": sql, **limits._asdict()}, limits, call)
        return Rows(said["rows"], said["more"]), said["changed"]

    def close(self) -> None:
        with self._lock:
            children, self._idle = self._idle, []
        for child in children:
            child.end()

    def _ask(self, request: dict[str, Any], limits: QueryLimits, call: DatabaseCall) -> dict[str, Any]:
        with self._free:
            if call.is_cancelled:  # before its turn came
                raise QueryFailed("called off")
            child = self._take()
            call.hold(child)
            try:
                return child.ask(request, limits.seconds + _LATE)
            except WorkerTimeout:
                raise out_of_time(limits) from None
            finally:
                call.hold(None)
                self._keep(child)

    def _take(self) -> Child:
        with self._lock:
            child = self._idle.pop() if self._idle else None
        if child is not None and child.is_alive():
            return child
        try:
            return Child(self._opening, self._start)
        except WorkerTimeout:
            told = "the database's process does not start"
            raise QueryFailed(told) from None

    def _keep(self, child: Child) -> None:
        with self._lock:
            if keep := child.is_alive() and not self._idle:
                self._idle.append(child)
        if not keep:
            child.end()


def _column(name: str, kind: str, comment: str, samples: list[str]) -> Column:
    return Column(name, kind, comment, tuple(samples))
