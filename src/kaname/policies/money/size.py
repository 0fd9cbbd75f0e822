"""Size of a request: an upper bound of the tokens that a model will count in it."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any, NamedTuple

from ...core.codec import dump
from ...core.messages import Media, Message, ModelRequest, Provided, Text, Thinking, ToolCall, ToolResult, ToolSpec, Usage
from ...core.values import plain_text
from ...kernel.bases import model_info

_OVERHEAD = 16  # tokens around a message
_SLACK, _TOOLS = 64, 1_000  # tokens that a provider adds, without and with tools


class Measured(NamedTuple):
    """A request that was answered, and the input tokens that its provider counted."""

    messages: tuple[Message, ...]
    rest: int
    tokens: int
    tools: tuple[ToolSpec, ...]
    schema: Mapping[str, Any] | None
    model: Any  # others count otherwise


def bound_input(request: ModelRequest, model: Any, last: Measured | None) -> tuple[int | None, Measured]:
    """Return an upper bound of the input tokens, or None if there is none, and the measure for the next request.

    A tokenizer never makes more tokens of a text than it has bytes. What the provider has counted before need not be counted
    again: if this request continues the last one, only what was added is.
    """
    tools, schema = request.tools, request.schema
    rest = last.rest if last is not None and last.tools is tools and last.schema is schema else _rest(request)
    known = 0
    if last is not None and last.model is model and last.rest == rest and _continues(request.messages, last.messages):
        known, counted = len(last.messages), last.tokens + _SLACK
    else:
        counted = rest + _SLACK + (_TOOLS if request.tools else 0)
    for message in request.messages[known:]:
        if (size := _bytes(message, model_info(model).picture_tokens)) is None:
            return None, Measured(request.messages, rest, 0, tools, schema, model)
        counted += size + _OVERHEAD
    return counted, Measured(request.messages, rest, 0, tools, schema, model)


def _rest(request: ModelRequest) -> int:
    """Return the bytes of what is not in the messages."""
    count = len(dump([[tool.name, tool.description, tool.parameters] for tool in request.tools]).encode())
    return count + (len(dump(request.schema).encode()) if request.schema is not None else 0)


def remember(measured: Measured, usage: Usage) -> Measured | None:
    """Return the measure of an answered request, if its provider has counted the input."""
    return measured._replace(tokens=usage.input) if usage.input else None


def _continues(messages: tuple[Message, ...], before: tuple[Message, ...]) -> bool:
    return len(messages) >= len(before) and all(map(is_, messages, before))


def _bytes(message: Message, picture: int) -> int | None:
    """Return the bytes of a message, with so many for a picture; None for media whose tokens have no known bound."""
    count = 0
    for part in message.parts:
        match part:
            case Text(text) | Thinking(text):
                count += len(text.encode("utf-8", "replace"))
            case ToolCall(_, name, args):
                count += len(name.encode()) + len(dump(args).encode("utf-8", "replace"))
            case ToolResult():
                shown = part.error or (plain_text(part.output) if part.shown is None else part.shown)
                count += len(shown.encode("utf-8", "replace")) + picture * len(part.media)
            case Provided(_, data):
                count += len(dump(data).encode("utf-8", "replace"))
            case _:
                count += picture
        for one in (part,) if isinstance(part, Media) else part.media if isinstance(part, ToolResult) else ():
            if not one.mime.startswith("image/"):
                return None
    return count
