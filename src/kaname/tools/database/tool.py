"""`database`: read-only SQL for a model: it sees what there is, asks with SELECT, and gets JSON rows or a reason."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any

from ...core.errors import ConfigError
from ...core.events import Effect
from ...core.messages import ToolResult
from ...kernel.threads import off_loop
from .engines.base import Engine, QueryFailed, QueryLimits, Rows, out_of_time
from .sandbox.process import DatabaseCall, WorkerPool
from .session import DatabaseSession, engine_for
from .statement import Comments, StatementRefused, clean_statement
from .tables import KnownTables, Table, best, candidates, describe_tables, no_such_tables, words_to_find

__all__ = ["DatabaseTool", "engine_for"]
_PAUSE = 30.0  # seconds
_CANDIDATES = 50  # rows of a table that are looked at to find those that share words with a question
refuse_comments: ContextVar[bool] = ContextVar("refuse_comments", default=False)
"""True while a query with comments is refused, if its tool does not say otherwise."""


class DatabaseTool:
    """A tool that answers SELECT statements from a database.

    Three checks protect the database. The engine's own parser must read one SELECT over the allowed tables. The connection is
    read-only. And the statement runs in a process of its own, with limits on rows, size, time and memory. An `Engine` object of
    your own runs in this process, after the first check.

    Args:
        source: A SQLite or DuckDB file, the URL of a PostgreSQL database (`postgresql://…`), or an `Engine`.
        max_rows: The maximum number of rows of a result (default: 100).
        max_characters: The maximum number of characters of a result (default: 40,000).
        timeout: Seconds after which a statement is ended (default: 10).
        max_memory: The maximum number of bytes that the process of the statement can use (default: 1 GB).
        tables: The tables that can be read (default: all).
        functions: SQL functions that are allowed in addition to the usual ones.
        comments: "strip" or "refuse" comments in statements. By default they are stripped, except in design A's runtime.
        allow_superuser: True to allow a PostgreSQL role that can read everything.
        name: The name of the tool (default: "database").
    """

    name = "database"
    effect: Effect = "pure"
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"sql": {"type": "string", "description": "one SELECT statement"}},
        "required": ["sql"],
    }

    def __init__(
        self,
        source: str | Path | Engine,
        *,
        max_rows: int = 100,
        max_characters: int = 40_000,
        timeout: float = 10.0,
        max_memory: int = 1_000_000_000,
        tables: Collection[str] | None = None,
        functions: Collection[str] = (),
        comments: Comments | None = None,
        allow_superuser: bool = False,
        name: str = "",
    ) -> None:
        if max_rows < 1 or max_characters < 100 or timeout <= 0 or max_memory < 1:
            raise ConfigError.of(
                "database.numbers",
                "max_rows, timeout and max_memory must be positive numbers, and max_characters at least 100",
            )
        if isinstance(tables, str) or isinstance(functions, str):
            raise ConfigError.of("database.names", "tables and functions must be lists of names, not strings")
        if comments not in (None, "strip", "refuse"):
            raise ConfigError.of(
                "database.comments", "comments must be 'strip' or 'refuse', not {comments!r}", comments=comments
            )
        self.name, self._comments = name or self.name, comments
        self._limits = QueryLimits(max_rows, max_characters, timeout)
        self._told: str | None = None
        self._again, self._unreachable = 0.0, ""
        self._workers: WorkerPool | None = None
        if isinstance(source, str | Path):
            engine = engine_for(source)
            opening = {
                "source": engine.address,
                "memory": max_memory,
                "tables": None if tables is None else list(tables),
                "functions": list(functions),
                "comments": comments or "strip",
                "allow_superuser": allow_superuser,
            }
            self._workers, self._dialect = WorkerPool(opening), engine.dialect
        elif not hasattr(source, "dialect"):
            raise ConfigError.of(
                "database.source",
                "source must be a SQLite or DuckDB file, an address such as postgresql://…, or an Engine, not {source!r}",
                source=source,
            )
        else:
            self._session, self._dialect = DatabaseSession(source, tables, functions, comments or "strip"), source.dialect
        self.timeout = timeout + 15.0  # the engine's own limit comes first; this is for one that does not answer
        if tables is not None:
            self._check_chosen()

    def _check_chosen(self) -> None:
        """If there is no answer now, the tool is still one: it may be there the next time."""
        try:
            _, unknown, names = self._look()
        except QueryFailed:
            return
        if unknown:
            raise no_such_tables(unknown, names)

    def _look(self) -> tuple[list[Table], list[str], list[str]]:
        if self._workers is not None:
            return self._workers.tables(self._limits)
        return self._session.tables(), self._session.unknown, self._session.names

    @cached_property
    def tables(self) -> list[Table]:
        return self._look()[0]

    @property
    def description(self) -> str:
        """With what there is to be asked: tables, columns, their types, remarks and a few values."""
        if self._told is None:
            if monotonic() < self._again:  # it has just been tried, in a thread; here it would hold up everybody
                return self._unreachable
            limits = f"at most {self._limits.rows} rows and {self._limits.seconds:g} seconds"
            head = f"Query a {self._dialect} database with one SELECT; {limits}. Tables:\n"
            try:
                self._told = head + describe_tables(self.tables, self._dialect)
            except QueryFailed as problem:
                self._again = monotonic() + _PAUSE
                self._unreachable = f"{head}(not reachable now: {problem})"  # it may be, the next time
                return self._unreachable
        return self._told

    def close(self) -> None:
        """End the database's process now; the next question starts another. It ends by itself with the tool or this process."""
        if self._workers is not None:
            self._workers.close()

    async def execute(self, input_text: str) -> ToolResult:
        call, refuse = DatabaseCall(), self._comments is None and refuse_comments.get()
        try:
            return await off_loop(self._execute, input_text, call, refuse)  # type: ignore[no-any-return]
        finally:
            call.cancel()  # nothing is left of a call that was cancelled

    def _execute(self, sql: str, call: DatabaseCall, refuse: bool) -> ToolResult:
        try:
            if refuse:
                clean_statement(sql, self._dialect, "refuse")
            found = self._query(sql, call)
        except StatementRefused as problem:
            text = f"not run: {problem}"
            return ToolResult(error=text, retryable=False, not_run=True)
        except QueryFailed as problem:
            return ToolResult(error=str(problem), retryable=False)
        rows, size = [], 0
        for row in found.rows:
            size += len(json.dumps(row, ensure_ascii=False))
            if size > self._limits.characters:
                break
            rows.append(row)
        output: dict[str, Any] = {"rows": rows}
        if found.more or len(rows) < len(found.rows):
            output["note"] = f"only the first {len(rows)} rows are shown; there are more"
        return ToolResult(output)

    def find(self, question: str, most: int = 3, *, seconds: float = 5.0) -> dict[str, list[dict[str, Any]]]:
        """Return the rows that share the most words with a question, by table; no model writes the SQL.

        A table of which more than `most` rows fit equally well is left out. Raises `QueryFailed` if it takes longer than
        `seconds` (5 by default). It blocks: call it in a thread.
        """
        words, found = words_to_find(question), dict[str, list[dict[str, Any]]]()
        known = KnownTables(self._dialect, self.tables)
        until = monotonic() + seconds
        for table, name in zip(known.tables, known.table_names(), strict=True) if words else ():
            limits = QueryLimits(_CANDIDATES, self._limits.characters, until - monotonic())
            if limits.seconds <= 0:
                raise out_of_time(limits._replace(seconds=seconds))
            rows = self._query(candidates(table, name, words, known, _CANDIDATES), DatabaseCall(), limits).rows
            if fitting := best(name, rows, words, most):
                found[name] = fitting
        return found

    def _query(self, sql: str, call: DatabaseCall, limits: QueryLimits | None = None) -> Rows:
        limits = limits or self._limits
        if self._workers is not None:
            found, changed = self._workers.query(sql, limits, call)
        else:
            found, changed = self._session.query(sql, limits), self._session.take_changed()
        if changed:
            self.__dict__.pop("tables", None)
            self._told = None
        return found
