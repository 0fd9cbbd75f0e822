"""Tables of a database: their names, what the model is told of them, and the rows that share words with a question."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from ...core.errors import ConfigError, nearest
from ..search.tokenize import query_terms, terms
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
    text = f"tables={named}: there is no such table"
    return ConfigError(text + nearest(unknown[0], set(names)))


_LONGEST_SCHEMA = 6_000  # characters in the tool's description
_CATEGORY = re.compile(
    r"status|state|type|kind|category|class|level|role|plan|region|country|currency|unit|lang|priority|mode|method|channel|"
    r"dept|department|size|colou?r|grade|区分|種別|種類|状態|分類|カテゴリ|部門|部署|通貨|言語|優先",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{4}-\d\d")
_FEW = 5  # values of a column that are worth showing


def describe_tables(tables: list[Table], dialect: str) -> str:
    """Return one line for each table, and one for each column with a comment or values. Shortened if it is too long."""
    known = KnownTables(dialect, tables)
    names = known.table_names()
    full = "\n".join([_table(table, names[place], known, values=True) for place, table in enumerate(tables)])
    if len(full) <= _LONGEST_SCHEMA:
        return full or "(none)"
    short = "\n".join([_table(table, names[place], known, values=False) for place, table in enumerate(tables)])
    if len(short) <= _LONGEST_SCHEMA:
        return short
    return short[:_LONGEST_SCHEMA].rsplit("\n", 1)[0] + f"\n… {len(tables)} tables in all: {', '.join(names)[:_LONGEST_SCHEMA]}"


def _table(table: Table, name: str, known: KnownTables, *, values: bool) -> str:
    columns = ", ".join([f"{known.quote(column.name)} {column.kind}".strip() for column in table.columns])
    lines = [f"{name}({columns})" + (f": {table.comment}" if table.comment else "")]
    if values:
        for column in table.columns:
            told = "; ".join([part for part in (column.comment, _values(column)) if part])
            lines += [f"  {column.name}: {told}"] if told else []
    return "\n".join(lines)


def _values(column: Column) -> str:
    """Return the values of columns that by their name hold categories, and one value of dates to show their form.

    All other values are left out, because people's names and addresses do not belong in a prompt."""
    if not column.samples or any(len(value) > 30 for value in column.samples):
        return ""
    if _CATEGORY.search(column.name) and len(column.samples) <= _FEW:
        return "such as " + ", ".join([repr(value) for value in column.samples])
    return f"such as {column.samples[0]!r}" if _DATE.match(column.samples[0]) else ""


_TERMS, _COLUMNS = 12, 40  # that are looked for, and in
_WORDS = "kaname_words"  # what a row says, in small letters
_SHORTEST = 2  # letters of a word that is looked for
_TELLING = 3  # digits of a number that says something alone


def words_to_find(question: str) -> list[str]:
    """Return the words of a question to look for in rows: names, numbers, and other words that are not in every question."""
    found = [term for term in query_terms(question) if len(term) >= _SHORTEST or not term.isascii() or term.isdigit()]
    return found[:_TERMS]


def candidates(table: Table, name: str, words: Sequence[str], known: KnownTables, most: int) -> str:
    """Return the SELECT of the rows in which the most of these words occur, also as parts of words."""
    columns = [known.quote(one.name) for one in table.columns]
    text = " || ' ' || ".join([f"coalesce(CAST({column} AS TEXT), '')" for column in columns[:_COLUMNS]])
    found = [f"{_WORDS} LIKE '%{word}%'" for word in words]
    count = " + ".join([f"CASE WHEN {one} THEN 1 ELSE 0 END" for one in found])
    inner = f"(SELECT *, lower({text}) AS {_WORDS} FROM {name}) AS kaname_rows"
    return f"SELECT {', '.join(columns)} FROM {inner} WHERE {' OR '.join(found)} ORDER BY {count} DESC LIMIT {most}"


def best(name: str, rows: Sequence[dict[str, Any]], words: Sequence[str], most: int) -> list[dict[str, Any]]:
    """Return the rows that have the most of these words. If more than `most` rows tie, return nothing.

    A small number alone only counts if the question names the table: `order 7`, but not `7 cups`."""
    named = not set(words).isdisjoint(terms(name))
    shared = [_count_shared(row, words, named) for row in rows]
    top = max(shared, default=0)
    found = [row for row, count in zip(rows, shared, strict=True) if count == top]
    return found if top and len(found) <= most else []


def _count_shared(row: dict[str, Any], words: Sequence[str], named: bool) -> int:
    found = set(words).intersection(terms(" ".join([str(value) for value in row.values()])))
    telling = named or any(not word.isdigit() or len(word) >= _TELLING for word in found)
    return len(found) if telling else 0
