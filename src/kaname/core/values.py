"""Values as models write them and as people compare them: lenient JSON, and equality by value."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from typing import Any

from .reading.lenient_json import lenient_json

_LANGUAGE = re.compile(r"[\w-]*[ \t]*\n|json\b", re.IGNORECASE)
_FENCED = re.compile(r"```[\w-]*\n(.*?)\n```", re.DOTALL)


def read_json(text: str) -> Any:
    """Parse what a model wrote as JSON, repairing only what has exactly one reading (see `core/reading/lenient_json.py`).

    Code fences around it are removed, and JSON inside a JSON string is unpacked. Anything else raises `ValueError` with the
    place of the first mistake, or `TwoReadings` where the text can mean two things.
    """
    value = lenient_json(_unfenced(text))
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        return lenient_json(_unfenced(value))
    return value


def fenced_blocks(text: str) -> list[str]:
    """What stands in code fences, with words around them."""
    return _FENCED.findall(text)


def _unfenced(text: str) -> str:
    """What stands between ``` and ```, where that is all there is."""
    fenced = text.strip()
    if len(fenced) < 6 or not (fenced.startswith("```") and fenced.endswith("```")):
        return text
    inner = fenced[3:-3]
    language = _LANGUAGE.match(inner)
    return inner[language.end() :] if language else inner


def identity(value: Any) -> Hashable:
    """A key that is equal where two JSON values are equal, whatever their spelling: key order, 1 or 1.0."""
    if isinstance(value, dict):
        return ("{", frozenset([(key, identity(item)) for key, item in value.items()]))
    if isinstance(value, list | tuple):
        return ("[", tuple([identity(item) for item in value]))
    if value is True or value is False:
        return ("bool", value)
    if value != value:
        return ("nan",)
    return value if isinstance(value, str | int | float) or value is None else repr(value)


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a long text, with a note of what is left out."""
    if len(text) <= limit:
        return text
    tail = limit // 10
    note = f"\n\n[… {len(text) - limit:,} of {len(text):,} characters are left out here; ask for a smaller part …]\n\n"
    return text[: limit - tail] + note + text[-tail:]


_readable = json.JSONEncoder(ensure_ascii=False).encode


_ESCAPES = re.compile(r"(?<!\\)((?:\\\\)*)((?:\\u[0-9a-fA-F]{4})+)")


def unescaped_json(text: str) -> str:
    """Return a text that is JSON with its letters instead of their escapes, as a person would write it; else `text` itself.

    `json.dumps` writes every letter beyond ASCII as an escape, which costs a model six times the tokens."""

    def letters(found: re.Match[str]) -> str:
        said: str = json.loads(f'"{found[2]}"')
        return found[1] + said if said.isprintable() and not any(map(str.isascii, said)) else found[0]

    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _ESCAPES.sub(letters, text)


def plain_text(value: Any) -> str:
    """A JSON value as a model reads it: text stays text."""
    return value if isinstance(value, str) else _readable(value)
