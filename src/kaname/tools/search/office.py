"""Word, Excel and PowerPoint files: what is written in them, read from their XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import BadZipFile, ZipFile

from .blocks import Block, Headings, Unreadable

_LARGEST = 50_000_000  # of one part, unpacked
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LEVEL = re.compile(r"(?:heading|title|見出し)\s*(\d?)", re.IGNORECASE)


def read_office(path: Path) -> Iterator[Block]:
    reader = {".docx": _word, ".xlsx": _excel, ".pptx": _powerpoint}[path.suffix.lower()]
    try:
        with ZipFile(path) as archive:
            yield from reader(archive)
    except (BadZipFile, KeyError, ElementTree.ParseError, ValueError, RecursionError) as problem:
        raise Unreadable(f"{path.suffix[1:]}: {problem}") from problem


def _part(archive: ZipFile, name: str) -> Element:
    if archive.getinfo(name).file_size > _LARGEST:
        raise Unreadable(f"{name} is larger than 50 MB")
    return ElementTree.fromstring(archive.read(name))


def _numbered(archive: ZipFile, pattern: str) -> list[tuple[int, str]]:
    found = [(re.fullmatch(pattern, name), name) for name in archive.namelist()]
    return sorted([(int(match[1]), name) for match, name in found if match])


def _word(archive: ZipFile) -> Iterator[Block]:
    body = _part(archive, "word/document.xml").find(f"{_W}body")
    headings = Headings()
    for number, node in enumerate([] if body is None else body, 1):
        place = f"paragraph {number}"
        if node.tag == f"{_W}tbl":
            rows = [[_words(cell, f"{_W}t") for cell in row.iter(f"{_W}tc")] for row in node.iter(f"{_W}tr")]
            yield Block("\n".join([" | ".join(row) for row in rows]), str(headings), place)
            continue
        style = node.find(f"{_W}pPr/{_W}pStyle")
        level = None if style is None else _LEVEL.search(style.get(f"{_W}val", ""))
        text = _words(node, f"{_W}t")
        if level and text:
            headings.enter(int(level[1] or 1), text)
        elif text:
            yield Block(text, str(headings), place)


def _words(node: Element, tag: str) -> str:
    return "".join([part.text or "" for part in node.iter(tag)]).strip()


def _powerpoint(archive: ZipFile) -> Iterator[Block]:
    for number, name in _numbered(archive, r"ppt/slides/slide(\d+)\.xml"):
        slide = _part(archive, name)
        title, lines = "", []
        for shape in slide.iter(f"{_P}sp"):
            kind = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
            paragraphs = [_words(paragraph, f"{_A}t") for paragraph in shape.iter(f"{_A}p")]
            if kind is not None and kind.get("type") in ("title", "ctrTitle"):
                title = " ".join([one for one in paragraphs if one])
            else:
                lines += paragraphs
        rows = [" | ".join([_words(cell, f"{_A}t") for cell in row.iter(f"{_A}tc")]) for row in slide.iter(f"{_A}tr")]
        text = "\n".join([line for line in [*lines, *rows] if line])
        yield Block(text or title, title, f"slide {number}")


def _excel(archive: ZipFile) -> Iterator[Block]:
    shared: list[str] = []
    if "xl/sharedStrings.xml" in archive.namelist():
        shared = [_words(one, f"{_S}t") for one in _part(archive, "xl/sharedStrings.xml").iter(f"{_S}si")]
    names = [sheet.get("name", "") for sheet in _part(archive, "xl/workbook.xml").iter(f"{_S}sheet")]
    for number, name in _numbered(archive, r"xl/worksheets/sheet(\d+)\.xml"):
        title = names[number - 1] if number <= len(names) else f"sheet {number}"
        head: list[str] = []
        for row in _part(archive, name).iter(f"{_S}row"):
            cells = [_cell(cell, shared) for cell in row.iter(f"{_S}c")]
            if not any(cells):
                continue
            filled = [cell for cell in cells if cell]
            if not head and len(filled) > 1:
                head = cells
            pairs = [f"{name}: {cell}" if name else cell for name, cell in zip(head, cells, strict=False) if cell]
            text = " | ".join(filled) if cells == head or not pairs else " | ".join(pairs)
            yield Block(text, title, f"sheet {title}, row {row.get('r', '?')}")


def _cell(cell: Element, shared: list[str]) -> str:
    value = cell.find(f"{_S}v")
    if cell.get("t") == "inlineStr":
        return _words(cell, f"{_S}t")
    if value is None or value.text is None:
        return ""
    if cell.get("t") == "s":
        return shared[int(value.text)]
    return value.text
