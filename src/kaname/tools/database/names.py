"""Names as the engine reads them, and the tables that a statement may name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from ...core.errors import ConfigError, nearest
from .engines.base import Table

_SMALL = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def small(text: str) -> str:
    """Only A to Z, as databases do it: for Python the Kelvin sign is a k."""
    return text.translate(_SMALL)


class Known(NamedTuple):
    """What there is: the tables in the order in which a bare name finds them; `functions`: more that may be used; `calls`:
    names that are functions when they stand after a dot, in PostgreSQL (`None`: nobody knows); `types`, `own_functions` and
    `own_operators`: that somebody has made in this database, beside the server's and those of its extensions."""

    dialect: str
    tables: Sequence[Table]
    functions: frozenset[str] = frozenset()
    calls: frozenset[str] | None = None
    types: frozenset[str] = frozenset()
    own_functions: frozenset[str] = frozenset()
    own_operators: frozenset[str] = frozenset()

    def folded(self, identifier: Any) -> str:
        """An identifier of the parser as the engine compares it: PostgreSQL takes quoted names exactly, the others no case."""
        text = str(identifier.name)
        if self.dialect == "postgres":  # which cuts long names
            text = text.encode("utf-8", "replace")[:63].decode("utf-8", "ignore")
        return text if self.dialect == "postgres" and identifier.args.get("quoted") else small(text)

    def table(self, parts: Sequence[str]) -> Table | None:
        """The table of these folded parts: [catalog,] [schema,] name."""
        wanted = list(reversed(parts))
        for table in self.tables:
            own = [table.name, table.schema or ("public" if self.dialect == "postgres" else "main"), table.catalog]
            if self.dialect != "postgres":
                own = [small(part) for part in own]
            if wanted == own[: len(wanted)]:
                return table
        return None

    def spelled(self) -> list[str]:
        """The tables' names as one writes them; with the schema only where the bare name means another."""
        seen: set[str] = set()
        made = []
        for table in self.tables:
            made.append(f"{table.schema}.{table.name}" if table.name in seen else table.name)
            seen.add(table.name)
        return made

    def columns(self) -> set[str]:
        return {column.name for table in self.tables for column in table.columns}


def chosen(tables: list[Table], wanted: Collection[str] | None, dialect: str) -> tuple[list[Table], list[str]]:
    """The tables somebody has chosen by `name` or `schema.name`, and the names that are none."""
    if wanted is None:
        return tables, []
    found: set[tuple[str, str]] = set()
    unknown = []
    for name in wanted:
        mine = [table for table in tables if name in _names(table)]
        mine = mine or [table for table in tables if small(name) in [_cased(one, dialect) for one in _names(table)]]
        if not mine:
            unknown.append(name)
        found |= {(table.schema, table.name) for table in (mine if "." in name else mine[:1])}
    return [table for table in tables if (table.schema, table.name) in found], unknown


def _names(table: Table) -> list[str]:
    return [table.name, f"{table.schema}.{table.name}", f"{table.catalog}.{table.schema}.{table.name}"]


def _cased(name: str, dialect: str) -> str:
    return name if dialect == "postgres" else small(name)


def no_such_tables(unknown: list[str], names: Iterable[str]) -> ConfigError:
    named = ", ".join([repr(name) for name in unknown])
    told = f"tables={named}: there is no such table"
    return ConfigError(told + nearest(unknown[0], set(names)))
