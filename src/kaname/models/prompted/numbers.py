"""Numbers that a small model can use: those in the conversation, and those that follow directly. All others are invented."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_NUMBER = re.compile(r"\d+(?:[,，]\d{3})*(?:[.．]\d+)?")
_COMMON = (24.0, 30.0, 60.0, 100.0, 365.0, 1000.0)  # hours, days, minutes, percent, …
# A word in capitals before a number is a keyword of a query language (LIMIT 5); a hyphen or slash may be part of a word.
_OPERATOR_BEFORE = re.compile(r"(?:[*+=<>^(,]|\b[A-Z]{2,}|[\d)]\s*[-/%]|\s[-/%])\s*$")
_OPERATOR_AFTER = re.compile(r"\s*(?:[*+=<>^]|[-/%]\s*[\d(]|[-/%]\s)")
_OPERAND = r"\(*\s*(?:\d[\d.]*|[^\W\d]\w*(?:\s*\()?)\s*\)*"
_EXPRESSION = re.compile(rf"{_OPERAND}(?:\s*[-+*/%,]\s*{_OPERAND})+")
_SMALL = 12.0  # up to here anything may be counted


def numbers(text: str) -> list[str]:
    """Return the numbers of a text, each once, in ASCII and without thousands separators."""
    return list(dict.fromkeys([number for _, number in _numbers_with_places(text)]))


def _numbers_with_places(text: str) -> Iterator[tuple[int, str]]:
    """Yield each number with the place where it begins."""
    for found in _NUMBER.finditer(text):
        yield found.start(), unicodedata.normalize("NFKC", found[0]).replace(",", "")


def plain_signs(text: str) -> str:
    """Return the text in ASCII, for a tool that knows nothing else."""
    plain = unicodedata.normalize("NFKC", text).replace("×", "*").replace("÷", "/").replace("−", "-")
    return re.sub(r"(?<=\d),(?=\d{3})", "", plain)


def forms(number: str) -> set[float]:
    """Return the values a number may stand for: 8 percent are 0.08, added they are 1.08, subtracted 0.92."""
    value = float(number)
    return {value, value / 100, 1 + value / 100, 1 - value / 100}


def numbers_in_call(args: Any) -> Iterator[str]:
    """Yield the numbers that a call works with: an argument by itself, or next to an operator.

    Words of a query do not count.
    """
    if isinstance(args, Mapping):
        args = list(args.values())
    if isinstance(args, list | tuple):
        for held in args:
            yield from numbers_in_call(held)
    elif isinstance(args, str):
        text = plain_signs(args).strip()
        for found in _NUMBER.finditer(text):
            alone = found[0] == text
            if alone or _OPERATOR_BEFORE.search(text[: found.start()]) or _OPERATOR_AFTER.match(text[found.end() :]):
                yield found[0].replace(",", "")
    elif isinstance(args, int | float) and not isinstance(args, bool):
        yield from numbers(f"{args:f}" if isinstance(args, float) else str(args))


def sum_with_words(args: Any) -> str:
    """Return the name of the argument that is an arithmetic expression with names in it (`price * 3`), or ""."""
    for field, text in args.items() if isinstance(args, Mapping) else ():
        if not isinstance(text, str) or not _EXPRESSION.fullmatch(plain := plain_signs(text).strip()):
            continue
        words = re.findall(r"[^\W\d]\w*(?!\w|\s*\()", plain)
        if words and re.search(r"\d", plain) and re.search(r"[-+*/%]", plain):
            return str(field)
    return ""


class KnownNumbers:
    """The numbers in some texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        found = {number for text in texts for number in numbers(text)}
        self._values = sorted({form for number in found for form in forms(number)} | set(_COMMON))

    def unknown(self, text: str) -> list[tuple[int, str]]:
        """Return the numbers of a text that are not among them, rounded or not, each with the place where it begins."""
        return [(place, number) for place, number in _numbers_with_places(text) if not self._has(number)]

    def _has(self, number: str) -> bool:
        value, places = float(number), len(number.partition(".")[2])
        if value <= _SMALL and not places:
            return True
        rounding = 0.5 * 10.0**-places if places else 0.499
        place = bisect_left(self._values, value - rounding)
        return place < len(self._values) and self._values[place] <= value + rounding
