"""Mend arguments that have only one reading: unpack JSON that was sent as a string, and drop nulls that mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.reading.lenient_json import TwoReadings
from ...core.values import read_json
from .schema import as_mapping, item_schemas, problems, resolve, type_names

_DEEPEST, _MOST_WORK = 20, 20_000


def mend_arguments(args: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Unpack JSON strings and drop meaningless nulls at every level. Returns the same object if nothing changed.

    Raises `TwoReadings` if such a string can mean two things."""
    work = [_MOST_WORK]

    def mend(value: Any, schema: Any, depth: int) -> Any:
        work[0] -= 1
        if depth > _DEEPEST or work[0] < 0 or not isinstance(schema, Mapping):
            return value
        if isinstance(schema.get("$ref"), str):
            return mend(value, resolve(schema["$ref"], root), depth + 1)
        if isinstance(value, str) and _wants_container(schema, root, 0):
            value = _unpack(value)
        if isinstance(value, dict):
            known, others = as_mapping(schema.get("properties")), schema.get("additionalProperties", True)
            given = {name: item for name, item in value.items() if item is not None or not _is_absent(name, schema, root)}
            return {name: mend(item, known.get(name, others), depth + 1) for name, item in given.items()}
        if isinstance(value, list):
            first, rest = item_schemas(schema)
            return [mend(item, first[n] if n < len(first) else rest, depth + 1) for n, item in enumerate(value)]
        return value

    root = schema
    made: dict[str, Any] = mend(args, schema, 0)
    return args if made == args else made


def _is_absent(name: str, schema: Mapping[str, Any], root: Any) -> bool:
    """Return True if a null means the same as leaving the argument out: it is optional, and its schema does not allow null."""
    known, required = as_mapping(schema.get("properties")), schema.get("required")
    if name not in known or (isinstance(required, list) and name in required):
        return False
    named = {key: root[key] for key in ("$defs", "definitions") if key in as_mapping(root)}
    return bool(problems(None, {**named, **as_mapping(known[name])}))


def _wants_container(schema: Any, root: Any, depth: int) -> bool:
    """Return True if the schema allows an object or a list, but no string."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return False
    if isinstance(schema.get("$ref"), str):
        return _wants_container(resolve(schema["$ref"], root), root, depth + 1)
    if names := type_names(schema):
        return "string" not in names and ("object" in names or "array" in names)
    options = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(options, list) or len(options) > _DEEPEST or depth > 3:
        return False
    texts = [one for one in options if isinstance(one, Mapping) and "string" in type_names(one)]
    return not texts and any(_wants_container(one, root, depth + 1) for one in options)


def _unpack(text: str) -> Any:
    if text.strip()[:1] not in ("{", "["):
        return text
    try:
        return read_json(text)
    except TwoReadings:
        raise
    except ValueError:
        return text
