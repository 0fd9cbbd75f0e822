"""Values by key in one SQLite file: bounded in size, with an age for each value, shared by processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ...core.encryption.database import open_database
from ...core.errors import EncryptionError
from ...core.notices import notice
from ...core.project import make_folder, write_ahead

_OURS = 0x6B6E6368  # the application_id of these files
_FORM = 1
_SCHEMA = (  # `used` is the time at which the value was stored: earlier versions changed it with every use
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, made REAL, expires REAL, used REAL, size INTEGER,"
    " value TEXT)",
    "CREATE INDEX by_use ON entries (used, id, size)",
    "CREATE INDEX by_age ON entries (expires) WHERE expires IS NOT NULL",
    "CREATE TABLE total (bytes INTEGER NOT NULL)",
    "INSERT INTO total VALUES (0)",
    "CREATE TRIGGER added AFTER INSERT ON entries BEGIN UPDATE total SET bytes = bytes + NEW.size; END",
    "CREATE TRIGGER removed AFTER DELETE ON entries BEGIN UPDATE total SET bytes = bytes - OLD.size; END",
    f"PRAGMA application_id = {_OURS}",
    f"PRAGMA user_version = {_FORM}",
)
_OVERHEAD = 200  # bytes that an entry takes in addition to its value
_WRITE_SECONDS, _READ_SECONDS = 5.0, 0.05  # how long to wait for another process
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Stored(NamedTuple):
    value: str
    made: float


class StoreFigures(NamedTuple):
    entries: int
    bytes: int
    on_disk: int


class CacheStore:
    """A cache file. Every method can raise `sqlite3.Error` or `OSError`: see `is_busy`.

    Args:
        path: The file. It is created with the first value.
        size: Bytes. The oldest values are removed.
        clock: Returns the time in seconds.
    """

    def __init__(self, path: str | Path, size: int, clock: Callable[[], float] = time.time) -> None:
        self.path, self.size, self.clock = Path(path).expanduser(), size, clock
        self._reading, self._writing = threading.Lock(), threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._connections: list[sqlite3.Connection] = []
        weakref.finalize(self, _close_all, self._connections, os.getpid())
        self._process = 0

    def get(self, key: str) -> Stored | None:
        """Return the value, or None if there is none or its time is over."""
        with self._reading:
            if self._reader is None:
                if not self.path.exists():
                    return None
                self._reader = self._open(_READ_SECONDS)
            self._check_process()
            rows = self._reader.execute("SELECT value, made, expires FROM entries WHERE key = ?", (key,)).fetchall()
        if not rows or (rows[0][2] is not None and rows[0][2] <= self.clock()):
            return None
        return Stored(rows[0][0], rows[0][1])

    def put(self, key: str, value: str, ttl: float | None = None) -> None:
        """Store a value for `ttl` seconds, or without an end. A value that is larger than the whole cache is not stored."""
        size = len(value.encode("utf-8", "surrogatepass")) + len(key) + _OVERHEAD
        if size > self.size:
            return
        with self._write_transaction() as db:
            now = self.clock()
            db.execute("DELETE FROM entries WHERE key = ?", (key,))
            row = (key, now, None if ttl is None else now + ttl, now, size, value)
            db.execute("INSERT INTO entries (key, made, expires, used, size, value) VALUES (?, ?, ?, ?, ?, ?)", row)
            self._make_room(db, now)

    def remove(self, key: str) -> None:
        with self._write_transaction() as db:
            db.execute("DELETE FROM entries WHERE key = ?", (key,))

    def clear(self) -> None:
        """Remove all values and return their space to the disk."""
        if not self.path.exists():
            return
        with self._write_transaction() as db:
            db.execute("DELETE FROM entries")
        with suppress(sqlite3.Error), self._writing:  # another process may be reading
            if self._writer is not None:
                self._writer.execute("VACUUM")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def figures(self) -> StoreFigures:
        if not self.path.exists():
            return StoreFigures(0, 0, 0)
        with self._reading:
            self._reader = self._reader or self._open(_READ_SECONDS)
            self._check_process()
            ((entries, held),) = self._reader.execute("SELECT (SELECT count(*) FROM entries), bytes FROM total").fetchall()
        return StoreFigures(entries, held, self.path.stat().st_size)

    def close(self) -> None:
        """Close the file. It is opened again with the next use."""
        with self._reading, self._writing:
            if self._process == os.getpid():
                _close_all(self._connections, self._process)
            self._reader = self._writer = None

    def _make_room(self, db: sqlite3.Connection, now: float) -> None:
        if (excess := self._excess(db)) <= 0:
            return
        db.execute("DELETE FROM entries WHERE expires <= ?", (now,))
        excess, oldest = self._excess(db), list[tuple[int]]()
        if excess > 0:
            for number, size in db.execute("SELECT id, size FROM entries ORDER BY used, id"):
                oldest.append((number,))
                excess -= size
                if excess <= 0:
                    break
        db.executemany("DELETE FROM entries WHERE id = ?", oldest)

    def _excess(self, db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT bytes FROM total").fetchall()[0][0]) - self.size

    @contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing:
            if self._writer is None:
                self._writer = self._open(_WRITE_SECONDS)
            self._check_process()
            db = self._writer
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise

    def _check_process(self) -> None:
        if self._process != os.getpid():  # SQLite's record of locks is wrong in a forked child
            raise sqlite3.OperationalError(notice("cache.forked", "the file was opened before this process was forked"))

    def _open(self, patience: float) -> sqlite3.Connection:
        if self._process not in (0, os.getpid()):
            self._check_process()
        make_folder(str(self.path))
        try:
            db = open_database(self.path, timeout=_WRITE_SECONDS, create=True)
        except EncryptionError as problem:
            raise sqlite3.DatabaseError(str(problem)) from problem
        try:
            if db.execute("PRAGMA application_id").fetchall() != [(_OURS,)]:
                _create(db)
            if db.execute("PRAGMA user_version").fetchall() != [(_FORM,)]:
                raise sqlite3.DatabaseError(notice("cache.other_version", "another version of kaname wrote it"))
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        except BaseException:
            db.close()
            raise
        self._process = os.getpid()
        self._connections.append(db)
        return db


def _close_all(connections: list[sqlite3.Connection], process: int) -> None:
    """Close what is open; not in a forked child, where SQLite's record of locks is wrong."""
    while connections and process == os.getpid():
        connections.pop().close()


def _create(db: sqlite3.Connection) -> None:
    """Create the tables in a new file. A file with tables of another program is left as it is."""
    write_ahead(db, _WRITE_SECONDS)
    db.execute("BEGIN IMMEDIATE")
    try:
        if db.execute("PRAGMA application_id").fetchall() != [(_OURS,)]:  # another process was not first
            if db.execute("SELECT name FROM sqlite_master").fetchall():
                raise sqlite3.DatabaseError(notice("cache.foreign", "it is a database of another program"))
            for statement in _SCHEMA:
                db.execute(statement)
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def is_busy(problem: BaseException) -> bool:
    """Return True if another process holds the file at this moment. The next call can succeed."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF in _BUSY
