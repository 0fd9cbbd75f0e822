"""Connections of SQLCipher that raise the errors of the module `sqlite3`, so that one `except` serves both."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from sqlcipher3 import dbapi2 as sqlcipher


def _with_sqlite_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    def call_method(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return method(self, *given, **named)
        except sqlcipher.Error as problem:
            raise _as_sqlite(problem) from problem

    return call_method


def _as_sqlite(problem: Exception) -> sqlite3.Error:
    made: sqlite3.Error = getattr(sqlite3, type(problem).__name__, sqlite3.DatabaseError)(*problem.args)
    made.sqlite_errorcode = getattr(problem, "sqlite_errorcode", 0)
    made.sqlite_errorname = getattr(problem, "sqlite_errorname", "")
    return made


class CipherCursor(sqlcipher.Cursor):  # type: ignore[misc]
    """A cursor with the errors of `sqlite3`."""

    execute = _with_sqlite_errors(sqlcipher.Cursor.execute)
    executemany = _with_sqlite_errors(sqlcipher.Cursor.executemany)
    executescript = _with_sqlite_errors(sqlcipher.Cursor.executescript)
    fetchone = _with_sqlite_errors(sqlcipher.Cursor.fetchone)
    fetchmany = _with_sqlite_errors(sqlcipher.Cursor.fetchmany)
    fetchall = _with_sqlite_errors(sqlcipher.Cursor.fetchall)

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except sqlcipher.Error as problem:
            raise _as_sqlite(problem) from problem


class CipherConnection(sqlcipher.Connection):  # type: ignore[misc]
    """A connection with the errors of `sqlite3`."""

    commit = _with_sqlite_errors(sqlcipher.Connection.commit)
    rollback = _with_sqlite_errors(sqlcipher.Connection.rollback)
    backup = _with_sqlite_errors(sqlcipher.Connection.backup)
    __exit__ = _with_sqlite_errors(sqlcipher.Connection.__exit__)

    @property
    def total_changes(self) -> int:
        try:
            changes: int = super().total_changes
        except sqlcipher.Error as problem:
            raise _as_sqlite(problem) from problem
        return changes

    def cursor(self, factory: Any = CipherCursor) -> Any:
        return super().cursor(factory)


def connect(address: str, key: str, timeout: float, uri: bool = False) -> Any:
    """Open a file with a key in hexadecimal form; a plain file with an empty key."""
    how: dict[str, Any] = {"timeout": timeout, "isolation_level": None, "check_same_thread": False, "uri": uri}
    try:
        connection = sqlcipher.connect(address, factory=CipherConnection, **how)
    except sqlcipher.Error as problem:
        raise _as_sqlite(problem) from problem
    connection.execute("PRAGMA cipher_log_level = NONE")  # it writes to standard error otherwise
    if key:
        connection.execute(f"PRAGMA key = \"x'{key}'\"")
    return connection
