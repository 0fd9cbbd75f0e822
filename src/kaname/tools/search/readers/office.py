"""Read Word and PowerPoint files as blocks, from their XML. Excel is in `spreadsheet.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from zipfile import BadZipFile, ZipFile

from ....core.notices import notice
from .base import Block, Headings, Unreadable
from .office_xml import list_parts, part, relations_of

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
    from .spreadsheet import excel

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
        slide = part(archive, name)
        title, lines = "", []
        for kind, paragraphs in _shapes(slide):
            if kind in ("title", "ctrTitle"):
                title = " ".join([one for one in paragraphs if one])
            elif kind not in ("sldNum", "dt", "ftr"):
                lines += paragraphs
        rows = [" | ".join([words(cell, f"{_A}t") for cell in row.iter(f"{_A}tc")]) for row in slide.iter(f"{_A}tr")]
        text = "\n".join([line for line in [*lines, *rows] if line])
        yield Block(text or title, title, f"slide {number}")
        notes = [target for kind, target in relations_of(archive, name).values() if kind == "notesSlide"]
        said = [line for one in notes for kind, lines in _shapes(part(archive, one)) if kind == "body" for line in lines]
        yield Block("\n".join([line for line in said if line]), title, f"slide {number}, notes")


def _shapes(slide: Element) -> Iterator[tuple[str, list[str]]]:
    """Yield the kind of each text box, and its paragraphs."""
    for shape in slide.iter(f"{_P}sp"):
        kind = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
        named = "" if kind is None else kind.get("type", "")
        yield named, [words(paragraph, f"{_A}t") for paragraph in shape.iter(f"{_A}p")]
