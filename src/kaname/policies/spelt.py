"""A JSON text while it arrives: what it says, and where each character of that is spelt."""

from __future__ import annotations

from collections import deque

_SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Spelt:
    """`feed` gives what the text says, without escapes; `place` where a character of that begins in the text itself."""

    def __init__(self, begins: int) -> None:
        self._said, self._read = 0, begins
        self._escape = ""  # one that is not complete yet, or a first half that waits for the second
        self._marks = deque([(0, begins)])  # after each escape: how much was said, how much was read

    def feed(self, text: str) -> str:
        said = []
        for char in text:
            self._read += 1
            if self._escape:
                self._escape += char
                said.append(self._unescaped())
            elif char == "\\":
                self._escape = char
            else:
                said.append(char)
                self._said += 1
        return "".join(said)

    def _unescaped(self) -> str:
        """What the escape stands for, as soon as it is complete. A character beyond the first 65,536 is spelt as two halves."""
        escape = self._escape
        rest = escape[6:]
        if len(escape) == 2 and escape[1] != "u":
            return self._meant(_SHORT.get(escape[1], escape[1]))
        if len(escape) == 6 and not _is_first_half(escape):
            return self._meant(chr(_number(escape)))
        if len(rest) == 6 and 0xDC00 <= _number(rest) < 0xE000:
            return self._meant(chr(0x10000 + ((_number(escape) - 0xD800) << 10) + (_number(rest) - 0xDC00)))
        if len(rest) == 6 or (rest and not "\\u".startswith(rest[:2])):  # half a character, and then something else
            self._read -= len(rest)
            return self._meant("\ufffd") + self.feed(rest)
        return ""

    def _meant(self, char: str) -> str:
        self._escape = ""
        self._said += 1
        self._marks.append((self._said, self._read))
        return char

    def place(self, said: int) -> int:
        """Asked in rising order: what lies before is forgotten."""
        while len(self._marks) > 1 and self._marks[1][0] <= said:
            self._marks.popleft()
        return self._marks[0][1] + said - self._marks[0][0]


def _is_first_half(escape: str) -> bool:
    return 0xD800 <= _number(escape) < 0xDC00


def _number(escape: str) -> int:
    try:
        return int(escape[2:6], 16)
    except ValueError:
        return 0xFFFD
