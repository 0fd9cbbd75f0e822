"""Writing to a terminal, a pipe or a file: colours only where somebody sees them, double-width letters counted as two."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from typing import TextIO

_COLOURS = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Screen:
    """The answer goes to `out`, everything about it to `err`, so that a pipe gets the answer alone."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out, self.err = out or sys.stdout, err or sys.stderr

    def say(self, text: str, end: str = "\n") -> None:
        self.out.write(_printable(text, self.out) + end)
        self.out.flush()

    def note(self, text: str, colour: str = "dim", end: str = "\n") -> None:
        self.err.write(self.coloured(_printable(text, self.err), colour, self.err) + end)
        self.err.flush()

    def raw(self, text: str) -> None:
        """Text that was made `safe` before it got its looks."""
        self.out.write(text)
        self.out.flush()

    def safe(self, text: str) -> str:
        return _printable(text, self.out)

    def replace(self, text: str) -> None:
        """Write over the current line; where nobody watches, nothing."""
        if self.err.isatty():
            self.err.write("\r\x1b[2K" + text)
            self.err.flush()

    @staticmethod
    def coloured(text: str, colour: str, stream: TextIO) -> str:
        plain = not stream.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        return text if plain or not colour else f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def columns() -> int:
    return shutil.get_terminal_size((80, 24)).columns


def width(text: str) -> int:
    """How many columns it takes."""
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, most: int) -> str:
    """On one line, in so many columns at most."""
    text = " ".join(text.split())
    if width(text) <= most:
        return text
    kept, size = "", 0
    for char in text:
        size += width(char)
        if size > most - 1:
            break
        kept += char
    return kept + "…"


def padded(text: str, columns: int) -> str:
    text = cut(text, columns)
    return text + " " * (columns - width(text))


def _printable(text: str, stream: TextIO) -> str:
    """What the stream's encoding can write, and no control characters: a tool's result must not steer the terminal."""
    safe = "".join([char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs")])
    encoding = stream.encoding or "utf-8"
    return safe.encode(encoding, "replace").decode(encoding)
