"""Fold texts and patterns alike: NFKC, without characters that are not shown, and with each character's place in the text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from unicodedata import category, combining, normalize

import regex

# Zero-width characters, soft hyphens, variation selectors, tags; marks of direction, controls, the blank of Braille.
_HIDDEN = regex.compile(r"(?V1)[[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Cc}\u2800]--[\t\n\r]]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # those of `_HIDDEN` that are ASCII
_CLOSED = regex.compile(r"[\p{Han}\p{P}\p{Z}\p{Cc}\p{Nd}]")  # no mark that follows makes another character of these
_INNER_JAMO = range(0x1160, 0x1200)


_MARKS = r"(?:[\p{M}\uff9e\uff9f\u1160-\u11ff]|\p{Default_Ignorable_Code_Point}(?![*+?{]))*+"
_SOURCE = regex.compile(  # of a pattern: what has a meaning of its own, a class, a character with its marks
    r"(?P<sign>\\(?:[pPN]\{[^}]*\}|g<[^>]*>|[\x00-\x7f])|\(\?(?:\#[^)]*\)|P?<\w+>|P[=>]\w+\)|&\w+\)))"
    r"|(?P<set>\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*+\])"
    rf"|\\?(?P<literal>(?:[A-Za-z0-9]|[^\x00-\x7f]){_MARKS})",
    regex.DOTALL,
)
_MEMBER = regex.compile(  # of a class: an escape or a range, which mean what they say, or a character with its marks
    rf"(?P<sign>(?:\\.|[^\\])-(?:\\.|[^\]\\])|\\[\x00-\x7f])|\\?(?P<literal>[^\x00-\x7f]{_MARKS})", regex.DOTALL
)

Fold = Callable[[str], str]


def fold_text(text: str) -> str:
    """Return `text` in NFKC, without characters that are not shown: `ＰＡＳＳ\u200bＷＯＲＤ` is `PASSWORD`."""
    return text if is_plain(text) else normalize("NFKC", _HIDDEN.sub("", text))


def strip_hidden(text: str) -> str:
    """Return `text` without characters that are not shown, and otherwise as it is."""
    return text if is_plain(text) else _HIDDEN.sub("", text)


def as_seen(text: str) -> list[str]:
    """Return `text` in every form in which patterns look at it, the text itself first, each form once."""
    return [text] if is_plain(text) else list(dict.fromkeys([text, strip_hidden(text), fold_text(text)]))


def is_plain(text: str) -> bool:
    """True if no fold changes `text`: it is ASCII without control characters."""
    return text.isascii() and _CONTROLS.search(text) is None


def folded_source(pattern: str) -> str:
    """Return the source of a pattern with its literal characters folded, to find in folded text what it finds in the text.

    `（限定）` becomes `\\x28限定\\x29`. Escapes (`\\uff08`) and ranges (`[Ａ-Ｚ]`) stay: they name characters by number.
    """
    return pattern if pattern.isascii() else _SOURCE.sub(_folded_part, pattern)


def _folded_part(found: regex.Match[str]) -> str:
    if found["set"]:
        return str(_MEMBER.sub(_folded_member, found["set"]))
    said = fold_text(found["literal"] or "")
    if not said or said == found["literal"]:
        return str(found[0])
    return _literal(said) if len(said) == 1 else f"(?:{_literal(said)})"


def _folded_member(found: regex.Match[str]) -> str:
    said = fold_text(found["literal"] or "")
    return _literal(said) if len(said) == 1 else str(found[0])


def _literal(text: str) -> str:
    """Return a character as the source of a pattern, by number if it could be taken for a sign."""
    return "".join([f"\\x{ord(char):02x}" if char.isascii() else char for char in text])


class Folded:
    """`feed` pieces of a text, and get what it says folded; `place` is where a character of that begins in the text.

    `fold` is `fold_text` or `strip_hidden`. The last character is kept until the next one shows that it is complete: a mark
    that follows may become a part of it. `end` returns the rest.
    """

    def __init__(self, begins: int = 0, fold: Fold = fold_text) -> None:
        self._fold = fold
        self._said = self._read = begins  # how much was said, and of how much of the text
        self._kept = ""
        # From a said place on: the place in the text, and whether it is the same for all that follow (parts of one character).
        self._marks: tuple[list[int], list[tuple[int, bool]]] = ([begins], [(begins, False)])

    def copy(self) -> Folded:
        """One that goes on from here by itself."""
        made = Folded(fold=self._fold)
        made._said, made._read, made._kept = self._said, self._read, self._kept
        made._marks = ([*self._marks[0]], [*self._marks[1]])
        return made

    def feed(self, text: str) -> str:
        whole = self._kept + text
        if self._fold(whole) == whole:
            cut = _last_start(whole)
            self._kept, said = whole[cut:], whole[:cut]
            self._said, self._read = self._said + cut, self._read + cut
        else:
            said = "".join([self._take(char) for char in text])
        return said + self.end() if self._kept and _CLOSED.fullmatch(self._kept) else said

    def end(self) -> str:
        kept, self._kept = self._kept, ""
        said = self._fold(kept)
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
    first = fold_text(char)[:1]
    return not first or bool(combining(first)) or category(first).startswith("M") or ord(first) in _INNER_JAMO


def _last_start(text: str) -> int:
    """The place of the last character that begins one, with the marks after it."""
    place = len(text) - 1
    while place > 0 and combining(text[place]):
        place -= 1
    return max(0, place)
