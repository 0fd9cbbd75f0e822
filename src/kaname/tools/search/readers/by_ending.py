"""Choose the reader by the ending of a file. Enter new readers in the table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ....core.notices import notice
from .base import Block, Unreadable

_LARGEST = 50_000_000  # bytes


def read_blocks(path: Path) -> list[Block]:
    check(path, path.stat().st_size)
    return [block for block in READERS[path.suffix.lower()](path) if block.text.strip()]


def check(path: Path, size: int) -> None:
    """Raise `Unreadable` if the kind of file is not supported or the file is too large, before it is read."""
    if path.suffix.lower() not in READERS:
        raise Unreadable(
            notice(
                "search.kind_not_read",
                "{value} are not supported",
                value=f"{path.suffix} files" if path.suffix else "files without an extension",
                value2=path.suffix or "拡張子のないファイル",
            )
        )
    if size > _LARGEST:
        raise Unreadable(notice("search.too_large", "it is larger than 50 MB"))


def _text(path: Path) -> Iterator[Block]:
    from .text import text

    return text(path)


def _values(path: Path) -> Iterator[Block]:
    from .text import values

    return values(path)


def _markdown(path: Path) -> Iterator[Block]:
    from .text import markdown

    return markdown(path)


def _html(path: Path) -> Iterator[Block]:
    from .html import html

    return html(path)


def _pdf(path: Path) -> Iterator[Block]:
    from .pdf import pdf

    return pdf(path)


def _office(path: Path) -> Iterator[Block]:
    from .office import read_office

    return read_office(path)


READERS: dict[str, Callable[[Path], Iterator[Block]]] = {
    **dict.fromkeys([".txt", ".text", ".log", ".json", ".yaml", ".yml", ".rst", ".org"], _text),
    **dict.fromkeys([".csv", ".tsv"], _values),
    **dict.fromkeys([".md", ".markdown", ".mdx"], _markdown),
    **dict.fromkeys([".html", ".htm", ".xhtml"], _html),
    ".pdf": _pdf,
    **dict.fromkeys([".docx", ".xlsx", ".pptx"], _office),
}
