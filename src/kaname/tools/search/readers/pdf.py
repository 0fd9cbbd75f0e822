"""Read PDF as blocks, one per paragraph, each with its page."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from ....core.errors import ConfigError
from ....core.install import install_command
from ....core.notices import notice
from .base import Block, Unreadable
from .text import paragraphs


def pdf(path: Path) -> Iterator[Block]:
    try:
        import pypdf
        from pypdf.errors import FileNotDecryptedError, PyPdfError
    except ImportError as problem:
        raise ConfigError(
            notice("search.pdf_missing", "reading PDF files needs pypdf. Install it with: {how}", how=install_command("search"))
        ) from problem
    remarks = logging.getLogger("pypdf")  # warnings about faults of the file
    level = remarks.level
    remarks.setLevel(logging.CRITICAL + 1)
    try:
        for number, page in enumerate(pypdf.PdfReader(path).pages, 1):
            for _, lines in paragraphs((page.extract_text() or "").splitlines()):
                yield Block(_rejoin(lines), "", f"page {number}")
    except FileNotDecryptedError as problem:
        raise Unreadable(notice("search.needs_password", "it needs a password")) from problem
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise Unreadable(notice("search.pdf_unreadable", "the PDF cannot be read: {problem}", problem=problem)) from problem
    finally:
        remarks.setLevel(level)


def _rejoin(lines: list[str]) -> str:
    """Join lines that were broken to fit a page; Japanese lines are joined without a space."""
    whole = lines[0]
    for line in lines[1:]:
        wide = bool(whole) and ord(whole[-1]) > 0x2E80 and bool(line) and ord(line[0]) > 0x2E80
        whole += line if wide else "\n" + line
    return whole
