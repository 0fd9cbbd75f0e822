"""Text as a person must see it before deciding: characters that hide, reorder or erase others are written as escapes."""

from __future__ import annotations

import json
import re
import unicodedata
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from ..reading.lazy_regex import lazy_regex

_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols that look like nothing
_SELECTOR = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_LOOSE = lazy_regex(f"(?:(?<={_SELECTOR})|(?<![^\\s])){_SELECTOR}")  # one picks the shape of the character before it

_DATA_URL = lazy_regex(
    r"data:(?P<mime>[\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[\w.+-]+)*;base64,(?P<data>[A-Za-z0-9+/]*={0,2})", re.ASCII
)
_PLAIN_KEY = re.compile(r"[\w.-]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_LEAST_FILE = 64  # characters; a shorter text is shown as it is


class _EscapeTable(dict[int, str]):
    """The form in which each character is shown, by code point. Filled as characters come up."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = char in "\n\t" or (char.isprintable() and char not in _BLANK) or unicodedata.category(char) == "Zs"
        self[code] = char if plain else _escape(char)
        return self[code]


_shown = _EscapeTable()


def visible(text: str) -> str:
    r"""Return `text` with every control, bidirectional and zero-width character written as `\uXXXX`.

    Line breaks and tabs stay: a question may have several lines.
    """
    if text.isascii() and text.isprintable():
        return text
    return _LOOSE.sub(lambda match: _escape(match.group()), text).translate(_shown)


def visible_line(text: str) -> str:
    """Return `text` like `visible`, in one line: for names and keys, which must not look like a line of their own."""
    return visible(text).replace("\n", _escape("\n")).replace("\t", _escape("\t"))


def visible_json(value: Any) -> str:
    """Return `value` as readable JSON in one line: the same value, with such characters as JSON's own escapes.

    A file in it, as base64 or a `data:` URL, is shown by its type, size and hash, without quotes. A text has quotes, so it
    cannot look like a file.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join([f"{_quoted(str(key))}: {visible_json(one)}" for key, one in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(visible_json, value)) + "]"
    if isinstance(value, str) and (held := file_in(value)) is not None:
        return describe_file(*held)
    return _quoted(value)


def visible_key(key: str) -> str:
    """Return the name of a value as it is, if it is a plain one; otherwise in quotes, so that it cannot look like more."""
    return key if _PLAIN_KEY.fullmatch(key) and visible(key) == key else _quoted(key)


def shown_call(name: str, arguments: Any) -> str:
    """Return a call as a person must see it before deciding, in one line."""
    return f"{visible_line(name)}({visible_json(arguments)})"


def call_line(name: str, arguments: Any) -> str:
    """Return a call as it would be written in code, in one line."""
    return f"{visible_line(name)}({call_text(arguments)})"


def call_text(arguments: Any) -> str:
    """Return the arguments of a call as they would be written in code. A key that is not a plain name has quotes."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return visible_line(str(arguments))
    if not isinstance(given, Mapping):
        return visible_json(given)
    return ", ".join([f"{visible_key(str(name))}={visible_json(one)}" for name, one in given.items()])


def file_in(text: str) -> tuple[str, bytes] | None:
    """Return the media type and the content of a file that is written as a `data:` URL or as base64. Return None for a text."""
    if len(text) < _LEAST_FILE:
        return None
    url = _DATA_URL.fullmatch(text)
    if url is None and not _BASE64.fullmatch(text):
        return None
    try:
        content = b64decode(text if url is None else url["data"], validate=True)
    except ValueError:
        return None
    from ..reading.media_types import type_of

    found = type_of(content)  # a stated type may be wrong
    if url is None:
        return (found, content) if found else None
    return found or url["mime"] or "application/octet-stream", content


def describe_file(mime: str, content: bytes) -> str:
    """Return the type, size and hash of a file."""
    from hashlib import sha256  # slow to load, and rarely needed

    return f"<{mime}, {len(content):,} bytes, sha256 {sha256(content).hexdigest()[:16]}>"


def _quoted(value: Any) -> str:
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)])
