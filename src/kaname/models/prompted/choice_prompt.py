"""Render the conversation for a model that writes its calls as JSON."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.codec import dump
from ...core.messages import Message, ModelRequest, Part, Text, ToolCall, ToolResult, ToolSpec
from ...core.openai_shape import result_text
from ...core.record import replace
from .choice_schema import answer_name
from .offer import TurnSoFar, all_pure, untried_of, useless
from .words import as_text, describe_tool

_HOW = """You are an assistant that works with tools. Tools:
{tools}
- {answer}: tell the user the final answer; only when no tool is needed or its results are there.

Reply with one JSON object: {{"tool": NAME, "args": ARGUMENTS}} or {{"tool": "{answer}", "text": TEXT}}. TEXT is \
in the language of the question and holds the values that were found."""
_LAST = """No tool can be used any more. Reply with one JSON object: {{"tool": "{answer}", "text": TEXT}}. TEXT is in \
the language of the question, holds the values that were found, and says what was not done or found out."""


def build_messages(request: ModelRequest, turn: TurnSoFar) -> tuple[Message, ...]:
    """Return the conversation as this model reads it: tools in the instructions, calls as JSON, results as user messages."""
    out = messages_in_words(replace(request, messages=_without_failed(request, turn)), turn, [how_to_choose(request)])
    if turn.calls and turn.calls[-1][1] is not None and not request.last:
        out[-1] = replace(out[-1], parts=(*out[-1].parts, Text("\n\n" + reminder(turn, request.tools))))
    return tuple(out)


def how_to_choose(request: ModelRequest) -> str:
    answer = answer_name(request.tools)
    listed = "\n".join([describe_tool(tool) for tool in request.tools])
    return _LAST.format(answer=answer) if request.last else _HOW.format(tools=listed, answer=answer)


def messages_in_words(request: ModelRequest, turn: TurnSoFar, how: list[str]) -> list[Message]:
    """Return the messages of a request, calls as JSON and results as user messages, with `how` after the instructions."""
    answer = answer_name(request.tools)
    names = {call.id: call for message in request.messages for call in message.calls}
    return as_text(
        request,
        how,
        lambda reply: "\n".join(_as_choices(reply, answer)),
        lambda result: _describe_result(result, names, turn.pure),
    )


def _without_failed(request: ModelRequest, turn: TurnSoFar) -> tuple[Message, ...]:
    """Return the messages without failed look-ups once a later call succeeded, because a small model copies what it sees."""
    helpful = [place for place, (_, result) in enumerate(turn.calls) if result and not useless(result, turn.pure)]
    failed = {
        call.id
        for call, result in turn.calls[: helpful[-1] if helpful else 0]
        if result and useless(result, turn.pure) and call.name in turn.pure
    }
    kept: list[Message] = []
    for message in request.messages:
        parts = tuple([part for part in message.parts if _id(part) not in failed])
        if parts or not message.parts:
            kept.append(message if len(parts) == len(message.parts) else replace(message, parts=parts))
    return tuple(kept)


def _id(part: Part) -> str:
    return part.id if isinstance(part, ToolCall) else part.call_id if isinstance(part, ToolResult) else ""


def _as_choices(message: Message, answer: str) -> list[str]:
    calls = [dump({"tool": call.name, "args": call.args}) for call in message.calls]
    return calls or ([dump({"tool": answer, "text": message.text})] if message.text else [])


def _describe_result(result: ToolResult, calls: Mapping[str, ToolCall], pure: frozenset[str]) -> str:
    name = result.name or (calls[result.call_id].name if result.call_id in calls else "the tool")
    text = result_text(result)
    if result.is_error:
        return f"{name} failed: {text}"
    if useless(result, pure):
        return f"{name} found nothing." if not text or text in ("[]", "{}", "null") else f"{name} found nothing: {text}"
    return f"Result of {name}: {text or 'done'}"


def reminder(turn: TurnSoFar, tools: tuple[ToolSpec, ...]) -> str:
    harmless = all_pure(tools)
    unused = f" Not used yet: {', '.join(turn.unused_numbers)}." if turn.unused_numbers else ""
    if turn.last_call_helped and harmless:
        return (
            f"Question: {turn.question}\nNext step: use a tool for what is still to be looked up or calculated "
            f"(never calculate yourself), or give the answer if a result already is the answer.{unused}"
        )
    if turn.last_call_helped:
        return (
            f"Question: {turn.question}\nNext step: give the answer if all that is asked for was done. If not, use the tool "
            f"for what is missing (never calculate yourself), and do nothing that was not asked for.{unused}"
        )
    untried = untried_of(turn, tuple([tool for tool in tools if tool.effect == "pure"]))
    hint = f" Not tried yet: {', '.join(untried)}." if untried else ""
    last = turn.calls[-1][0].name
    correct = f" Correct the arguments of {last}." if turn.failures == 1 and last in turn.pure else ""  # first that
    advice = "Try other arguments or another tool." if harmless else "Try other arguments, or say in the answer what failed."
    return f"That did not help.{correct}{hint} {advice}\nQuestion: {turn.question}"
