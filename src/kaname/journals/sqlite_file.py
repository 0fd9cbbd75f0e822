"""The SQLite file itself: opening it, its schema and migrations, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

from ..core.errors import JournalCorrupt, JournalError, JournalFull, JournalLocked, JournalTooNew
from ..core.language import say

APPLICATION = 0x6B616E6D  # "kanm"

MIGRATIONS = (
    """
    CREATE TABLE runs (
        run TEXT PRIMARY KEY, agent TEXT NOT NULL DEFAULT '', session TEXT NOT NULL DEFAULT '',
        user TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'running', title TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL DEFAULT 0, updated REAL NOT NULL DEFAULT 0, seq INTEGER NOT NULL DEFAULT 0,
        input INTEGER NOT NULL DEFAULT 0, output INTEGER NOT NULL DEFAULT 0, cost REAL DEFAULT 0, base TEXT NOT NULL DEFAULT '',
        questions INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0, owner TEXT
    ) WITHOUT ROWID;
    CREATE TABLE facts (
        run TEXT NOT NULL, seq INTEGER NOT NULL, time REAL NOT NULL, agent TEXT NOT NULL, type TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) WITHOUT ROWID;
    """,
    """
    CREATE INDEX runs_by_time ON runs (created);
    CREATE INDEX runs_by_session ON runs (session, created) WHERE session <> '';
    CREATE INDEX runs_by_base ON runs (base) WHERE base <> '';
    """,
)


_open_here: dict[Path, int] = {}  # how many connections this process has, or is about to have, to each file
_open_before_fork: set[Path] = set()
_counting = threading.Lock()
_creating = threading.Lock()  # nobody connects to a new file before its first descriptor is closed


def _after_fork() -> None:
    """SQLite's own book of locks came along, and is wrong in the child: it would write where nobody reads."""
    global _counting, _creating
    _counting, _creating = threading.Lock(), threading.Lock()  # whoever held the others stayed behind
    _open_before_fork.update(_open_here)
    _open_here.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def count(path: Path, change: int) -> None:
    """A connection to the file is about to be opened, or was closed."""
    with _counting:
        left = _open_here.get(path, 0) + change
        _open_here[path] = left
        if not left:
            del _open_here[path]


def connect(path: Path, *, patience: float, max_bytes: int | None = None) -> sqlite3.Connection:
    """A connection to a file of this version's schema, whose commits survive a power cut.

    `patience`: seconds to wait for other processes' locks. `max_bytes`: how large the file may grow.
    """
    if path in _open_before_fork:
        raise JournalError(
            say(
                f"the journal {path} was in use when this process was forked, which SQLite does not survive; close it before "
                "the fork, use it first in the children, or start them with spawn",
                f"ジャーナル {path} は fork の時点で使用中でした(SQLite では安全に使えません)。fork の前に閉じるか、"
                "子プロセスで初めて使うか、spawn で起動してください",
            )
        )
    _create(path)
    count(path, +1)
    try:
        return _opened(path, patience, max_bytes)
    except BaseException:
        count(path, -1)
        raise


def _create(path: Path) -> None:
    """Make the file readable by its user only, from the first byte.

    A file that is there is never opened beside SQLite: closing any descriptor of it would drop every lock that this process
    holds on it, and the next process to leave would delete the write-ahead log under this one.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _creating, suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _opened(path: Path, patience: float, max_bytes: int | None) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        _must_be_ours(connection, path)
        _write_ahead(connection, patience)
        connection.execute("PRAGMA synchronous = FULL")
        if max_bytes is not None:
            (page,) = connection.execute("PRAGMA page_size").fetchone()
            connection.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page)}")
        migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _must_be_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Another program's database is left as it is."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION:
        raise JournalError(
            say(
                f"{path} is a database of another program; choose another file for the journal. Nothing was changed",
                f"{path} はほかのプログラムのデータベースです。別のファイルを指定してください。何も変更していません",
            )
        )


def _write_ahead(connection: sqlite3.Connection, patience: float) -> None:
    """SQLite does not wait by itself where a new file is switched to WAL by two connections at once."""
    until = time.monotonic() + patience
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.005)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this version's schema, in one transaction; a newer file is left alone."""
    if _version(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # again, inside the lock: another process may have been first
        if version > len(MIGRATIONS):
            raise JournalTooNew(
                say(
                    f"the journal {path} was written by a newer kaname (schema {version}, this one knows {len(MIGRATIONS)}); "
                    "upgrade kaname, or use another file; nothing was changed",
                    f"ジャーナル {path} は新しい kaname のものです(スキーマ {version}、こちらは {len(MIGRATIONS)} まで)。"
                    "kaname を更新するか別のファイルを使ってください。何も変更していません",
                )
            )
        for script in MIGRATIONS[version:]:
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def explain(problem: BaseException, path: Path) -> JournalError:
    """Our error for SQLite's, with what to do about it."""
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return JournalFull(
            say(
                f"no room left for the journal {path}: this fact was not written, everything before it is safe; "
                "make room, then resume the run",
                f"ジャーナル {path} の空き容量がありません。この記録は書かれていませんが、それ以前は無事です。"
                "空きを作ってから再開してください",
            )
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return JournalLocked(
            say(
                f"the journal {path} stayed locked by another program; this fact was not written, everything before it is "
                "safe; close what holds the file, then resume the run",
                f"ジャーナル {path} がほかのプログラムにロックされたままです。この記録は書かれて"
                "いませんが、それ以前は無事です。ロックを外してから再開してください",
            )
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return JournalCorrupt(
            say(
                f"the journal {path} is damaged or not a journal ({problem}); nothing was changed. Move it aside and start "
                f'with a new file, or save what can be read with: sqlite3 "{path}" .recover',
                f"ジャーナル {path} は壊れているか、ジャーナルではありません({problem})。何も変更していません。"
                f'別の場所に移して新しいファイルで始めるか、sqlite3 "{path}" .recover で読める部分を救出してください',
            )
        )
    if isinstance(problem, OSError):
        return cannot_open(path, problem)
    what = f"{type(problem).__name__}: {problem}"
    return JournalError(say(f"the journal {path} cannot take this: {what}", f"ジャーナル {path} に書けません: {what}"))


def cannot_open(path: Path, problem: OSError) -> JournalError:
    why = problem.strerror or str(problem)
    return JournalError(
        say(
            f"the journal {path} cannot be opened: {why}; choose another file with Agent(journal=…) or KANAME_JOURNAL, or "
            'journal="memory" to keep nothing',
            f"ジャーナル {path} を開けません: {why}。Agent(journal=…) か KANAME_JOURNAL で別のファイルを、"
            '記録しない場合は journal="memory" を指定してください',
        )
    )
