"""Read Word, PowerPoint and Excel files as blocks, from their XML."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, NamedTuple, Self
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import BadZipFile, ZipFile

from ....core.notices import notice
from .base import LONGEST_NAME, Block, Headings, Unreadable

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_LEVEL = re.compile(r"(?:heading|見出し)\s*(\d)|(title|表題)", re.IGNORECASE)
_CONTENTS = re.compile(r"(?:toc|目次)\s*\d", re.IGNORECASE)
_UNREAD = {  # readings of Japanese words, where a moved text was, and the copy of a text box for old programs
    f"{_W}rt",
    f"{_W}moveFrom",
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
}


def read_office(path: Path) -> Iterator[Block]:
    reader = {".docx": _word, ".xlsx": excel, ".pptx": _powerpoint}[path.suffix.lower()]
    try:
        with ZipFile(path) as archive:
            yield from reader(archive)
    except BadZipFile as problem:
        if path.read_bytes()[:4] == b"\xd0\xcf\x11\xe0":  # the container of the old formats, which also holds encrypted files
            raise Unreadable(
                notice("search.password_or_old_format", "it needs a password, or is in an old Office format")
            ) from problem
        raise Unreadable(_reason(path, problem)) from problem
    except (KeyError, IndexError, ElementTree.ParseError, ValueError, RecursionError, RuntimeError) as problem:
        raise Unreadable(_reason(path, problem)) from problem


def _reason(path: Path, problem: Exception) -> str:
    kind = path.suffix[1:]
    return notice("search.document_unreadable", "the {kind} file cannot be read: {problem}", kind=kind, problem=problem)


def _word(archive: ZipFile) -> Iterator[Block]:
    whole = part(archive, "word/document.xml")
    body = whole.find(f"{_W}body")
    headings, levels, notes = Headings(), _levels(archive), _notes(archive)
    paged = whole.find(f".//{_W}lastRenderedPageBreak") is not None
    page = 1
    for number, node in enumerate([] if body is None else _body_nodes(body), 1):
        begins, ends, breaks = _page_breaks(node)
        place = _pages(page + begins, page + ends) if paged else f"paragraph {number}"
        page += breaks
        if node.tag == f"{_W}tbl":
            yield headings.block(_table(node), place, table=True)
            continue
        style = node.find(f"{_W}pPr/{_W}pStyle")
        level = levels.get("" if style is None else style.get(f"{_W}val", ""), 9)
        text = _line(node)
        if level < 9 and text:
            yield from headings.enter(level, text, place)
        elif text and level == 9:
            said = [notes.get(one.get(f"{_W}id", ""), "") for one in node.iter(f"{_W}footnoteReference")]
            yield headings.block("\n".join([text, *[one for one in said if one]]), place)
    yield from headings.flush()


def _pages(first: int, last: int) -> str:
    return f"page {first}" if first == last else f"pages {first}-{last}"


def _body_nodes(body: Element) -> Iterator[Element]:
    """Yield paragraphs and tables, including those inside a content control (`w:sdt`)."""
    for node in body:
        if node.tag == f"{_W}sdt":
            yield from _body_nodes(node.find(f"{_W}sdtContent") or Element("nothing"))
        else:
            yield node


def _levels(archive: ZipFile) -> dict[str, int]:
    """Return the heading level of each style id, with 10 for a table of contents. In a Japanese Word the ids are numbers."""
    found = {f"Heading{level}": level for level in range(1, 10)} | {"Title": 0}
    if "word/styles.xml" not in archive.namelist():
        return found
    for style in part(archive, "word/styles.xml").iter(f"{_W}style"):
        name, outline = style.find(f"{_W}name"), style.find(f"{_W}pPr/{_W}outlineLvl")
        named = "" if name is None else name.get(f"{_W}val", "")
        level = _LEVEL.match(named)
        if level:
            found[style.get(f"{_W}styleId", "")] = int(level[1] or 0)
        elif _CONTENTS.match(named):
            found[style.get(f"{_W}styleId", "")] = 10
        elif outline is not None:
            found[style.get(f"{_W}styleId", "")] = int(outline.get(f"{_W}val", "8")) + 1
    return found


def _notes(archive: ZipFile) -> dict[str, str]:
    if "word/footnotes.xml" not in archive.namelist():
        return {}
    return {one.get(f"{_W}id", ""): _line(one) for one in part(archive, "word/footnotes.xml").iter(f"{_W}footnote")}


def _page_breaks(node: Element) -> tuple[int, int, int]:
    """Count the page breaks before the first word, before the last word, and all page breaks."""
    before: list[int] = []
    count = 0
    for one in node.iter():
        count += one.tag == f"{_W}lastRenderedPageBreak"
        before += [count] if one.tag == f"{_W}t" else []
    return (before[0], before[-1], count) if before else (count, count, count)


def _table(node: Element) -> str:
    rows = [[_line(cell).replace("\n", " ") for cell in _inside(row, f"{_W}tc")] for row in _inside(node, f"{_W}tr")]
    return "\n".join([" | ".join(row) for row in rows])


def _inside(node: Element, tag: str) -> Iterator[Element]:
    """Yield the elements of a table itself. A table within a cell is part of that cell."""
    for child in node:
        if child.tag == tag:
            yield child
        elif child.tag != f"{_W}tbl":
            yield from _inside(child, tag)


def _line(node: Element) -> str:
    """Return the text of a node, with the white space that tabs, line breaks and paragraphs stand for."""
    return "".join(_pieces(node)).strip()


def _pieces(node: Element) -> Iterator[str]:
    kinds = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}p": "\n", f"{_W}noBreakHyphen": "-"}
    if node.tag in _UNREAD or node.tag == f"{_W}tabs":
        return
    yield kinds.get(node.tag, (node.text or "") if node.tag == f"{_W}t" else "")
    for child in node:
        yield from _pieces(child)


def words(node: Element, tag: str) -> str:
    return "".join([one.text or "" for one in node.iter(tag)]).strip()


def _powerpoint(archive: ZipFile) -> Iterator[Block]:
    for number, (_, name) in enumerate(list_parts(archive, "ppt/presentation.xml", f"{_P}sldId"), 1):
        title, text = _slide(part(archive, name))
        yield Block(text or title, title, f"slide {number}")
        notes = [target for kind, target in relations_of(archive, name).values() if kind == "notesSlide"]
        lines = [line for one in notes for kind, lines in _shapes(part(archive, one)) if kind == "body" for line in lines]
        yield Block("\n".join(filter(None, lines)), title, f"slide {number}, notes")


def _slide(slide: Element) -> tuple[str, str]:
    """Return the title of a slide, and its text with the rows of its tables."""
    title, lines = "", []
    for kind, paragraphs in _shapes(slide):
        if kind in ("title", "ctrTitle"):
            title = " ".join(filter(None, paragraphs))
        elif kind not in ("sldNum", "dt", "ftr"):
            lines += paragraphs
    rows = [" | ".join([words(cell, f"{_A}t") for cell in row.iter(f"{_A}tc")]) for row in slide.iter(f"{_A}tr")]
    return title, "\n".join(filter(None, [*lines, *rows]))


def _shapes(slide: Element) -> Iterator[tuple[str, list[str]]]:
    """Yield the kind of each text box, and its paragraphs."""
    for shape in slide.iter(f"{_P}sp"):
        kind = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
        named = "" if kind is None else kind.get("type", "")
        yield named, [words(paragraph, f"{_A}t") for paragraph in shape.iter(f"{_A}p")]


_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LARGEST_SHEET = 200_000_000  # of a sheet, unpacked; it is read row by row
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
    with open_part(archive, name, _LARGEST_SHEET) as file:
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
    with open_part(archive, "xl/sharedStrings.xml", _LARGEST_SHEET) as file:
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


_LARGEST = 20_000_000  # of one part, unpacked
_STRICT = {
    b"http://purl.oclc.org/ooxml/" + one: b"http://schemas.openxmlformats.org/" + one.replace(b"/", b"/2006/", 1)
    for one in (
        b"wordprocessingml/main",
        b"drawingml/main",
        b"presentationml/main",
        b"spreadsheetml/main",
        b"officeDocument/relationships",
    )
}
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


class _TransitionalXml:
    """A part of an archive, with the namespaces of the strict form (ISO 29500) replaced by the usual, transitional ones."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._head = file, True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if self._head:
            self._head = False
            for strict, usual in _STRICT.items():
                data = data.replace(strict, usual)
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def open_part(archive: ZipFile, name: str, largest: int = _LARGEST) -> _TransitionalXml:
    if archive.getinfo(name).file_size > largest:
        raise Unreadable(
            notice("search.entry_too_large", "{name} is larger than {value} MB", name=name, value=largest // 10**6)
        )
    return _TransitionalXml(archive.open(name))


def part(archive: ZipFile, name: str) -> Element:
    with open_part(archive, name) as file:
        return ElementTree.fromstring(file.read(_LARGEST + 1))


def relations_of(archive: ZipFile, name: str) -> dict[str, tuple[str, str]]:
    """Return the parts that a part refers to: by id, the kind and the name of the part."""
    folder, file = posixpath.split(name)
    relations = f"{folder}/_rels/{file}.rels"
    if relations not in archive.namelist():
        return {}
    found = {}
    for one in part(archive, relations):
        target = posixpath.normpath(posixpath.join("/", folder, one.get("Target", ""))).lstrip("/")
        if target in archive.namelist():
            found[one.get("Id", "")] = (posixpath.basename(one.get("Type", "")), target)
    return found


def list_parts(archive: ZipFile, name: str, tag: str) -> list[tuple[Element, str]]:
    """Return the slides or sheets that a part lists, in order, each with the name of its own part."""
    parts = relations_of(archive, name)
    listed = [(one, parts.get(one.get(_RELATION, ""))) for one in part(archive, name).iter(tag)]
    return [(one, found[1]) for one, found in listed if found is not None]
