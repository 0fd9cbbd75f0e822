"""Describe the tables for the model: columns, types, comments and a few values."""

from __future__ import annotations

import re

from .tables import Column, KnownTables, Table

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
