"""Values as models write them and as people compare them: lenient JSON, and equality by value."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Hashable
from typing import Any

_STRING_OR_COMMA = re.compile(r'("(?:[^"\\]|\\.)*(?:"|\\?\Z))|,(\s*[}\]])', re.DOTALL)  # a string may end with the text: linear
_LANGUAGE = re.compile(r"[\w-]*[ \t]*\n|json\b", re.IGNORECASE)
_NAMES = {"true": True, "false": False, "null": None}
_LITERAL_LIMIT = 100_000
_DEPTH_LIMIT = 100
_FENCED = re.compile(r"```[\w-]*\n(.*?)\n```", re.DOTALL)


def read_json(text: str) -> Any:
    """Parse what a model wrote as JSON, mending only what has a single reading.

    Code fences, trailing commas, Python literals (single quotes, True/None) and JSON inside a JSON string are mended.
    Anything else raises `ValueError` with the place of the first mistake.
    """
    value = _parse(text)
    if isinstance(value, str) and value.strip()[:1] in ("{", "["):
        return _parse(value)
    return value


def fenced_blocks(text: str) -> list[str]:
    """What stands in code fences, with words around them."""
    return _FENCED.findall(text)


def _parse(text: str) -> Any:
    text = _unfenced(text)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as strict:
        for mend in (_without_trailing_commas, _python_literal):
            try:
                return mend(text)
            except TwoReadings:
                raise
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
        raise ValueError(f"not valid JSON: {strict.msg} at line {strict.lineno}, column {strict.colno}") from None


def _unfenced(text: str) -> str:
    """What stands between ``` and ```, where that is all there is."""
    fenced = text.strip()
    if len(fenced) < 6 or not (fenced.startswith("```") and fenced.endswith("```")):
        return text
    inner = fenced[3:-3]
    language = _LANGUAGE.match(inner)
    return inner[language.end() :] if language else inner


def _without_trailing_commas(text: str) -> Any:
    return json.loads(_STRING_OR_COMMA.sub(lambda found: found.group(1) or found.group(2), text))


def _python_literal(text: str) -> Any:
    if len(text) > _LITERAL_LIMIT or text.count("{") + text.count("[") + text.count("(") > _DEPTH_LIMIT:
        raise ValueError("too large to be read as a literal")
    tree = ast.parse(text.strip(), mode="eval")
    check_one_reading(text.strip())
    value = ast.literal_eval(_JsonNames().visit(tree))
    json.dumps(value)  # a set, bytes or a complex number is no JSON value
    if not isinstance(value, dict | list):
        raise ValueError("only objects and lists are mended")
    return value


class TwoReadings(ValueError):
    """What was written may mean two things."""


def check_one_reading(code: str) -> None:
    """`TwoReadings` where Python takes as one what was perhaps not meant so: 'it''s' is two strings, and # ends a line."""
    from tokenize import COMMENT, NL, STRING, generate_tokens

    before = None
    for token in generate_tokens(io.StringIO(code).readline):
        if token.type == COMMENT:
            raise TwoReadings(f"not valid JSON: {shorten(token.string, 40)!r} is no part of it; leave it out")
        if token.type == STRING and before is not None:
            told = shorten(f"{before}{token.string}", 60)
            raise TwoReadings(f"not valid JSON: two strings stand side by side, {told}; escape quotes with a backslash")
        before = token.string if token.type == STRING else before if token.type == NL else None


class _JsonNames(ast.NodeTransformer):
    """`true`, `false` and `null` between single quotes elsewhere."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_NAMES[node.id]) if node.id in _NAMES else node


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


def plain_text(value: Any) -> str:
    """A JSON value as a model reads it: text stays text."""
    return value if isinstance(value, str) else _readable(value)
