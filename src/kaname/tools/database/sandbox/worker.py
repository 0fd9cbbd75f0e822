"""The process in which statements are parsed, checked and run: it can be killed at any moment, and has limits of its own.

It is told what to open, then asked, all in lines of JSON on its standard input. It ends when that does, also in the middle of a
query."""

from __future__ import annotations

import json
import os
import sys
from queue import SimpleQueue
from threading import Thread
from typing import Any, TextIO

from ....core.errors import ConfigError
from ....kernel.boundary import Border
from ..engines.base import Limits, QueryFailed, too_large
from ..engines.choice import engine_for
from ..session import Session
from ..statement import Refused

_LARGEST_FILE = 64_000_000  # bytes; SQLite may have to make the index of a write-ahead log


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what a library prints is no answer
    asked: SimpleQueue[str] = SimpleQueue()
    Thread(target=_listen, args=[sys.stdin, asked], daemon=True).start()
    work = _Work()
    while True:
        said = _answer(work, json.loads(asked.get()))
        said["last"] = work.worn_out()  # memory that an engine has used it may not give back
        answers.write(json.dumps(said) + "\n")
        answers.flush()


def _listen(line_by_line: TextIO, asked: SimpleQueue[str]) -> None:
    for line in line_by_line:
        asked.put(line)
    os._exit(0)


def _answer(work: _Work, request: dict[str, Any]) -> dict[str, Any]:
    with Border() as border:
        try:
            return work.done(request)
        except Refused as problem:
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


class _Work:
    session: Session
    most = 0  # bytes

    def worn_out(self) -> bool:
        return self.most > 0 and _used() > self.most

    def done(self, request: dict[str, Any]) -> dict[str, Any]:
        if "source" in request:
            engine = engine_for(request["source"], allow_superuser=request["allow_superuser"])
            engine.load()
            self.most = _used() + request["memory"] // 3
            _limit(request["memory"])
            self.session = Session(engine, request["tables"], request["functions"], request["comments"])
            return {}
        if "sql" in request:
            found = self.session.query(request["sql"], Limits(request["rows"], request["characters"], request["seconds"]))
            return {**found._asdict(), "changed": self.session.changed()}
        tables = [[one.name, [list(column) for column in one.columns], *one[2:]] for one in self.session.tables()]
        return {"tables": tables, "unknown": self.session.unknown, "names": self.session.names}


def _limit(memory: int) -> None:
    """Above what is used now. Where the system has no such limits, there are the engine's own and the clock."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    if used := _used():
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, used + memory))


def _used() -> int:
    """Bytes of memory for data; 0 if the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
