"""Columns: the width of a text in a terminal or a table. East Asian letters and emoji take two columns."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator

_JOINER, _AS_EMOJI, _SOFT_HYPHEN = "\u200d", "\ufe0f", "\u00ad"
_SKINS = range(0x1F3FB, 0x1F400)
_INNER_JAMO = range(0x1160, 0x1200)  # vowels and finals of a Korean syllable, written into its first letter


def terminal_width() -> int:
    """Return the number of columns of the terminal: `COLUMNS`, or what the terminal says; 80 without either.

    It is the function of `shutil`, whose import takes 3 ms: every command would wait for it.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # there is no standard output, or it is no terminal
        return 80


def width(text: str) -> int:
    """Return the number of columns that `text` takes on one line."""
    if text.isascii():
        return len(text)
    taken = 0
    for _, taken in measure(text):  # noqa: B007  the last one counts
        pass
    return taken


def measure(text: str) -> Iterator[tuple[str, int]]:
    """Yield each character with the columns that the text takes up to it.

    A character that is joined to an emoji (a skin tone, the next person of a family) shares its columns; accents and invisible
    characters take none.
    """
    taken = last = 0
    is_joined = False
    for char in text:
        own = _columns(char)
        if char == _AS_EMOJI and last == 1:  # the sign before it is drawn as a picture
            own, last = 1, 2
        elif last == 2 and (ord(char) in _SKINS or (is_joined and own)):
            own = 0
        elif own:
            last = own
        is_joined = char == _JOINER
        taken += own
        yield char, taken


def wrap_line(line: str, most: int) -> Iterator[str]:
    """Yield a line in rows of at most `most` columns, broken between words if possible. No character is left out."""
    row, size, gap = "", 0, 0  # the gap: where the row may end
    for char in line.expandtabs(4):
        if size + width(char) > most:
            end = gap if gap > len(row) // 2 else len(row)
            yield row[:end].rstrip()
            row = row[end:]
            size, gap = width(row), 0
        row, size = row + char, size + width(char)
        gap = len(row) if char in " \u3000、。，．" else gap
    yield row


def _columns(char: str) -> int:
    if char.isascii():
        return 1
    nothing = unicodedata.category(char) in ("Mn", "Me", "Cf") and char != _SOFT_HYPHEN
    if nothing or ord(char) in _INNER_JAMO:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
