"""The worker process, in which statements are parsed, checked and run. It can be killed at any time and has its own limits.

It reads lines of JSON from its standard input: first what to open, then requests. It exits when the input ends, even during
a query."""

from __future__ import annotations

import json
import os
import sys
from queue import SimpleQueue
from threading import Thread
from typing import Any, TextIO

from ....core.errors import ConfigError
from ....kernel.boundary import Border
from ..engines.base import QueryFailed, QueryLimits, too_large
from ..session import DatabaseSession, engine_for
from ..statement import StatementRefused

_LARGEST_FILE = 64_000_000  # bytes; SQLite may have to make the index of a write-ahead log


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # output of libraries must not mix with answers
    asked: SimpleQueue[str] = SimpleQueue()
    Thread(target=_read_requests, args=[sys.stdin, asked], daemon=True).start()
    work = _RequestHandler()
    while True:
        said = _answer(work, json.loads(asked.get()))
        said["last"] = work.is_worn_out()  # memory that an engine has used it may not give back
        answers.write(json.dumps(said) + "\n")
        answers.flush()


def _read_requests(line_by_line: TextIO, asked: SimpleQueue[str]) -> None:
    for line in line_by_line:
        asked.put(line)
    os._exit(0)


def _answer(work: _RequestHandler, request: dict[str, Any]) -> dict[str, Any]:
    with Border() as border:
        try:
            return work.handle(request)
        except StatementRefused as problem:
            return {"refused": str(problem)}
        except QueryFailed as problem:
            return {"failed": str(problem)}
        except ConfigError as problem:
            return {"config": str(problem)}
        except MemoryError:
            return {"failed": str(too_large())}
        except RecursionError:
            return {"refused": "it is nested too deeply"}
    return {"failed": str(border.failure)}


class _RequestHandler:
    session: DatabaseSession
    most = 0  # bytes

    def is_worn_out(self) -> bool:
        return self.most > 0 and _memory_used() > self.most

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        if "source" in request:
            engine = engine_for(request["source"], allow_superuser=request["allow_superuser"])
            engine.load()
            self.most = _memory_used() + request["memory"] // 3
            _limit(request["memory"])
            self.session = DatabaseSession(engine, request["tables"], request["functions"], request["comments"])
            return {}
        if "sql" in request:
            found = self.session.query(request["sql"], QueryLimits(request["rows"], request["characters"], request["seconds"]))
            return {**found._asdict(), "changed": self.session.take_changed()}
        tables = [[one.name, [list(column) for column in one.columns], *one[2:]] for one in self.session.tables()]
        return {"tables": tables, "unknown": self.session.unknown, "names": self.session.names}


def _limit(memory: int) -> None:
    """Limit the memory to this much above the current use. On systems without such limits, only the engine's own apply."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    if used := _memory_used():
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, used + memory))


def _memory_used() -> int:
    """Return the bytes of memory used for data, or 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
