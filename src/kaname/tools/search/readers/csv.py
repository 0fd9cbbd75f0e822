"""Read CSV and TSV as blocks: each row becomes a line of `column: value`, as in Excel."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from .base import LONGEST_NAME, Block
from .text import lines_of, text

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


def _names(rows: list[Row]) -> list[str]:
    """Return the names of the columns if the first row contains them, else []. Equal names are numbered."""
    if not rows:
        return []
    head, below = rows[0][1], [row for _, row in rows[1 : _LOOKED_AT + 1]]
    filled = [(place, cell) for place, cell in enumerate(head) if cell]
    years = [(place, cell) for place, cell in filled if _YEAR.fullmatch(cell)]
    if any(_NUMBER.fullmatch(cell) and (place, cell) not in years for place, cell in filled):
        return []
    if len(filled) < 2 or len(years) == len(filled) or any(_column_is(below, place, _YEAR) for place, _ in years):
        return []
    alike = Counter([cell for _, cell in filled])
    if len(alike) < len(filled) and not any(_column_is(below, place, _NUMBER) for place, _ in filled):
        return []
    seen: Counter[str] = Counter()
    names = []
    for cell in head:
        seen[cell] += 1
        names.append(f"{cell[:LONGEST_NAME]} ({seen[cell]})" if cell and seen[cell] > 1 else cell[:LONGEST_NAME])
    return names


def _column_is(rows: list[list[str]], place: int, kind: re.Pattern[str]) -> bool:
    """Return True if the column has values and all of them match `kind`."""
    cells = [row[place] for row in rows if place < len(row) and row[place]]
    return bool(cells) and all(kind.fullmatch(cell) for cell in cells)
