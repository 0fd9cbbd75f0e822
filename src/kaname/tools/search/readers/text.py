"""Read plain text, Markdown, CSV and TSV as blocks, each with the line in which it begins."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from .base import LONGEST_NAME, Block, Headings
from .encoding import decode

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t\u3000]+(.*?))?(?:[ \t\u3000]+#+)?[ \t\u3000]*")
_FENCE = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_CODE = re.compile(r" {4}| {0,3}\t")
_BULLET = re.compile(r"\s{0,3}(?:[-*+]|\d{1,9}[.)])\s")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
_NO_TITLE = re.compile(r"\s*(?:[-*+>|]|\d+[.)]|`{3}|~{3})")
_FRONT = re.compile(r"\s*(?:[\w-]+\s*:|- |#|$)|\s+\S")
_TOLD = re.compile(r"(?:title|subtitle|description|summary|tags|keywords|categories)\s*:", re.IGNORECASE)


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file, as an editor counts them."""
    return re.split(r"\r\n|\r|\n", decode(path.read_bytes()))


def text(path: Path) -> Iterator[Block]:
    for line, lines in paragraphs(lines_of(path)):
        yield Block("\n".join(lines), "", f"line {line}")


def paragraphs(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
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


def markdown(path: Path) -> Iterator[Block]:
    lines = lines_of(path)
    skipped = _front_matter(lines)
    if skipped:
        yield Block("\n".join(_about(lines[1 : skipped - 1])), "", "line 2")
    reader = _MarkdownReader()
    for number, line in enumerate(lines[skipped:], skipped + 1):
        yield from reader.take(number, line)
    yield from reader.finish()


def _front_matter(lines: list[str]) -> int:
    """Count the lines of front matter between `---` and `---` at the beginning; 0 if there is none."""
    if lines[0].rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:200], 2):
        if line.rstrip() in ("---", "..."):
            return number if number > 2 else 0
        if not _FRONT.match(line):
            break
    return 0


def _about(lines: list[str]) -> Iterator[str]:
    """Yield the front matter's title, description and tags. The rest is for programs."""
    wanted = False
    for line in lines:
        wanted = bool(_TOLD.match(line)) or (wanted and line.startswith(("- ", " ", "\t")))
        if wanted and line.strip():
            yield line.rstrip()


class _MarkdownReader:
    def __init__(self) -> None:
        self._headings, self._held = Headings(), list[str]()
        self._begun, self._opened, self._fence, self._list = 1, 0, "", False

    def take(self, number: int, line: str) -> Iterator[Block]:
        if self._fence or self._opens(number, line):
            if self._fence and self._opened < number and self._closes(line):
                self._fence = ""
            self._hold(number, line)
            return
        heading, under = _HEADING.fullmatch(line), _UNDERLINE.fullmatch(line)
        if under and len(self._held) == 1 and not _NO_TITLE.match(self._held[0]):
            yield from self._headings.enter(1 if "=" in under[1] else 2, self._held.pop(), f"line {self._begun}")
        elif heading:
            yield from self.end_block()
            yield from self._headings.enter(len(heading[1]), heading[2] or "", f"line {number}")
        elif not line.strip() or _RULE.fullmatch(line):
            yield from self.end_block()
        else:
            self._hold(number, line)

    def end_block(self) -> Iterator[Block]:
        text = "\n".join(self._held).rstrip()
        self._held = []
        if text:
            yield self._headings.block(text, f"line {self._begun}")

    def finish(self) -> Iterator[Block]:
        yield from self.end_block()
        yield from self._headings.flush()

    def _hold(self, number: int, line: str) -> None:
        """Keep a line for the current block; in code, blank lines too."""
        self._begun = self._begun if self._held else number
        self._held.append(line.rstrip())

    def _opens(self, number: int, line: str) -> bool:
        """Return True if the line opens a fenced block. A line indented like code opens one only within a list."""
        if line.strip():
            bullet = _BULLET.match(line) is not None
            self._list = bullet or (self._list and line[0] in " \t")
        fence = _FENCE.fullmatch(line) if self._list or not _CODE.match(line) else None
        self._fence, self._opened = (fence[1], number) if fence else ("", 0)
        return bool(fence)

    def _closes(self, line: str) -> bool:
        """Return True if the line closes the fence: the same character, at least as often, and nothing else."""
        closing = line.strip()
        return len(closing) >= len(self._fence) and set(closing) == {self._fence[0]}


_NUMBER = re.compile(r"[-+(]?[¥$€£￥]?\s*[-+\d.,:/\' 年月日時分秒]*[\d円日月年)]%?")
_YEAR = re.compile(r"(?:19|20)\d\d年?")
_NAMED_SEPARATOR = re.compile(r"sep=(.)", re.IGNORECASE)
_LOOKED_AT = 50  # rows, for whether the first one is the head
Row = tuple[int, list[str]]


def values(path: Path) -> Iterator[Block]:
    """Read a table of values. A file with a single column is read as text."""
    lines = lines_of(path)
    named = _NAMED_SEPARATOR.fullmatch(lines[0].strip())
    begun = 1 if named else 0
    first = next((line for line in lines[begun:] if line.strip()), "")
    usual = "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=first.count)
    separator = named[1] if named else usual
    if separator not in first:
        yield from text(path)
        return
    try:
        rows = list(_rows(lines, begun, separator))
    except csv.Error:
        yield from text(path)
        return
    names = _names(rows)
    for place, (line, row) in enumerate(rows):
        pairs = zip_longest(row, names[: len(row)] if place else [], fillvalue="")
        cells = [f"{name}: {cell}" if name else cell for cell, name in pairs if cell]
        yield Block(" | ".join(cells), "", f"line {line}")


def _rows(lines: list[str], begun: int, separator: str) -> Iterator[Row]:
    """Yield the rows. A quote that is never closed is read as an ordinary character, so that it does not swallow the rest."""
    while begun < len(lines):
        reader = csv.reader([line + "\n" for line in lines[begun:]], delimiter=separator)
        start = begun
        for row in reader:
            end = start + reader.line_num
            whole = end < len(lines) or end == begun + 1 or "\n".join(lines[begun:end]).count('"') % 2 == 0
            cells = row if whole else lines[begun].split(separator)
            cells = [" ".join(cell.split()) for cell in cells]
            if any(cells):
                yield begun + 1, cells
            begun = end if whole else begun + 1
            if not whole:
                break


def _looks_like_names(filled: list[tuple[int, str]], below: list[list[str]]) -> bool:
    """Return True if the cells of the first row are names: no numbers, and not all of them years."""
    numbers = [one for one in filled if _NUMBER.fullmatch(one[1])]
    years = [one for one in filled if _YEAR.fullmatch(one[1])]
    if len(filled) < 2 or len(years) == len(filled) or {*numbers} - {*years}:
        return False
    return not any(_column_is(below, place, _YEAR) for place, _ in years)


def _names(rows: list[Row]) -> list[str]:
    """Return the names of the columns if the first row contains them, else []. Equal names are numbered."""
    if not rows:
        return []
    head, below = rows[0][1], [row for _, row in rows[1 : _LOOKED_AT + 1]]
    filled = [(place, cell) for place, cell in enumerate(head) if cell]
    if not _looks_like_names(filled, below):
        return []
    if len({cell for _, cell in filled}) < len(filled) and not any(_column_is(below, place, _NUMBER) for place, _ in filled):
        return []
    return _number_equal(head)


def _number_equal(cells: Sequence[str]) -> list[str]:
    counts, names = Counter[str](), list[str]()
    for cell in cells:
        counts[cell] += 1
        names.append(f"{cell[:LONGEST_NAME]} ({counts[cell]})" if cell and counts[cell] > 1 else cell[:LONGEST_NAME])
    return names


def _column_is(rows: list[list[str]], place: int, kind: re.Pattern[str]) -> bool:
    """Return True if the column has values and all of them match `kind`."""
    cells = [row[place] for row in rows if place < len(row) and row[place]]
    return bool(cells) and all(kind.fullmatch(cell) for cell in cells)
