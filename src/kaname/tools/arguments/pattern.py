"""Patterns in a schema, matched only where that takes no time: a server's pattern must not be able to stop our loop.

Python's engine goes back and forth, and it holds everything up while it does. What could take long is left to the tool itself.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_LONGEST = 10_000
_MOST_STEPS = 2_000_000


def matches(pattern: str, text: str) -> bool | None:
    """`None`: not known, because it is another dialect or could take long."""
    ways = _ways(pattern)
    if ways is None or len(text) > _LONGEST:
        return None
    steps = len(text) + 1
    for least, most in ways:
        steps *= max(1, min(most, len(text)) - least + 1)
        if steps > _MOST_STEPS:
            return None
    return re.search(pattern, text) is not None


@lru_cache(maxsize=256)
def _ways(pattern: str) -> tuple[tuple[int, int], ...] | None:
    """How often each part may repeat; `None` where a repeat has choices inside, whose number grows beyond all measure."""
    try:
        re.compile(pattern)
        return tuple(_choices(_parser.parse(pattern), False))
    except (re.error, _TooMany, OverflowError, RecursionError):
        return None


class _TooMany(Exception):
    """It could take for ever."""


def _choices(tree: Any, repeated: bool) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for kind, value in tree:
        match kind:
            case sre.MAX_REPEAT | sre.MIN_REPEAT:
                least, most, inner = value
                if repeated and least != most:
                    raise _TooMany
                found += [(least, int(most))] if least != most else []
                found += _choices(inner, repeated or most > 1)
            case sre.SUBPATTERN:
                found += _choices(value[-1], repeated)
            case sre.BRANCH:
                if repeated:
                    raise _TooMany
                found.append((1, len(value[1])))
                for branch in value[1]:
                    found += _choices(branch, repeated)
            case sre.LITERAL | sre.NOT_LITERAL | sre.ANY | sre.IN | sre.AT:
                continue
            case _:
                raise _TooMany
    return found
