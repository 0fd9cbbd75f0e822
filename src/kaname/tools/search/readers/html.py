"""Read HTML as blocks, without scripts, styles and navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from .base import Block, Headings
from .encoding import decode

_CHARSET = re.compile(rb"<(?:meta[^>]{1,200}charset|\?xml[^>]{1,200}encoding)\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BESIDE = {"nav", "footer", "aside"}  # parts of the page; the other skipped tags occur within sentences
_RUBY = {"rt", "rp"}  # the readings of Japanese words; often not closed
_SKIPPED = _BESIDE | _RUBY | {"script", "style", "noscript", "template", "svg"}
_PARAGRAPHS = {"p", "li", "dt", "dd", "blockquote", "pre", "div", "section", "article", "figcaption", "caption", "br", "hr"}


class _PlacedText(NamedTuple):
    """A text, and the lines of the file in which its parts are: `(offset, line)`."""

    text: str = ""
    lines: tuple[tuple[int, int], ...] = ()


class _Html(HTMLParser):
    """A parser that collects blocks. A row of a table becomes one line: `a | b`."""

    def __init__(self, skipped: set[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.open: list[str] = []  # what is being skipped
        self.title, self.named = "", False  # the page's own name, and whether a heading says it
        self._skipped = skipped
        self._headings = Headings()
        self._held: list[tuple[str, int]] = []  # each with its line
        self._cells: list[_PlacedText] | None = None  # of the row, those that have ended
        self._level = 0
        self._title = self._row = self._code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.open and self.open[-1] in _RUBY and tag in (*_RUBY, "rb", "rtc"):
            self.open.pop()
        if tag in self._skipped:
            if tag in _BESIDE and not self.open and not self._row:
                self._end()
            self.open.append(tag)
        elif self.open:
            return
        elif tag in _PARAGRAPHS and (self._row or (self._code and tag == "br")):
            self._held += [("\n" if self._code else " ", self.getpos()[0])] if self._held else []
        elif tag in _HEADINGS or tag in _PARAGRAPHS or tag in ("table", "tr", "body"):
            self._end()
            self._level, self._row, self._code = _HEADINGS.get(tag, 0), tag == "tr", tag == "pre"
        elif tag in ("td", "th"):
            self._cell()
        elif tag == "title":
            self._title = not self.title

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] in _RUBY and tag == "ruby":
            self.open.pop()
        elif tag in self.open:
            del self.open[len(self.open) - 1 - self.open[::-1].index(tag) :]
        elif self.open:
            return
        elif tag in ("table", "tr") or tag in _HEADINGS or (tag in _PARAGRAPHS and not self._row):
            self._end()
            self._row = self._row and tag not in ("table", "tr")
        elif tag == "title":
            self._title = False

    def handle_data(self, data: str) -> None:
        if self.open:
            return
        if self._title:
            self.title += data
            return
        if not data.strip() and not self._held:
            return
        for line, part in enumerate(data.split("\n"), self.getpos()[0]):
            first = line == self.getpos()[0]
            if self._code:
                self._held.append((part if first else "\n" + part, line))
            else:
                self._held.append((re.sub(r"\s+", " ", part if first else " " + part), line))

    def _cell(self) -> None:
        """Begin a cell, and end the one before it. An empty cell keeps its column."""
        if self._cells is None:
            self._cells = []
        else:
            self._cells.append(self._joined_text())
        self._held = []

    def _joined_text(self) -> _PlacedText:
        parts: list[str] = []
        lines: list[tuple[int, int]] = []
        length, last = 0, " "
        for held, line in self._held:
            bare = (not parts, "\n") if self._code else (last == " ", " ")
            part = held.lstrip(bare[1]) if bare[0] else held
            if part.strip():
                lines.append((length + len(part) - len(part.lstrip()), line))
            parts += [part] if part else []
            length, last = length + len(part), part[-1:] or last
        return _PlacedText("".join(parts).rstrip(), tuple(lines))

    def _end(self) -> None:
        written = self._joined_text() if self._cells is None else _row([*self._cells, self._joined_text()])
        place = f"line {written.lines[0][1]}" if written.lines else ""
        if written.text and self._level:
            self.named = self.named or self._level == 1
            self.blocks += self._headings.enter(self._level, written.text, place)
        elif written.text:
            self.blocks.append(self._headings.block(written.text, place)._replace(lines=written.lines))
        self._held, self._cells, self._level, self._title, self._code = [], None, 0, False, False

    def close(self) -> None:
        super().close()
        self._end()
        self.blocks += self._headings.flush()


def _row(cells: list[_PlacedText]) -> _PlacedText:
    if not any(cell.text for cell in cells):
        return _PlacedText()
    lines, offset = [], 0
    for cell in cells:
        lines += [(offset + place, line) for place, line in cell.lines]
        offset += len(cell.text) + len(" | ")
    return _PlacedText(" | ".join([cell.text for cell in cells]), tuple(lines))


def html(path: Path) -> Iterator[Block]:
    data = path.read_bytes()
    declared = _CHARSET.search(data[:2048])
    text = re.sub(r"\r\n?", "\n", decode(data, declared[1].decode() if declared else ""))
    skipped = set(_SKIPPED)
    while True:
        parser = _Html(skipped)
        parser.feed(text)
        parser.close()
        if not parser.open or parser.open[0] in ("script", "style"):
            return _add_title(parser)
        skipped.discard(parser.open[0])  # opened and never closed: what follows is not part of it


def _add_title(parser: _Html) -> Iterator[Block]:
    """Yield the blocks, with the page's title as top heading if no heading names the page."""
    title = " ".join(parser.title.split())
    if not title or parser.named:
        yield from parser.blocks
        return
    if not parser.blocks:
        yield Block(title, "", "line 1")
    for block in parser.blocks:
        yield block._replace(heading=" > ".join([part for part in (title, block.heading) if part]))
