"""Word, Excel and PowerPoint files: what is written in them, read from their XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import BadZipFile, ZipFile

from .blocks import Block, Headings, Unreadable

_LARGEST = 20_000_000  # of one part, unpacked
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
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
        raise Unreadable(f"{name} is larger than 20 MB")
    return ElementTree.fromstring(archive.read(name))


def _numbered(archive: ZipFile, pattern: str) -> list[tuple[int, str]]:
    found = [(re.fullmatch(pattern, name), name) for name in archive.namelist()]
    return sorted([(int(match[1]), name) for match, name in found if match])


def _word(archive: ZipFile) -> Iterator[Block]:
    body = _part(archive, "word/document.xml").find(f"{_W}body")
    headings, styles = Headings(), _styles(archive)
    for number, node in enumerate([] if body is None else body, 1):
        place = f"paragraph {number}"
        if node.tag == f"{_W}tbl":
            rows = [[_line(cell) for cell in row.iter(f"{_W}tc")] for row in node.iter(f"{_W}tr")]
            yield Block("\n".join([" | ".join(row) for row in rows]), str(headings), place)
            continue
        style = node.find(f"{_W}pPr/{_W}pStyle")
        named = "" if style is None else style.get(f"{_W}val", "")
        level = _LEVEL.search(styles.get(named, named))
        text = _line(node)
        if level and text:
            headings.enter(int(level[1] or 1), text)
        elif text:
            yield Block(text, str(headings), place)


def _styles(archive: ZipFile) -> dict[str, str]:
    """Their names by their ids: in a Japanese Word the id of a heading is a number."""
    if "word/styles.xml" not in archive.namelist():
        return {}
    names = [
        (one.get(f"{_W}styleId", ""), one.find(f"{_W}name")) for one in _part(archive, "word/styles.xml").iter(f"{_W}style")
    ]
    return {number: name.get(f"{_W}val", "") for number, name in names if name is not None}


def _line(node: Element) -> str:
    """The words, with the spaces that tabs, line ends and new paragraphs stand for."""
    kinds = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}p": "\n"}
    return "".join([kinds.get(part.tag, (part.text or "") if part.tag == f"{_W}t" else "") for part in node.iter()]).strip()


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
    for title, name in _sheets(archive):
        head: dict[int, str] = {}
        for row in _part(archive, name).iter(f"{_S}row"):
            cells = {_column(cell, number): _cell(cell, shared) for number, cell in enumerate(row.iter(f"{_S}c"))}
            filled = {number: text for number, text in cells.items() if text}
            if not filled:
                continue
            first = not head and len(filled) > 1
            head = filled if first else head
            pairs = [text if first or number not in head else f"{head[number]}: {text}" for number, text in filled.items()]
            yield Block(" | ".join(pairs), title, f"sheet {title}, row {row.get('r', '?')}")


def _sheets(archive: ZipFile) -> list[tuple[str, str]]:
    """Names and files, in the order of the tabs."""
    targets = {
        one.get("Id", ""): one.get("Target", "").removeprefix("/xl/") for one in _part(archive, "xl/_rels/workbook.xml.rels")
    }
    found = []
    for sheet in _part(archive, "xl/workbook.xml").iter(f"{_S}sheet"):
        target = targets.get(sheet.get(_RELATION, ""), "")
        if f"xl/{target}" in archive.namelist():
            found.append((sheet.get("name", ""), f"xl/{target}"))
    return found


def _column(cell: Element, number: int) -> int:
    """Empty cells are left out of the file: the letters say which column it is."""
    letters = re.match(r"[A-Z]+", cell.get("r", ""))
    if letters is None:
        return number
    place = 0
    for letter in letters[0]:
        place = place * 26 + ord(letter) - 64
    return place - 1


def _cell(cell: Element, shared: list[str]) -> str:
    value = cell.find(f"{_S}v")
    if cell.get("t") == "inlineStr":
        return _words(cell, f"{_S}t")
    if value is None or value.text is None:
        return ""
    if cell.get("t") == "s":
        return shared[int(value.text)]
    return value.text
