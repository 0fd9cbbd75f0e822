"""Read the text of `{"tool": "answer", "text": "…"}` while it is being written, however it is sliced."""

from __future__ import annotations

import re
from typing import Protocol

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class AnswerStream:
    """A parser. `feed` returns the text that can be shown: nothing before or after the answer, and no half of a character.

    Leading space is held back: an answer of nothing else counts as empty, and the model is asked again.
    """

    def __init__(self, name: str = "answer") -> None:
        self._beginning = re.compile(r'\s*\{\s*"tool"\s*:\s*"' + re.escape(name) + r'"\s*,\s*"text"\s*:\s*"')
        self._rest = self._space = ""
        self._inside = self._ended = False
        self.shown = False

    def feed(self, piece: str) -> str:
        self._rest += piece
        if not self._inside:
            match = self._beginning.match(self._rest)
            if match is None:
                return ""
            self._inside, self._rest = True, self._rest[match.end() :]
        if self._ended:
            return ""
        text = self._space + self._decode_shown()
        if not self.shown and not text.strip():
            self._space = text
            return ""
        self._space, self.shown = "", True
        return text

    def _decode_shown(self) -> str:
        out, place, text = [], 0, self._rest
        while place < len(text):
            char = text[place]
            if char == '"':
                self._ended = True
                break
            if char != "\\":
                out.append(char)
                place += 1
                continue
            size = _escape_size(text, place)
            if size == 0:  # not all there yet
                break
            out.append(_unescape(text[place : place + size]))
            place += size
        self._rest = text[place:]
        return "".join(out)


class Clears(Protocol):
    """An object that says how much of an answer can be shown."""

    def clear(self, text: str) -> int: ...


class HeldAnswer:
    """An answer as it is written, without the part that may have to be written again."""

    def __init__(self, name: str, doubt: Clears | None) -> None:
        self._stream, self._doubt = AnswerStream(name), doubt
        self._held = ""

    def feed(self, piece: str) -> str:
        self._held += self._stream.feed(piece)
        until = len(self._held) if self._doubt is None else self._doubt.clear(self._held)
        shown, self._held = self._held[:until], self._held[until:]
        return shown

    def rest(self, answer: str) -> str:
        """Return the part of the answer that has not been shown."""
        return self._held if self._stream.shown else answer


def _escape_size(text: str, place: int) -> int:
    """Return the number of characters of the escape, 0 while it is incomplete."""
    if place + 1 >= len(text):
        return 0
    if text[place + 1] != "u":
        return 2
    if place + 6 > len(text):
        return 0
    if not _is_half(text[place + 2 : place + 6], "d800", "dbff"):
        return 6
    following = text[place + 6 : place + 12]
    if len(following) < 6 and "\\u".startswith(following[:2]):
        return 0  # the other half of the character may be on its way
    paired = following.startswith("\\u") and _is_half(following[2:], "dc00", "dfff")
    return 12 if paired else 6


def _is_half(digits: str, lowest: str, highest: str) -> bool:
    return len(digits) == 4 and lowest <= digits.lower() <= highest


def _unescape(escape: str) -> str:
    if escape[1] != "u":
        return _ESCAPES.get(escape[1], escape)  # what is no escape keeps its backslash
    try:
        units = bytes.fromhex(escape[2:6] + escape[8:12])
        return units.decode("utf-16-be", "replace")
    except ValueError:
        return "\N{REPLACEMENT CHARACTER}"
