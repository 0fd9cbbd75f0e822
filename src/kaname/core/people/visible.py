"""Text as a person must see it before deciding: characters that hide, reorder or erase others are written as escapes."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

_BLANK = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols that look like nothing
_SELECTOR = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_LOOSE = re.compile(f"(?:(?<={_SELECTOR})|(?<![^\\s])){_SELECTOR}")  # one picks the shape of the character before it


class _Shown(dict[int, str]):
    """How a character is shown, by its code point; filled in as characters come up."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = char in "\n\t" or (char.isprintable() and char not in _BLANK) or unicodedata.category(char) == "Zs"
        self[code] = char if plain else _escaped(char)
        return self[code]


_shown = _Shown()


def visible(text: str) -> str:
    r"""Return `text` with every control, bidirectional and zero-width character written as `\uXXXX`.

    Line breaks and tabs stay: a question may have several lines. What is left looks like what it is, whatever the terminal
    or the browser makes of such characters.
    """
    if text.isascii() and text.isprintable():
        return text
    return _LOOSE.sub(lambda found: _escaped(found.group()), text).translate(_shown)


def visible_json(value: Any) -> str:
    """Return `value` as JSON that a person can read: the same value, with such characters as JSON's own escapes."""
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def call_text(arguments: Any) -> str:
    """Return a call's arguments as one would write them in code."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return visible(str(arguments))
    if not isinstance(given, dict):
        return str(given)
    return visible(", ".join([f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items()]))


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)])
