"""Take in a tool's result: it must be JSON, its usage must be sound, and what the model reads of a huge one is cut."""

from __future__ import annotations

from math import isnan
from typing import Any

from ..core.codec import dump
from ..core.errors import UnexpectedError
from ..core.messages import NOTHING, ToolCall, ToolResult, Usage
from ..core.notices import notice
from ..core.record import replace
from ..core.values import plain_text, shorten, unescaped_json

SHOWN_LIMIT, ERROR_LIMIT = 40_000, 10_000  # characters; about ten thousand tokens, and a quarter of that
_HUGE = 10**18


def fit(result: ToolResult, call: ToolCall) -> ToolResult:
    """The result of that call. What the model reads of a huge one is cut, and says so; the journal keeps the whole."""
    output, error, shown = result.output, result.error, result.shown
    must_be_json(output, f"what {call.name} returned")
    if error is not None and len(error) > ERROR_LIMIT:
        error = shorten(error, ERROR_LIMIT)
    if shown is None and not isinstance(output, int | float | None):
        text = plain_text(output)
        told = unescaped_json(text) if isinstance(output, str) and "\\u" in text else text
        shown = shorten(told, SHOWN_LIMIT) if len(told) > SHOWN_LIMIT else None if told is text else told
    usage = checked_usage(result.usage, f"the tool {call.name!r}")
    return replace(result, output=output, error=error, call_id=call.id, name=call.name, shown=shown, usage=usage)


def timed_out(seconds: float | None, *, in_doubt: bool) -> ToolResult:
    """Return the result of a call that took too long. `in_doubt`: it may have taken effect."""
    late = notice("tool.timeout", "timed out after {seconds:g} s", seconds=seconds)
    doubt = notice("tool.in_doubt", "; it may or may not have taken effect, so check before you repeat it")
    return ToolResult(error=late + doubt if in_doubt else late)


def must_be_json(value: Any, what: str) -> Any:
    """The value, or an error that says what cannot be recorded."""
    if value is None or isinstance(value, str | bool | float) or (type(value) is int and -_HUGE < value < _HUGE):
        return value
    try:
        dump(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise UnexpectedError(f"{what} cannot be recorded as JSON: {problem}") from problem
    return value


def checked_usage(usage: Usage, who: str) -> Usage:
    """Whole numbers of tokens, and a cost that is a number or unknown."""
    counts, cost = (usage.input, usage.output, usage.cached, usage.reasoning), usage.cost
    if usage is NOTHING or (set(map(type, counts)) == {int} and (cost is None or (type(cost) is float and not isnan(cost)))):
        return usage
    try:
        tokens = [int(count) for count in counts]
        cost = None if cost is None or isnan(cost) else float(cost)
    except (TypeError, ValueError, OverflowError):
        raise UnexpectedError(f"{who} returned {repr(usage)[:100]}; expected numbers in its Usage") from None
    return Usage(tokens[0], tokens[1], tokens[2], cost, tokens[3])
