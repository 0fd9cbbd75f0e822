"""Read Excel files as blocks: each row becomes a line of `column: value`, with dates and percentages as Excel shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from .base import LONGEST_NAME, Block
from .office_xml import list_parts, open_part, part

_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LARGEST = 200_000_000  # of a sheet, unpacked; it is read row by row
_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}  # formats that every Excel knows by number
_PERCENT = {9, 10}
_LITERAL = re.compile(r'"[^"]*"|\\.|\[(?!h+\]|m+\]|s+\])[^\]]*\]|[_*].|general', re.IGNORECASE)


class _Book(NamedTuple):
    shared: list[str]
    formats: list[str]  # of a style: date, percent or nothing
    first_day: datetime


def excel(archive: ZipFile) -> Iterator[Block]:
    book = _Book(_shared_strings(archive), _formats(archive), _first_day(archive))
    for sheet, name in list_parts(archive, "xl/workbook.xml", f"{_S}sheet"):
        title = sheet.get("name", "")
        head: dict[int, str] = {}
        for place, cells in _rows(archive, name, book):
            first = not head and len(cells) > 1
            head = cells if first else head
            pairs = [
                text if first or number not in head else f"{head[number][:LONGEST_NAME]}: {text}"
                for number, text in cells.items()
            ]
            yield Block(" | ".join(pairs), title, f"sheet {title}, row {place}")


def _rows(archive: ZipFile, name: str, book: _Book) -> Iterator[tuple[str, dict[int, str]]]:
    """Yield the rows that are not empty, each with its cells by column."""
    with open_part(archive, name, _LARGEST) as file:
        for _, node in ElementTree.iterparse(file):
            if node.tag == f"{_S}row":
                cells = {_column(cell, number): _cell(cell, book) for number, cell in enumerate(node.iter(f"{_S}c"))}
                filled = {number: text for number, text in cells.items() if text}
                if filled:
                    yield node.get("r", "?"), filled
                node.clear()


def _shared_strings(archive: ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in archive.namelist():
        return []
    found = []
    with open_part(archive, "xl/sharedStrings.xml", _LARGEST) as file:
        for _, node in ElementTree.iterparse(file):
            if node.tag == f"{_S}si":
                found.append(_text(node))
                node.clear()
    return found


def _text(node: Element) -> str:
    """Return the text of a node, without the phonetic readings (`rPh`) that a Japanese Excel stores."""
    runs = [one for child in node if child.tag != f"{_S}rPh" for one in child.iter(f"{_S}t")]
    return "".join([one.text or "" for one in runs]).strip()


def _formats(archive: ZipFile) -> list[str]:
    if "xl/styles.xml" not in archive.namelist():
        return []
    styles = part(archive, "xl/styles.xml")
    own = {int(one.get("numFmtId", "0")): one.get("formatCode", "") for one in styles.iter(f"{_S}numFmt")}
    used = styles.find(f"{_S}cellXfs")
    return [_kind(int(one.get("numFmtId", "0")), own) for one in ([] if used is None else used)]


def _kind(number: int, own: dict[int, str]) -> str:
    code = _LITERAL.sub("", own.get(number, "").split(";")[0])
    if number in _PERCENT or code.endswith("%"):
        return "percent"
    return "date" if (number in _DATES and not own.get(number)) or re.search(r"[ymdhs]", code, re.IGNORECASE) else ""


def _first_day(archive: ZipFile) -> datetime:
    settings = part(archive, "xl/workbook.xml").find(f"{_S}workbookPr")
    later = settings is not None and settings.get("date1904", "0") in ("1", "true")
    return datetime(1904, 1, 1, tzinfo=UTC) if later else datetime(1899, 12, 30, tzinfo=UTC)


def _column(cell: Element, number: int) -> int:
    """Return the column of a cell from the letters of its reference: empty cells are left out of the file."""
    letters = re.match(r"[A-Z]+", cell.get("r", ""))
    if letters is None:
        return number
    place = 0
    for letter in letters[0]:
        place = place * 26 + ord(letter) - 64
    return place - 1


def _cell(cell: Element, book: _Book) -> str:
    value = cell.find(f"{_S}v")
    if (written := cell.find(f"{_S}is")) is not None:
        return _text(written)
    if value is None or value.text is None:
        return ""
    kind = cell.get("t", "n")
    if kind == "s":
        return book.shared[int(value.text)]
    if kind == "b":
        return "TRUE" if value.text == "1" else "FALSE"
    return _number(value.text, cell.get("s", ""), book) if kind == "n" else value.text


def _number(text: str, style: str, book: _Book) -> str:
    number = float(text)
    shown = f"{number:.15g}"  # as many digits as Excel keeps
    form = book.formats[int(style)] if style and int(style) < len(book.formats) else ""
    if form == "percent":
        return f"{number * 100:.10g}%"
    if form != "date" or not 0 <= number < 2_958_466:  # the last day of the year 9999
        return shown
    moment = book.first_day + timedelta(seconds=round(number * 86_400))
    day = "" if number < 1 else f"{moment:%Y-%m-%d}"
    hour = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    return day if number == int(number) and day else f"{day} {hour}".strip()
