"""Catalogue: a question about the schema itself is answered with the tables that may be seen, whatever the engine."""

from __future__ import annotations

import re

from ...core.errors import nearest
from .engines.base import Limits, Rows
from .statement import Missing
from .tables import Known

_NAME = r"[`\"'\[(\s]*(?P<{}>[\w.$]+)[`\"'\])\s]*"
_LISTED = r"show\s+(?:full\s+)?tables|pragma\s+(?:main\.)?table_list|\.tables|\.schema|\\dt?"
_ONE = r"(?:desc|describe)(?:\s+table)?|show\s+(?:full\s+)?(?:columns|fields)\s+(?:from|in)|\.schema|\\d"
_READ = (
    r"(?:select|with)\b[^;]*\b(?:from|join)\s+(?:(?:main\s*\.\s*)?sqlite_(?:master|schema)|information_schema\s*\.\s*(?:tables|columns)"
    r"|(?:pg_catalog\s*\.\s*)?pg_(?:tables|class|attribute)|duckdb_(?:tables|columns)|pragma_table_(?:list|x?info))\b[^;]*"
)
_QUESTION = re.compile(
    rf"{_LISTED}|(?:{_ONE})\s+{_NAME.format('table')}|pragma\s+(?:main\.)?table_x?info{_NAME.format('info')}|(?P<read>{_READ})",
    re.IGNORECASE,
)

_NOTE = "catalogues are not read here: these are the tables that can be asked, with their columns"


def answer(sql: str, known: Known, limits: Limits) -> Rows | None:
    """A row for each table that the question names, or for all; `None` if it is no question about the schema."""
    asked = _QUESTION.fullmatch(sql)
    if asked is None:
        return None
    one = asked["table"] or asked["info"]
    if one and known.find(*one.split(".")) is None:
        raise Missing(f"there is no table {one!r}" + nearest(one, known.spelled()))
    words = set(re.findall(r"\w+", known.folded(one or asked["read"] or "")))
    tables = list(zip(known.spelled(), known.tables, strict=True))
    named = [(name, table) for name, table in tables if known.folded(table.name) in words]
    rows = [
        {"table": name, "columns": ", ".join([f"{column.name} {column.kind}".strip() for column in table.columns])}
        for name, table in named or tables
    ]
    return Rows(rows[: limits.rows], len(rows) > limits.rows, _NOTE)
