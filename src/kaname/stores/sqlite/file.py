"""The SQLite file itself: create it, open it, and notice when it is removed."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.encryption.database import PlainConnection, open_database
from ...core.encryption.user_keys import user_keys
from ...core.errors import JournalError
from ...core.project import write_ahead
from ..refusals import removed_text
from .errors import damage_error
from .owners import Owner, is_alive, is_worker
from .schema import APPLICATION, migrate

if TYPE_CHECKING:
    from ...core.encryption.user_keys import UserKeys
    from ..journal import RunHold
    from .sealing import Seal

_BESIDE = ("", "-wal", "-shm")  # the file, its write-ahead log, and the memory that processes share: all three or none
_FEW_RUNS = 1_000
_PATIENCE = 0.5  # seconds that tidying waits for readers and writers
_PAGES = 2_000  # given back in one go: 8 MB, some 50 ms
_LOG_PAGES = 400  # a log that is begun anew so soon is written where it was before: that is cheaper than to let it grow
_LOOK_SECONDS, _OWNER_SECONDS = 0.02, 1.0  # how often it is looked whether the files are still there

_open_here: dict[Path, int] = {}  # how many connections this process has, or is about to have, to each file
_open_before_fork: set[Path] = set()
_counting = threading.Lock()
_releasing = threading.RLock()  # also if the garbage collector closes another journal meanwhile


def _after_fork() -> None:
    """Refuse to open inherited files in a forked child, because SQLite's record of locks is wrong there."""
    global _counting, _releasing
    _counting, _releasing = threading.Lock(), threading.RLock()  # the old ones may be held by threads that do not exist here
    _open_before_fork.update(_open_here)
    _open_here.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class JournalFile:
    """The path of the journal and the process that writes to it.

    The threads hold this object and not the journal, so that an unused journal can be released.
    """

    def __init__(self, path: Path, patience: float, max_bytes: int | None, held: Mapping[str, RunHold]) -> None:
        self.path, self.patience, self.max_bytes, self._held = path, patience, max_bytes, held
        self.owner: Owner | None = None
        self._owners = path.with_name(path.name + "-owners")
        self._names = [f"{path}{ending}" for ending in _BESIDE]
        self._files: list[int] | None = None  # which files they were when they were opened
        self.checked = 0.0
        self._owner_seen = 0.0
        self.keys: UserKeys | None = None  # of the users, if the file is encrypted

    def open_to_write(self) -> sqlite3.Connection:
        connection = self._connect(self.max_bytes)
        try:
            if self.owner is None or self.owner.process != os.getpid():
                self.owner = Owner(self._owners)
            connection.execute("PRAGMA busy_timeout = 0")  # the thread waits by itself
        except BaseException:
            disconnect(connection, self.path)
            raise
        return connection

    def open_to_read(self) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _connect(self, max_bytes: int | None = None) -> sqlite3.Connection:
        if self._files is not None:
            self.check()  # a second connection would make anew what was removed
        connection = connect(self.path, patience=self.patience, max_bytes=max_bytes)
        try:
            add_functions(connection, self._executes, self.is_alive)
            if self.keys is None and not isinstance(connection, PlainConnection):
                self.keys = user_keys(self.path)
            if self._files is None:
                _check_indexes(connection, self.path)
                self._files = self._inodes()
        except BaseException:
            disconnect(connection, self.path)
            raise
        return connection

    def seal(self, user: str, title: str = "", stored: str = "") -> Seal | None:
        """Return the `Seal` that encrypts the rows of a user's run; None if the file is not encrypted, or the run has no user.

        `title`, `stored`: the title of the run, and its form in the file.
        """
        if self.keys is None or not user:
            return None
        from .sealing import Seal

        return Seal(self.keys.of(user), title, stored)

    def check(self) -> None:
        """Raise `JournalError` if the file was removed or replaced: it would still accept writes, but they would be lost."""
        if self._inodes() != self._files:
            raise JournalError(removed_text(str(self.path)))

    def check_to_write(self) -> None:
        """Check the file and the owner's lock now and then: a check costs as much as writing a fact."""
        if (now := time.monotonic()) - self.checked > _LOOK_SECONDS:
            self.check()
            self.checked = now
            if self.owner is not None and now - self._owner_seen > _OWNER_SECONDS:
                self._owner_seen = now
                self.owner.restore()

    def _inodes(self) -> list[int]:
        try:
            return [os.stat(name).st_ino for name in self._names]
        except FileNotFoundError:
            return []

    def executor(self, run_id: str, owner: str | None) -> str:
        """Return the process that executes the run, or "" if it is free, as is one that failed here without being released.

        `owner`: the process that the file names.
        """
        hold, me = self._held.get(run_id), "" if self.owner is None else self.owner.name
        if owner == me:
            return "this process" if hold is not None and hold.failure is None else ""
        return f"process {owner.split('-')[0]}" if owner and self.is_alive(owner) else ""

    def _executes(self, run_id: str, owner: str | None) -> bool:
        return bool(owner and self.executor(run_id, owner))

    def is_alive(self, owner: str) -> bool:
        """Return True if that process still executes runs of this file."""
        return is_alive(self._owners / owner)

    @property
    def works(self) -> bool:
        """Return True if other processes know that this one is a worker."""
        return self.owner is not None and self.owner.works

    def begin_work(self) -> None:
        assert self.owner is not None
        self.owner.begin_work()

    def workers(self) -> list[str]:
        """Return the names of the processes that take runs from the queue of this file."""
        known = sorted(self._owners.iterdir()) if self._owners.exists() else []
        return [path.name for path in known if is_worker(path)]

    def release_owner(self) -> None:
        """Let go of the lock, once: a run that ends and the journal that is closed may do it at the same time."""
        with _releasing:
            owner = self.owner
            if owner is None or owner.process != os.getpid():
                return
            self.owner = None
        owner.close()


def add_functions(
    connection: sqlite3.Connection, executes: Callable[[str, str | None], bool], alive: Callable[[str], bool]
) -> None:
    """Add the functions that statements use: those that PostgreSQL has, and what only this process knows."""
    connection.create_function("executes", 2, executes)
    connection.create_function("alive", 1, alive)
    connection.create_function("now", 0, time.time)
    connection.create_function("starts_with", 2, str.startswith, deterministic=True)
    connection.create_function("strpos", 2, lambda text, part: text.find(part) + 1, deterministic=True)


def _count(path: Path, change: int) -> None:
    """Count a connection that is about to be opened (1) or was closed (-1)."""
    with _counting:
        left = _open_here.get(path, 0) + change
        _open_here[path] = left
        if not left:
            del _open_here[path]


def connect(path: Path, *, patience: float, max_bytes: int | None = None) -> sqlite3.Connection:
    """Return a connection to a file of this version's schema. Its commits survive a power cut.

    `patience`: seconds to wait for the locks of other processes. `max_bytes`: the maximum size of the file.
    """
    if path in _open_before_fork:
        raise JournalError.of(
            "journal.forked",
            "the journal {path} was in use when this process was forked, which SQLite does not support. Close it "
            "before the fork, use it only in the child processes, or start them with spawn.",
            path=path,
        )
    _count(path, +1)
    try:
        return _open_connection(path, patience, max_bytes)
    except BaseException:
        _count(path, -1)
        raise


def disconnect(connection: sqlite3.Connection, path: Path) -> None:
    connection.close()
    _count(path, -1)


def _check_indexes(connection: sqlite3.Connection, path: Path) -> None:
    """Check the indexes against the runs, if that takes only milliseconds.

    A damaged row is noticed when it is read. A damaged index is not: runs would silently be missing.
    """
    (runs,) = connection.execute("SELECT count(*) FROM (SELECT 1 FROM runs LIMIT ?)", (_FEW_RUNS,)).fetchone()
    if runs < _FEW_RUNS:
        (found,) = connection.execute("PRAGMA integrity_check(runs)").fetchone()
        if found != "ok":
            raise damage_error(path, found)


def _open_connection(path: Path, patience: float, max_bytes: int | None) -> sqlite3.Connection:
    connection = open_database(path, timeout=patience, create=True)
    try:
        if _must_be_ours(connection, path):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is overwritten
        write_ahead(connection, patience)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        if max_bytes is not None:
            (page,) = connection.execute("PRAGMA page_size").fetchone()
            connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // int(page))}")
        migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _must_be_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Refuse another program's database, and leave it unchanged. Return True if the file is still empty."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION:
        raise JournalError.of(
            "journal.foreign_database",
            "{path} is a database of another program. Nothing was changed. Choose another file for the journal.",
            path=path,
        )
    return not tables


def tidy(path: Path, *, whole: bool = False) -> tuple[int, int]:
    """Free unused pages and empty the write-ahead log, as far as no other process is in the way.

    Returns the bytes freed and the bytes still to free. A file that was created before version 4 of the schema frees nothing
    until `whole` rewrites it; writers wait for that.
    """
    connection = connect(path, patience=_PATIENCE)
    try:
        size, before = (_number(connection, name) for name in ("page_size", "page_count"))
        if whole:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # which a file made by an older version has not
            connection.execute("VACUUM")
        else:
            with suppress(sqlite3.OperationalError):  # another process writes: try the next time
                connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")  # `execute` would free a single page
        after, free = (_number(connection, name) for name in ("page_count", "freelist_count"))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # does not fail if another process is in the way
        return (before - after) * size, free * size
    finally:
        disconnect(connection, path)


def _number(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
