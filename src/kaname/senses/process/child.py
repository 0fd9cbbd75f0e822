"""The process that does the work. It reads requests from its standard input, and exits when the input ends."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import IO, Any

from ...core.errors import ConfigError
from ...kernel.boundary import Border
from . import frames
from .limits import hold_down, memory_used

WORK = {"decoding", "reading", "hearing", "speaking", "charts", "speakers"}
Request = tuple[dict[str, Any], list[bytes]]


class Refused(Exception):
    """The file cannot be used; the message says why, in words for the caller."""


class Job:
    """One request, as the work sees it."""

    def __init__(self, data: dict[str, Any], blocks: list[bytes], out: IO[bytes]) -> None:
        self.data, self.blocks, self._out = data, blocks, out

    def progress(self, done: float, of: float) -> None:
        _write(self._out, {"progress": [done, of]})


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not mix with answers
    requests: SimpleQueue[Request] = SimpleQueue()
    threading.Thread(target=_read_requests, args=[sys.stdin.buffer, requests], daemon=True).start()
    opening, _ = requests.get()
    module = importlib.import_module(f"kaname.senses.work.{opening['work']}")
    module.load(opening)
    most = memory_used() + opening["memory"] // (8 if opening["work"] == "decoding" else 2)
    held = hold_down(opening["memory"], writes=opening["work"] != "decoding" and opening["work"] != "reading")
    _write(out, {"ready": held})
    while True:
        data, blocks = requests.get()
        answer, made = _answer(getattr(module, data["task"]), Job(data, blocks, out))
        del blocks
        answer["last"] = memory_used() > most > 0  # memory that a library keeps
        _write(out, answer, made)


def _answer(task: Callable[[Job], Any], job: Job) -> tuple[dict[str, Any], list[bytes]]:
    with Border() as border:
        try:
            said, made = task(job)
            return {"ok": said}, made
        except (Refused, ConfigError) as problem:
            return {"refused": str(problem)}, []
        except MemoryError:
            return {"refused": "it needs more memory than is allowed"}, []
    return {"refused": f"it cannot be decoded ({type(getattr(border.failure, 'error', border.failure)).__name__})"}, []


def _read_requests(given: IO[bytes], requests: SimpleQueue[Request]) -> None:
    with Border():
        while head := given.read(frames.HEAD_BYTES):
            length, count = frames.sizes(head)
            data, lengths = frames.parse(given.read(length), count)
            requests.put((data, [given.read(one) for one in lengths]))
    os._exit(0)


def _write(out: IO[bytes], data: dict[str, Any], blocks: list[bytes] | None = None) -> None:
    for piece in frames.pack(data, blocks or []):
        out.write(piece)
    out.flush()
