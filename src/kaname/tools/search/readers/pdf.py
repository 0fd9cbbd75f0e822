"""Read PDF as blocks, one per paragraph, each with its page."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ....core.errors import ConfigError
from ....core.install import install_command
from ....core.notices import notice
from .base import Block, Unreadable, width
from .text import paragraphs

_WIDE = r"[^\x00-\u2e80]"  # letters of scripts without spaces between words, such as Japanese
_ENDS = re.compile(rf"{_WIDE}(?: ?\d[\d.,]*)?\Z")
_BEGINS = re.compile(rf"{_WIDE}|[\d.,]*\d ?(?:{_WIDE}|%)")
_LAST = 40  # characters of a line in which its last number stands
_NEARLY = 4  # columns by which a full line can be shorter than the longest one


def pdf(path: Path) -> Iterator[Block]:
    try:
        import pypdf
        from pypdf.errors import FileNotDecryptedError, PyPdfError
    except ImportError as problem:
        raise ConfigError.of(
            "search.pdf_missing", "reading PDF files needs pypdf. Install it with: {how}", how=install_command("search")
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


def _rejoin(lines: Sequence[str]) -> str:
    """Join the lines of a paragraph: with line breaks, but without them where Japanese text runs on.

    Japanese is broken anywhere, also within a number: `休暇は2` and `0日です` become `休暇は20日です`. Numbers are only joined
    if the line is as long as the longest one, because a shorter line was not broken to fit the page."""
    full = max(map(width, lines), default=0) - _NEARLY
    whole = ""
    for before, line in zip(["", *lines], lines, strict=False):
        ends, begins = _ENDS.search(before[-_LAST:]), _BEGINS.match(line)
        digits = before[-1:].isascii(), line[:1].isascii()
        runs_on = ends and begins and digits[0] == digits[1] and (not digits[0] or width(before) >= full)
        whole += line if runs_on or not whole else "\n" + line
    return whole
