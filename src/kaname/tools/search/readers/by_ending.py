"""Choose the reader by the ending of a file. Enter new readers in the table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
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


def _lazily(module: str, name: str) -> Callable[[Path], Iterator[Block]]:
    """Return a reader whose module is imported with the first file that it reads."""
    return lambda path: getattr(import_module(f".{module}", __package__), name)(path)


READERS: dict[str, Callable[[Path], Iterator[Block]]] = {
    **dict.fromkeys([".txt", ".text", ".log", ".json", ".yaml", ".yml", ".rst", ".org"], _lazily("text", "text")),
    **dict.fromkeys([".csv", ".tsv"], _lazily("text", "values")),
    **dict.fromkeys([".md", ".markdown", ".mdx"], _lazily("text", "markdown")),
    **dict.fromkeys([".html", ".htm", ".xhtml"], _lazily("html", "html")),
    ".pdf": _lazily("pdf", "pdf"),
    **dict.fromkeys([".docx", ".xlsx", ".pptx"], _lazily("office", "read_office")),
}
