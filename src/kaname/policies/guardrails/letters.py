"""What a pattern says of one character, and of the place between two: the same as Python's `re` says."""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from re import _casefix  # type: ignore[attr-defined]
from re import _constants as sre  # type: ignore[attr-defined]
from typing import Any

EDGE = ""  # the character before the first and after the last
_LAST_CASED = 0x1E943

Test = Callable[[str], bool]
Edge = Callable[[str, str], bool]


def char_test(kind: Any, value: Any, flags: int) -> Test:
    fold = bool(flags & re.IGNORECASE)
    if kind is sre.ANY:
        every = bool(flags & re.DOTALL)
        return lambda char: every or char != "\n"
    if kind is sre.IN:
        return _class_test(value, flags, fold)
    forms, inside = same(chr(value), flags), kind is sre.LITERAL
    return lambda char: (char in forms) is inside


def same(char: str, flags: int) -> frozenset[str]:
    """The characters that are this one: without regard to case `K`, `k` and the sign of Kelvin."""
    if not flags & re.IGNORECASE:
        return frozenset({char})
    if flags & re.ASCII:
        return frozenset({char, char.lower(), char.upper()}) if char.isascii() else frozenset({char})
    low = _sre.unicode_tolower(ord(char))
    lows = {low, *_casefix._EXTRA_CASES.get(low, ())}
    return frozenset([chr(one) for each in lows for one in _by_lower().get(each, (each,))])


@cache
def _by_lower() -> dict[int, tuple[int, ...]]:
    """Characters by the small letter that they have in common; only where that is not the character itself alone."""
    found: dict[int, tuple[int, ...]] = {}
    for code in range(_LAST_CASED + 1):
        low = _sre.unicode_tolower(code)
        if low != code:
            found[low] = (*found.get(low, (low,)), code)
    return found


def _class_test(items: list[tuple[Any, Any]], flags: int, fold: bool) -> Test:
    """`[…]`: a set of characters, and ranges in order, so that a large one costs no more than a small one."""
    inside, ascii_only = items[0][0] is not sre.NEGATE, bool(flags & re.ASCII)
    single = {chr(value) for kind, value in items if kind is sre.LITERAL}
    ranges = _merged([value for kind, value in items if kind is sre.RANGE])
    lows = [low for low, _ in ranges]
    categories = [_category(value, flags) for kind, value in items if kind is sre.CATEGORY]

    def listed(char: str) -> bool:
        at = bisect_right(lows, ord(char)) - 1
        return char in single or (at >= 0 and ord(char) <= ranges[at][1])

    def test(char: str) -> bool:
        if not fold:
            return (listed(char) or any(check(char) for check in categories)) is inside
        low = chr(_sre.ascii_tolower(ord(char)) if ascii_only else _sre.unicode_tolower(ord(char)))
        found = any(listed(one) for one in same(char, flags)) or any(check(low) for check in categories)
        return found is inside

    return test


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _category(value: Any, flags: int) -> Test:
    name = str(value).removeprefix("CATEGORY_")
    ascii_only = bool(flags & re.ASCII)
    if name.startswith("NOT_"):
        inner = _named(name.removeprefix("NOT_"), ascii_only)
        return lambda char: not inner(char)
    return _named(name, ascii_only)


def _named(name: str, ascii_only: bool) -> Test:
    known: dict[str, Test] = {"DIGIT": str.isdecimal, "SPACE": str.isspace, "WORD": _is_word}
    test = known[name]
    return (lambda char: char.isascii() and test(char)) if ascii_only else test


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def at_edge(value: Any, flags: int) -> Edge:
    word = _named("WORD", bool(flags & re.ASCII))

    def boundary(before: str, after: str) -> bool:
        return (before != EDGE and word(before)) != (after != EDGE and word(after))

    lines = bool(flags & re.MULTILINE)
    edges: dict[Any, Edge] = {
        sre.AT_BEGINNING: lambda before, after: before == EDGE or (lines and before == "\n"),
        sre.AT_BEGINNING_STRING: lambda before, after: before == EDGE,
        sre.AT_END: lambda before, after: after == EDGE or (lines and after == "\n"),
        sre.AT_END_STRING: lambda before, after: after == EDGE,
        sre.AT_BOUNDARY: boundary,
        sre.AT_NON_BOUNDARY: lambda before, after: not boundary(before, after),
    }
    return edges[value]
