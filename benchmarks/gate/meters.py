"""Meters for timers, tasks, JSON encodings, socket sends and SQL. Install them before kaname is imported."""

from __future__ import annotations

import asyncio
import json.encoder
import socket
import sqlite3
from asyncio.base_events import BaseEventLoop
from collections import Counter
from collections.abc import Callable
from typing import Any

COUNTED: Counter[str] = Counter()
_encoding = [False]  # inside an encoder that is counted already


def _count(owner: Any, name: str, meter: str) -> None:
    """Count the calls of a function or a method."""
    original: Callable[..., Any] = getattr(owner, name)

    def counted(*args: Any, **options: Any) -> Any:
        COUNTED[meter] += 1
        return original(*args, **options)

    setattr(owner, name, counted)


def install() -> None:
    _count(BaseEventLoop, "call_at", "timers")
    for name in ("send", "sendall", "sendmsg", "sendto"):
        _count(socket.socket, name, "sends")
    _tasks()
    _standard_json()
    _msgspec()
    _sqlite()


def _tasks() -> None:
    class Task(asyncio.Task):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            COUNTED["tasks"] += 1
            super().__init__(*args, **options)

    asyncio.Task = asyncio.tasks.Task = Task  # type: ignore[misc]


def _standard_json() -> None:
    """Count what `json.dumps`, a `JSONEncoder` and an encoder made by `c_make_encoder` write."""
    encode, make = json.JSONEncoder.encode, json.encoder.c_make_encoder  # type: ignore[attr-defined]

    def counted_encode(self: json.JSONEncoder, o: Any) -> str:
        COUNTED["encodings"] += 1
        _encoding[0] = True
        try:
            return encode(self, o)
        finally:
            _encoding[0] = False

    def counted_make(*args: Any) -> Any:
        pieces = make(*args)

        def write(value: Any, indent: int) -> Any:
            COUNTED["encodings"] += not _encoding[0]
            return pieces(value, indent)

        return write

    json.JSONEncoder.encode = counted_encode  # type: ignore[method-assign]
    if make is not None:
        json.encoder.c_make_encoder = counted_make  # type: ignore[attr-defined]


def _msgspec() -> None:
    import msgspec

    class Encoder:
        """An encoder of msgspec, which cannot be subclassed."""

        def __init__(self, *args: Any, _make: Any = msgspec.json.Encoder, **options: Any) -> None:
            made = _make(*args, **options)
            for name in ("encode", "encode_into", "encode_lines"):
                setattr(self, name, getattr(made, name))
                _count(self, name, "encodings")

    msgspec.json.Encoder = Encoder  # type: ignore[assignment, misc]
    _count(msgspec.json, "encode", "encodings")


def _sqlite() -> None:
    """Count the commits of every connection, and the statements that write. What is read depends on the time: stops are polled."""
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)

        def note(statement: str) -> None:
            word = statement.split(None, 1)[0].upper()
            COUNTED["statements"] += word not in ("SELECT", "PRAGMA")
            COUNTED["commits"] += word in ("COMMIT", "END")

        connection.set_trace_callback(note)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
