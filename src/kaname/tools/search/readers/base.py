"""Block: a paragraph, a list or a table of a file, under its headings, with its place."""

from __future__ import annotations

from typing import NamedTuple

from .encoding import Unreadable as Unreadable

LONGEST_NAME = 60  # of a column, which goes with each of its values


class Block(NamedTuple):
    """`place`: `line 12`, `page 3`, `slide 2`, `sheet Prices, row 4`. `table`: the first line is its head.

    `lines`: where the lines of the file are not those of the text, `(offset, line)` of its parts."""

    text: str
    heading: str
    place: str
    table: bool = False
    lines: tuple[tuple[int, int], ...] = ()


class Headings:
    """The headings that are open: a new one ends all that are as deep or deeper. One with nothing under it is a text itself."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []
        self._alone = ""  # the place of the last one, until something stands under it

    def enter(self, level: int, text: str, place: str) -> list[Block]:
        named = " ".join(text.split())
        lost = self.ended() if self._open and level <= self._open[-1][0] else []
        self._open = [*[one for one in self._open if one[0] < level], *([(level, named)] if named else [])]
        self._alone = place if named else ""
        return lost

    def block(self, text: str, place: str, *, table: bool = False) -> Block:
        """Under those that are open."""
        self._alone = "" if text.strip() else self._alone
        return Block(text, str(self), place, table)

    def ended(self) -> list[Block]:
        """The last one, if nothing stood under it."""
        place, self._alone = self._alone, ""
        return [Block(self._open[-1][1], " > ".join([text for _, text in self._open[:-1]]), place)] if place else []

    def __str__(self) -> str:
        return " > ".join([text for _, text in self._open])
