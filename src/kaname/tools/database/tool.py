"""`database`: read-only SQL for a model: it sees what there is, asks with SELECT, and gets JSON rows or a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, nearest
from ...core.events import Effect
from ...core.language import say
from ...core.messages import ToolResult
from ...kernel.offload import off_loop
from .engine import Column, Engine, Limits, QueryFailed, Table
from .wall import Refused, check

_LONGEST_SCHEMA = 6_000  # characters in the tool's description
_CATEGORY = re.compile(
    r"status|state|type|kind|category|class|level|role|plan|region|country|currency|unit|lang|priority|mode|method|channel|"
    r"dept|department|size|colou?r|grade|区分|種別|種類|状態|分類|カテゴリ|部門|部署|通貨|言語|優先",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{4}-\d\d")
_FEW = 5  # values of a column that are worth showing
_MISSING = re.compile(
    r"no such (?:table|column): ([\w.\"]+)|(?:relation|column) \"?([\w.]+)\"? does not exist"
    r"|(?:Table with name|Referenced column) \"?([\w.]+)\"? (?:does not exist|not found)",
    re.IGNORECASE,
)


class DatabaseTool:
    """`source`: a SQLite or DuckDB file, or `postgresql://…`. `tables`: only these; `functions`: more that may be used.

    Three walls: a parser that lets one SELECT through, the engine's own read-only means, and limits on rows, size and time.
    """

    name = "database"
    effect: Effect = "pure"
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"sql": {"type": "string", "description": "one SELECT statement, without comments"}},
        "required": ["sql"],
    }

    def __init__(
        self,
        source: str | Path | Engine,
        *,
        max_rows: int = 100,
        max_characters: int = 40_000,
        timeout: float = 10.0,
        tables: Collection[str] | None = None,
        functions: Collection[str] = (),
        name: str = "database",
    ) -> None:
        if max_rows < 1 or max_characters < 100 or timeout <= 0:
            raise ConfigError("max_rows, max_characters and timeout are positive numbers")
        self.name = name
        self._engine: Engine = engine_for(source) if isinstance(source, str | Path) else source
        self._limits = Limits(max_rows, max_characters, timeout)
        self._only, self._functions = (None if tables is None else {one.lower() for one in tables}), functions
        self._told: str | None = None
        self.timeout = timeout + 15.0  # the engine's own limit comes first; this is for one that does not answer

    @cached_property
    def tables(self) -> list[Table]:
        found = self._engine.tables()
        return found if self._only is None else [table for table in found if table.name.lower() in self._only]

    @property
    def description(self) -> str:
        """With what there is to be asked: tables, columns, their types, remarks and a few values."""
        if self._told is None:
            head = f"Query a {self._engine.dialect} database with one SELECT; at most {self._limits.rows} rows. Tables:\n"
            try:
                self._told = head + described(self.tables)
            except QueryFailed as problem:
                return f"{head}(not reachable now: {problem})"  # it may be, the next time
        return self._told

    async def execute(self, input_text: str) -> ToolResult:
        return await off_loop(self._execute, input_text)  # type: ignore[no-any-return]

    def _execute(self, sql: str) -> ToolResult:
        try:
            found = self._engine.run(self._checked(_unfenced(sql)), self._limits)
        except Refused as problem:
            told = say(f"not run: {problem}", f"実行しませんでした: {problem}")
            return ToolResult(error=told, retryable=False)
        except QueryFailed as problem:
            return ToolResult(error=f"{problem}{self._hint(str(problem))}", retryable=False)
        rows, size = [], 0
        for row in found.rows:
            size += len(json.dumps(row, ensure_ascii=False))
            if size > self._limits.characters:
                break
            rows.append(row)
        output: dict[str, Any] = {"rows": rows}
        if found.more or len(rows) < len(found.rows):
            output["note"] = say(
                f"only the first {len(rows)} rows are shown; there are more", f"最初の {len(rows)} 行だけです。続きがあります"
            )
        return ToolResult(output)

    def _checked(self, sql: str) -> str:
        """What is refused is looked at once more with the tables of this moment: one may have been made since."""
        try:
            return check(sql, self._engine.dialect, self._names(), self._functions, self._columns())
        except Refused:
            before = self._names()
            self.__dict__.pop("tables", None)
            if self._names() == before:
                raise
        self._told = None
        return check(sql, self._engine.dialect, self._names(), self._functions, self._columns())

    def _names(self) -> list[str]:
        usual = {"postgres": "public", "duckdb": "main", "sqlite": "main"}[self._engine.dialect]
        names = [table.name for table in self.tables]
        return [*names, *[f"{table.schema or usual}.{table.name}" for table in self.tables]]

    def _columns(self) -> set[str]:
        return {column.name for table in self.tables for column in table.columns}

    def _hint(self, told: str) -> str:
        found = _MISSING.search(told)
        if found is None:
            return ""
        name = next(group for group in found.groups() if group).strip('"').rpartition(".")[2]
        return nearest(name, {table.name for table in self.tables} if "table" in told.lower() else self._columns())


def engine_for(source: str | Path) -> Engine:
    text = str(source)
    if text.startswith(("postgres://", "postgresql://")):
        from .postgres import PostgresEngine

        return PostgresEngine(text)
    kind, found, rest = text.partition("://")
    path = Path(rest.removeprefix("/") if found and not rest.startswith("//") else rest.removeprefix("/") if found else text)
    if found and kind not in ("sqlite", "duckdb", "file"):
        known = ["sqlite", "duckdb", "postgresql"]
        raise ConfigError(say(f"no database engine {kind!r}", f"{kind!r} には対応していません") + nearest(kind, known))
    if kind == "duckdb" or (not found and _is_duck(Path(text).expanduser())):
        from .duck import DuckEngine

        return DuckEngine(path)
    from .sqlite import SqliteEngine

    return SqliteEngine(path)


def _is_duck(path: Path) -> bool:
    if not path.is_file():
        return path.suffix in (".duckdb", ".ddb")
    with path.open("rb") as file:
        return file.read(12)[8:12] == b"DUCK"


def described(tables: list[Table]) -> str:
    """A line a table, and one for each column that there is something to say about."""
    full = "\n".join([_table(table, values=True) for table in tables])
    if len(full) <= _LONGEST_SCHEMA:
        return full or "(none)"
    short = "\n".join([_table(table, values=False) for table in tables])
    if len(short) <= _LONGEST_SCHEMA:
        return short
    names = ", ".join([table.name for table in tables])
    return short[:_LONGEST_SCHEMA].rsplit("\n", 1)[0] + f"\n… {len(tables)} tables in all: {names[:_LONGEST_SCHEMA]}"


def _table(table: Table, *, values: bool) -> str:
    columns = ", ".join([f"{column.name} {column.kind}".strip() for column in table.columns])
    lines = [f"{table.name}({columns})" + (f": {table.comment}" if table.comment else "")]
    if values:
        for column in table.columns:
            told = "; ".join([part for part in (column.comment, _values(column)) if part])
            lines += [f"  {column.name}: {told}"] if told else []
    return "\n".join(lines)


def _values(column: Column) -> str:
    """Words that one has to know, of columns whose name says that they hold such; of dates, one that shows how they are
    written. Of anything else nothing: a prompt is no place for people's names and addresses."""
    if not column.samples or any(len(value) > 30 for value in column.samples):
        return ""
    if _CATEGORY.search(column.name) and len(column.samples) <= _FEW:
        return "such as " + ", ".join([repr(value) for value in column.samples])
    return f"such as {column.samples[0]!r}" if _DATE.match(column.samples[0]) else ""


def _unfenced(sql: str) -> str:
    """Models like to put SQL into code blocks."""
    block = re.fullmatch(r"\s*```(?:\w*)\n(.*?)\n?```\s*", sql, re.DOTALL)
    return block[1] if block else sql
