"""Fold text as patterns see it: NFKC, without characters that are not shown, and with each character's place in the text."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from unicodedata import category, combining, is_normalized, normalize

import regex

_HIDDEN = regex.compile(r"\p{Default_Ignorable_Code_Point}+")  # zero-width characters, soft hyphens, variation selectors, tags
_CLOSED = regex.compile(r"[\p{Han}\p{P}\p{Z}\p{Cc}\p{Nd}]")  # no mark that follows makes another character of these
_INNER_JAMO = range(0x1160, 0x1200)


def folded(text: str) -> str:
    """Return `text` in NFKC, without characters that are not shown: `ＰＡＳＳ\u200bＷＯＲＤ` is `PASSWORD`."""
    return text if text.isascii() else normalize("NFKC", _HIDDEN.sub("", text))


class Folded:
    """`feed` pieces of a text, and get what it says folded; `place` is where a character of that begins in the text.

    The last character is kept until the next one shows that it is complete: a mark that follows may become a part of it. `end`
    returns the rest.
    """

    def __init__(self, begins: int = 0) -> None:
        self._said = self._read = begins  # how much was said, and of how much of the text
        self._kept = ""
        # From a said place on: the place in the text, and whether it is the same for all that follow (parts of one character).
        self._marks: tuple[list[int], list[tuple[int, bool]]] = ([begins], [(begins, False)])

    def feed(self, text: str) -> str:
        whole = self._kept + text
        if is_normalized("NFKC", whole) and not _HIDDEN.search(whole):
            cut = _last_start(whole)
            self._kept, said = whole[cut:], whole[:cut]
            self._said, self._read = self._said + cut, self._read + cut
        else:
            said = "".join([self._take(char) for char in text])
        return said + self.end() if self._kept and _CLOSED.fullmatch(self._kept) else said

    def end(self) -> str:
        kept, self._kept = self._kept, ""
        said = folded(kept)
        is_one = len(said) != len(kept) or (len(kept) > 1 and said != kept)  # its parts have no places of their own
        if is_one:
            self._mark(self._read, same=True)
        self._said, self._read = self._said + len(said), self._read + len(kept)
        if is_one:
            self._mark(self._read, same=False)
        return said

    def place(self, said: int) -> int:
        mark = bisect_right(self._marks[0], said) - 1
        if mark < 0:  # before it began to read
            return said
        begins, (read, same) = self._marks[0][mark], self._marks[1][mark]
        return read if same else read + said - begins

    def _take(self, char: str) -> str:
        said = self.end() if self._kept and not _belongs(char) else ""
        self._kept += char
        return said

    def _mark(self, read: int, *, same: bool) -> None:
        self._marks[0].append(self._said)
        self._marks[1].append((read, same))


@lru_cache(maxsize=4_096)
def _belongs(char: str) -> bool:
    """True if a character is part of the one before it: a mark, one that is not shown, the next sign of a Korean syllable."""
    first = folded(char)[:1]
    return not first or bool(combining(first)) or category(first).startswith("M") or ord(first) in _INNER_JAMO


def _last_start(text: str) -> int:
    """The place of the last character that begins one, with the marks after it."""
    place = len(text) - 1
    while place > 0 and combining(text[place]):
        place -= 1
    return max(0, place)
