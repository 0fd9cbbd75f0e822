"""One value that a text spells, for a parameter of this kind."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from .react_input import json_value

_QUOTES = {'"': '"', "'": "'", "「": "」", "『": "』", "“": "”", "`": "`"}
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "はい": True, "いいえ": False}
_BULLET = re.compile(r"(?:[-*•・]|\d{1,2}[.)])[ \t]*")


def kinds_of(schema: Any) -> set[str]:
    """The JSON types that a parameter takes; none, if it does not say."""
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type")
    own = {kind} if isinstance(kind, str) else set(kind or ())
    return own.union(*[kinds_of(one) for key in ("anyOf", "oneOf") for one in schema.get(key) or ()])


def typed(text: str, schema: Any) -> Any:
    """The value of one parameter that a text spells."""
    kinds = kinds_of(schema)
    if not kinds or "string" in kinds:
        return None if "null" in kinds and text.lower() in ("null", "none") else unquoted(text)
    if "boolean" in kinds and text.strip("\"'").lower() in _TRUTH:
        return _TRUTH[text.strip("\"'").lower()]
    attempts = [text, f"[{text}]"] if "array" in kinds and text[:1] != "[" else [text]
    for attempt in reversed(attempts):
        try:
            return json_value(attempt)
        except ValueError:
            continue
    if "array" in kinds and text[:1] == "[" and text.endswith("]") and not re.search(r"[\[\]{}\"']", text[1:-1]):
        return typed(text[1:-1].strip(), schema)
    if "array" in kinds and text[:1] not in ("[", "{"):
        items = schema.get("items")
        return [typed(piece, items) for piece in _pieces(text)]
    narrow = unicodedata.normalize("NFKC", text)
    return typed(narrow, schema) if narrow != text else unquoted(text)


def _pieces(text: str) -> list[str]:
    """What a list is made of: bullets, lines, or words between commas."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if all(_BULLET.match(line) for line in lines):
        return [_BULLET.sub("", line, count=1) for line in lines]
    pieces = lines if len(lines) > 1 else re.split(r"[,、，]", text)
    return [piece.strip() for piece in pieces if piece.strip()]


def unquoted(text: str) -> str:
    """Without the quotes around the whole of it."""
    text = text.strip()
    for mark in ('"""', "'''"):
        if len(text) > 6 and text.startswith(mark) and text.endswith(mark):
            return text[3:-3].strip()
    closing = _QUOTES.get(text[:1])
    if closing is None or len(text) < 2 or not text.endswith(closing) or closing in text[1:-1].replace("\\" + closing, ""):
        return text
    if text[0] == '"':
        try:
            value = json.loads(text, strict=False)
        except ValueError:
            return text[1:-1].replace("\\'", "'")
        return value if isinstance(value, str) else text
    return text[1:-1].replace("\\" + closing, closing)
