"""Decode escapes in streamed text, and map each character back to its place."""

from __future__ import annotations

import re
from bisect import bisect_right

_DIGIT = "[0-9a-fA-F]"
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
_WHOLE = re.compile(
    rf"""\\(?:(?P<short>[nrtbf"'\\/\n])|(?:u(?P<u>{_DIGIT}{{4}})|x(?P<x>{_DIGIT}{{2}})|U(?P<long>{_DIGIT}{{8}}))|(?P<octal>[0-3][0-7]{{2}}))"""
)
_BEGUN = re.compile(rf"\\(?:u{_DIGIT}{{0,3}}|x{_DIGIT}?|U{_DIGIT}{{0,7}}|[0-3][0-7]?)?")
_HALF = re.compile(rf"\\u[dD][89abAB]{_DIGIT}{{2}}")  # of a character beyond the first 65,536
_HALF_BEGUN = re.compile(rf"{_HALF.pattern}(?:\\(?:u{_DIGIT}{{0,3}})?)?")
_PAIR = re.compile(rf"({_HALF.pattern})(\\u[dD][c-fC-F]{_DIGIT}{{2}})")


class Spelt:
    """`feed` gives what the text says, without escapes; `place` where a character of that begins in the text itself.

    JSON's escapes and Python's. A backslash that begins none is one."""

    def __init__(self, begins: int = 0) -> None:
        self._said = self._read = begins
        self._escape = ""  # one that is not complete yet
        self._after: tuple[list[int], list[int]] = ([begins], [begins])  # each escape: how much was said, how much was read

    def feed(self, text: str) -> str:
        if not self._escape and "\\" not in text:
            self._said, self._read = self._said + len(text), self._read + len(text)
            return text
        said = []
        for char in text:
            self._read += 1
            if self._escape:
                self._escape += char
                said.append(self._unescape())
            elif char == "\\":
                self._escape = char
            else:
                said.append(char)
                self._said += 1
        return "".join(said)

    def _unescape(self) -> str:
        escape = self._escape
        if _BEGUN.fullmatch(escape) or _HALF_BEGUN.fullmatch(escape):
            return ""
        if whole := _WHOLE.fullmatch(escape):
            return self._accept(_character(whole), 0)
        if pair := _PAIR.fullmatch(escape):
            first, second = int(pair[1][2:], 16), int(pair[2][2:], 16)
            return self._accept(chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)), 0)
        if _HALF.match(escape):
            return self._accept("\ufffd", len(escape) - 6) + self.feed(escape[6:])
        self._escape, self._said, self._read = "", self._said + 1, self._read - len(escape) + 1
        return "\\" + self.feed(escape[1:])

    def _accept(self, text: str, unread: int) -> str:
        self._escape, self._said, self._read = "", self._said + len(text), self._read - unread
        self._after[0].append(self._said)
        self._after[1].append(self._read)
        return text

    def place(self, said: int) -> int:
        mark = bisect_right(self._after[0], said) - 1
        if mark < 0:  # before it began to read
            return said
        return self._after[1][mark] + said - self._after[0][mark]


def spelt_out(text: str) -> str:
    """Decode the escapes of a text that may be JSON, or JSON within a JSON text."""
    for _ in range(2):
        if "\\" not in text:
            break
        text = Spelt().feed(text)
    return text


def _character(whole: re.Match[str]) -> str:
    if (short := whole["short"]) is not None:
        return _SHORT.get(short, short)
    number = int(whole["octal"], 8) if whole["octal"] else int(whole["u"] or whole["x"] or whole["long"], 16)
    return chr(number) if number < 0x110000 else "\ufffd"
