"""Numbers with Japanese numerals and units: `三百`, `1万`, `3万5千`, `二人`."""

from __future__ import annotations

import re
from collections.abc import Iterator

DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_SMALL = dict(zip("〇一二三四五六七八九", range(10), strict=True))
_TENS = {"十": 10, "百": 100, "千": 1_000}
_MYRIADS = {"万": 10**4, "億": 10**8, "兆": 10**12}
_MIXED = re.compile(rf"(?:{DIGITS}|[〇一二三四五六七八九])?(?:[十百千万億兆](?:{DIGITS}|[〇一二三四五六七八九])?)+")
_COUNTED = re.compile(r"[〇一二三四五六七八九]+(?=[円個名人件枚本冊台回泊通点つ])")
_PIECE = re.compile(rf"({DIGITS})|([〇一二三四五六七八九])|([十百千])|([万億兆])")


def japanese_numbers(text: str) -> Iterator[tuple[re.Match[str], float]]:
    """Return the numbers of a text, with their places. The text is in NFKC."""
    yield from [(one, _value(one[0])) for one in _MIXED.finditer(text)]
    yield from [(one, float("".join([str(_SMALL[char]) for char in one[0]]))) for one in _COUNTED.finditer(text)]


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
