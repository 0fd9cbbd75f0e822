"""Chunks: the items of a stream, `{"time", "agent", "type", "data", "seq"}`, and which fact becomes which chunk.

| fact or delta   | chunk type                  | data                                                     |
|-----------------|-----------------------------|----------------------------------------------------------|
| Delta text      | `delta`                     | content                                                  |
| Delta thinking  | `thinking`                  | content                                                  |
| Delta progress  | `progress`                  | content, tool_call_id                                    |
| Delta restarted | `status` restarted          | the deltas of this reply so far no longer count          |
| ModelReplied    | `message`, if it has text   | content: the whole text of the deltas                    |
|                 | `media` a picture or sound  | content: its type; mime, name, base64 or url             |
|                 | `tool_call` a call, `usage` | id, type, function / prompt_tokens, completion_tokens, … |
| ToolFinished    | `tool_response`             | tool_call_id, name, content, content_preview, is_error   |
| Stopped, failed | `error`                     | message, type                                            |
| refused handoff | `error`; the run continues  | message, type, tool_call_id                              |
| Stopped         | `status` stopped            | kind, detail, output                                     |
| Asked, of batch | `status` parked             | key, content                                             |
| Custom          | its own name                | its data, under `value` if that is not an object         |
| any other fact  | `status` with its own name  | see `_STATUS`                                            |

Every chunk has `chunk["content"]`: if `data` has no content, it is the most useful value (the arguments of a call, the message
of an error, the reason of a stop, else the status). Every chunk that comes from a fact has that fact's number in
`data["fact"]`: pass it to continue from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from datetime import UTC, datetime
from functools import lru_cache
from math import modf
from typing import Any

from .events import (
    Answered,
    Asked,
    Compacted,
    Custom,
    Delta,
    Event,
    HandedOff,
    Interjected,
    ModelReplied,
    Noted,
    Opened,
    Received,
    Resumed,
    Stopped,
    ToolFinished,
    ToolStarted,
    Unknown,
    Warned,
)
from .messages import Media, ToolCall, ToolResult, Usage
from .people.answers import asks_person
from .values import plain_text, readable_json

RESERVED = frozenset(
    ("delta", "thinking", "progress", "message", "media", "tool_call", "tool_response", "usage", "error", "status")
)
PARTS = ("message", "media", "tool_call")  # chunks of a fact that end with its `usage`
_KEYS = ("time", "agent", "type", "data", "seq")
_SYNONYMS = {"tool_name": "name", "result": "content"}  # how the tiny agent's design names them
_SAYING = ("message", "arguments", "detail", "answer", "to", "value", "total_tokens", "kind", "name", "status")
_PREVIEW = 200
_NOTHING = object()


class Chunk(dict[str, Any]):
    """A chunk of a stream: a dict of exactly five keys. The fields of `data` can be read directly as well
    (`chunk["content"]`).

    Only `type` is stored in the dict itself, so that `json.dumps` does not take it for an empty dict; the other values are
    built on access. A chunk cannot be changed; `dict(chunk)` makes a copy that can.

    Args:
        stamp: The time in seconds since 1970. The key `time` has it as a text in UTC.
        agent: The name of the agent.
        type: The kind of the chunk, such as "delta".
        data: The fields of this kind.
        seq: The number of the fact that the chunk shows; 0 for a delta.
    """

    __slots__ = ("agent", "data", "encoded", "seq", "stamp", "type")

    def __init__(self, stamp: float, agent: str, type: str, data: dict[str, Any], seq: int = 0) -> None:
        self.stamp, self.agent, self.type, self.data, self.seq = stamp, agent, type, data, seq
        self.encoded: list[Any] | None = None  # what a server sends of it, once for all readers; they share the list
        dict.__setitem__(self, "type", type)

    @property
    def time(self) -> str:
        rest, second = modf(self.stamp)
        micros = round(rest * 1_000_000)
        return f"{_second(int(second))}.{micros // 1000:03}Z" if micros < 1_000_000 else f"{_second(int(second) + 1)}.000Z"

    def __getitem__(self, key: str) -> Any:
        if key in _KEYS:
            return getattr(self, key)
        if key in self.data:
            return self.data[key]
        if key == "content":
            return self._content()
        return self.data[_SYNONYMS[key]] if key in _SYNONYMS else self._raise_missing(key)

    def _content(self) -> Any:
        """Return the first value that says something, for a chunk whose `data` has no content."""
        return next((self.data[name] for name in _SAYING if self.data.get(name) not in (None, "")), "")

    def _raise_missing(self, key: str) -> Any:
        raise KeyError(f"{key!r}; this {self.type!r} chunk has {', '.join((*_KEYS, *self.data))}")

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key, _NOTHING) is not _NOTHING

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return KeysView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return ItemsView(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self.copy() == dict(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __reduce__(self) -> Any:
        return Chunk, (self.stamp, self.agent, self.type, self.data, self.seq)

    def _unchangeable(self, *given: Any, **more: Any) -> Any:
        raise TypeError("a chunk cannot be changed; dict(chunk) makes a copy that can")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _unchangeable

    def copy(self) -> dict[str, Any]:
        return {key: self[key] for key in _KEYS}

    def __repr__(self) -> str:
        return f"Chunk({self.copy()!r})"

    @property
    def partial(self) -> Any:
        """Return the answer so far as the agent's output type, in `delta` chunks of a run that is iterated; else None."""
        return None

    @property
    def fails(self) -> bool:
        """Return True if the run has failed.

        An `error` chunk with a `tool_call_id` is about one call, and the run continues.
        """
        return self.type == "error" and "tool_call_id" not in self.data

    def to_json(self) -> str:
        return json.dumps(self.copy(), ensure_ascii=False, default=str)

    def to_sse(self) -> str:
        """Return the chunk as an event of a text/event-stream.

        Its id is the number of the fact, for `Last-Event-ID`. If several chunks come from one fact, only the last of them has
        the id: a client that reconnects before it receives all of them again.
        """
        fact = None if self.type in PARTS else self.data.get("fact")
        return f"{f'id: {fact}{chr(10)}' if fact is not None else ''}event: {self.type}\ndata: {self.to_json()}\n\n"


@lru_cache(maxsize=16)
def _second(stamp: int) -> str:
    """Format a second as ISO time. Cached, because this is the most expensive part of a chunk."""
    return datetime.fromtimestamp(stamp, UTC).isoformat()[:19]


def chunks_of(event: Event) -> list[Chunk]:
    """Return the chunks of one event. The stream that carries them numbers them later."""
    body = event.body
    if type(body) is Delta:
        return [delta_chunk(event.time, event.agent, body)]
    chunks = []
    for type_, data in _of_fact(body):
        if type(body) is Opened or type(body) is Resumed:
            data["run_id"] = event.run_id
        data["fact"] = event.seq
        chunks.append(Chunk(event.time, event.agent, type_, data))
    return chunks


def delta_chunk(time: float, agent: str, delta: Delta) -> Chunk:
    if delta.kind == "text":
        return Chunk(time, agent, "delta", {"content": delta.text})
    if delta.kind == "restarted":
        return Chunk(time, agent, "status", {"status": "restarted"})
    data = {"content": delta.text, "tool_call_id": delta.call_id} if delta.call_id else {"content": delta.text}
    return Chunk(time, agent, delta.kind, data)


def _of_fact(body: Any) -> list[tuple[str, dict[str, Any]]]:
    match body:
        case ModelReplied():
            message = body.reply.message
            said = [("message", {"content": message.text})] if message.text else []
            said += [("media", _media(part)) for part in message.parts if type(part) is Media]
            return [*said, *[("tool_call", _call(call)) for call in message.calls], ("usage", _usage(body.reply.usage))]
        case ToolFinished():
            return [("tool_response", _response(body.result))]
        case ToolStarted():
            started = {"status": "tool_started", "tool_call_id": body.call.id, "name": body.call.name, "attempt": body.attempt}
            return [("status", started)]
        case Asked() if not asks_person(body.key):
            return [("status", {"status": "parked", "key": body.key, "content": body.prompt})]
        case Custom(shown=False):
            return []
        case Custom(name, data):
            return [(name, dict(data) if isinstance(data, Mapping) else {"value": data})]
        case Stopped(stop) if stop.kind == "failed":
            own = {"said": stop.said} if stop.said else {}
            return [("error", {"message": stop.detail, "type": stop.error or "AgentError", **own})]
        case _:
            name, data = _STATUS[type(body)]
            return [("status", {"status": name, **data(body)})]


def _media(part: Media) -> dict[str, Any]:
    return {"content": part.mime, "mime": part.mime, "name": part.name, "base64": part.data, "url": part.url}


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = call.args if isinstance(call.args, str) else readable_json(call.args)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
        "name": call.name,
        "arguments": call.args,
    }


def _response(result: ToolResult) -> dict[str, Any]:
    text = plain_text(result.output) if result.error is None else result.error
    held = {"waiting": True} if result.waiting else {}
    return {
        "tool_call_id": result.call_id,
        "name": result.name,
        "content": result.output if result.error is None else result.error,
        "content_preview": text if len(text) <= _PREVIEW else text[:_PREVIEW] + "…",
        "is_error": result.is_error,
        **held,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "cached_tokens": usage.cached,
        "reasoning_tokens": usage.reasoning,
        "cost": usage.cost,
    }


_STATUS: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Opened: ("started", lambda b: {"session": b.session, "base": b.base}),
    Resumed: ("restarted", lambda b: {"attempt": b.attempt}),
    Received: ("received", lambda b: {"content": b.message.text}),
    Interjected: ("interjected", lambda b: {"content": b.message.text, **({"by": b.by} if b.by else {})}),
    Noted: ("noted", lambda b: {"content": b.message.text}),
    Asked: (
        "waiting",
        lambda b: {
            "key": b.key,
            "content": b.prompt,
            "options": list(b.options),
            "tool_call_id": b.call_id,
            **({"in_doubt": True} if b.in_doubt else {}),
            **({} if b.about is None else {"call": {"name": b.about.name, "arguments": b.about.args}}),
        },
    ),
    Answered: ("answered", lambda b: {"key": b.key, "answer": b.answer, **({"by": b.by} if b.by else {})}),
    HandedOff: ("handed_off", lambda b: {"to": b.to}),
    Warned: ("warning", lambda b: {"source": b.source, "content": b.text}),
    Compacted: ("compacted", lambda b: {"messages": b.upto, "content": b.summary, "usage": _usage(b.usage)}),
    Stopped: ("stopped", lambda b: {"kind": b.stop.kind, "detail": b.stop.detail, "output": b.output}),
    Unknown: ("unknown", lambda b: {"name": b.type}),
}
