"""Check a statement with the engine's own parser: one SELECT over known tables, with functions that only calculate."""

from __future__ import annotations

from threading import Lock

from ..tables import KnownTables

_one_at_a_time = Lock()  # the user's own engines run in threads, which share the parsers


def check(sql: str, known: KnownTables) -> None:
    """Raise `StatementRefused` if the statement does anything else than read the known tables."""
    if known.dialect == "sqlite":
        from .sqlite import check as judge
    elif known.dialect == "duckdb":
        from .duckdb import check as judge
    else:
        from .postgres import check as judge
    with _one_at_a_time:
        judge(sql, known)
