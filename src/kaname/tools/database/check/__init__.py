"""Judge a statement by the engine's own parser: one SELECT over known tables, with functions that calculate."""

from __future__ import annotations

from ..tables import Known


def check(sql: str, known: Known) -> None:
    """`Refused`, if it does anything else than to read what is known."""
    if known.dialect == "sqlite":
        from .sqlite import check as judge
    elif known.dialect == "duckdb":
        from .duckdb import check as judge
    else:
        from .postgres import check as judge
    judge(sql, known)
