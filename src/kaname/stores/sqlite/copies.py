"""Copies of a journal, made with `backup`. The journal remembers where they are, so that erasure reaches them."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from ...core.encryption.database import open_database
from ...core.encryption.keys import key_for
from ...core.errors import JournalError
from ...core.runs import SHARED

_TABLE = "CREATE TABLE IF NOT EXISTS copies (path TEXT PRIMARY KEY, made REAL NOT NULL) WITHOUT ROWID"


def copy(connection: sqlite3.Connection, path: Path, target: Path) -> None:
    """Copy the file that a connection reads to a new file, with the same key.

    Of an encrypted file, the copy has no snapshots of shared sessions: they hold words of several users.
    """
    try:
        key = key_for(path)
        with closing(open_database(target, create=True, key=key)) as other:
            connection.backup(other)
            if key is not None:
                shared = f"substr(session, 1, {len(SHARED)}) = '{SHARED}'"
                other.execute(f"DELETE FROM snapshots WHERE run IN (SELECT run FROM runs WHERE {shared})")
                other.execute("VACUUM")
    except (OSError, sqlite3.Error) as problem:
        target.unlink(missing_ok=True)  # remove an incomplete copy
        raise JournalError.of(
            "journal.copy_failed", "the journal cannot be copied to {target}: {problem}", target=target, problem=problem
        ) from problem


def note_copy(connection: sqlite3.Connection, path: Path) -> None:
    """Remember a copy that is about to be made. The table is created with the first one.

    Raises `JournalError` if the file exists: it would be another one.
    """
    if path.exists():
        raise JournalError.of("journal.copy_exists", "the file {target} already exists; choose another name", target=path)
    connection.execute(_TABLE)
    connection.execute("INSERT OR REPLACE INTO copies VALUES (?, ?)", (str(path), time.time()))


def forget_copy(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("DELETE FROM copies WHERE path = ?", (str(path),))


def copies_of(connection: sqlite3.Connection) -> list[Path]:
    """Return the places of the copies that were made, whether they still exist or not."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'copies'").fetchone() is None:
        return []
    return [Path(path) for (path,) in connection.execute("SELECT path FROM copies ORDER BY made")]
