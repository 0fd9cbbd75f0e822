"""Read the result of a look-up: whether it found anything, and a single row as `name = value`."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.messages import ToolResult
from ...core.openai_shape import result_text

_LONGEST_REFUSAL = 60  # characters of a sentence that only says that there is nothing
_SAYS_NO = re.compile(
    r"(?:sorry,? )?(?:there (?:is|are|was|were) )?(?:no\b(?!,)|none\b|nothing\b|not found\b|0 \w+ found\b)|.*\bnot found$"
    r"|.*(?:なし|無し|ありません(?:でした)?|いません(?:でした)?|見つかりません(?:でした)?|見当たりません(?:でした)?)$",
    re.IGNORECASE | re.DOTALL,
)
_CELL = re.compile(r"\s*[,\t|]\s*")
_MOST_CELLS = 12


def found_nothing(result: ToolResult, pure: frozenset[str]) -> bool:
    """Return True if a tool that only looks found nothing: an empty value, or a short sentence that only says so."""
    if result.name not in pure or result.media:
        return False
    output = result.output
    if not isinstance(output, str):
        return _is_empty(output)
    text = unicodedata.normalize("NFKC", output).strip().rstrip(".!。 ")
    if not text:
        return True
    if text[0] in "[{":
        try:
            return _is_empty(json.loads(text))
        except ValueError:
            return False
    return len(text) <= _LONGEST_REFUSAL and "\n" not in text and _SAYS_NO.match(text) is not None


def _is_empty(value: Any) -> bool:
    """Return True if a value contains nothing. Zeros next to an empty list are counts of that list."""
    if value is None or value in ("", [], {}):
        return True
    if not isinstance(value, Mapping | list):
        return False
    leaves = list(_leaves(value))
    return ([] in leaves and all(leaf in (None, "", 0) or leaf == [] for leaf in leaves)) or all(leaf == [] for leaf in leaves)


def _leaves(value: Any) -> Iterator[Any]:
    held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    if held is None:
        yield value
    elif not held:
        yield []
    else:
        for one in held:
            yield from _leaves(one)


def is_nought(result: ToolResult) -> bool:
    """Return True if a result is a single row of zeros: a count or a sum over rows that do not exist."""
    value = _value(result)
    return isinstance(value, Mapping) and all(str(held) in ("0", "0.0", "None", "null", "") for held in value.values())


def as_facts(result: ToolResult) -> str:
    """Return the text of a result. A single row or object becomes `name = value`, which a small model reads best."""
    value = _value(result)
    return result_text(result) if value is None else ", ".join([f"{name} = {held}" for name, held in value.items()])


def _value(result: ToolResult) -> Mapping[str, Any] | None:
    """Return the single row or flat object that a result consists of, or None."""
    value: Any = result.output
    if isinstance(value, str):
        text = value.strip()
        try:
            value = json.loads(text) if text[:1] in ("{", "[") else _row(text)
        except ValueError:
            return None
    while isinstance(value, list | Mapping) and len(value) == 1:
        (inner,) = value.values() if isinstance(value, Mapping) else value
        if not isinstance(inner, list | Mapping):
            break
        value = inner
    flat = isinstance(value, Mapping) and value and not any(isinstance(held, Mapping | list) for held in value.values())
    return value if flat else None


def _row(text: str) -> Mapping[str, str] | None:
    """Return a line of names and one line of values as an object, or None."""
    lines = text.split("\n")
    if len(lines) != 2 or not all(lines):
        return None
    names, values = [_CELL.split(line) for line in lines]
    if len(names) != len(values) or len(names) > _MOST_CELLS or len(set(names)) != len(names):
        return None
    sentence = any(
        not name or name[0].isdigit() or ":" in name or name[-1] in ".;!?。" or len(name.split()) > 5 for name in names
    )
    return None if sentence else dict(zip(names, values, strict=True))
