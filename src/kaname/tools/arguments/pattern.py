"""Patterns in a schema: matched within a time limit, because a server's pattern must not be able to stop our loop."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_LONGEST, _SECONDS = 10_000, 0.05


def matches(pattern: str, text: str) -> bool | None:
    """`None`: not known, because it is another dialect or takes too long. Then it is left to the tool itself."""
    compiled = _compiled(pattern)
    if compiled is None or len(text) > _LONGEST:
        return None
    try:
        return compiled.search(text, timeout=_SECONDS) is not None
    except TimeoutError:
        return None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import regex  # slow to load, and few schemas have patterns

    try:
        return regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError):
        return None
