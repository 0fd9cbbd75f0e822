"""The statement as it was written, made plain before any parser reads it: comments are refused, and every way to write a text
becomes '…'. Nothing rests on this: what is run is written anew from the tree that was checked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

LONGEST = 10_000  # characters
_DEEPEST = 60  # brackets inside each other
_TYPE_IN_TYPE = re.compile(  # each level takes the parser twice as long
    r"(?:\b(?:date|time|timestamp|datetime|int|integer|text|json|jsonb|struct|xml|char|varchar|decimal|numeric|float)\s*\(\s*){9}",
    re.IGNORECASE,
)
_SPACES = "\u3000\u00a0"  # those that people type without seeing it
_TEXT = "'(?:[^']|'')*'"
_PIECES = {
    "text": rf"{_TEXT}(?:[ \t]*\n\s*{_TEXT})*",  # it may go on in the next line
    "name": r'"(?:[^"]|"")*"',
    "line": r"--[^\n]*",
    "block": r"/\*",
}
_ESCAPED = {
    "text_e": r"\b[eE]'(?:[^'\\]|''|\\.)*'",
    "dollar": r"\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$",
}
_ONLY = {
    "sqlite": {"text_one": _TEXT, "tick": r"`(?:[^`]|``)*`", "bracket": r"\[[^\]]*\]"},
    "postgres": {**_ESCAPED, "text_u": r"\b[uU]&'(?:[^']|'')*'", "name_u": r'\b[uU]&"'},
    "duckdb": _ESCAPED,
}
_PATTERNS = {
    dialect: re.compile("|".join([f"(?P<{kind}>{form})" for kind, form in {**own, **_PIECES}.items()]), re.DOTALL)
    for dialect, own in _ONLY.items()
}
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"'}
_ESCAPES = re.compile(r"''|\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_UNICODE = re.compile(r"''|\\(?:([0-9a-fA-F]{4})|\+([0-9a-fA-F]{6})|(.))", re.DOTALL)


class Refused(ValueError):
    """Why a statement is not run, in words for the model that wrote it."""


class Missing(Refused):
    """There is no such table or column; it may have been made since."""


def not_too_long(sql: str) -> str:
    if len(sql) > LONGEST:
        raise Refused(f"the statement is longer than {LONGEST:,} characters")
    return sql


def plain(sql: str, dialect: str) -> str:
    not_too_long(sql)
    odd = next(
        (char for char in sql if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in "\n\t\r"), ""
    )
    if odd:
        raise Refused(f"it contains the invisible character U+{ord(odd):04X}")
    made, outside = [], []
    for kind, piece in _pieces(sql, dialect):
        if kind == "":
            piece = _outside(piece)
            outside.append(piece)
        made.append(piece)
    text = "".join(made).strip()
    while text.endswith(";"):
        text = text[:-1].rstrip()
    if not text:
        raise Refused("there is no statement")
    _not_too_deep("".join(outside))
    return text


def _pieces(sql: str, dialect: str) -> Iterator[tuple[str, str]]:
    """What stands outside of quotes, under the name ''; and between it texts and names."""
    place = 0
    while found := _PATTERNS[dialect].search(sql, place):
        yield "", sql[place : found.start()]
        kind, piece = found.lastgroup or "", found[0]
        place = found.end()
        if kind == "tag":
            kind = "dollar"
        if kind in ("block", "line"):
            raise Refused("write it without comments")
        if kind == "name_u":
            raise Refused('write names as "name", without U&')
        else:
            yield kind, _as_text(kind, piece)
    yield "", sql[place:]


def _as_text(kind: str, piece: str) -> str:
    if kind == "text_e":
        return _quoted(_ESCAPES.sub(_unescaped, piece[2:-1]))
    if kind == "text_u":
        return _quoted(_UNICODE.sub(_from_unicode, piece[3:-1]))
    if kind == "text":
        return "'" + "".join([text[1:-1] for text in re.findall(_TEXT, piece)]) + "'"
    if kind == "dollar":
        return _quoted(piece[piece.index("$", 1) + 1 : piece.rindex("$", 0, -1)])
    return piece


def _quoted(text: str) -> str:
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise Refused("a text has a character that cannot be stored")
    return "'" + text.replace("'", "''") + "'"


def _unescaped(found: re.Match[str]) -> str:
    if found[0] == "''":
        return "'"
    for digits in found.group(1, 2, 3):
        if digits:
            return _character(digits, found[0])
    if found[4] in _SIMPLE:
        return _SIMPLE[found[4]]
    raise Refused(f"the escape {found[0]} is not known here")


def _from_unicode(found: re.Match[str]) -> str:
    if found[0] == "''":
        return "'"
    if digits := found[1] or found[2]:
        return _character(digits, found[0])
    if found[3] == "\\":
        return "\\"
    raise Refused(f"the escape {found[0]} is not known here")


def _character(digits: str, written: str) -> str:
    number = int(digits, 16)
    if not 0 < number < 0x110000 or (len(digits) <= 2 and number > 0x7F):  # a single byte of some encoding is no character
        raise Refused(f"the escape {written} is not known here")
    return chr(number)


def _outside(piece: str) -> str:
    """Outside of quotes: ASCII, and letters and digits of any script. A wide space is one."""
    for space in _SPACES:
        piece = piece.replace(space, " ")
    if odd := next((char for char in piece if not char.isascii() and unicodedata.category(char)[0] not in "LMN"), ""):
        told = f"{odd!r} (U+{ord(odd):04X}) outside of quotes is no SQL; use the plain sign, or put it into quotes"
        raise Refused(told)
    return piece


def _not_too_deep(text: str) -> None:
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    if _TYPE_IN_TYPE.search(text):
        raise Refused("types are nested too deeply in each other")
    if deepest > _DEEPEST:
        raise Refused(f"it is nested more than {_DEEPEST} levels deep")
