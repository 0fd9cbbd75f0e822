"""Validate a model's reply and mint its call ids."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

from ..core.codec import dump
from ..core.errors import UnexpectedError
from ..core.messages import NOTHING, Media, Message, ModelReply, Provided, Text, Thinking, ToolCall, ToolResult, Usage
from ..core.record import replace
from ..core.values import plain_text, shorten

SHOWN_LIMIT, ERROR_LIMIT = 40_000, 10_000  # characters; about ten thousand tokens, and a quarter of that
_HUGE = 10**18
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
    return ModelReply(Message("assistant", parts), reply.stop_reason, _usage(reply.usage, model), *words)


def _usage(usage: Usage, model: str) -> Usage:
    """Whole numbers of tokens, and a cost that is a number or unknown."""
    counts, cost = (usage.input, usage.output, usage.cached, usage.reasoning), usage.cost
    if usage is NOTHING or (set(map(type, counts)) == {int} and (cost is None or (type(cost) is float and not isnan(cost)))):
        return usage
    try:
        tokens = [int(count) for count in counts]
        cost = None if cost is None or isnan(cost) else float(cost)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(model, usage, "numbers in its Usage") from None
    return Usage(tokens[0], tokens[1], tokens[2], cost, tokens[3])


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


def must_be_json(value: Any, what: str) -> Any:
    """The value, or an error that says what cannot be recorded."""
    if value is None or isinstance(value, str | bool | float) or (type(value) is int and -_HUGE < value < _HUGE):
        return value
    try:
        dump(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise UnexpectedError(f"{what} cannot be recorded as JSON: {problem}") from problem
    return value


def fit(result: ToolResult, call: ToolCall) -> ToolResult:
    """The result of that call. What the model reads of a huge one is cut, and says so; the journal keeps the whole."""
    output, error, shown = result.output, result.error, result.shown
    must_be_json(output, f"what {call.name} returned")
    if error is not None and len(error) > ERROR_LIMIT:
        error = shorten(error, ERROR_LIMIT)
    if shown is None and not isinstance(output, int | float | None):
        text = plain_text(output)
        shown = shorten(text, SHOWN_LIMIT) if len(text) > SHOWN_LIMIT else None
    usage = _usage(result.usage, call.name)
    return replace(result, output=output, error=error, call_id=call.id, name=call.name, shown=shown, usage=usage)


def _wrong(model: str, got: Any, expected: str) -> UnexpectedError:
    return UnexpectedError(f"the model {model!r} returned {repr(got)[:100]}; expected {expected}")
