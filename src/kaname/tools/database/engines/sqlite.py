"""SQLite: opened read-only, with an authorizer that only allows reading."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from ....core.errors import ConfigError
from ...to_json import to_json
from ..tables import Column, Table
from .base import QueryFailed, QueryLimits, Rows, as_hex, out_of_time, row_too_long, unique

_LONGEST_VALUE = 1_000_000
_LOOKING = 3.0  # seconds for tables, columns and samples
_CHECKED_EVERY = 2_000  # steps of SQLite's machine
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


class SqliteEngine:
    dialect = "sqlite"

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser().absolute()
        self.address = f"sqlite:///{self._path}"
        if not self._path.is_file():
            raise ConfigError.of("database.no_file", "database file {path} was not found", path=self._path)

    def load(self) -> None:
        """Do nothing: SQLite comes with Python."""

    def _open(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self._address(), uri=True, isolation_level=None, timeout=2.0)
        except sqlite3.Error as problem:
            raise QueryFailed(str(problem)) from problem
        try:
            connection.text_factory = _text
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA temp_store = MEMORY")
        except sqlite3.Error as problem:
            connection.close()
            raise QueryFailed(str(problem)) from problem
        return connection

    def _address(self) -> str:
        """Return the address to open. `immutable` is set if the folder is read-only and there is no write-ahead log.

        SQLite can only read a database with a write-ahead log if it can create files next to it, or if no process writes to
        it."""
        address = f"{self._path.resolve().as_uri()}?mode=ro"
        if os.access(self._path.parent, os.W_OK) or Path(f"{self._path}-wal").exists():
            return address
        return f"{address}&immutable=1"

    def tables(self) -> list[Table]:
        connection = self._open()
        try:
            named = connection.execute(
                "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'"
            )
            end = monotonic() + _LOOKING
            connection.set_progress_handler(lambda: int(monotonic() > end), _CHECKED_EVERY)
            inner = _inner_tables(connection)
            found = [(name, kind) for name, kind in named.fetchall() if name not in inner]
            return [Table(name, tuple(self._columns(connection, name, kind)), schema="main") for name, kind in found]
        except sqlite3.Error as problem:
            raise QueryFailed(str(problem)) from problem
        finally:
            connection.close()

    def _columns(self, connection: sqlite3.Connection, table: str, of: str) -> list[Column]:
        """Return the columns of a table. A broken or slow view has none, so that it does not hide the other tables."""
        found: list[Column] = []
        with suppress(sqlite3.Error):
            for _, name, kind, *_, hidden in connection.execute(f"PRAGMA table_xinfo({_quote(table)})").fetchall():
                if hidden == 1:  # of a virtual table; 2 and 3 are generated
                    continue
                samples: tuple[str, ...] = ()
                if of == "table" and (not kind or "CHAR" in kind.upper() or "TEXT" in kind.upper()):
                    some = f"SELECT {_quote(name)} FROM {_quote(table)} LIMIT 500"
                    rows = connection.execute(f"SELECT DISTINCT {_quote(name)} FROM ({some}) LIMIT 7")
                    samples = tuple([str(value) for (value,) in rows.fetchall() if value is not None])
                found.append(Column(name, kind, "", samples))
        return found

    def run(self, sql: str, limits: QueryLimits) -> Rows:
        connection = self._open()
        try:
            _fence(connection, limits)
            cursor = connection.execute(sql)
            if cursor.description is None:
                raise QueryFailed("only SELECT is allowed")
            return _rows(cursor, limits)
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as problem:
            if "interrupted" in str(problem):
                raise out_of_time(limits) from None
            raise QueryFailed(str(problem)) from problem
        finally:
            connection.close()


def _inner_tables(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the tables in which full-text tables store their index."""
    searched = connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL%fts5%'").fetchall()
    return {f"{name}_{part}" for (name,) in searched for part in ("data", "idx", "content", "docsize", "config")}


def _fence(connection: sqlite3.Connection, limits: QueryLimits) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    named = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%'")
    for table in ["json_each('[]')", "json_tree('[]')", *[_quote(name) for (name,) in named.fetchall()]]:
        with suppress(sqlite3.Error):  # opened now, because opening a virtual table looks like writing to the authorizer
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall()
    end = monotonic() + limits.seconds
    connection.set_progress_handler(lambda: int(monotonic() > end), _CHECKED_EVERY)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    search = action == sqlite3.SQLITE_PRAGMA and first == "data_version"  # full-text tables look whether they have changed
    return sqlite3.SQLITE_OK if action in _READING or search else sqlite3.SQLITE_DENY


def _rows(cursor: sqlite3.Cursor, limits: QueryLimits) -> Rows:
    names = unique([column[0] for column in cursor.description])
    made: list[dict[str, Any]] = []
    size = 0
    for row in cursor:
        made.append(dict(zip(names, [_json_value(value) for value in row], strict=True)))
        length = len(str(made[-1]))
        size += length
        if length > limits.characters:
            raise row_too_long(limits)
        if len(made) > limits.rows or size > limits.characters:
            break
    return Rows(made[: limits.rows], len(made) > limits.rows or size > limits.characters)


def _json_value(value: Any) -> Any:
    return as_hex(value) if isinstance(value, bytes) else to_json(value)


def _text(data: bytes) -> str:
    """Decode a text. Invalid UTF-8 is replaced, not refused."""
    return data.decode(errors="replace")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
