"""Read JSON as models write it: valid JSON by the standard, invalid JSON only where it has exactly one reading.

Repaired: trailing commas, single, triple and curly quotes, `True`, `False` and `None`, raw line breaks in strings, and a
backslash before a letter that begins no escape (`C:\\Users`, `\\d`). Everything else is refused with the place of the mistake.
Nothing is ever completed: a text that is cut off stays unreadable.

A backslash is where two readings come from. An invalid escape or a raw line break shows that the writer does not escape, so
that `\\n` next to it may be a line break or a backslash and an n: such a text raises `TwoReadings`. Text that is valid JSON is
read by the standard even if it was perhaps meant otherwise: `"C:\\new"` holds a line break.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isfinite
from typing import Any, NoReturn

from .lazy_regex import lazy_regex

_TOKEN = lazy_regex(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<string>\"""(?>(?:[^"\\]++|\\.|"(?!""))*)\""" | '''(?>(?:[^'\\]++|\\.|'(?!''))*)'''
        | "(?>(?:[^"\\]++|\\.)*)" | '(?>(?:[^'\\]++|\\.)*)' | “(?>(?:[^”\\]++|\\.)*)”)
    |(?P<comment>(?:\#|//)[^\n]*|/\*)
    |(?P<mark>[{}\[\]:,])
    |(?P<word>[^\s{}\[\]:,"'“”\#/]+)""",
    re.DOTALL | re.VERBOSE,
)
_SPECIAL = lazy_regex(r"\\(?:u[0-9a-fA-F]{4}|.)|[\x00-\x1f]", re.DOTALL)
ESCAPE = lazy_regex(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
"""An escape of the JSON standard."""
_BACKSLASH = lazy_regex(r"\\(?![abefnrtuv]|[xU][0-9a-fA-F]|N\{)[^\W\d_]")  # a letter that begins an escape in no language
_WORDS = {"True": "true", "False": "false", "None": "null"}
_QUOTES = ('"', "'", "“")
_ESCAPE_QUOTES = "escape quotes with a backslash"
_DOUBLED = "write each backslash in a text as \\\\"
_OPEN = ("", "{", "[", ",", ":")
_SHOWN = 60


class TwoReadings(ValueError):
    """Raised for a text that can mean two things. The message says where, and how to write it."""


def strict_json(text: str) -> Any:
    """Parse valid JSON.

    A key that is given twice raises `TwoReadings`; NaN, Infinity and numbers that no float can hold raise `ValueError`.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("not valid JSON: it is nested too deeply") from None


def lenient_json(text: str) -> Any:
    """Parse JSON, repairing an object or a list that has exactly one reading.

    Raises `ValueError` with the place of the first mistake, or `TwoReadings`.
    """
    try:
        return strict_json(text)
    except json.JSONDecodeError as problem:
        wrong = ValueError(f"not valid JSON: {problem.msg} at line {problem.lineno}, column {problem.colno}")
    if text.lstrip()[:1] not in ("{", "["):
        raise wrong from None
    repair = _Repair(text)
    if not repair.parse():
        raise wrong from None
    repair.check()
    return repair.value


class _Repair:
    """The tokens of a text, rewritten as JSON, and the places of its escapes."""

    def __init__(self, text: str) -> None:
        self.text, self.value = text, None
        self._json: list[str] = []
        self._escaped: list[int] = []  # escapes of the standard
        self._unescaped: list[int] = []  # what shows that the writer does not escape
        self._unclear: list[int] = []  # escapes of no standard that may still be meant as one
        self._odd = ""  # what Python would skip or join
        self._quotes = False  # a string holds its own quote, escaped

    def parse(self) -> bool:
        """Set `value`. Return False if the text cannot be read at all."""
        if not self._rewrite():
            return False
        try:
            self.value = strict_json("".join(self._json))
        except json.JSONDecodeError:
            return False
        return True

    def check(self) -> None:
        """Raise `TwoReadings` if the text may have been meant differently."""
        if self._odd:
            raise TwoReadings(f"not valid JSON: {self._odd}")
        if self._unclear:
            place = self._unclear[0]
            shown, char = self._describe_place(place), self.text[place + 1]
            how = f"write \\\\{char} for a backslash, or leave the backslash out"
            raise TwoReadings(f"not valid JSON: {shown} is not a JSON escape; {how}")
        if not self._unescaped:
            return
        if self._escaped:
            first, other = self._describe_place(self._escaped[0]), self._describe_place(self._unescaped[0])
            why = f"{first} can be read in two ways, because {other}"
            raise TwoReadings(f"not valid JSON: {why} is not escaped; {_DOUBLED}, a line break as \\n")
        if self._quotes and _Repair(self.text.replace("\\", "\\\\")).parse():
            raise TwoReadings('not valid JSON: \\" can end a text or be part of it; ' + _DOUBLED)

    def _rewrite(self) -> bool:
        place, comma, last, before = 0, 0, "", ""  # `last` and `before` are the last two tokens, spaces not counted
        while place < len(self.text):
            match = _TOKEN.match(self.text, place)
            if match is None:
                return False
            token, kind = match[0], match.lastgroup
            if kind == "comment":
                self._odd = self._odd or f"{token[:_SHOWN]!r} is not part of it; leave it out"
                kind = "space"
            elif kind == "string" and last[:1] in _QUOTES:
                self._odd = self._odd or f"two strings stand side by side, {(last + token)[:_SHOWN]}; {_ESCAPE_QUOTES}"
            elif kind == "string":
                self._json.append(self._read_string(token, place))
            else:
                if token in ("}", "]") and last == "," and before not in _OPEN:
                    self._json[comma] = " "
                self._json.append(_WORDS.get(token, token))
            if kind != "space":
                before, last, comma = last, token, len(self._json) - 1
            place = match.end()
        return True

    def _read_string(self, token: str, place: int) -> str:
        """Return the JSON string that a token spells, and record its escapes."""
        mark = token[:3] if token[:3] in ('"""', "'''") and len(token) > 5 else token[:1]
        own = "\\" + ("”" if mark == "“" else mark[0])
        made, end = list[str](), len(mark)
        for found in _SPECIAL.finditer(token, len(mark), len(token) - len(mark)):
            made.append(json.dumps(token[end : found.start()], ensure_ascii=False)[1:-1])
            made.append(self._escape(found[0], own, token, found.start(), place))
            end = found.end()
        made.append(json.dumps(token[end : len(token) - len(mark)], ensure_ascii=False)[1:-1])
        return f'"{"".join(made)}"'

    def _escape(self, escape: str, own: str, token: str, start: int, place: int) -> str:
        if escape == own:
            self._quotes = True
            return json.dumps(escape[1:], ensure_ascii=False)[1:-1]
        if ESCAPE.fullmatch(escape):
            self._escaped.append(place + start)
            return escape
        if escape[0] != "\\" or _BACKSLASH.match(token, start):
            self._unescaped.append(place + start)
        else:
            self._unclear.append(place + start)
        return json.dumps(escape, ensure_ascii=False)[1:-1]

    def _describe_place(self, place: int) -> str:
        """Return the text at a place, with its line and column."""
        line, column = self.text.count("\n", 0, place) + 1, place - self.text.rfind("\n", 0, place)
        word = re.match(r"\\.\w{0,12}", self.text[place : place + 16], re.DOTALL)
        return f"{word[0] if word else 'a control character'} at line {line}, column {column}"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter([name for name, _ in pairs]).most_common(1)[0][0]
        raise TwoReadings(f"not valid JSON: {twice[:_SHOWN]!r} is given twice in one object; give it once")
    return made


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"not valid JSON: JSON has no {name}; give a number or null")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"not valid JSON: the number {digits[:_SHOWN]} is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"not valid JSON: the number {digits[:_SHOWN]}… is too large")
    return int(digits)


_MOST_DIGITS = 1000
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
