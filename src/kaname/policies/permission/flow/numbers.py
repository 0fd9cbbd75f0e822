"""Numbers in a person's words: `1,200`, `5k`, `3万5千`, `三万円`, `two`."""

from __future__ import annotations

import re

from ....core.reading.japanese_numbers import DIGITS, japanese_numbers

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
_PLAIN = re.compile(
    rf"(?<![\w.,@/\\=十百千万億兆-])(?<!\d )[-¥$€£]?({DIGITS})([kK])?(?![\w@/\\十百千万億兆-]|[.,: ]\d)", re.ASCII
)


def numbers_in(text: str) -> set[float]:
    """Return the numbers that a text names. The text is in NFKC."""
    found = {float(one[1].replace(",", "")) * (1000 if one[2] else 1) for one in _PLAIN.finditer(text)}
    found |= {float(_WORDS.index(one[0].lower())) for one in _WORD.finditer(text)}
    return found | {value for _, value in japanese_numbers(text)}
