"""Tools for a model that cannot call any by itself: it writes JSON that the server holds to a schema, one form a tool and one
for the answer. What is shown while it writes is the answer's text, never the JSON around it.

Small models need more help than large ones. What they get here, from the conversation alone: the question is put again after
results; after a failure there is no answer to choose while there are other things to try, and a tool that keeps failing is left
out for once; the same call is not made twice; after many calls there is only the answer left.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from ..core.codec import dump
from ..core.messages import (
    Message,
    ModelReply,
    ModelRequest,
    Part,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    assistant,
    user,
)
from ..core.openai_shape import result_text
from ..core.record import record, replace
from ..core.values import identity, read_json
from ..kernel.ports import Emit
from .answer_stream import AnswerStream
from .constrained_schema import answer_name, choice_schema

_MOST_CALLS = 8
_ASKED_AGAIN = 2
_TRUSTED = 3  # failures in a row after which the model may give up and say so

_HOW = """You are an assistant that works with tools. Tools:
{tools}
- {answer}: tell the user the final answer; only when no tool is needed or its results are there.

Reply with one JSON object: {{"tool": NAME, "args": ARGUMENTS}} or {{"tool": "{answer}", "text": TEXT}}. TEXT is \
in the language of the question and holds the values that were found."""


@record
class Turn:
    """What has happened since the user last spoke."""

    question: str
    calls: tuple[tuple[ToolCall, ToolResult | None], ...]

    @property
    def failures(self) -> int:
        """How many of the last results in a row were errors."""
        count = 0
        for _, result in reversed(self.calls):
            if result is None or not result.is_error:
                break
            count += 1
        return count

    @property
    def helped(self) -> bool:
        """Whether the last result says anything. Nothing can be a success too: the answer stays to be chosen."""
        result = self.calls[-1][1] if self.calls else None
        return result is None or not _useless(result)

    @property
    def unused(self) -> set[str]:
        """The numbers of the question that no tool was given."""
        given = {number for call, _ in self.calls for number in numbers(dump(call.args))}
        return numbers(self.question) - given


@record
class Offer:
    """What the model may choose from this time."""

    tools: tuple[ToolSpec, ...]
    answer: bool
    name: str  # of the answer


async def reply_by_choice(ask: Any, request: ModelRequest, emit: Emit) -> ModelReply:
    """`ask(request, emit)` is the plain model."""
    turn = turn_of(request.messages)
    offer = offer_for(turn, request.tools, answer_name(request.tools))
    messages, usage = told(request, turn), Usage()
    for left in reversed(range(_ASKED_AGAIN + 1)):
        stream = AnswerStream(offer.name)

        async def show(text: str, kind: str = "text", call_id: str = "", stream: AnswerStream = stream) -> None:
            if kind != "text":
                await emit(text, kind)
            elif shown := stream.feed(text):
                await emit(shown)

        schema = choice_schema(offer.tools, offer.name if offer.answer else "")
        said = await ask(replace(request, messages=messages, tools=(), schema=schema, settings=_plain(request)), show)
        usage = usage + said.usage
        part, problem = chosen(said, turn, offer)
        if problem and left:
            messages = (*messages, assistant(said.message.text), user(problem))
            if left == 1 and offer.tools and turn.calls:
                offer = replace(offer, tools=(), answer=True)
            continue
        if problem and isinstance(part, ToolCall):  # it will not be run a second time: what it gave is the best there is
            part = Text(_given_before(part, turn))
        if isinstance(part, Text) and part.text and not stream.shown:
            await emit(part.text)
        stop: StopReason | None = "tool_use" if isinstance(part, ToolCall) else said.stop_reason
        thoughts = tuple([other for other in said.message.parts if not isinstance(other, Text | ToolCall)])
        said_now = (*thoughts, part) if not isinstance(part, Text) or part.text else thoughts
        return ModelReply(Message("assistant", said_now), stop, usage, said.model)
    raise AssertionError("the last round always returns")


def _plain(request: ModelRequest) -> dict[str, Any]:
    return {name: value for name, value in request.settings.items() if name not in ("tool_choice", "parallel_tool_calls")}


def turn_of(messages: tuple[Message, ...]) -> Turn:
    asked = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
    results = {
        part.call_id: part for message in messages[asked + 1 :] for part in message.parts if isinstance(part, ToolResult)
    }
    calls = [call for message in messages[asked + 1 :] if message.role == "assistant" for call in message.calls]
    question = messages[asked].text if asked >= 0 else ""
    return Turn(question, tuple([(call, results.get(call.id)) for call in calls]))


def offer_for(turn: Turn, tools: tuple[ToolSpec, ...], name: str) -> Offer:
    if len(turn.calls) >= _MOST_CALLS or turn.failures > _TRUSTED:
        return Offer((), answer=True, name=name)
    if turn.failures >= 2 and len(tools) > 1:
        last = {call.name for call, _ in turn.calls[-2:]}
        if len(last) == 1:
            return Offer(tuple([tool for tool in tools if tool.name not in last]), answer=True, name=name)
    unfinished = len(turn.calls) == 1 and turn.unused and len(tools) > 1  # once: it may be a number that does not matter
    return Offer(tools, answer=(turn.failures == 0 and not unfinished) or turn.failures >= _TRUSTED, name=name)


def _useless(result: ToolResult) -> bool:
    return result.is_error or result.output in ("", [], {})


def told(request: ModelRequest, turn: Turn) -> tuple[Message, ...]:
    """The conversation as this model reads it: tools in the instructions, calls as JSON, results as the user's words."""
    instructions = [message.text for message in request.messages if message.role == "system" and message.text]
    answer = answer_name(request.tools)
    how = _HOW.format(tools="\n".join([described(tool) for tool in request.tools]), answer=answer)
    out = [Message("system", (Text("\n\n".join([*instructions, how])),))]
    names = {call.id: call for message in request.messages for call in message.calls}
    for message in request.messages:
        if message.role == "assistant":
            out.append(assistant("\n".join(_written(message, answer))))
        elif message.role == "tool":
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            pictures = [media for part in results for media in part.media]
            said = Message("user", (Text("\n".join([_heard(part, names) for part in results])), *pictures))
            merged = out[-1].role == "user"
            out[-1:] = [replace(out[-1], parts=(*out[-1].parts, Text("\n"), *said.parts))] if merged else [out[-1], said]
        elif message.role == "user":
            out.append(message)
    if turn.calls and turn.calls[-1][1] is not None:
        out[-1] = replace(out[-1], parts=(*out[-1].parts, Text("\n\n" + _reminder(turn, request.tools))))
    return tuple(out)


def described(tool: ToolSpec) -> str:
    named = tool.parameters.get("properties") or {}
    required = tool.parameters.get("required") or []
    arguments = [
        f"  {name}{'' if name in required else ' (optional)'}: {_kind(one)}"
        + (f", {one['description']}" if isinstance(one, Mapping) and one.get("description") else "")
        for name, one in named.items()
    ]
    return "\n".join([f"- {tool.name}: {tool.description}", *arguments])


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return "one of " + ", ".join([dump(value) for value in schema["enum"]])
    return str(schema.get("type") or ("object" if "$ref" in schema else "any"))


def _written(message: Message, answer: str) -> list[str]:
    calls = [dump({"tool": call.name, "args": call.args}) for call in message.calls]
    return calls or [dump({"tool": answer, "text": message.text})]


def _heard(result: ToolResult, calls: Mapping[str, ToolCall]) -> str:
    name = result.name or (calls[result.call_id].name if result.call_id in calls else "the tool")
    text = result_text(result)
    if result.is_error:
        return f"{name} failed: {text}"
    return f"Result of {name}: {text}" if not _useless(result) else f"{name} found nothing."


def _reminder(turn: Turn, tools: tuple[ToolSpec, ...]) -> str:
    if turn.helped:
        return (
            f"Question: {turn.question}\nNext step: use a tool for what is still to be looked up or calculated "
            "(never calculate yourself), or give the answer if a result already is the answer."
        )
    used = {call.name for call, _ in turn.calls}
    untried = [tool.name for tool in tools if tool.name not in used]
    hint = f" Not tried yet: {', '.join(untried)}." if untried else ""
    return f"That did not help.{hint} Try other arguments or another tool.\nQuestion: {turn.question}"


def chosen(said: ModelReply, turn: Turn, offer: Offer) -> tuple[Part, str]:
    """What the model chose, and what is wrong with it, if anything is."""
    text = said.message.text
    if said.message.calls:  # it could, after all
        return said.message.calls[0], ""
    value = _object(text)
    if value is None or "tool" not in value:
        shown = AnswerStream(offer.name).feed(text)
        words = shown or ("" if text.lstrip().startswith("{") else text)  # the beginning of a call is not for the user
        return Text(words), "" if shown or said.stop_reason == "max_tokens" else _form(offer)
    args = value.get("args")
    if value["tool"] == offer.name:
        given = value.get("text") or (args.get("text") if isinstance(args, Mapping) else args) or ""
        answer = given if isinstance(given, str) else dump(given)
        return Text(answer), "" if answer.strip() else "The answer is empty. Give it in words."
    call = ToolCall("", str(value["tool"]), args if isinstance(args, Mapping) else {})
    return call, _made_before(call, turn)


def _object(text: str) -> Mapping[str, Any] | None:
    """The object that was written; a bracket or two may be missing at its end."""
    for ending in ("", "}", "}}", '"}', '"}}'):
        try:
            value = read_json(text.strip() + ending)
        except ValueError:
            continue
        return value if isinstance(value, Mapping) else None
    return None


def _form(offer: Offer) -> str:
    names = ", ".join([tool.name for tool in offer.tools])
    return f'Reply with {{"tool": NAME, "args": ARGUMENTS}} (NAME: {names}) or with {{"tool": "{offer.name}", "text": TEXT}}.'


def numbers(text: str) -> set[str]:
    """As they are written, without the commas between thousands."""
    return set(re.findall(r"\d+(?:\.\d+)?", unicodedata.normalize("NFKC", text).replace(",", "")))


def _made_before(call: ToolCall, turn: Turn) -> str:
    given = _given_before(call, turn)
    if not given:
        return ""
    return (
        f"{call.name} was already called with these arguments, and gave: {given}\n"
        "Give the answer, or use another tool or other arguments."
    )


def _given_before(call: ToolCall, turn: Turn) -> str:
    for earlier, result in turn.calls:
        if earlier.name == call.name and identity(earlier.args) == identity(call.args) and result is not None:
            return result_text(result) or "nothing"
    return ""
