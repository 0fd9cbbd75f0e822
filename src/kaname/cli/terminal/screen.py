"""Output to a terminal, a pipe or a file: colours only in a terminal, double-width letters counted as two."""

from __future__ import annotations

import asyncio
import os
import sys
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from logging import WARNING, Handler, LogRecord, getLogger
from time import monotonic
from typing import TextIO

from ...core.people.columns import measure, terminal_width
from ...core.people.columns import width as width
from ..messages import say, translate

_COLOURS = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)  # what follows runs the other way
_QUIET = 0.4  # seconds without a sign of life before the spinner gives one


class Screen:
    """The output. The answer goes to `out`, everything else to `err`, so that a pipe gets the answer alone."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out, self.err = out or sys.stdout or _nowhere(), err or sys.stderr or _nowhere()
        self._drawn = False  # something that the next line writes over
        self._open = False  # a line that has not ended
        self._written = monotonic()
        self.doing = ""  # what the spinner says
        self.still = False  # whether there is no spinner, because the user may be typing

    def say(self, text: str, end: str = "\n") -> None:
        self.raw(_printable(text, self.out) + end)

    def note(self, text: str, colour: str = "dim", end: str = "\n") -> None:
        self._write(self.err, self.with_colour(_printable(text, self.err), colour, self.err) + end)

    def tell(self, english: str, nihongo: str, colour: str = "dim") -> None:
        """Write a note in the language of the user."""
        self.note(say(english, nihongo), colour)

    def say_in(self, colour: str, text: str, after: str = "") -> None:
        """Write a line in a colour, and the rest of it without."""
        self.raw(self.with_colour(self.safe(text), colour, self.out) + f"{self.safe(after)}\n")

    def raw(self, text: str) -> None:
        """Write text that was made `safe` before it got its colours."""
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
        """Replace the current line. Without a terminal, do nothing."""
        if not self.is_plain(self.err):
            self.err.write("\r\x1b[2K" + text)
            self.err.flush()
        self._drawn = bool(text)

    @asynccontextmanager
    async def spinner(self, *, still: bool = False) -> AsyncIterator[None]:
        """Show a spinner with the time while nothing has been written for a moment and no line is open.

        `still`: leave the line alone, because the user may be typing there.
        """

        async def spin() -> None:
            place = 0
            while True:
                await asyncio.sleep(0.1)
                silence = monotonic() - self._written
                if silence > _QUIET and not self._open:
                    place += 1
                    message = truncate(
                        f"{_SPINNER[place % len(_SPINNER)]} {silence:.0f} s  {_printable(self.doing, self.err)}", columns() - 1
                    )
                    self.replace(self.with_colour(message, "dim", self.err))

        spinner = None if still or self.is_plain(self.err) else asyncio.create_task(spin())
        log, shown = getLogger("kaname"), _ShownLog(self)
        log.addHandler(shown)
        self.still = still
        try:
            yield
        finally:
            self.still = False
            log.removeHandler(shown)
            if spinner is not None:
                spinner.cancel()
                with suppress(asyncio.CancelledError):
                    await spinner
                if self._drawn:
                    self.replace("")

    @staticmethod
    def is_plain(stream: TextIO) -> bool:
        """Return True if the stream is not a terminal, or one without any functions."""
        return not stream.isatty() or os.environ.get("TERM") == "dumb"

    @classmethod
    def with_colour(cls, text: str, colour: str, stream: TextIO) -> str:
        without = not colour or cls.is_plain(stream) or bool(os.environ.get("NO_COLOR"))
        return text if without else f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


class _ShownLog(Handler):
    """Show log messages as lines of their own, in the language of the user, instead of in the middle of the spinner.

    A failed call of a model is left out: the run itself says that it is retried, or why it failed.
    """

    def __init__(self, screen: Screen) -> None:
        super().__init__(WARNING)
        self._screen = screen

    def emit(self, record: LogRecord) -> None:
        if record.name == "kaname.models":
            return
        alone = record.args[0] if record.msg == "%s" and isinstance(record.args, tuple) and len(record.args) == 1 else None
        self._screen.note(translate(alone) if alone is not None else record.getMessage(), "yellow")


class Bar:
    """Progress in bytes: a bar in a terminal, otherwise a line for every tenth."""

    def __init__(self, screen: Screen, doing: str) -> None:
        self._screen, self._doing, self._last = screen, doing, -1

    def show(self, done: int, total: int) -> None:
        percent = done * 100 // total
        message = f"{percent:3} %  {done / 1e6:.0f} / {total / 1e6:.0f} MB  {self._doing}"
        if self._screen.is_plain(self._screen.err):
            if percent // 10 > self._last // 10:
                self._screen.note(message)
        elif percent != self._last:
            self._screen.replace(f"{'█' * (percent // 4):<25} {message}")
        self._last = percent


def _nowhere() -> TextIO:
    """Return a stream to nowhere, for a program that was started with its output closed."""
    return open(os.devnull, "w", encoding="utf-8")


def columns() -> int:
    return max(20, terminal_width())


def truncate(text: str, most: int) -> str:
    """Return the text on one line, cut to so many columns."""
    text = " ".join(text.split())
    if width(text) <= most:
        return text
    return "".join([char for char, taken in measure(text) if taken < most]) + "…"


def pad(text: str, columns: int) -> str:
    """Return the text, cut or filled up to so many columns."""
    text = truncate(text, columns)
    return text + " " * (columns - width(text))


def _printable(text: str, stream: TextIO) -> str:
    """Return the text without control characters, so that a tool's result cannot control the terminal, and without characters
    that the encoding of the stream cannot write.
    """
    safe = [char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs")]
    shown = "".join([char for char in safe if char not in _TURNING])
    encoding = stream.encoding or "utf-8"
    return shown.encode(encoding, "replace").decode(encoding)
