"""The text of `{"tool": "answer", "text": "…"}` while it is being written, whatever the slicing."""

from __future__ import annotations

import re

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class AnswerStream:
    """`feed` gives what can be shown by then: nothing before the answer or after it, and no half of a character."""

    def __init__(self, name: str = "answer") -> None:
        self._beginning = re.compile(r'\s*\{\s*"tool"\s*:\s*"' + re.escape(name) + r'"\s*,\s*"text"\s*:\s*"')
        self._rest = ""
        self._inside = self._ended = False
        self.shown = False

    def feed(self, piece: str) -> str:
        self._rest += piece
        if not self._inside:
            found = self._beginning.match(self._rest)
            if found is None:
                return ""
            self._inside, self._rest = True, self._rest[found.end() :]
        if self._ended:
            return ""
        text = self._decoded()
        self.shown = self.shown or bool(text)
        return text

    def _decoded(self) -> str:
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
            out.append(_unescaped(text[place : place + size]))
            place += size
        self._rest = text[place:]
        return "".join(out)


def _escape_size(text: str, place: int) -> int:
    """How many characters the escape takes; 0 while it is incomplete."""
    if place + 1 >= len(text):
        return 0
    if text[place + 1] != "u":
        return 2
    if place + 6 > len(text):
        return 0
    high = text[place + 2 : place + 6].lower()
    if not ("d800" <= high <= "dbff"):
        return 6
    return 12 if place + 12 <= len(text) else 0  # two halves of one character


def _unescaped(escape: str) -> str:
    if escape[1] != "u":
        return _ESCAPES.get(escape[1], escape[1])
    try:
        units = bytes.fromhex(escape[2:6] + escape[8:12])
        return units.decode("utf-16-be", "replace")
    except ValueError:
        return "\N{REPLACEMENT CHARACTER}"
