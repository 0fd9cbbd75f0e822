"""Read and check the parameters that a workflow declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..core.errors import nearest
from ..core.notices import notice
from ..strategies.graph.check import Problem
from ..tools.arguments.schema import problems as unfit

_ABOUT = ("type", "default", "description", "enum", "items", "properties", "anyOf", "minimum", "maximum", "format", "title")
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def schema_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of `{"day": {"type": "string"}}`, or of `{"day": "2026-01-01"}`: a default of that type."""
    held = {name: dict(one) if isinstance(one, Mapping) else {"default": one} for name, one in params.items()}
    for one in held.values():
        if "type" not in one and "default" in one and (kind := _KINDS.get(type(one["default"]))):
            one["type"] = kind
    required = [name for name, one in held.items() if "default" not in one]
    return {"type": "object", "properties": held, "required": required, "additionalProperties": False}


def parameter_problems(schema: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with the declarations: keys and types that mean nothing, defaults that do not fit."""
    for name, held in schema["properties"].items():
        place = f"params.{name}"
        if (other := [key for key in held if key not in _ABOUT]) and "type" not in held:
            message = notice("workflow.means_nothing", "{name!r} cannot be used here", name=other[0])
            yield Problem("", place, message + nearest(other[0], _ABOUT))
        elif held.get("type", "string") not in _KINDS.values():
            message = notice(
                "workflow.no_type",
                "the type of {name} must be one of {kinds}, not {given!r}",
                name=name,
                kinds=", ".join(_KINDS.values()),
                given=held["type"],
            )
            yield Problem("", place, message)
        elif "default" in held:
            yield from [Problem("", place, "default: " + one) for one in unfit(held["default"], held, name)]
