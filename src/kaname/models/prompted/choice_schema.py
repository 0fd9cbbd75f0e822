"""Build the schema of a choice: one form for each tool, and one for the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, count
from typing import Any

from ...core.messages import ToolSpec
from ...core.record import replace

_SUM = re.compile(r"\d\s*[-+*/×÷]\s*[\d(]")
_OPERATOR = re.compile(r"(?<!\S)[-+*/×÷](?!\S)")


def answer_name(tools: tuple[ToolSpec, ...]) -> str:
    """Return the name of the answer among the tools. A tool may already have the name "answer"."""
    taken = {tool.name for tool in tools}
    names = chain(("answer", "final_answer", "the_final_answer"), (f"answer_{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def choice_schema(tools: tuple[ToolSpec, ...], answer: str) -> dict[str, Any]:
    """Return the schema. `answer`: the name of the answer, or "" if it cannot be chosen.

    The answer is chosen like a tool, by name, because a small model chooses badly between two keys. Definitions in a tool's
    schema move to the root under a new name, because references start there.
    """
    definitions: dict[str, Any] = {}
    forms: list[dict[str, Any]] = []
    for tool in tools:
        arguments = _lift_definitions(tool.parameters, tool.name, definitions)
        forms.append(_form({"tool": {"const": tool.name}, "args": arguments}))
    if answer:
        forms.append(_form({"tool": {"const": answer}, "text": {"type": "string"}}))
    schema: dict[str, Any] = forms[0] if len(forms) == 1 else {"anyOf": forms}
    return {**schema, "$defs": definitions} if definitions else schema


def reckons(tool: ToolSpec) -> bool:
    """Return True if a tool calculates: its text argument is described by operators or as an expression."""
    told = " ".join([tool.description, *[str(held.get("description", "")) for held in _texts(tool).values()]])
    return bool(_texts(tool)) and (_SUM.search(told) is not None or len(set(_OPERATOR.findall(told))) > 1)


def digits_only(tool: ToolSpec, field: str = "") -> ToolSpec:
    """Return the tool with text arguments (`field`, or all) that accept numbers and operators but no names."""
    digits = {"type": "string", "pattern": r"^[0-9.+*/()% -]{1,80}$"}
    changed = {name: digits for name in _texts(tool) if not field or name == field}
    return replace(tool, parameters={**tool.parameters, "properties": {**tool.parameters["properties"], **changed}})


def _texts(tool: ToolSpec) -> dict[str, Any]:
    held = tool.parameters.get("properties")
    fields = held.items() if isinstance(held, Mapping) else ()
    return {name: field for name, field in fields if isinstance(field, Mapping) and field.get("type") == "string"}


def _form(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _lift_definitions(schema: Mapping[str, Any], owner: str, definitions: dict[str, Any]) -> dict[str, Any]:
    if _elsewhere(schema):  # a reference to a part of itself: the whole of it becomes a definition
        definitions[owner] = _rename_references(dict(schema), owner)
        return {"$ref": f"#/$defs/{owner}"}
    own = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    for home in ("$defs", "definitions"):
        for name, held in (schema.get(home) or {}).items():
            definitions[f"{owner}.{name}"] = _rename_references(held, owner)
    made = _rename_references(own, owner)
    made.setdefault("type", "object")
    made.setdefault("properties", {})
    return made  # type: ignore[no-any-return]


def _elsewhere(value: Any) -> bool:
    if isinstance(value, Mapping):
        target = value.get("$ref")
        own = isinstance(target, str) and target.startswith("#") and not target.startswith(("#/$defs/", "#/definitions/"))
        return own or any(_elsewhere(held) for held in value.values())
    return isinstance(value, list | tuple) and any(_elsewhere(held) for held in value)


def _rename_references(value: Any, owner: str) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _reference(held, owner) if key == "$ref" else _rename_references(held, owner) for key, held in value.items()
        }
    return [_rename_references(held, owner) for held in value] if isinstance(value, list | tuple) else value


def _reference(target: Any, owner: str) -> Any:
    for home in ("#/$defs/", "#/definitions/"):
        if isinstance(target, str) and target.startswith(home):
            return f"#/$defs/{owner}.{target.removeprefix(home)}"
    return f"#/$defs/{owner}{target[1:]}" if isinstance(target, str) and target.startswith("#") else target
