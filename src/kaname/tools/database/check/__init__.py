"""Judge a statement by the engine's own parser: one SELECT over known tables, with functions that calculate."""

from __future__ import annotations

from threading import Lock

from ..tables import Known

_one_at_a_time = Lock()  # engines of one's own are asked in threads, and the parsers are shared


def check(sql: str, known: Known) -> None:
    """`Refused`, if it does anything else than to read what is known."""
    if known.dialect == "sqlite":
        from .sqlite import check as judge
    elif known.dialect == "duckdb":
        from .duckdb import check as judge
    else:
        from .postgres import check as judge
    with _one_at_a_time:
        judge(sql, known)
