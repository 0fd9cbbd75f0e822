"""Take in a tool's result: check that it is JSON and its usage valid, and shorten what the model reads of a huge one."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

from ..core.codec import dump
from ..core.errors import Suspend, UnexpectedError
from ..core.events import RESULT
from ..core.messages import MCP_APPROVAL, NOTHING, ToolCall, ToolResult, Usage
from ..core.notices import notice
from ..core.people.answers import NO, YES, read_approval, read_refusal
from ..core.people.visible import shown_call, visible_json, visible_line
from ..core.record import replace
from ..core.values import plain_text, shorten, unescape_json

SHOWN_LIMIT, ERROR_LIMIT = 40_000, 10_000  # characters; about ten thousand tokens, and a quarter of that
_HUGE = 10**18


def fit_result(result: ToolResult, call: ToolCall) -> ToolResult:
    """Return the result as the call's own.

    If it is huge, the model reads a shortened text that says so; the journal keeps it all.
    """
    output, error, shown = result.output, result.error, result.shown
    must_be_json(output, f"what {call.name} returned")
    if error is not None and len(error) > ERROR_LIMIT:
        error = shorten(error, ERROR_LIMIT)
    if shown is None and output is not None and type(output) is not int and not isinstance(output, int | float):
        text = plain_text(output)
        told = unescape_json(text) if isinstance(output, str) and "\\u" in text else text
        shown = shorten(told, SHOWN_LIMIT) if len(told) > SHOWN_LIMIT else None if told is text else told
    if result.media:
        shown = _name_files(result, shown)
    usage = check_usage(result.usage, f"the tool {call.name!r}")
    tool = "" if result.tool == call.name else result.tool
    return replace(result, error=error, call_id=call.id, name=call.name, shown=shown, usage=usage, tool=tool)


def _name_files(result: ToolResult, shown: str | None) -> str | None:
    """Return the text for the model, with the names of the files that it does not mention: tools find a file by its name."""
    text = shown if shown is not None else "" if result.output is None else plain_text(result.output)
    names = [visible_line(one.name) for one in result.media if one.name and one.data and one.name not in text]
    return "\n".join([*([text] if text else []), *[f"[file: {name}]" for name in names]]) if names else shown


def own_result(value: Any) -> ToolResult | None:
    """Return the value if it is a `ToolResult`, or as one if it has `output`, `error` and `is_error`, too."""
    if isinstance(value, ToolResult):
        return value
    if not hasattr(value, "is_error") or isinstance(value, type) or not (hasattr(value, "output") and hasattr(value, "error")):
        return None
    failed = value.is_error() if callable(value.is_error) else value.is_error
    told = str(value.error or notice("tool.failed", "the tool reported an error")) if failed or value.error else None
    return ToolResult(value.output, told)


def timeout_result(seconds: float | None, *, in_doubt: bool) -> ToolResult:
    """Return the result of a call that took too long. `in_doubt`: it may have taken effect."""
    late = notice("tool.timeout", "timed out after {seconds:g} s", seconds=seconds)
    doubt = notice("tool.in_doubt", "; it may or may not have taken effect, so check before you repeat it")
    return ToolResult(error=late + doubt if in_doubt else late)


def must_be_json(value: Any, what: str) -> Any:
    """Return the value. Raises `UnexpectedError`, naming `what`, if it cannot be recorded as JSON."""
    if value is None or (type(value) is int and -_HUGE < value < _HUGE) or isinstance(value, str | bool | float):
        return value
    if type(value) is dict and _is_flat(value):
        return value
    try:
        dump(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise UnexpectedError(f"{what} cannot be recorded as JSON: {problem}") from problem
    return value


def _is_flat(value: dict[Any, Any]) -> bool:
    """Return True if an object surely is JSON: as most arguments are, it has only texts and numbers."""
    for name, one in value.items():
        kind = type(one)
        if type(name) is not str or not (kind is str or kind is bool or (kind is int and -_HUGE < one < _HUGE)):
            return False
    return True


def check_usage(usage: Usage, who: str) -> Usage:
    """Return the usage with whole numbers of tokens, and a cost that is a number or unknown. Raises `UnexpectedError`."""
    counts, cost, most = (usage.input, usage.output, usage.cached, usage.reasoning), usage.cost, usage.most
    if usage is NOTHING or (set(map(type, counts)) == {int} and (cost is None or (type(cost) is float and not isnan(cost)))):
        return usage
    try:
        tokens = [int(count) for count in counts]
        cost = None if cost is None or isnan(cost) else float(cost)
        most = None if most is None or isnan(most) else float(most)
    except (TypeError, ValueError, OverflowError):
        raise UnexpectedError(f"{who} returned {repr(usage)[:100]}; expected numbers in its Usage") from None
    return Usage(tokens[0], tokens[1], tokens[2], cost, tokens[3], most)


def result_from_client(call: ToolCall, answers: Mapping[str, Any]) -> ToolResult:
    """Return the result of a call that a provider's own tool makes and the client carries out, or ask for it."""
    if call.name != MCP_APPROVAL:
        return result_from_caller(call, "", answers)
    args, key = call.args if isinstance(call.args, Mapping) else {}, f"approve:{call.id}"
    if key not in answers:
        about = ToolCall(call.id, f"{args.get('server_label')}.{args.get('name')}", args.get("arguments") or {})
        asked = notice("approve.run", "Run {asked}?", asked=shown_call(about.name, about.args))
        raise Suspend(key, asked, (YES, NO), about=about)
    said = read_approval(answers[key])[0]
    approved = said is not None and said.approved and said.args is None  # the provider runs it as it was asked for
    return ToolResult({"approve": approved, "reason": "" if said is None else said.reason})


def result_from_caller(call: ToolCall, prompt: str, answers: Mapping[str, Any]) -> ToolResult:
    """Return the result that the caller supplies for a call, or ask for it.

    `prompt`: the question, or "" for one that names the call with its arguments. The answer is the output itself,
    `{"output": …}`, or `{"error": "…"}`. A person who declines returns nothing: the call has failed.
    """
    key = f"{RESULT}{call.id}"
    if key not in answers:
        args = visible_json(call.args)
        told = notice("external.run", "Run {name}({args}) and answer with its result.", name=visible_line(call.name), args=args)
        raise Suspend(key, prompt or told, about=call)
    if (reason := read_refusal(answers[key])) is not None:
        return declined(reason)
    match answers[key]:
        case {"error": str(error), **rest} if not rest:
            return ToolResult(error=error, untrusted=True)
        case {"output": output, **rest} if not rest:
            return ToolResult(output, untrusted=True)
        case output:
            return ToolResult(output, untrusted=True)


def declined(reason: str) -> ToolResult:
    """Return the result of a call whose question a person has declined."""
    told = notice("answer.declined", "the person who was asked declined to answer")
    return ToolResult(error=told + f": {reason}" if reason else told, retryable=False)
