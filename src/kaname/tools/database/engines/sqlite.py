"""SQLite: opened read-only, with an authorizer that lets one SELECT read the tables it may see, with functions that calculate.

SQLite asks the authorizer while it compiles the statement: what is judged is what is run."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from ....core.errors import ConfigError
from ....core.notices import notice
from ...results import to_json
from ..statement import Missing, Refused
from ..tables import Column, Known, Table, small
from .base import Limits, QueryFailed, Rows, as_hex, out_of_time, row_too_long, unique

_LONGEST_VALUE = 1_000_000
_LOOKING = 3.0  # seconds for tables, columns and samples
_CHECKED_EVERY = 2_000  # steps of SQLite's machine
_OPERATORS = frozenset({"->", "->>", "like", "glob", "match"})
_TABLES = frozenset({"json_each", "json_tree"})  # functions to read from


class SqliteEngine:
    dialect = "sqlite"

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser().absolute()
        self.address = f"sqlite:///{self._path}"
        if not self._path.is_file():
            raise ConfigError(notice("database.no_file", "there is no database {path}", path=self._path))

    def load(self) -> None:
        """It comes with Python."""

    def _open(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self._address(), uri=True, isolation_level=None, timeout=2.0)
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA temp_store = MEMORY")
        except sqlite3.Error as problem:
            raise QueryFailed(str(problem)) from problem
        return connection

    def _address(self) -> str:
        """A database with a write-ahead log can only be read where its files can be made, or if nobody else writes to it."""
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
            found = named.fetchall()
            return [Table(name, tuple(self._columns(connection, name, kind)), schema="main") for name, kind in found]
        except sqlite3.Error as problem:
            raise QueryFailed(str(problem)) from problem
        finally:
            connection.close()

    def _columns(self, connection: sqlite3.Connection, table: str, of: str) -> list[Column]:
        """A view that is broken or slow has columns nobody can tell, and does not stand in the way of the others."""
        found: list[Column] = []
        with suppress(sqlite3.Error):
            for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall():
                samples: tuple[str, ...] = ()
                if of == "table" and (not kind or "CHAR" in kind.upper() or "TEXT" in kind.upper()):
                    some = f"SELECT {_quoted(name)} FROM {_quoted(table)} LIMIT 500"
                    rows = connection.execute(f"SELECT DISTINCT {_quoted(name)} FROM ({some}) LIMIT 7")
                    samples = tuple([str(value) for (value,) in rows.fetchall() if value is not None])
                found.append(Column(name, kind, "", samples))
        return found

    def run(self, sql: str, limits: Limits, known: Known) -> Rows:
        connection = self._open()
        judge = _Judge(known)
        try:
            judge.real = {small(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
            _fence(connection, limits, judge)
            cursor = connection.execute(sql)
            if cursor.description is None:
                raise Refused("only SELECT is allowed")
            return _rows(cursor, limits)
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as problem:
            if "one statement at a time" in str(problem):
                raise Refused("write exactly one statement") from problem
            if judge.refusal is not None:
                raise judge.refusal from problem
            if "interrupted" in str(problem):
                raise out_of_time(limits) from None
            raise QueryFailed(str(problem)) from problem
        finally:
            connection.close()


class _Judge:
    """The authorizer. `real`: the names of all tables of this moment; `refusal`: why it said no."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.real: set[str] = set()
        self.refusal: Refused | None = None

    def __call__(self, action: int, first: str | None, second: str | None, database: str | None, view: str | None) -> int:
        try:
            if action == sqlite3.SQLITE_READ:
                if view is None:  # what a view reads is the view's affair; that it may be read has been asked before
                    self._check_read(first or "", second or "")
            elif action == sqlite3.SQLITE_FUNCTION:
                if second not in _OPERATORS:
                    self._known.check_function(second or "")
            elif action not in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
                raise Refused(f"only SELECT is allowed, not {_ACTIONS.get(action, 'this')}")
        except Refused as refusal:
            self.refusal = self.refusal or refusal
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _check_read(self, table: str, column: str) -> None:
        """Without a column it may be a name of WITH, of which no column is used; then it is no table's."""
        if self._known.find(table) is not None or small(table) in _TABLES:
            return
        if column or small(table) in self.real or small(table).startswith(("sqlite_", "pragma_")):
            raise Missing(f"there is no table {table!r}")


_ACTIONS = {
    getattr(sqlite3, f"SQLITE_{name}"): name
    for name in ["INSERT", "UPDATE", "DELETE", "PRAGMA", "ATTACH", "DETACH", "TRANSACTION", "SAVEPOINT", "ANALYZE", "REINDEX"]
} | {
    getattr(sqlite3, name): name.removeprefix("SQLITE_").partition("_")[0]
    for name in dir(sqlite3)
    if name.startswith(("SQLITE_CREATE_", "SQLITE_DROP_", "SQLITE_ALTER_"))
}


def _fence(connection: sqlite3.Connection, limits: Limits, judge: _Judge) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for table in _TABLES:  # made now, because making one looks like writing to the authorizer
        connection.execute(f"SELECT 1 FROM {table}('[]')")
    end = monotonic() + limits.seconds
    connection.set_progress_handler(lambda: int(monotonic() > end), _CHECKED_EVERY)
    connection.set_authorizer(judge)


def _rows(cursor: sqlite3.Cursor, limits: Limits) -> Rows:
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
