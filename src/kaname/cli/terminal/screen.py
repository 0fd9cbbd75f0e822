"""Writing to a terminal, a pipe or a file: colours only where somebody sees them, double-width letters counted as two."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from logging import WARNING, Handler, LogRecord, getLogger
from time import monotonic
from typing import TextIO

from ...core.people.columns import measured
from ...core.people.columns import width as width
from ..messages import translated

_COLOURS = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)  # what follows runs the other way
_QUIET = 0.4  # seconds without a sign of life before the spinner gives one


class Screen:
    """The answer goes to `out`, everything about it to `err`, so that a pipe gets the answer alone."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out, self.err = out or sys.stdout or _nowhere(), err or sys.stderr or _nowhere()
        self._drawn = False  # something that the next line writes over
        self._open = False  # a line that has not ended
        self._written = monotonic()
        self.doing = ""  # what the spinner says

    def say(self, text: str, end: str = "\n") -> None:
        self.raw(_printable(text, self.out) + end)

    def note(self, text: str, colour: str = "dim", end: str = "\n") -> None:
        self._write(self.err, self.coloured(_printable(text, self.err), colour, self.err) + end)

    def raw(self, text: str) -> None:
        """Text that was made `safe` before it got its looks."""
        self._write(self.out, text)

    def safe(self, text: str) -> str:
        return _printable(text, self.out)

    def _write(self, stream: TextIO, text: str) -> None:
        if self._drawn:
            self.replace("")
        stream.write(text)
        stream.flush()
        self._written = monotonic()
        self._open = not text.endswith("\n") if text else self._open

    def replace(self, text: str) -> None:
        """Write over the current line; where nobody watches, nothing."""
        if not self.plain(self.err):
            self.err.write("\r\x1b[2K" + text)
            self.err.flush()
        self._drawn = bool(text)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """A spinner with the time, whenever nothing has been written for a moment and no line is open."""

        async def spin() -> None:
            place = 0
            while True:
                await asyncio.sleep(0.1)
                silence = monotonic() - self._written
                if silence > _QUIET and not self._open:
                    place += 1
                    told = cut(
                        f"{_SPINNER[place % len(_SPINNER)]} {silence:.0f} s  {_printable(self.doing, self.err)}", columns() - 1
                    )
                    self.replace(self.coloured(told, "dim", self.err))

        spinner = None if self.plain(self.err) else asyncio.create_task(spin())
        log, shown = getLogger("kaname"), _ShownLog(self)
        log.addHandler(shown)
        try:
            yield
        finally:
            log.removeHandler(shown)
            if spinner is not None:
                spinner.cancel()
                with suppress(asyncio.CancelledError):
                    await spinner
                if self._drawn:
                    self.replace("")

    @staticmethod
    def plain(stream: TextIO) -> bool:
        """No terminal, or one that can do nothing."""
        return not stream.isatty() or os.environ.get("TERM") == "dumb"

    @classmethod
    def coloured(cls, text: str, colour: str, stream: TextIO) -> str:
        without = not colour or cls.plain(stream) or bool(os.environ.get("NO_COLOR"))
        return text if without else f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


class _ShownLog(Handler):
    """Show what is logged meanwhile as lines of their own, in the user's language, instead of in the middle of the spinner."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(WARNING)
        self._screen = screen

    def emit(self, record: LogRecord) -> None:
        alone = record.args[0] if record.msg == "%s" and isinstance(record.args, tuple) and len(record.args) == 1 else None
        self._screen.note(translated(alone) if alone is not None else record.getMessage(), "yellow")


class Bar:
    """How far something is, in bytes: a bar in a terminal, otherwise a line for every tenth."""

    def __init__(self, screen: Screen, doing: str) -> None:
        self._screen, self._doing, self._last = screen, doing, -1

    def show(self, done: int, total: int) -> None:
        percent = done * 100 // total
        told = f"{percent:3} %  {done / 1e6:.0f} / {total / 1e6:.0f} MB  {self._doing}"
        if self._screen.plain(self._screen.err):
            if percent // 10 > self._last // 10:
                self._screen.note(told)
        elif percent != self._last:
            self._screen.replace(f"{'█' * (percent // 4):<25} {told}")
        self._last = percent


def _nowhere() -> TextIO:
    """For a program that was started with its output closed."""
    return open(os.devnull, "w", encoding="utf-8")


def columns() -> int:
    return max(20, shutil.get_terminal_size((80, 24)).columns)


def cut(text: str, most: int) -> str:
    """On one line, in so many columns at most."""
    text = " ".join(text.split())
    if width(text) <= most:
        return text
    return "".join([char for char, taken in measured(text) if taken < most]) + "…"


def padded(text: str, columns: int) -> str:
    text = cut(text, columns)
    return text + " " * (columns - width(text))


def _printable(text: str, stream: TextIO) -> str:
    """What the stream's encoding can write, and no control characters: a tool's result must not steer the terminal."""
    safe = [char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs")]
    shown = "".join([char for char in safe if char not in _TURNING])
    encoding = stream.encoding or "utf-8"
    return shown.encode(encoding, "replace").decode(encoding)
