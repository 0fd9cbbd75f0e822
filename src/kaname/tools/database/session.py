"""A session: an engine and the tables it can read. It runs in this process for the user's own engine, else in the worker."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from ...core.errors import ConfigError, nearest
from ...core.notices import notice
from .catalogue import answer, is_about_schema
from .check import check
from .engines.base import BuiltInEngine, Engine, QueryFailed, QueryLimits, Rows
from .statement import Comments, Missing, StatementRefused, clean_statement
from .tables import KnownTables, Table, choose_tables, small

_NO_COLUMN = re.compile(r"no such column: \"?([^\"\n]+)|^column \"?([^\"\n]+?)\"? does not exist", re.IGNORECASE)
_GONE = re.compile(r"no such (?:table|column)|does not exist|not found", re.IGNORECASE)
_NO_FUNCTION = re.compile(r"no such function: (\w+)")
_INSTEAD = {"concat": "a || b", "concat_ws": "a || ', ' || b", "left": "substr(x, 1, n)", "right": "substr(x, -n)"}
_INSTEAD |= {"string_agg": "group_concat(x, ',')", "now": "datetime('now')", "date_trunc": "strftime('%Y-%m-01', x)"}
_INSTEAD |= {"regexp": "LIKE or GLOB", "generate_series": "WITH RECURSIVE"}
_INSTEAD |= {"to_char": "strftime('%Y-%m', x)", "extract": "strftime('%Y', x)", "date_part": "strftime('%Y', x)"}
_INSTEAD |= {"greatest": "max(a, b)", "least": "min(a, b)", "split_part": "substr and instr", "year": "strftime('%Y', x)"}


class DatabaseSession:
    """Check and run statements. `only`: the tables that can be read; `functions`: additional functions that are allowed."""

    def __init__(
        self, engine: Engine, only: Collection[str] | None, functions: Collection[str], comments: Comments = "strip"
    ) -> None:
        self._engine, self._only, self._comments = engine, only, comments
        self._functions = frozenset({small(name) for name in functions})
        self._known: KnownTables | None = None
        self._changed = self._looked = False
        self.unknown: list[str] = []  # chosen names that match no table
        self.names: list[str] = []  # of all tables, chosen or not

    def tables(self) -> list[Table]:
        self._known = None
        return list(self._all().tables)

    def _all(self) -> KnownTables:
        if self._known is None:
            there = self._engine.tables()
            self.names = [table.name for table in there]
            tables, self.unknown = choose_tables(there, self._only, self._engine.dialect)
            names: dict[str, frozenset[str]] = getattr(self._engine, "names", {})
            known = KnownTables(self._engine.dialect, tuple(tables), self._functions, **names)
            first = {known.fold(one.name): one for one in reversed(there) if one.bare}
            visible = [name for name, one in first.items() if one in tables]
            self._known = known._replace(elsewhere=frozenset([known.fold(one.name) for one in there]).difference(visible))
        return self._known

    def query(self, sql: str, limits: QueryLimits) -> Rows:
        """Run a statement.

        Raises `StatementRefused` if it is not allowed, or `QueryFailed`, with similar names if a name does not exist."""
        statement, self._looked = clean_statement(sql, self._engine.dialect, self._comments), False
        try:
            return self._run(statement, limits)
        except (StatementRefused, QueryFailed) as problem:
            if is_about_schema(statement, self._all()):
                return self._about_schema(statement, limits, problem)
            if isinstance(problem, StatementRefused):
                raise
            raise QueryFailed(f"{problem}{self._hint(str(problem), statement)}") from problem

    def _run(self, statement: str, limits: QueryLimits) -> Rows:
        """Check and run the statement. If a table or column is missing, reload the schema once and retry."""
        try:
            check(statement, self._all())
            return self._engine.run(statement, limits)
        except (Missing, QueryFailed) as problem:
            if isinstance(problem, QueryFailed) and not _GONE.search(str(problem)):
                raise
            if not self._reload():
                raise
        check(statement, self._all())
        return self._engine.run(statement, limits)

    def _about_schema(self, statement: str, limits: QueryLimits, problem: Exception) -> Rows:
        """Answer from the current tables. If that fails too, a statement that was refused at first stays refused."""
        self._reload()
        try:
            return answer(statement, self._all(), limits)
        except QueryFailed:
            if isinstance(problem, StatementRefused) and not isinstance(problem, Missing):
                raise problem from None
            raise

    def _reload(self) -> bool:
        """Reload the schema, at most once per statement. Returns True if the tables have changed."""
        if self._looked:
            return False
        before, self._known, self._looked = self._all().tables, None, True
        changed = self._all().tables != before
        self._changed = self._changed or changed
        return changed

    def take_changed(self) -> bool:
        """Return True if the tables have changed since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def _hint(self, told: str, statement: str) -> str:
        if match := _NO_FUNCTION.search(told):
            instead = _INSTEAD.get(small(match[1]))
            return f"; in this database write {instead}" if instead else ""
        match = _NO_COLUMN.search(told)
        return "" if match is None else self._hint_of_column(match[1] or match[2], statement)

    def _hint_of_column(self, column: str, statement: str) -> str:
        """Return the tables that have the column, or a name that is close to it."""
        known, (of, _, name) = self._all(), column.rpartition(".")
        read = set(re.findall(r"\w+", small(statement)))  # what is not in these is in another
        there = [(spelled, table) for spelled, table in zip(known.table_names(), known.tables, strict=True) if not of]
        others = [spelled for spelled, table in there if small(table.name) not in read and known.has(table, name)]
        if others:
            return f"; {name} is a column of {', '.join(others)}"
        other_case = [one for one in known.columns() if small(one) == small(name) and one != name]
        near = nearest(name, map(known.quote, other_case or known.columns()))
        return "" if f"{name!r}?" in near else near


def engine_for(source: str | Path, *, allow_superuser: bool = False) -> BuiltInEngine:
    text = str(source)
    if text.startswith(("postgres://", "postgresql://")):
        from .engines.postgres import PostgresEngine

        return PostgresEngine(text, allow_superuser=allow_superuser)
    kind, found, rest = text.partition("://")
    path = Path(rest.removeprefix("/") if found else text)
    if found and kind not in ("sqlite", "duckdb", "file"):
        known = ["sqlite", "duckdb", "postgresql"]
        raise ConfigError(
            notice("database.no_engine", "unsupported database engine {kind!r}", kind=kind) + nearest(kind, known)
        )
    if kind == "duckdb" or (not found and _is_duck(Path(text).expanduser())):
        from .engines.duckdb import DuckEngine

        return DuckEngine(path)
    from .engines.sqlite import SqliteEngine

    return SqliteEngine(path)


def _is_duck(path: Path) -> bool:
    if not path.is_file():
        return path.suffix in (".duckdb", ".ddb")
    with path.open("rb") as file:
        return file.read(12)[8:12] == b"DUCK"
