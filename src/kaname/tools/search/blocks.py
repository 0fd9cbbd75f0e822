"""Text, Markdown, HTML and PDF as blocks: a paragraph, a list or a table, under its headings, with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from ...core.errors import ConfigError
from ...core.language import say

_HALF_WIDTH = re.compile(r"[\uff61-\uff9f]")
_LARGEST = 50_000_000  # bytes
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*$")
_CHARSET = re.compile(rb"<meta[^>]{1,200}charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SKIPPED = {"script", "style", "nav", "footer", "aside", "noscript", "template", "svg"}
_PARAGRAPHS = {"p", "li", "dt", "dd", "blockquote", "pre", "div", "section", "article", "figcaption", "caption", "br", "hr"}


class Block(NamedTuple):
    """`place`: `line 12`, `page 3`, `slide 2`, `sheet Prices, row 4`."""

    text: str
    heading: str
    place: str


class Unreadable(Exception):
    """Why a file gives no text."""


def read_blocks(path: Path) -> list[Block]:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise Unreadable(say(f"{path.suffix or 'a file without an ending'} is not read", f"{path.suffix} は読めません"))
    if path.stat().st_size > _LARGEST:
        raise Unreadable(say("it is larger than 50 MB", "50 MB を超えています"))
    return [block for block in reader(path) if block.text.strip()]


def decoded(data: bytes, declared: str = "") -> str:
    """`declared`: the encoding that it names itself, often wrongly; else UTF-8 if it can be, else Japanese if it can be."""
    if declared and not declared.lower().startswith("utf"):
        with suppress(LookupError, UnicodeDecodeError):
            return data.decode(declared)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if b"\x1b$" in data:
        return data.decode("iso2022_jp", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    readings = []
    for encoding in ("cp932", "euc_jp"):
        with suppress(UnicodeDecodeError):
            readings.append(data.decode(encoding))
    # the wrong one of the two is full of half-width katakana
    return min(readings, key=lambda text: len(_HALF_WIDTH.findall(text))) if readings else data.decode("latin-1")


class Headings:
    """The headings that are open: a new one ends all that are as deep or deeper."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, text: str) -> None:
        self._open = [*[one for one in self._open if one[0] < level], (level, " ".join(text.split()))]

    def __str__(self) -> str:
        return " > ".join([text for _, text in self._open])


def _text(path: Path) -> Iterator[Block]:
    for line, lines in _paragraphs(decoded(path.read_bytes()).splitlines()):
        yield Block("\n".join(lines), "", f"line {line}")


def _paragraphs(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    begun = 1
    held: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            begun = begun if held else number
            held.append(line.rstrip())
        elif held:
            yield begun, held
            held = []
    if held:
        yield begun, held


def _markdown(path: Path) -> Iterator[Block]:
    headings, held, begun, fenced = Headings(), list[str](), 1, False
    lines = decoded(path.read_bytes()).splitlines()
    for number, line in enumerate([*lines, ""], 1):
        fence = line.lstrip()[:3]
        fenced ^= fence in ("```", "~~~") and line.count(fence) % 2 == 1
        heading = None if fenced else _HEADING.match(line)
        under = not fenced and held and len(held) == 1 and re.fullmatch(r"=+|-{2,}", line.strip()) is not None
        if heading or under or (not line.strip() and not fenced):
            title = held.pop() if under else ""
            if held:
                yield Block("\n".join(held), str(headings), f"line {begun}")
            held = []
            if heading:
                headings.enter(len(heading[1]), heading[2])
            elif title:
                headings.enter(1 if line.strip().startswith("=") else 2, title)
        elif line.strip():
            begun = begun if held else number
            held.append(line.rstrip())
    if held:
        yield Block("\n".join(held), str(headings), f"line {begun}")


class _Html(HTMLParser):
    """Without what is there for looks or for finding one's way; a table's row is one line."""

    def __init__(self, skipped: set[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self.open: list[str] = []  # what is being skipped
        self._skipped = skipped
        self._headings, self._held = Headings(), list[str]()
        self._level, self._line = 0, 1
        self._title = self._row = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._skipped:
            self.open.append(tag)
        elif tag in _PARAGRAPHS and self._row:
            self._held += [" "] if self._held else []
        elif tag in _HEADINGS or tag in _PARAGRAPHS or tag in ("table", "tr", "body"):
            self._end()
            self._level, self._row = _HEADINGS.get(tag, 0), tag == "tr"
        elif tag in ("td", "th") and self._held:
            self._held.append(" | ")
        elif tag == "title":
            self._title = True

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            del self.open[self.open.index(tag) :]
        elif tag in ("table", "tr") or tag in _HEADINGS or (tag in _PARAGRAPHS and not self._row):
            self._end()
            self._row = self._row and tag not in ("table", "tr")
        elif tag == "title":
            self._title = False

    def handle_data(self, data: str) -> None:
        if self.open or self._title:
            return
        if not self._held:
            self._line = self.getpos()[0]
        if data.strip() or self._held:
            self._held.append(re.sub(r"\s+", " ", data))

    def _end(self) -> None:
        text = re.sub(" {2,}", " ", "".join(self._held)).strip(" |")
        if text and self._level:
            self._headings.enter(self._level, text)
        elif text:
            self.blocks.append(Block(text, str(self._headings), f"line {self._line}"))
        self._held, self._level, self._title = [], 0, False

    def close(self) -> None:
        super().close()
        self._end()


def _html(path: Path) -> Iterator[Block]:
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


def _pdf(path: Path) -> Iterator[Block]:
    try:
        import pypdf
        from pypdf.errors import PyPdfError
    except ImportError as problem:
        raise ConfigError(say("PDF needs pip install 'kaname[search]'", "pip install 'kaname[search]' が必要です")) from problem
    try:
        for number, page in enumerate(pypdf.PdfReader(path).pages, 1):
            for _, lines in _paragraphs((page.extract_text() or "").splitlines()):
                yield Block(_rejoined(lines), "", f"page {number}")
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise Unreadable(f"PDF: {problem}") from problem


def _rejoined(lines: list[str]) -> str:
    """Lines that were broken to fit a page, whole again: Japanese without spaces between them."""
    whole = lines[0]
    for line in lines[1:]:
        wide = bool(whole) and ord(whole[-1]) > 0x2E80 and bool(line) and ord(line[0]) > 0x2E80
        whole += line if wide else "\n" + line
    return whole


def _office(path: Path) -> Iterator[Block]:
    from .office import read_office

    return read_office(path)


READERS: dict[str, Callable[[Path], Iterator[Block]]] = {
    **dict.fromkeys([".txt", ".text", ".log", ".csv", ".tsv", ".json", ".yaml", ".yml", ".rst", ".org"], _text),
    **dict.fromkeys([".md", ".markdown", ".mdx"], _markdown),
    **dict.fromkeys([".html", ".htm", ".xhtml"], _html),
    ".pdf": _pdf,
    **dict.fromkeys([".docx", ".xlsx", ".pptx"], _office),
}
