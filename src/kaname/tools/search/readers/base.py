"""A file as blocks: a paragraph, a list or a table, under its headings, with its place. The readers are next door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ....core.language import say
from .encoding import Unreadable as Unreadable

LONGEST_NAME = 60  # of a column, which goes with each of its values
_LARGEST = 50_000_000  # bytes


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


def read_blocks(path: Path) -> list[Block]:
    check(path, path.stat().st_size)
    return [block for block in READERS[path.suffix.lower()](path) if block.text.strip()]


def check(path: Path, size: int) -> None:
    """Before anything of it is read."""
    if path.suffix.lower() not in READERS:
        raise Unreadable(
            say(
                f"{path.suffix or 'a file without an ending'} is not read",
                f"{path.suffix or '拡張子のないファイル'} は読めません",
            )
        )
    if size > _LARGEST:
        raise Unreadable(say("it is larger than 50 MB", "50 MB を超えています"))


def _text(path: Path) -> Iterator[Block]:
    from .text import text

    return text(path)


def _values(path: Path) -> Iterator[Block]:
    from .csv import values

    return values(path)


def _markdown(path: Path) -> Iterator[Block]:
    from .text import markdown

    return markdown(path)


def _html(path: Path) -> Iterator[Block]:
    from .html import html

    return html(path)


def _pdf(path: Path) -> Iterator[Block]:
    from .pdf import pdf

    return pdf(path)


def _office(path: Path) -> Iterator[Block]:
    from .office import read_office

    return read_office(path)


READERS: dict[str, Callable[[Path], Iterator[Block]]] = {
    **dict.fromkeys([".txt", ".text", ".log", ".json", ".yaml", ".yml", ".rst", ".org"], _text),
    **dict.fromkeys([".csv", ".tsv"], _values),
    **dict.fromkeys([".md", ".markdown", ".mdx"], _markdown),
    **dict.fromkeys([".html", ".htm", ".xhtml"], _html),
    ".pdf": _pdf,
    **dict.fromkeys([".docx", ".xlsx", ".pptx"], _office),
}
