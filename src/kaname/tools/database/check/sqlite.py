"""Check a statement for SQLite with SQLite: compile it for a database that has only the visible tables, all empty.

While compiling, SQLite asks an authorizer about every table, function and action."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from ....core.errors import nearest
from ..engines.base import QueryFailed
from ..statement import Missing, StatementRefused
from ..tables import KnownTables, Table, small

_OPERATORS = frozenset({"->", "->>", "like", "glob", "match"})
_TABLES = frozenset({"json_each", "json_tree"})  # functions to read from
_OF_SEARCH = ("bm25", "highlight", "snippet")  # functions of FTS5
_NO_TABLE = re.compile(r"no such table: (.*)")
_VERB = re.compile(r"\s*(?!select|with)([a-z]+)", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*explain(\s+query\s+plan|\s+analyze)?\b", re.IGNORECASE)


def check(sql: str, known: KnownTables) -> None:
    given = _EXPLAIN.match(sql)
    if given and "analyze" in (given[1] or "").lower():
        raise StatementRefused("this database has no EXPLAIN ANALYZE: write EXPLAIN QUERY PLAN SELECT …")
    asked = sql[given.end() :] if given else sql
    connection, judge = _empty_database(tuple(known.tables)), _Authorizer(known, asked)
    connection.set_authorizer(judge)
    try:
        connection.execute(f"EXPLAIN {asked}").close()
    except (sqlite3.Error, sqlite3.Warning, OverflowError) as problem:
        if judge.refusal is not None:
            raise judge.refusal from problem
        if "one statement at a time" in str(problem):
            raise StatementRefused("write exactly one statement") from problem
        if (match := _NO_TABLE.match(str(problem))) is not None:
            name = match[1].removeprefix("main.")
            raise Missing(f"there is no table {name!r}" + nearest(name, known.table_names())) from problem
        raise QueryFailed(str(problem)) from problem


class _Authorizer:
    """The authorizer. `refusal`: the reason of the first refusal."""

    def __init__(self, known: KnownTables, sql: str) -> None:
        self._known = known
        self._verb = "" if (verb := _VERB.match(sql)) is None else verb[1].upper()
        self.refusal: StatementRefused | None = None

    def __call__(self, action: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
        """Decide about one action. `inside` (the WITH or view that reads) is ignored: whatever is read must be visible."""
        try:
            if action == sqlite3.SQLITE_READ:
                self._check_read(first or "", second or "")
            elif action == sqlite3.SQLITE_FUNCTION:
                if second not in _OPERATORS and second not in _OF_SEARCH:
                    self._known.check_function(second or "")
            elif action not in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
                raise StatementRefused(f"only SELECT is allowed, not {self._verb or _ACTIONS.get(action, 'this')}")
        except StatementRefused as refusal:
            self.refusal = self.refusal or refusal
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _check_read(self, table: str, column: str) -> None:
        """Raise `Missing` if the table is not visible. Without a column it may be a name of WITH whose columns are not used."""
        if self._known.find(table) is not None or small(table) in _TABLES - self._known.elsewhere:
            return
        if column or small(table).startswith(("sqlite_", "pragma_", "dbstat")):
            raise Missing(f"there is no table {table!r}")


_ACTIONS = {sqlite3.SQLITE_INSERT: "INSERT", sqlite3.SQLITE_UPDATE: "UPDATE", sqlite3.SQLITE_DELETE: "DELETE"}  # after WITH


class _Closing(sqlite3.Connection):
    """A connection that is closed when it is garbage-collected, because the cache that drops it does not close it."""

    def __del__(self) -> None:
        self.close()


@lru_cache(maxsize=4)
def _empty_database(tables: Sequence[Table]) -> sqlite3.Connection:
    """Make an in-memory database with these tables. Each also gets the columns by which full-text tables are searched."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_Closing)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for table in tables:
        own = [column.name for column in table.columns]
        more = [name for name in (table.name, "rank") if small(name) not in [small(one) for one in own]]
        with suppress(sqlite3.Error):  # one that cannot be made cannot be read
            connection.execute(f"CREATE TABLE {_quote(table.name)} ({', '.join(map(_quote, [*own, *more]))})")
    for name in _OF_SEARCH:
        connection.create_function(name, -1, lambda *given: None)
    for name in _TABLES:  # made now, because making one looks like writing to the authorizer
        connection.execute(f"SELECT 1 FROM {name}('[]')")
    return connection


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
