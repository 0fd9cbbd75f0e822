"""The block that readers return: a paragraph, list or table of a file, with its headings and its place."""

from __future__ import annotations

from typing import NamedTuple

from .encoding import Unreadable as Unreadable

LONGEST_NAME = 60  # of a column, which goes with each of its values


class Block(NamedTuple):
    """A paragraph, list or table.

    `place`: `line 12`, `page 3`, `pages 3-4`, `slide 2`, `sheet Prices, row 4`. `table`: True if the first line is the head
    of a table. `lines`: `(offset, line)` of the text's parts, if its lines are not those of the file."""

    text: str
    heading: str
    place: str
    table: bool = False
    lines: tuple[tuple[int, int], ...] = ()


def width(text: str) -> int:
    return sum(2 if ord(char) > 0x2E80 else 1 for char in text)


def page_of(place: str) -> str:
    """Return the page or slide of a place, such as `slide 2` for `slide 2, notes`; "" if the file has no pages."""
    return place.partition(",")[0] if place.startswith(("page", "slide")) else ""


class Headings:
    """The headings above the current block. A new heading closes those of the same or a deeper level.

    A heading with no text below it becomes a block itself."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []
        self._alone = ""  # the place of the last one, until text follows it

    def enter(self, level: int, text: str, place: str) -> list[Block]:
        named = " ".join(text.split())
        lost = self.flush() if self._open and level <= self._open[-1][0] else []
        self._open = [*[one for one in self._open if one[0] < level], *([(level, named)] if named else [])]
        self._alone = place if named else ""
        return lost

    def block(self, text: str, place: str, *, table: bool = False) -> Block:
        """Return a block under the current headings."""
        self._alone = "" if text.strip() else self._alone
        return Block(text, str(self), place, table)

    def flush(self) -> list[Block]:
        """Return the last heading as a block if no text followed it."""
        place, self._alone = self._alone, ""
        return [Block(self._open[-1][1], " > ".join([text for _, text in self._open[:-1]]), place)] if place else []

    def __str__(self) -> str:
        return " > ".join([text for _, text in self._open])
