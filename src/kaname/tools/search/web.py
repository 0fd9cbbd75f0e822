"""HTML as blocks, without what is there for looks or for finding one's way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from .blocks import Block, Headings
from .encodings import decoded

_CHARSET = re.compile(rb"<meta[^>]{1,200}charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BESIDE = {"nav", "footer", "aside"}  # parts of the page; the others stand in the midst of a sentence
_SKIPPED = _BESIDE | {"script", "style", "noscript", "template", "svg"}
_PARAGRAPHS = {"p", "li", "dt", "dd", "blockquote", "pre", "div", "section", "article", "figcaption", "caption", "br", "hr"}


class _Html(HTMLParser):
    """A table's row is one line: `a | b`."""

    def __init__(self, skipped: set[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.open: list[str] = []  # what is being skipped
        self._skipped = skipped
        self._headings, self._held = Headings(), list[str]()
        self._cells: list[str] | None = None  # of the row, those that have ended
        self._level, self._line = 0, 1
        self._title = self._row = self._code = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._skipped:
            if tag in _BESIDE and not self.open and not self._row:
                self._end()
            self.open.append(tag)
        elif self.open:
            return
        elif tag in _PARAGRAPHS and (self._row or (self._code and tag == "br")):
            self._held += ["\n" if self._code else " "] if self._held else []
        elif tag in _HEADINGS or tag in _PARAGRAPHS or tag in ("table", "tr", "body"):
            self._end()
            self._level, self._row, self._code = _HEADINGS.get(tag, 0), tag == "tr", tag == "pre"
        elif tag in ("td", "th"):
            self._cell()
        elif tag == "title":
            self._title = True

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            del self.open[self.open.index(tag) :]
        elif self.open:
            return
        elif tag in ("table", "tr") or tag in _HEADINGS or (tag in _PARAGRAPHS and not self._row):
            self._end()
            self._row = self._row and tag not in ("table", "tr")
        elif tag == "title":
            self._title = False

    def handle_data(self, data: str) -> None:
        if self.open or self._title:
            return
        if not self._held and not self._cells:
            self._line = self.getpos()[0]
        if data.strip() or self._held:
            self._held.append(data if self._code else re.sub(r"\s+", " ", data))

    def _cell(self) -> None:
        """One begins: the one before it has ended, if there was one, and keeps its column if it is empty."""
        if self._cells is None:
            self._cells = []
        else:
            self._cells.append(self._written())
        self._held = []

    def _written(self) -> str:
        if self._code:
            return "".join(self._held).strip("\r\n").rstrip()
        return re.sub(" {2,}", " ", "".join(self._held)).strip()

    def _end(self) -> None:
        text = self._written()
        if self._cells is not None:
            cells = [*self._cells, text]
            text = " | ".join(cells) if any(cells) else ""
        if text and self._level:
            self._headings.enter(self._level, text)
        elif text:
            self.blocks.append(Block(text, str(self._headings), f"line {self._line}"))
        self._held, self._cells, self._level, self._title, self._code = [], None, 0, False, False

    def close(self) -> None:
        super().close()
        self._end()


def html(path: Path) -> Iterator[Block]:
    data = path.read_bytes()
    declared = _CHARSET.search(data[:2048])
    text = decoded(data, declared[1].decode() if declared else "")
    skipped = set(_SKIPPED)
    while True:
        parser = _Html(skipped)
        parser.feed(text)
        parser.close()
        if not parser.open or parser.open[0] in ("script", "style"):
            return iter(parser.blocks)
        skipped.discard(parser.open[0])  # opened and never closed: what follows is not part of it
