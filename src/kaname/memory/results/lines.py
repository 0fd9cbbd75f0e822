"""A result as numbered lines, whatever it is: text as it stands, a table a row a line, JSON laid out or by path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.values import plain_text, readable_json, unescape_json

LONGEST_LINE = 1_000  # characters; the rest of a longer line is the next line
_TOGETHER = 200  # characters: a JSON value that is shorter stands on one line
_STEP = re.compile(r"""\.?([^.\[\]"']+)|\[\s*(-?\d+)\s*\]|\[\s*(\d*)\s*:\s*(\d*)\s*\]|\[\s*(?:"([^"]*)"|'([^']*)')\s*\]""")
_MOST_KEYS = 30


def as_value(output: Any) -> Any:
    """Return a result as a JSON value. Text that is a JSON object or list is parsed; other text is returned as it is."""
    if not isinstance(output, str) or output.lstrip()[:1] not in ("{", "["):
        return output
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        return output


def as_shown(output: Any) -> str:
    """Return the text that a model would read of a result if it were not cut."""
    text = plain_text(output)
    return unescape_json(text) if isinstance(output, str) and "\\u" in text else text


def lines_of(value: Any) -> list[str]:
    """Return a value as lines: text as it stands, a list an element a line, an object laid out. Long lines are divided."""
    whole = value.splitlines() if isinstance(value, str) else _laid_out(value)
    return [line[start : start + LONGEST_LINE] for line in whole for start in range(0, max(1, len(line)), LONGEST_LINE)]


def _laid_out(value: Any, indent: str = "", before: str = "") -> Iterator[str]:
    text = readable_json(value)
    if len(text) <= _TOGETHER or not isinstance(value, Mapping | list):
        yield f"{indent}{before}{text}"
        return
    members = [(f"{readable_json(key)}: ", one) for key, one in value.items()] if isinstance(value, Mapping) else None
    yield f"{indent}{before}{'[' if members is None else '{'}"
    for name, one in [("", one) for one in value] if members is None else members:
        yield from _laid_out(one, indent + " ", name)
    yield f"{indent}{']' if members is None else '}'}"


def at_path(value: Any, path: str) -> Any:
    """Return the part of a JSON value at a path such as `orders[3].lines`, `rows[100:120]` or `["a key"]`.

    Raises `LookupError`, which says how far the path leads and what is there.
    """
    path, place = path.strip().removeprefix("$"), 0
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise LookupError(f"cannot read the path from {path[place:]!r}; write it like orders[3].lines or rows[100:120]")
        value = _follow(value, step, path[:place] or "the result")
        place = step.end()
    return value


def _follow(value: Any, step: re.Match[str], where: str) -> Any:
    name, index, first, last, quoted, single = step.groups()
    key = next((one for one in (name, quoted, single) if one is not None), None)
    if key is not None:
        if isinstance(value, Mapping) and key in value:
            return value[key]
    elif isinstance(value, list):
        if index is None:
            return value[int(first or 0) : int(last) if last else None]
        if -len(value) <= int(index) < len(value):
            return value[int(index)]
    raise LookupError(f"there is no {step[0]} in {where}, which is {outline(value)}")


def outline(value: Any) -> str:
    """Describe a value in a few words: an object with its keys, a list with its length."""
    if isinstance(value, Mapping):
        keys = [f"{key} ({_kind(one)})" for key, one in list(value.items())[:_MOST_KEYS]]
        more = f", and {len(value) - _MOST_KEYS} more" if len(value) > _MOST_KEYS else ""
        return f"an object with {', '.join(keys)}{more}" if keys else "an empty object"
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return f"a list of {len(value):,}; its first element is {outline(value[0])}"
    return _kind(value)


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, Mapping):
        return f"an object of {len(value):,}"
    if isinstance(value, str):
        return f"text of {len(value):,} characters" if len(value) > _TOGETHER else "text"
    return "null" if value is None else "true or false" if isinstance(value, bool) else "a number"
