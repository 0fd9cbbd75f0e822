"""Tables and functions that a statement can name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ...core.errors import ConfigError, nearest
from .allowed import FUNCTIONS, RESERVED
from .statement import Missing, StatementRefused

_SMALL = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def small(text: str) -> str:
    """Convert A to Z to lower case, and nothing else, as databases do: Python would turn the Kelvin sign into a k."""
    return text.translate(_SMALL)


class Column(NamedTuple):
    name: str
    kind: str
    comment: str = ""
    samples: tuple[str, ...] = ()


class Table(NamedTuple):
    name: str
    columns: tuple[Column, ...]
    comment: str = ""
    schema: str = ""
    catalog: str = ""
    bare: bool = True  # its name alone finds it, and not one of another schema


class KnownTables(NamedTuple):
    """The visible tables, in the order in which a bare name finds them, and the additional functions that are allowed.

    `elsewhere`: bare names that refer to another table, which is found first. `calls`: names that PostgreSQL calls as
    functions after a dot. `types`: enumerations and domains that users of PostgreSQL have defined."""

    dialect: str
    tables: Sequence[Table]
    functions: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def fold(self, name: str) -> str:
        """Return the name in the form in which the engine compares it. PostgreSQL's parser has already folded it."""
        return name if self.dialect == "postgres" else small(name)

    def find(self, *parts: str) -> Table | None:
        """Return the table of these parts: [catalog,] [schema,] name. Empty parts are ignored."""
        wanted = [self.fold(part) for part in reversed(parts) if part]
        if len(wanted) > 3 or (len(wanted) == 1 and wanted[0] in self.elsewhere):
            return None
        for table in self.tables:
            own = [table.name, table.schema or ("public" if self.dialect == "postgres" else "main"), table.catalog]
            if wanted == [self.fold(part) for part in own][: len(wanted)]:
                return table
        return None

    def check_table(self, parts: Sequence[str], named: Collection[str]) -> None:
        """Raise `Missing` if there is no such table. `named`: the names of WITH that are visible there."""
        given = [part for part in parts if part]
        if self.find(*given) is None and not (len(given) == 1 and self.fold(given[0]) in named):
            written = ".".join(given)
            raise Missing(f"there is no table {written!r}" + nearest(written, self.table_names()))

    def check_function(self, name: str) -> None:
        if small(name) not in self.functions | FUNCTIONS[self.dialect]:
            raise StatementRefused(f"the function {name}() is not allowed here")

    def table_names(self) -> list[str]:
        """Return the tables' names as they are written in SQL, with the schema only if the bare name means another table."""
        seen: set[str] = set()
        made = []
        for table in self.tables:
            parts = [table.schema, table.name] if table.name in seen or not table.bare else [table.name]
            made.append(".".join([self.quote(part) for part in parts]))
            seen.add(table.name)
        return made

    def quote(self, name: str) -> str:
        """Return the name, in quotes if the engine would read it differently without them."""
        plain = re.fullmatch(r"[^\W\d]\w*", name) and (self.dialect != "postgres" or name == small(name))
        return name if plain and small(name) not in RESERVED else '"' + name.replace('"', '""') + '"'

    def has(self, table: Table, column: str) -> bool:
        return self.fold(column) in [self.fold(one.name) for one in table.columns]

    def columns(self) -> set[str]:
        return {column.name for table in self.tables for column in table.columns}


def choose_tables(tables: list[Table], wanted: Collection[str] | None, dialect: str) -> tuple[list[Table], list[str]]:
    """Return the tables that were chosen by `name` or `schema.name`, and the names that match no table."""
    if wanted is None:
        return tables, []
    found: set[tuple[str, str]] = set()
    unknown = []
    for name in wanted:
        mine = [table for table in tables if name in _names(table)]
        mine = mine or [table for table in tables if small(name) in [_fold(one, dialect) for one in _names(table)]]
        if not mine:
            unknown.append(name)
        found |= {(table.schema, table.name) for table in (mine if "." in name else mine[:1])}
    return [table for table in tables if (table.schema, table.name) in found], unknown


def _names(table: Table) -> list[str]:
    return [table.name, f"{table.schema}.{table.name}", f"{table.catalog}.{table.schema}.{table.name}"]


def _fold(name: str, dialect: str) -> str:
    return name if dialect == "postgres" else small(name)


def no_such_tables(unknown: list[str], names: Iterable[str]) -> ConfigError:
    named = ", ".join([repr(name) for name in unknown])
    told = f"tables={named}: there is no such table"
    return ConfigError(told + nearest(unknown[0], set(names)))
