"""Make a JSON Schema strict: closed objects, every property required, null where a property had a default."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..core.values import AnswerSchema

_NAMED = ("properties", "$defs", "definitions")  # schemas by name
_LEFT_OUT = frozenset(  # what a strict mode refuses; the answer is checked against all of it anyway
    ("default", "uniqueItems", "discriminator", "propertyNames", "minProperties", "maxProperties", "contains")
)
_VALUES = ("enum", "const", "examples")


class NotStrict(ValueError):
    """The schema has something that no strict mode can express, such as an object with any keys."""


def make_strict(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the schema to send, and True if it is strict.

    Only the schema of a typed answer is rewritten. Others, such as those of plans, have optional fields that must not be null.
    """
    if isinstance(schema, AnswerSchema):
        with suppress(NotStrict):
            return _strict(schema), True
    return schema, is_strict(schema)


def is_strict(schema: Any) -> bool:
    """Return True if strict mode accepts the schema as it is: every object is closed and every property required."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", {})):
            return False
    return "default" not in schema and all(is_strict(value) for value in schema.values())


def _strict_object(schema: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members with which an object has exactly these properties. Those that can be missing can be null."""
    if schema.get("additionalProperties", False) is not False or not properties:
        raise NotStrict
    required = schema.get("required", ())
    allowed = {name: one if name in required else _nullable(one) for name, one in properties.items()}
    return {"properties": allowed, "additionalProperties": False, "required": list(properties)}


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if any(map(schema.get, ("patternProperties", "not", "if"))):
        raise NotStrict
    made = {key: _member(key, one) for key, one in schema.items() if key not in _LEFT_OUT}
    if "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    if "prefixItems" in made:  # a tuple: which place has which type is checked afterwards
        kinds = made.pop("prefixItems")
        made["items"] = kinds[0] if all(one == kinds[0] for one in kinds) else {"anyOf": kinds}
    if schema.get("type") == "object" or "properties" in schema:
        made |= _strict_object(schema, made.get("properties") or {})
    elif not made.keys() & {"type", "$ref", "anyOf", "enum", "const", "allOf"}:  # it allows everything
        raise NotStrict
    return made


_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems")) | {
    "minLength",
    "maxLength",
    "pattern",
}


def without_bounds(schema: Any) -> Any:
    """Return a strict schema with the bounds of its values in their descriptions, for a provider that refuses them."""
    if isinstance(schema, list):
        return [without_bounds(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    bounds = [f"{key}: {one}" for key, one in schema.items() if key in _BOUNDS and not isinstance(one, Mapping)]
    made: dict[str, Any] = {}
    for key, one in schema.items():
        if key in _NAMED and isinstance(one, Mapping):
            made[key] = {name: without_bounds(held) for name, held in one.items()}
        elif key not in _BOUNDS:
            made[key] = one if key in _VALUES else without_bounds(one)
    return (
        {**made, "description": " ".join([made.get("description", ""), f"({', '.join(bounds)})"]).strip()} if bounds else made
    )


def _member(key: str, one: Any) -> Any:
    if key in _VALUES or key == "required":
        return one
    return {name: _strict(held) for name, held in one.items()} if key in _NAMED and isinstance(one, Mapping) else _strict(one)


def _nullable(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    kinds = schema.get("anyOf")
    if kinds and any(one.get("type") == "null" for one in kinds):
        return schema
    return {"anyOf": [*(kinds if kinds and set(schema) == {"anyOf"} else [schema]), {"type": "null"}]}
