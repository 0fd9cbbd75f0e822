"""Make a JSON Schema strict: closed objects, every property required, null where a property had a default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMED = ("properties", "$defs", "definitions")  # schemas by name
_LEFT_OUT = frozenset(  # what a strict mode refuses; the answer is checked against all of it anyway
    ("default", "uniqueItems", "discriminator", "propertyNames", "minProperties", "maxProperties", "contains")
)
_VALUES = ("enum", "const", "examples")


class NotStrict(ValueError):
    """The schema has something that no strict mode can express, such as an object with any keys."""


def make_strict(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the schema to send, and True if it is strict. One that cannot be made strict is returned as it is."""
    try:
        return _strict(schema), True
    except NotStrict:
        return schema, False


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("patternProperties") or schema.get("not") or schema.get("if"):
        raise NotStrict
    made = {key: _member(key, one) for key, one in schema.items() if key not in _LEFT_OUT}
    if "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    if "prefixItems" in made:  # a tuple: which place has which type is checked afterwards
        kinds = made.pop("prefixItems")
        made["items"] = kinds[0] if all(one == kinds[0] for one in kinds) else {"anyOf": kinds}
    if schema.get("type") == "object" or "properties" in schema:
        properties = made.get("properties") or {}
        if schema.get("additionalProperties", False) is not False or not properties:
            raise NotStrict
        required = schema.get("required", ())
        made["properties"] = {name: one if name in required else _nullable(one) for name, one in properties.items()}
        made |= {"additionalProperties": False, "required": list(properties)}
    elif not made.keys() & {"type", "$ref", "anyOf", "enum", "const", "allOf"}:  # it allows everything
        raise NotStrict
    return made


def _member(key: str, one: Any) -> Any:
    if key in _VALUES or key == "required":
        return one
    return {name: _strict(held) for name, held in one.items()} if key in _NAMED and isinstance(one, Mapping) else _strict(one)


def _nullable(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    kinds = schema.get("anyOf")
    if kinds and any(one.get("type") == "null" for one in kinds):
        return schema
    return {"anyOf": [*(kinds if kinds and set(schema) == {"anyOf"} else [schema]), {"type": "null"}]}
