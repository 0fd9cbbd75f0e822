"""Judge a statement for SQLite by SQLite: it compiles it for a database that has the visible tables, empty, and no others.

While it does, it asks an authorizer about every table, function and action."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from ....core.errors import nearest
from ..engines.base import QueryFailed
from ..statement import Missing, Refused
from ..tables import Known, Table, small

_OPERATORS = frozenset({"->", "->>", "like", "glob", "match"})
_TABLES = frozenset({"json_each", "json_tree"})  # functions to read from
_OF_SEARCH = ("bm25", "highlight", "snippet")  # functions of FTS5
_NO_TABLE = re.compile(r"no such table: (.*)")
_EXPLAIN = re.compile(r"\s*explain(\s+query\s+plan|\s+analyze)?\b", re.IGNORECASE)


def check(sql: str, known: Known) -> None:
    connection, judge = _empty(tuple(known.tables)), _Judge(known)
    connection.set_authorizer(judge)
    try:
        given = _EXPLAIN.match(sql)
        if given and "analyze" in (given[1] or "").lower():
            raise Refused("this database has no EXPLAIN ANALYZE: write EXPLAIN QUERY PLAN SELECT …")
        connection.execute(f"EXPLAIN {sql[given.end() :] if given else sql}").close()
    except (sqlite3.Error, sqlite3.Warning, OverflowError) as problem:
        if judge.refusal is not None:
            raise judge.refusal from problem
        if "one statement at a time" in str(problem):
            raise Refused("write exactly one statement") from problem
        if (found := _NO_TABLE.match(str(problem))) is not None:
            name = found[1].removeprefix("main.")
            raise Missing(f"there is no table {name!r}" + nearest(name, known.spelled())) from problem
        raise QueryFailed(str(problem)) from problem


class _Judge:
    """The authorizer. `refusal`: why it said no."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.refusal: Refused | None = None

    def __call__(self, action: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
        """`inside`: the name of the WITH or view that reads. Whatever it is: what is read has to be visible."""
        try:
            if action == sqlite3.SQLITE_READ:
                self._check_read(first or "", second or "")
            elif action == sqlite3.SQLITE_FUNCTION:
                if second not in _OPERATORS and second not in _OF_SEARCH:
                    self._known.check_function(second or "")
            elif action not in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
                raise Refused(f"only SELECT is allowed, not {_ACTIONS.get(action, 'this')}")
        except Refused as refusal:
            self.refusal = self.refusal or refusal
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _check_read(self, table: str, column: str) -> None:
        """Without a column it is perhaps a name of WITH, of which no column is used."""
        if self._known.find(table) is not None or small(table) in _TABLES - self._known.elsewhere:
            return
        if column or small(table).startswith(("sqlite_", "pragma_", "dbstat")):
            raise Missing(f"there is no table {table!r}")


_ACTIONS = {
    getattr(sqlite3, f"SQLITE_{name}"): name
    for name in ["INSERT", "UPDATE", "DELETE", "PRAGMA", "ATTACH", "DETACH", "TRANSACTION", "SAVEPOINT", "ANALYZE", "REINDEX"]
} | {
    getattr(sqlite3, name): name.removeprefix("SQLITE_").partition("_")[0]
    for name in dir(sqlite3)
    if name.startswith(("SQLITE_CREATE_", "SQLITE_DROP_", "SQLITE_ALTER_"))
}


class _Closing(sqlite3.Connection):
    """A connection that is closed when nothing refers to it any more: the cache that drops it does not."""

    def __del__(self) -> None:
        self.close()


@lru_cache(maxsize=4)
def _empty(tables: Sequence[Table]) -> sqlite3.Connection:
    """A database in memory with these tables. Each has the columns, too, by which full-text tables are searched."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_Closing)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for table in tables:
        own = [column.name for column in table.columns]
        more = [name for name in (table.name, "rank") if small(name) not in [small(one) for one in own]]
        with suppress(sqlite3.Error):  # one that cannot be made cannot be read
            connection.execute(f"CREATE TABLE {_quoted(table.name)} ({', '.join(map(_quoted, [*own, *more]))})")
    for name in _OF_SEARCH:
        connection.create_function(name, -1, lambda *given: None)
    for name in _TABLES:  # made now, because making one looks like writing to the authorizer
        connection.execute(f"SELECT 1 FROM {name}('[]')")
    return connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
