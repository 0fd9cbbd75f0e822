"""The last look at what is going to be run: a reader of our own, that knows only the plainest form of SQL.

Whatever the parser understood, here every character counts: texts in '…', names in "…", plain numbers, words and signs. In this
form no engine can read anything else than what was checked: no comments, no other quotes, no escapes, no second statement."""

from __future__ import annotations

import re
from collections.abc import Collection

from .functions import BEFORE_BRACKETS, NEVER
from .plain import Refused

_EQUAL = dict.fromkeys(
    ("in", "case", "nullif", "distinct", "using", "natural", "union", "except", "intersect"), frozenset({"="})
)
_MEANS = _EQUAL | {"between": frozenset({"<=", ">="}), "like": frozenset({"~~", "!~~"}), "ilike": frozenset({"~~*", "!~~*"})}
_OPERATORS = frozenset("+-*/<>=~!@#%^&|?")
_TOKEN = re.compile(
    r"""(?P<space>[ ]+)
    | (?P<bytes>[xX]'(?:[0-9a-fA-F]{2})*' | [bB]'[01]*')
    | (?P<text>'(?:[^'\x00]|'')*')
    | (?P<name>"(?:[^"\x00]|"")+" | `[^`"'\x00]+`)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w'"$]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?!['"$`]|&['"]))
    | (?P<sign>[-+*/%<>=!|&^~@\#?:.,()\[\]{}])""",
    re.VERBOSE | re.ASCII,
)


def proofread(text: str, functions: Collection[str], operators: Collection[str] = ()) -> None:
    """`Refused` unless all of it is plain. `functions`: the names that may stand before a bracket, in small letters.
    `operators`: those that are somebody's own functions in this database."""
    place, word, signs = 0, "", ""
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or text.startswith(("--", "/*", "*/"), place):
            raise Refused(_told(text[place : place + 20]))
        place = found.end()
        kind, piece = found.lastgroup, found[0]
        signs = signs + piece if kind == "sign" and piece in _OPERATORS else ""
        if signs in operators and text[place : place + 1] not in _OPERATORS:
            raise Refused(_own(signs))
        if kind == "space":
            continue
        if word and piece == "(" and word not in BEFORE_BRACKETS and word not in functions:
            raise Refused(f"the function {word}() is not allowed here")
        word = piece.lower() if kind == "word" else ""
        if own := _MEANS.get(word, frozenset()).intersection(operators):
            raise Refused(_own(f"{piece} ({', '.join(sorted(own))})"))
        if word in NEVER and word not in functions and not text.startswith("INTO NAME ", found.start()):
            raise Refused(_told(piece))


def _own(what: str) -> str:
    return f"{what} is an operator of this database's own"


def _told(piece: str) -> str:
    return f"it cannot be written plainly at {piece!r}; write it in a simpler way"
