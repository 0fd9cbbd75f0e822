"""Arguments against a JSON schema, for tools that come with one instead of a function: what is wrong, and where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

_DEEPEST, _LONGEST_MATCHED = 60, 10_000
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def problems(
    value: Any, schema: Any, root: Mapping[str, Any] | None = None, place: str = "arguments", depth: int = 0
) -> Iterator[str]:
    """A sentence for each mistake. Keywords outside this common subset, or odd ones, are left to the tool itself."""
    if depth > _DEEPEST:  # a schema that refers to itself
        return
    if schema is True or schema == {} or not isinstance(schema, Mapping):
        if schema is False:
            yield f"{place}: nothing is allowed here"
        return
    root = root or schema
    if "$ref" in schema:
        yield from problems(value, _resolve(str(schema["$ref"]), root), root, place, depth + 1)
    if "type" in schema and not _is(value, schema["type"]):
        yield f"{place}: expected {_named(schema['type'])}, got {_kind(value)}"
        return
    if isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        yield f"{place}: expected one of {schema['enum']}, got {value!r}"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: expected {schema['const']!r}, got {value!r}"
    yield from _alternatives(value, schema, root, place, depth + 1)
    if isinstance(value, dict):
        yield from _object(value, schema, root, place, depth + 1)
    elif isinstance(value, list):
        yield from _list(value, schema, root, place, depth + 1)
    elif isinstance(value, str):
        yield from _text(value, schema, place)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, schema, place)


def _object(value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
    known = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{place}: {name!r} is missing"
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        inner = known.get(name, others)
        if inner is False:
            yield f"{place}: {name!r} is not a parameter; there are {', '.join(known) or 'none'}"
        elif inner is not True:
            yield from problems(item, inner, root, f"{place}.{name}", depth)


def _list(value: list[Any], schema: Mapping[str, Any], root: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
    for number, item in enumerate(value):
        yield from problems(item, schema.get("items", {}), root, f"{place}[{number}]", depth)
    yield from _between(len(value), schema.get("minItems"), schema.get("maxItems"), place, "items")


def _text(value: str, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    yield from _between(len(value), schema.get("minLength"), schema.get("maxLength"), place, "characters")
    pattern = schema.get("pattern")
    if not isinstance(pattern, str) or len(value) > _LONGEST_MATCHED:
        return
    with suppress(re.error):  # another dialect of regular expressions
        if not re.search(pattern, value):
            yield f"{place}: must match {pattern!r}"


def _number(value: float, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    yield from _between(value, schema.get("minimum"), schema.get("maximum"), place, "")
    least: Any = schema.get("exclusiveMinimum")
    most: Any = schema.get("exclusiveMaximum")
    if _is(least, "number") and value <= least:
        yield f"{place}: must be more than {least}"
    if _is(most, "number") and value >= most:
        yield f"{place}: must be less than {most}"


def _alternatives(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], place: str, depth: int) -> Iterator[str]:
    for part in schema.get("allOf") or ():
        yield from problems(value, part, root, place, depth)
    for keyword in ("anyOf", "oneOf"):
        if options := schema.get(keyword):
            tries = [list(problems(value, option, root, place, depth)) for option in options]
            if all(tries):
                yield min(tries, key=len)[0] + f" (none of the {len(options)} allowed forms fits)"


def _between(size: float, least: Any, most: Any, place: str, unit: str) -> Iterator[str]:
    if _is(least, "number") and size < least:
        yield f"{place}: at least {least} {unit}".rstrip() + f", got {size}"
    if _is(most, "number") and size > most:
        yield f"{place}: at most {most} {unit}".rstrip() + f", got {size}"


def _is(value: Any, wanted: str | list[str]) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and value.is_integer() and "integer" in names:
        return True
    return any(isinstance(value, _TYPES.get(name, (object,))) for name in names)


def _named(wanted: str | list[str]) -> str:
    return wanted if isinstance(wanted, str) else " or ".join(wanted)


def _kind(value: Any) -> str:
    names = [name for name, types in _TYPES.items() if isinstance(value, types)]
    name = "boolean" if isinstance(value, bool) else next(iter(names), type(value).__name__)
    return f"{name} {value!r}"[:80]


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    target: Any = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        target = target.get(name.replace("~1", "/").replace("~0", "~"), {}) if isinstance(target, Mapping) else {}
    return target
