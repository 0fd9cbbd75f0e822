"""Validate a model's reply and mint its call ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import UnexpectedError
from ..core.messages import Media, Message, ModelReply, Provided, Text, Thinking, ToolCall, Usage
from .results import checked_usage, must_be_json

_PARTS = (Text, Media, Thinking, Provided, ToolCall)


def take_in(reply: Any, model: str, number: int, tools: Mapping[str, Any]) -> ModelReply:
    """Call ids are minted here, because providers repeat theirs or have none: the same after a crash as without one.

    A call that stands for another becomes that one here, before anybody judges, records or runs it.
    """
    if not isinstance(reply, ModelReply):
        raise _wrong(model, reply, "a ModelReply")
    message = reply.message
    if not isinstance(message, Message) or message.role != "assistant":
        raise _wrong(model, message, "an assistant's Message in its reply")
    if not isinstance(reply.usage, Usage):
        raise _wrong(model, reply.usage, "a Usage in its reply")
    parts = tuple([_part(part, model, number, place, tools) for place, part in enumerate(message.parts)])
    words = (reply.model, reply.problem, reply.advice)
    for said in (reply.stop_reason or "", *words):
        if not isinstance(said, str):
            raise _wrong(model, said, "texts as its reply's stop_reason, model, problem and advice")
    return ModelReply(
        Message("assistant", parts), reply.stop_reason, checked_usage(reply.usage, f"the model {model!r}"), *words
    )


def _part(part: Any, model: str, number: int, place: int, tools: Mapping[str, Any]) -> Any:
    if type(part) is ToolCall:
        if not isinstance(part.name, str) or not part.name:
            raise _wrong(model, part, "a ToolCall with a name")
        must_be_json(part.args, f"the arguments of {part.name}, as the model {model!r} returned them,")
        call = ToolCall(f"c{number}_{place}", part.name, part.args)
        unfold = getattr(tools.get(part.name, None), "unfold", None)
        meant = None if unfold is None else unfold(call)
        return call if meant is None else ToolCall(call.id, meant.name, meant.args)
    if not isinstance(part, _PARTS) or not isinstance(getattr(part, "text", ""), str):
        raise _wrong(model, part, "texts, thinking, media and tool calls as the message's parts")
    if type(part) is Provided:
        must_be_json(part.data, f"what the model {model!r} wants back unchanged")
    elif type(part) is Media and not all(isinstance(said, str) for said in (part.mime, part.data, part.url, part.name)):
        raise _wrong(model, part, "texts in its Media")
    return part


def _wrong(model: str, got: Any, expected: str) -> UnexpectedError:
    return UnexpectedError(f"the model {model!r} returned {repr(got)[:100]}; expected {expected}")
