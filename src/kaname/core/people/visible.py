"""Text as a person must see it before deciding: characters that hide, reorder or erase others are written as escapes."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols that look like nothing
_SELECTOR = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_LOOSE = re.compile(f"(?:(?<={_SELECTOR})|(?<![^\\s])){_SELECTOR}")  # one picks the shape of the character before it


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
    return _LOOSE.sub(lambda found: _escape(found.group()), text).translate(_shown)


def visible_json(value: Any) -> str:
    """Return `value` as readable JSON: the same value, with such characters as JSON's own escapes."""
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def call_text(arguments: Any) -> str:
    """Return the arguments of a call as they would be written in code."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return visible(str(arguments))
    if not isinstance(given, dict):
        return str(given)
    return visible(", ".join([f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items()]))


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)])
