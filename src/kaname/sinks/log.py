"""Write a trace as lines: to the console for people, to a file as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ..core.chunks import chunks_of
from ..core.errors import ConfigError, nearest
from ..core.events import (
    Asked,
    Compacted,
    Custom,
    Delta,
    Event,
    HandedOff,
    Interjected,
    ModelReplied,
    Noted,
    Opened,
    Received,
    Resumed,
    Stopped,
    ToolFinished,
    ToolStarted,
    Warned,
)
from ..core.messages import is_withheld
from ..core.notices import notice
from ..core.record import replace
from ..core.state import what_was_said
from ..core.values import plain_text
from ..kernel.bases import SinkBase

Level = Literal["debug", "info", "warning", "error"]
LEVELS = ("debug", "info", "warning", "error")
_INFO = (Opened, Resumed, ToolStarted, ToolFinished, Asked, HandedOff, Stopped)
_SHOWN = 120  # characters of a value on the console
_BEFORE = (HandedOff, Warned, Custom, Noted, Compacted)  # what may be recorded before a question is judged
_MOST = 10_000  # runs


def level_of(event: Event) -> Level:
    """Return the level of a fact: `error`, `warning`, `info` (start and end, tool calls, handoffs, questions) or `debug`."""
    body = event.body
    if isinstance(body, Stopped) and body.stop.kind == "failed":
        return "error"
    if isinstance(body, Warned) or (isinstance(body, ToolFinished) and body.result.is_error):
        return "warning"
    return "info" if isinstance(body, _INFO) else "debug"


def level_error(level: Any) -> ConfigError:
    return ConfigError(notice("trace.level", "unknown level {level!r}", level=level) + nearest(str(level), LEVELS))


def format_time(seconds: float) -> str:
    """Return a time as the lines of a trace show it: ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_of(event: Event, content: bool) -> dict[str, Any]:
    """Return a fact as one JSON object. `content`: include messages, arguments and results."""
    told: dict[str, Any] = {
        "time": format_time(event.time),
        "level": level_of(event),
        "run": event.run_id,
        "fact": event.seq,
        "agent": event.agent,
        "event": type(event.body).__name__,
    }
    match event.body:
        case ModelReplied(reply):
            told |= {"model": reply.served or reply.model, "request": reply.request_id}
        case ToolStarted(call=call, attempt=attempt):
            told |= {"tool": call.name, "call": call.id, "attempt": attempt}
        case ToolFinished(result):
            told |= {"tool": result.name, "call": result.call_id, "failed": result.is_error}
        case Stopped(stop):
            told |= {"stop": stop.kind, "error": stop.error or None}
        case HandedOff(to):
            told["to"] = to
        case Warned(source):
            told["source"] = source
    if content:
        told["data"] = [
            {name: value for name, value in chunk.data.items() if name != "fact" and (chunk.type, name) != ("media", "base64")}
            for chunk in chunks_of(event)
        ]
    return told


class Lines(SinkBase, ABC):
    """Base of the sinks that write lines: filters by level, and leaves out content by default."""

    wants: Collection[str] = ("children",)

    def __init__(self, level: Level, content: bool) -> None:
        if level not in LEVELS:
            raise level_error(level)
        self._least, self._content = LEVELS.index(level), content
        self._held: dict[str, list[Event]] = {}  # by run, from what was received on until it is let in

    def __call__(self, event: Event) -> Any:
        for one in self.due(event):
            self.write(line_of(one, self._content))

    def due(self, event: Event) -> list[Event]:
        """Return the facts to write now: those of the level or above it."""
        if type(event.body) is Delta:
            return []
        settled = self._writable_facts(event) if self._content else [event]
        return [one for one in settled if LEVELS.index(level_of(one)) >= self._least]

    def _writable_facts(self, event: Event) -> list[Event]:
        """Return the facts that can be written now. A user message is held back until the run shows whether it was blocked."""
        held = self._held.get(event.run_id)
        if held is None and not isinstance(event.body, Received | Interjected):
            return [event]
        held = self._held.setdefault(event.run_id, [])
        held.append(event)
        if isinstance(event.body, Received | Interjected):
            return []
        if isinstance(event.body, _BEFORE) or (isinstance(event.body, ModelReplied) and is_withheld(event.body.reply.message)):
            return [event]
        del self._held[event.run_id]
        while len(self._held) > _MOST:  # runs that are gone on with elsewhere
            del self._held[next(iter(self._held))]
        received = dict[int, Event]()
        for fact, message in what_was_said(held):
            if isinstance(fact.body, Received | Interjected):
                received[fact.seq] = fact._replace(body=replace(fact.body, message=message))
        return [*received.values(), event]

    @abstractmethod
    def write(self, line: Mapping[str, Any]) -> None:
        """Write one line, as `line_of` builds it."""


class Console(Lines):
    """A sink that writes one line per fact to standard error.

    Args:
        level: The lowest level to write: `debug`, `info` (default), `warning` or `error`.
        content: True to include messages, arguments and results.
        write: Receives each line, instead of standard error.
    """

    def __init__(self, level: Level = "info", *, content: bool = False, write: Callable[[str], Any] | None = None) -> None:
        super().__init__(level, content)
        self._write = write

    def write(self, line: Mapping[str, Any]) -> None:
        told = dict(line)
        data = told.pop("data", None)
        who = [told.pop("agent", ""), told.pop("run", "")[-8:], told.pop("event")]
        head = " ".join([f"{told.pop('time')[11:23]} {told.pop('level'):7}", *[part for part in who if part]])
        rest = " ".join([f"{name}={value}" for name, value in told.items() if value not in (None, "") and name != "fact"])
        shown = plain_text(data)[:_SHOWN] if data else ""
        text = " ".join([part for part in (head, rest, shown) if part]).replace("\n", " ")
        (self._write or _to_stderr)(text)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class JsonLines(Lines):
    """A sink that writes one JSON object per line to a file.

    Args:
        path: The file.
        level: The lowest level to write: `debug`, `info` (default), `warning` or `error`.
        content: True to include messages, arguments and results.
        max_bytes: The size at which the file is renamed to `NAME.1`, and so on (default 10 MB).
        keep: The number of renamed files to keep (default 5).
    """

    def __init__(
        self, path: str | Path, level: Level = "info", *, content: bool = False, max_bytes: int = 10_000_000, keep: int = 5
    ) -> None:
        super().__init__(level, content)
        if max_bytes < 1 or keep < 0:
            raise ConfigError.of("trace.rotation", "max_bytes must be at least 1, and keep at least 0")
        self.path, self._most, self._keep = Path(path).expanduser(), max_bytes, keep
        self._lock = threading.Lock()
        self._file = -1  # its number
        self._closing: weakref.finalize[[int], JsonLines] | None = None

    def write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, default=plain_text)
        data = text.encode("utf-8", "backslashreplace") + b"\n"
        with self._lock:
            size = self._open_file()
            if size and size + len(data) > self._most:
                self._rotate()
                self._open_file()
            os.write(self._file, data)

    def _open_file(self) -> int:
        """Open the file, again if another process has renamed it, and return its size."""
        if self._file >= 0:
            held = os.fstat(self._file)
            try:
                if os.path.samestat(held, self.path.stat()):
                    return held.st_size
            except OSError:  # it was deleted
                pass
            self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._closing = weakref.finalize(self, os.close, self._file)
        return os.fstat(self._file).st_size

    def _rotate(self) -> None:
        if not self._keep:
            self.path.unlink(missing_ok=True)
            return
        for number in range(self._keep - 1, 0, -1):
            older = self._numbered_path(number)
            if older.exists():
                older.replace(self._numbered_path(number + 1))
        if self.path.exists():
            self.path.replace(self._numbered_path(1))

    def _numbered_path(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def close(self) -> None:
        if self._closing is not None:
            self._closing()
        self._file, self._closing = -1, None
