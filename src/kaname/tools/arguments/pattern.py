"""Match the patterns of a schema within a time limit, so that a server's pattern cannot block the event loop."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_LONGEST, _SECONDS = 10_000, 0.05


def matches(pattern: str, text: str) -> bool | None:
    """Return True if the text matches. Returns None if the pattern is of another dialect or takes too long."""
    compiled = _compile(pattern)
    if compiled is None or len(text) > _LONGEST:
        return None
    try:
        return compiled.search(text, timeout=_SECONDS) is not None
    except TimeoutError:
        return None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    import regex  # slow to load, and few schemas have patterns

    try:
        return regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError):
        return None
