"""Turn the input that a model wrote for a tool into arguments: JSON, `name=value`, lines of `name: value`, or plain text."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
import warnings
from collections.abc import Mapping
from functools import reduce
from typing import Any

from ....core.reading.lazy_regex import lazy_regex
from ....core.reading.lenient_json import ESCAPE, TwoReadings, lenient_json, strict_json
from ....core.values import plain_text, read_json

ONE_TEXT = "input"
"""The parameter's name of a tool that takes one text, as it is written."""
_QUOTES = {'"': '"', "'": "'", "「": "」", "『": "』", "“": "”", "`": "`"}
_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "はい": True, "いいえ": False}
_EMPTY = ("", "none", "null", "n/a", "なし", "無し", "{}", "()")
_BROKEN = lazy_regex(r"[{｛]\s{0,8}[\"'“]?[\w ]{1,40}[\"'”]?\s{0,8}[:：]")
_FENCE = lazy_regex(r"(```|~~~)[\w-]*[ \t]*\n?")
_LONGEST_CODE = 50_000  # characters that Python's parser is given


def strip_fence(text: str) -> str:
    """Return the inside of a code block, if the text is one and nothing else."""
    text = text.strip()
    fence = _FENCE.match(text)
    if fence is None:
        single = len(text) > 2 and text[0] == text[-1] == "`" and text.count("`") == 2
        return text[1:-1].strip() if single else text
    inner, mark = text[fence.end() :], fence[1]
    closed = inner.count(mark) == 1 and inner.endswith(mark)
    return inner.removesuffix(mark).strip() if closed or mark not in inner else text


def is_broken(text: str) -> bool:
    """Return True if the text looks like a JSON object but cannot be read as one."""
    return _BROKEN.match(text) is not None


def first_block(text: str) -> str:
    """Return the code block that the text begins with, or the text."""
    block = re.match(r"\s*```[\w-]*[ \t]*\n.*?\n```(?=\s*\n|\s*\Z)", text, re.DOTALL)
    return block[0] if block else text


def json_value(text: str) -> Any:
    """Read JSON, in a code block or without one. Raises `ValueError` or `TwoReadings` with the reason."""
    return read_json(strip_fence(text))


def why_unreadable(text: str) -> str:
    """Return the problem of a text that should be JSON, worded for the model."""
    try:
        json_value(text)
    except ValueError as problem:
        return str(problem)
    return "not one JSON object"


def arguments_for(given: str, schema: Mapping[str, Any] | None, *, called: bool = False) -> Mapping[str, Any] | str:
    """Return the arguments for a tool of this schema; the text itself, if it is unclear which parameter it is for.

    `called`: it stood in the brackets of a call, where values without names have an order.
    """
    text = strip_fence(first_block(given))
    properties: Mapping[str, Any] = (schema or {}).get("properties") or {}
    if (value := _object(text)) is not None:
        return fit_object(value, schema, text)
    if schema is None:
        keywords = _literals(text, None) if called else None
        return strip_quotes(text) if keywords is None else keywords
    if not properties:
        return {}
    if is_broken(text) and list(properties) != [ONE_TEXT]:
        return text
    named = _literals(text, list(properties)) if called or "=" in text else None
    named = _lines(text, properties) if named is None else named
    return _as_only(text, schema, properties) if named is None else named


def _as_only(text: str, schema: Mapping[str, Any], properties: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """Return the text as the only parameter, or the only required one; the text itself if there are several."""
    required = [name for name in schema.get("required") or [] if name in properties]
    only = list(properties) if len(properties) == 1 else required
    if len(only) != 1:
        return text
    if text.lower() in _EMPTY and only[0] not in required:
        return {}
    return {only[0]: parse_value(text, properties[only[0]])}


def fit_object(value: Mapping[str, Any], schema: Mapping[str, Any] | None, text: str = "") -> Mapping[str, Any]:
    """Return the object as the single parameter of a tool that takes one text or one object, unless it names the parameter."""
    properties: Mapping[str, Any] = (schema or {}).get("properties") or {}
    if len(properties) != 1:
        return value
    ((name, kind),) = properties.items()
    if name in value or not value:
        return value
    if name == ONE_TEXT and kinds_of(kind) == {"string"}:
        return {name: text or plain_text(value)}
    takes = kind.get("properties") if isinstance(kind, Mapping) else None
    return {name: value} if takes and set(value) <= set(takes) else value


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that the text is, or that it begins with if the rest is on separate lines."""
    if text[:1] != "{":
        return None
    try:
        value = json_value(text)
    except TwoReadings:
        raise
    except ValueError:
        try:
            _, end = json.JSONDecoder(strict=False).raw_decode(text)
        except (ValueError, RecursionError):
            return None
        if text[end:].lstrip(" \t")[:1] != "\n":
            return None
        value = json_value(text[:end])
    return value if isinstance(value, dict) else None


def _lines(text: str, properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read `city: Oslo` and `days: 3`, on separate lines or between commas."""
    either = "|".join([re.escape(name) for name in properties])
    marks = list(
        re.finditer(rf"(?:\A|[,;\n、，；])[ \t\-*]{{0,8}}[\"'`]?({either})[\"'`]?[ \t]{{0,8}}[:=：＝][ \t]{{0,8}}", text)
    )
    if not marks or marks[0].start() > 0 or len({mark[1] for mark in marks}) < len(marks):
        return None
    marks = marks[:1] if len(properties) == 1 else marks
    ends = [*[mark.start() for mark in marks[1:]], len(text)]
    if text[marks[0].end() :][:1] == "=":
        return None  # it compares
    return {
        mark[1]: parse_value(text[mark.end() : end].strip(), properties[mark[1]]) for mark, end in zip(marks, ends, strict=True)
    }


def _parse_call(code: str) -> ast.Call | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            call = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return call if isinstance(call, ast.Call) else None


def _values_of(nodes: list[ast.expr], code: str, text: str) -> list[Any] | None:
    """Return the values of these literals; None if one is not a literal, or there is a comment between them."""
    written = [ast.get_source_segment(code, node) or "" for node in nodes]
    between = reduce(lambda rest, one: rest.replace(one, "", 1), written, text)
    return None if "#" in between else _values(written)


def _literals(text: str, names: list[str] | None) -> dict[str, Any] | None:
    """Read `city="Oslo", days=3`, or `"Oslo", 3` in the order of the parameters. Only Python literals are accepted."""
    call = _parse_call(code := f"call({text})") if len(text) <= _LONGEST_CODE else None
    if call is None or len(call.args) > len(names or ()):
        return None
    pairs = [*zip(names or (), call.args, strict=False), *[(one.arg, one.value) for one in call.keywords]]
    if not pairs or not _are_names([name for name, _ in pairs], names):
        return None
    if not call.keywords and len(call.args) < 2 and not text.startswith(('"""', "'''")):
        return None  # one value: plain text
    values = _values_of([value for _, value in pairs], code, text)
    return None if values is None else dict(zip([str(name) for name, _ in pairs], values, strict=True))


def _are_names(used: list[str | None], names: list[str] | None) -> bool:
    return all(name and (names is None or name in names) for name in used)


def _values(written: list[str]) -> list[Any] | None:
    """Read values as JSON, all together: if one shows that backslashes are not escaped, others are unclear."""
    try:
        return list(lenient_json(f"[{','.join(written)}]"))
    except TwoReadings:
        raise
    except ValueError:
        return None


def kinds_of(schema: Any) -> set[str]:
    """Return the JSON types that a parameter accepts; empty, if its schema does not say."""
    if not isinstance(schema, Mapping):
        return set()
    kind = schema.get("type")
    own = {kind} if isinstance(kind, str) else set(kind or ())
    return own.union(*[kinds_of(one) for key in ("anyOf", "oneOf") for one in schema.get(key) or ()])


def parse_value(text: str, schema: Any) -> Any:
    """Return the value of one parameter that a text spells."""
    kinds = kinds_of(schema)
    if not kinds or "string" in kinds:
        return None if "null" in kinds and text.lower() in ("null", "none") else strip_quotes(text)
    if "boolean" in kinds and text.strip("\"'").lower() in _TRUTH:
        return _TRUTH[text.strip("\"'").lower()]
    narrow = unicodedata.normalize("NFKC", text)
    for attempt in (f"[{text}]",) * ("array" in kinds and text[:1] != "[") + (text, narrow):
        try:
            return json_value(attempt)
        except TwoReadings:
            raise
        except ValueError:
            continue
    if "array" in kinds and text[:1] != "{":
        pieces = re.split(r"\n[ \t\-*•・]*|[,、，]", text.strip("[] \n").lstrip("-*•・ "))
        return [parse_value(piece.strip(), schema.get("items")) for piece in pieces if piece.strip()]
    return strip_quotes(text)


def strip_quotes(text: str) -> str:
    """Remove the quotes around the whole text. Raises `TwoReadings` if its backslashes may or may not be escapes."""
    text = text.strip()
    closing = _QUOTES.get(text[:1])
    if closing is None or len(text) < 2 or not text.endswith(closing) or closing in text[1:-1].replace("\\" + closing, ""):
        return text
    plain = text[1:-1].replace("\\" + closing, closing)
    if "\\" not in plain or text[0] not in "\"'":
        return plain
    try:
        return str(strict_json(text))
    except ValueError:  # plain text, which stands for itself, unless a part of it may be meant as an escape
        if not ESCAPE.search(plain):
            return plain
    raise TwoReadings(f"not clear: the backslashes in {text[:60]} have two readings; write a JSON object, a backslash as \\\\")
