"""The files of the audit log: appended to by several processes, with the end of the chain in a second file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.errors import AuditError
from ...core.file_lock import lock_file
from ...core.project import make_folder
from .chain import START, Link, read_line

_PATIENCE, _PAUSE = 10.0, 0.002  # seconds to wait for another process
_PIECE = 65_536
_HEAD = re.compile(r"([1-9]\d{0,17}):([0-9a-f]{64})\s*")
_PROBE = 16_384  # bytes


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock on a file while no other process or thread does. Raises `OSError` after ten seconds."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(lock: int) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return lock_file(lock)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE)


class AuditFile:
    """The file of the log, and the file with its head: the number of entries and the hash of the last one.

    Every write opens the file anew and holds a lock on a file next to it, so that processes and threads take turns.
    """

    def __init__(self, path: Path, head: Path | None = None) -> None:
        self.path = path
        self.head_path = head or path.with_name(path.name + ".head")
        self._seen: Link | None = None  # the end of the chain when this object last wrote

    @contextmanager
    def lock(self) -> Iterator[int]:
        """Open the file for one writer at a time, and create it if it does not exist."""
        try:
            make_folder(str(self.path))
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with hold_lock(self.path.with_name(self.path.name + ".lock")):
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
                try:
                    yield descriptor
                finally:
                    os.close(descriptor)
        except OSError as problem:
            raise self.error(problem) from problem

    def find_end(self, descriptor: int) -> Link:
        """Return the end of the chain, and make the file ready for the next line.

        The rest of a line that was never finished, because the process died or the disk was full, is removed. If entries are
        missing or changed at the end, the chain continues from the head: then verifying the log shows the break.
        """
        size = os.fstat(descriptor).st_size
        line, torn = _last_line(descriptor, size)
        entry = read_line(line)
        end = Link(entry["place"], entry["hash"]) if entry is not None else Link(0, START)
        known = max([one for one in (self.read_head(), self._seen) if one is not None], default=None)
        whole = (entry is not None or not line) and (known is None or known.entries < end.entries or known == end)
        if torn and whole:
            os.ftruncate(descriptor, size - torn)
        elif torn:
            self._write(descriptor, size, b"\n")
        return end if whole or known is None else known

    def append(self, descriptor: int, line: bytes, end: Link) -> None:
        """Write a line and sync it to the disk, then write the new head. A line that does not fit is removed again."""
        size = os.fstat(descriptor).st_size
        try:
            self._write(descriptor, size, line)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        self._seen = end
        self._write_head(end)

    def _write(self, descriptor: int, place: int, data: bytes) -> None:
        os.lseek(descriptor, place, os.SEEK_SET)
        while data:
            data = data[os.write(descriptor, data) :]

    def overwrite(self, descriptor: int, place: int, line: bytes) -> None:
        """Replace a line by one of the same length."""
        self._write(descriptor, place, line)

    def read_head(self) -> Link | None:
        """Return the head, or None if there is none that can be understood."""
        try:
            text = self.head_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as problem:
            raise self.error(problem) from problem
        return parse_head(text)

    def _write_head(self, head: Link) -> None:
        """Write the head in one piece. It is not synced: after a power cut it may be older than the log, but never newer."""
        self.head_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.head_path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, os.write(descriptor, f"{head}\n".encode()))
        finally:
            os.close(descriptor)

    def lines(self, place: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield the lines after a place in the file, with their places. The last one has no newline if it was not finished."""
        try:
            with self.path.open("rb") as file:
                file.seek(place)
                for line in file:
                    yield place, line
                    place += len(line)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise self.error(problem) from problem

    def probe(self) -> None:
        """Raise `AuditError` if no entry could be written now."""
        trial = self.path.with_name(f".{self.path.name}.trial")
        with self.lock():
            try:
                trial.write_bytes(b" " * _PROBE)
            finally:
                trial.unlink(missing_ok=True)

    def error(self, problem: Exception) -> AuditError:
        why = getattr(problem, "strerror", "") or str(problem)
        return AuditError.of("audit.cannot_write", "the audit log {path} cannot be used: {why}", path=str(self.path), why=why)


def parse_head(text: Any) -> Link | None:
    """Return the head that a text such as "120:9f3c…" names, or None."""
    found = _HEAD.fullmatch(text.strip()) if isinstance(text, str) else None
    return None if found is None else Link(int(found[1]), found[2])


def _last_line(descriptor: int, size: int) -> tuple[bytes, int]:
    """Return the last complete line, without its newline, and the number of bytes after it."""
    held, start = b"", size
    while start > 0:
        step = min(_PIECE, start)
        start -= step
        os.lseek(descriptor, start, os.SEEK_SET)
        held = os.read(descriptor, step) + held
        last = held.rfind(b"\n")
        before = held.rfind(b"\n", 0, last) if last > 0 else -1
        if last >= 0 and (before >= 0 or start == 0):
            return held[before + 1 : last], len(held) - last - 1
    return b"", size
