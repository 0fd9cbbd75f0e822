"""Convert facts and states to JSON and back. Version 1.

A type that this version does not know is read as `Unknown` and written back unchanged; an unknown field is ignored. A field
that has its default is left out, so that an old reader and a new one agree on everything both know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from . import events as facts
from .errors import JournalCorrupt
from .events import Event, Fact, Unknown
from .messages import Media, Message, ModelReply, Provided, Role, Text, Thinking, ToolCall, ToolResult, Usage
from .notices import Notice, from_json, to_json
from .record import NOT_GIVEN, defaults
from .state import Spent, State
from .steps import CallModel, Stop
from .values import json_encoder

VERSION = 1
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

_FACTS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        facts.Opened,
        facts.Resumed,
        facts.Received,
        facts.Interjected,
        facts.Noted,
        facts.ModelReplied,
        facts.ToolStarted,
        facts.ToolFinished,
        facts.Asked,
        facts.Answered,
        facts.HandedOff,
        facts.Warned,
        facts.Custom,
        facts.Compacted,
        facts.Stopped,
    )
}
_PARTS: dict[str, type] = {
    "text": Text,
    "media": Media,
    "thinking": Thinking,
    "provided": Provided,
    "call": ToolCall,
    "result": ToolResult,
}
_PART_TAGS = {kind: tag for tag, kind in _PARTS.items()}

# The fields that hold a dataclass of ours, and its class; everything else in a fact is JSON as it stands.
_NESTED: dict[tuple[type, str], type] = {
    (facts.Received, "message"): Message,
    (facts.Interjected, "message"): Message,
    (facts.Noted, "message"): Message,
    (facts.Noted, "limit"): Stop,
    (facts.ModelReplied, "reply"): ModelReply,
    (facts.ModelReplied, "step"): CallModel,
    (facts.ToolStarted, "call"): ToolCall,
    (facts.Asked, "about"): ToolCall,
    (facts.ToolFinished, "result"): ToolResult,
    (facts.Compacted, "usage"): Usage,
    (facts.Stopped, "stop"): Stop,
    (facts.Stopped, "usage"): Usage,
    (ModelReply, "message"): Message,
    (ModelReply, "usage"): Usage,
    (ToolResult, "usage"): Usage,
    (Spent, "usage"): Usage,
}

# The texts that may be notices: what they were made of stands beside them, as "detail_notice" and so on.
_NOTICES: dict[type, str] = {Stop: "detail", facts.Asked: "prompt", facts.Warned: "text", ToolResult: "error"}


def encode_body(body: Fact) -> tuple[str, str]:
    """Return the type of the fact and its JSON."""
    if type(body) is Unknown:
        return body.type, dump(body.data)
    return type(body).__name__, dump(_write(body))


def decode_body(kind: str, text: str) -> Fact:
    """Read a fact that `encode_body` wrote. Raises `JournalCorrupt` if it cannot be read."""
    try:
        return _fact(kind, json.loads(text))
    except _UNREADABLE as problem:
        raise JournalCorrupt.of(
            "journal.fact_unreadable", "a recorded {kind} fact cannot be read: {problem!r}", kind=kind, problem=problem
        ) from problem


def encode(event: Event) -> str:
    """Write one fact as one line of JSON, as in exports and frozen runs."""
    kind, body = encode_body(event.body)  # type: ignore[arg-type]
    head = dump({"v": VERSION, "run": event.run_id, "seq": event.seq, "time": event.time, "agent": event.agent, "type": kind})
    return f'{head[:-1]},"body":{body}}}'


def decode(line: str) -> Event:
    """Read a line that `encode` wrote. Raises `JournalCorrupt` if it cannot be read."""
    try:
        data = json.loads(line)
        return Event(data["run"], data["seq"], data["time"], data["agent"], _fact(data["type"], data["body"]))
    except _UNREADABLE as problem:
        raise JournalCorrupt.of(
            "journal.line_unreadable", "this line is not a recorded fact: {line!r}", line=line[:80]
        ) from problem


# The fields of a state that hold values of ours: a list of them, a dict of them, or one.
_IN_LISTS: dict[str, type] = {"replies": facts.ModelReplied}
_IN_DICTS: dict[str, type] = {
    "open": ToolCall,
    "started": facts.ToolStarted,
    "results": ToolResult,
    "questions": facts.Asked,
    "settled": facts.Asked,
}
_ALONE: dict[str, type] = {"usage": Usage, "limit": Stop, "stop": Stop, "spent": Spent}


def encode_state(state: State) -> str:
    """Write a state as JSON. The counts per call are left out: they start from zero after a stop."""
    data: dict[str, Any] = {}
    for name in State.__match_args__:
        value = getattr(state, name)
        if name in ("messages", "said"):
            value = [_pack_message(message) for message in value]
        elif name == "withheld":
            value = None if value is None else _pack_message(value)
        elif name in _IN_LISTS:
            value = [_write(item) for item in value]
        elif name in _IN_DICTS:
            value = {key: _write(item) for key, item in value.items()}
        elif name == "spent":
            value = _write(Spent(value.steps, value.seconds, value.usage, value.by_tool))
        elif name in _ALONE and value is not None:
            value = _write(value)
        data[name] = value
    return dump(data)


def decode_state(text: str) -> State:
    data = json.loads(text)
    for name in ("messages", "said"):
        data[name] = [_unpack_message(*packed) for packed in data[name]]
    data["withheld"] = None if data["withheld"] is None else _unpack_message(*data["withheld"])
    for name, kind in _IN_LISTS.items():
        data[name] = [_read_value(kind, item) for item in data[name]]
    for name, kind in _IN_DICTS.items():
        data[name] = {key: _read_value(kind, item) for key, item in data[name].items()}
    for name, kind in _ALONE.items():
        data[name] = None if data[name] is None else _read_value(kind, data[name])
    data["stand_ins"] = [tuple(pair) for pair in data["stand_ins"]]
    data["parent"] = None if data["parent"] is None else tuple(data["parent"])
    return State(**data)


_SHORT = frozenset(ToolResult.__match_args__[:4])


def _pack_message(message: Message) -> list[Any]:
    return [message.role, *map(_pack, message.parts)]


def _unpack_message(role: Role, *parts: Any) -> Message:
    return Message(role, tuple(map(_unpack, parts)))


def _pack(part: Any) -> Any:
    """Return a part in its shortest form: a text as it is, a call and a plain result as lists."""
    kind = type(part)
    if kind is Text and not part.source:
        return part.text
    if kind is ToolCall:
        return [part.id, part.name, part.args]
    if kind is ToolResult and _write(part).keys() <= _SHORT:
        return [part.output, part.error, part.call_id, part.name]
    return _write_part(part)


def _unpack(data: Any) -> Any:
    kind = type(data)
    if kind is str:
        return Text(data)
    if kind is list:
        return ToolCall(*data) if len(data) == 3 else ToolResult(*data)
    return _read_part(data)


def encode_message(message: Message) -> str:
    return dump(
        [message.role, *[part.text if type(part) is Text and not part.source else _write_part(part) for part in message.parts]]
    )


def _fact(kind: str, data: Any) -> Fact:
    known = _FACTS.get(kind)
    return Unknown(kind, data) if known is None else _read_value(known, data)


_compact = json_encoder(",", ":")


def dump(value: Any) -> str:
    """Return compact JSON that any UTF-8 column takes. Half a surrogate pair is escaped instead of refused."""
    text = _compact(value)
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()  # JSON has the same escape for it


def digest(value: Any) -> str:
    """Return a short fingerprint of a JSON value."""
    from hashlib import sha256  # slow to load, and not needed before the first run

    return sha256(dump(value).encode()).hexdigest()[:16]


def _write(value: Any) -> dict[str, Any]:
    kind: type = type(value)
    return _writer(kind)(value)


@cache
def _writer(kind: type) -> Callable[[Any], dict[str, Any]]:
    """Return the function that turns a value of that class into a dict.

    It is generated, because it is called for every fact.
    """
    scope: dict[str, Any] = {}
    required, lines = [], []
    for name, default in defaults(kind).items():
        item = f"value.{name}"
        if (kind, name) in _NESTED or name in ("parts", "media"):
            scope[f"write_{name}"] = _writer(_NESTED[kind, name]) if (kind, name) in _NESTED else _write_parts
            item = f"write_{name}(value.{name})"
        if default is NOT_GIVEN:
            required.append(f"{name!r}: {item}")
            continue
        scope[f"default_{name}"], scope[f"kind_{name}"] = default, type(default)
        lines.append(f"    if value.{name} is not default_{name} and not (type(value.{name}) is kind_{name} and ")
        lines[-1] += f"value.{name} == default_{name}):\n        data[{name!r}] = {item}"
    if (told := _NOTICES.get(kind)) is not None:
        scope["Notice"], scope["to_json"] = Notice, to_json
        lines.append(f"    if type(value.{told}) is Notice:\n        data['{told}_notice'] = to_json(value.{told})")
    source = [f"def write(value):\n    data = {{{', '.join(required)}}}", *lines, "    return data"]
    exec("\n".join(source), scope)
    write: Callable[[Any], dict[str, Any]] = scope["write"]
    return write


def _write_parts(parts: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [_write_part(part) for part in parts]


def _write_part(part: Any) -> dict[str, Any]:
    return {"type": _PART_TAGS[type(part)], **_write(part)}


@cache
def _readers(kind: type) -> tuple[dict[str, Callable[[Any], Any]], frozenset[str]]:
    """Return the readers of the fields that are not plain JSON, and the names of the other fields."""
    readers: dict[str, Callable[[Any], Any]] = {}
    for name in defaults(kind):
        nested = _NESTED.get((kind, name))
        if nested is not None:
            readers[name] = partial(_read_value, nested)
        elif name in ("parts", "media"):
            readers[name] = _read_parts
        elif name in ("base", "parent", "options", "rules") or (kind, name) == (CallModel, "tools"):
            readers[name] = lambda data: tuple(data) if isinstance(data, list) else data
    return readers, frozenset(defaults(kind)) - readers.keys()


def _read_value(kind: type, data: dict[str, Any]) -> Any:
    readers, plain = _readers(kind)
    if data.keys() <= plain:
        return kind(**data)
    values = {}
    for name, item in data.items():
        if name in plain:
            values[name] = item
        elif (reader := readers.get(name)) is not None:
            values[name] = reader(item)
    if (told := _NOTICES.get(kind)) is not None and f"{told}_notice" in data:
        values[told] = from_json(data[f"{told}_notice"])
    return kind(**values)


def _read_parts(data: list[dict[str, Any]]) -> tuple[Any, ...]:
    return tuple([_read_part(part) for part in data])


def _read_part(data: dict[str, Any]) -> Any:
    return _read_value(_PARTS[data.pop("type")], data)
