"""Numbers in a person's words: `1,200`, `5k`, `3万5千`, `三万円`, `two`."""

from __future__ import annotations

import re

_SMALL = dict(zip("〇一二三四五六七八九", range(10), strict=True))
_TENS = {"十": 10, "百": 100, "千": 1_000}
_MYRIADS = {"万": 10**4, "億": 10**8, "兆": 10**12}
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_PLAIN = re.compile(
    rf"(?<![\w.,@/\\=十百千万億兆-])(?<!\d )[-¥$€£]?({_DIGITS})([kK])?(?![\w@/\\十百千万億兆-]|[.,: ]\d)", re.ASCII
)
_MIXED = re.compile(rf"(?:{_DIGITS}|[〇一二三四五六七八九])?(?:[十百千万億兆](?:{_DIGITS}|[〇一二三四五六七八九])?)+")
_COUNTED = re.compile(r"[〇一二三四五六七八九]+(?=[円個名人件枚本冊台回泊通点つ])")
_PIECE = re.compile(rf"({_DIGITS})|([〇一二三四五六七八九])|([十百千])|([万億兆])")


def numbers_in(text: str) -> set[float]:
    """Return the numbers that a text names. The text is in NFKC."""
    found = {float(one[1].replace(",", "")) * (1000 if one[2] else 1) for one in _PLAIN.finditer(text)}
    found |= {float(_WORDS.index(one[0].lower())) for one in _WORD.finditer(text)}
    found |= {_value(one[0]) for one in _MIXED.finditer(text)}
    return found | {float("".join([str(_SMALL[char]) for char in one[0]])) for one in _COUNTED.finditer(text)}


def _value(text: str) -> float:
    """Return the value of a number with Japanese units: each unit multiplies what stands before it."""
    whole = below = 0.0  # finished parts; what has gathered below the next 万
    count: float | None = None
    for digits, kanji, tens, myriad in _PIECE.findall(text):
        if digits or kanji:
            count = float(digits.replace(",", "")) if digits else float(_SMALL[kanji])
        elif tens:
            below, count = below + (1.0 if count is None else count) * _TENS[tens], None
        elif myriad:
            gathered = below + (count or 0.0)
            whole, below, count = whole + (gathered or 1.0) * _MYRIADS[myriad], 0.0, None
    return whole + below + (count or 0.0)
