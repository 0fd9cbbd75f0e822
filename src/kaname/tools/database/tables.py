"""Tables: what a statement may name, and what it must not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ...core.errors import ConfigError, nearest
from .allowed import FUNCTIONS, RESERVED
from .statement import Missing, Refused

_SMALL = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def small(text: str) -> str:
    """Only A to Z, as databases do it: for Python the Kelvin sign is a k."""
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


class Known(NamedTuple):
    """The visible tables, in the order in which a bare name finds them, and more functions that may be used.

    `elsewhere`: names that mean another table where they stand alone, because it is found first. `calls`: names that are
    functions when they stand after a dot, in PostgreSQL; `types`: its enumerations and domains that users have made.
    """

    dialect: str
    tables: Sequence[Table]
    functions: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def folded(self, name: str) -> str:
        """As the engine compares names. PostgreSQL's parser has folded them already."""
        return name if self.dialect == "postgres" else small(name)

    def find(self, *parts: str) -> Table | None:
        """The table of these parts: [catalog,] [schema,] name; empty ones do not count."""
        wanted = [self.folded(part) for part in reversed(parts) if part]
        if len(wanted) > 3 or (len(wanted) == 1 and wanted[0] in self.elsewhere):
            return None
        for table in self.tables:
            own = [table.name, table.schema or ("public" if self.dialect == "postgres" else "main"), table.catalog]
            if wanted == [self.folded(part) for part in own][: len(wanted)]:
                return table
        return None

    def check_table(self, parts: Sequence[str], named: Collection[str]) -> None:
        """`named`: the names of WITH that can be seen from there."""
        given = [part for part in parts if part]
        if self.find(*given) is None and not (len(given) == 1 and self.folded(given[0]) in named):
            written = ".".join(given)
            raise Missing(f"there is no table {written!r}" + nearest(written, self.spelled()))

    def check_function(self, name: str) -> None:
        if small(name) not in self.functions | FUNCTIONS[self.dialect]:
            raise Refused(f"the function {name}() is not allowed here")

    def spelled(self) -> list[str]:
        """The tables' names as one writes them; with the schema only where the bare name means another."""
        seen: set[str] = set()
        made = []
        for table in self.tables:
            parts = [table.schema, table.name] if table.name in seen or not table.bare else [table.name]
            made.append(".".join([self.written(part) for part in parts]))
            seen.add(table.name)
        return made

    def written(self, name: str) -> str:
        """In quotes, where the engine would read another name without them."""
        plain = re.fullmatch(r"[^\W\d]\w*", name) and (self.dialect != "postgres" or name == small(name))
        return name if plain and small(name) not in RESERVED else '"' + name.replace('"', '""') + '"'

    def has(self, table: Table, column: str) -> bool:
        return self.folded(column) in [self.folded(one.name) for one in table.columns]

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
