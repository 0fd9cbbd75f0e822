"""Write tools and the conversation for a model without tools: calls as its own text, results as user messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from ...core.codec import dump
from ...core.messages import NOTE, Message, ModelRequest, Part, Text, ToolResult, ToolSpec, assistant
from ...core.record import replace

_DEEPEST = 3  # levels of nested fields that are written out
_MOST_FIELDS = 40  # of one tool: a prompt has to stay readable for a small model
_MOST_CHOICES = 30
_BOUNDS = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than", "exclusiveMaximum": "less than"}


def describe_tool(tool: ToolSpec) -> str:
    """Return one line for the tool, and one for each argument; the fields of an argument are indented below it."""
    lines = list(islice(_fields(_resolve(tool.parameters, tool.parameters), tool.parameters, 1), _MOST_FIELDS + 1))
    if len(lines) > _MOST_FIELDS:
        lines = [*lines[:_MOST_FIELDS], "  …"]
    return "\n".join([f"- {tool.name}: {tool.description}", *lines])


def _fields(schema: Mapping[str, Any], root: Mapping[str, Any], level: int) -> Iterator[str]:
    required = schema.get("required") or []
    named = schema.get("properties")
    for name, held in (named if isinstance(named, Mapping) else {}).items():
        field = _resolve(held, root)
        optional = "" if name in required else " (optional)"
        told = [_kind(field, root), _default(field), str(field.get("description") or "")]
        yield f"{'  ' * level}{name}{optional}: {', '.join([one for one in told if one])}"
        if level < _DEEPEST:
            for inner in _inside(field, root):
                yield from _fields(inner, root, level + 1)


def _resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a reference, with the keys next to it on top. A single `allOf` is replaced by its content."""
    for _ in range(8):  # a reference to a reference; one to itself ends here
        if not isinstance(schema, Mapping):
            return {}
        joined = schema.get("allOf")
        target = schema.get("$ref")
        if isinstance(joined, list) and len(joined) == 1 and isinstance(joined[0], Mapping):
            schema = {**joined[0], **{key: value for key, value in schema.items() if key != "allOf"}}
        elif isinstance(target, str):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**_at(target, root), **beside}
        else:
            return schema
    return {}


def _at(target: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if not target.startswith("#"):
        return {}
    place: Any = root
    for name in target[1:].strip("/").split("/") if target != "#" else ():
        name = name.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, Mapping) else None
    return place if isinstance(place, Mapping) else {}


def _inside(field: Mapping[str, Any], root: Mapping[str, Any], level: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the objects that a value is, is a list of, or may be."""
    if field.get("properties"):
        yield field
    for held in (field.get("items"), field.get("additionalProperties"), *_choices(field)):
        if isinstance(held, Mapping) and level < _DEEPEST:
            yield from _inside(_resolve(held, root), root, level + 1)


def _choices(field: Mapping[str, Any]) -> list[Any]:
    held = field.get("anyOf") or field.get("oneOf") or []
    return [one for one in held if isinstance(one, Mapping)] if isinstance(held, list) else []


def _kind(field: Mapping[str, Any], root: Mapping[str, Any], level: int = 0) -> str:
    if "const" in field:
        return f"always {dump(field['const'])}"
    if isinstance(field.get("enum"), list):
        listed = [dump(value) for value in field["enum"][:_MOST_CHOICES]]
        return "one of " + ", ".join(listed) + (", …" if len(field["enum"]) > _MOST_CHOICES else "")
    if level > _DEEPEST:
        return "any"
    if choices := _choices(field):
        kinds = [_kind(_resolve(one, root), root, level + 1) for one in choices]
        return " or ".join(dict.fromkeys(kinds))
    kind = field.get("type") or ("object" if field.get("properties") else "any")
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    if kind == "array":
        return _list(field, root, level)
    if kind == "object" and isinstance(field.get("additionalProperties"), Mapping) and not field.get("properties"):
        return f"object of {_kind(_resolve(field['additionalProperties'], root), root, level + 1)} by name"
    return str(kind) + _limits(field)


def _list(field: Mapping[str, Any], root: Mapping[str, Any], level: int) -> str:
    if isinstance(field.get("prefixItems"), list):
        return "list: " + ", ".join([_kind(_resolve(one, root), root, level + 1) for one in field["prefixItems"]])
    inner = _kind(_resolve(field["items"], root), root, level + 1) if isinstance(field.get("items"), Mapping) else "any"
    return f"list, each {inner}" if inner.startswith("one of") else f"list of {inner}"


def _limits(field: Mapping[str, Any]) -> str:
    told = [str(field["format"])] if field.get("format") else []
    told += [f"{words} {field[name]}" for name, words in _BOUNDS.items() if isinstance(field.get(name), int | float)]
    told += [f"pattern {field['pattern']}"] if field.get("pattern") else []
    return f" ({', '.join(told)})" if told else ""


def _default(field: Mapping[str, Any]) -> str:
    return f"default {dump(field['default'])}" if field.get("default") not in (None, "", [], {}) else ""


def as_text(
    request: ModelRequest, how: Iterable[str], written: Callable[[Message], str], heard: Callable[[ToolResult], str]
) -> list[Message]:
    """Return the messages. `how` follows the instructions; `written` and `heard` turn a reply and a result into text.

    Two user messages in a row become one: some servers require alternating turns.
    """
    instructions = [message.text for message in request.messages if message.role == "system" and message.text]
    system = "\n\n".join([*instructions, *how])
    out = [Message("system", (Text(system),))] if system else []
    for message in request.messages:
        if message.role == "assistant":
            if words := written(message):  # an empty message is refused by some servers
                out.append(assistant(words))
        elif message.role == "tool":
            _tell(out, _result_parts(message, heard), "\n")
        elif message.role == "user":
            _tell(out, message.parts, "\n\n" if message.text.startswith(NOTE) else "")
    return out


def _result_parts(message: Message, heard: Callable[[ToolResult], str]) -> tuple[Part, ...]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    text = Text("\n".join([heard(part) for part in results]))
    return (text, *[media for part in results for media in part.media])


def _tell(out: list[Message], parts: tuple[Part, ...], gap: str) -> None:
    """Add what the user says; after a message of the user and `gap`, if there is a gap."""
    if gap and out and out[-1].role == "user":
        out[-1] = replace(out[-1], parts=(*out[-1].parts, Text(gap), *parts))
    else:
        out.append(Message("user", parts))
