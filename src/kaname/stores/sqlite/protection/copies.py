"""Copies of a journal that were made with `backup`. The journal remembers where they are, so that erasure reaches them."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from ....core.errors import JournalError

_TABLE = "CREATE TABLE IF NOT EXISTS copies (path TEXT PRIMARY KEY, made REAL NOT NULL) WITHOUT ROWID"


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
