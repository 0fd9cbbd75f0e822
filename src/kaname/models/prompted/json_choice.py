"""Tool calls for a model without native ones: it writes JSON that the server constrains to a schema, with one form per tool
and one for the answer.

While it writes, only the text of the answer is shown, never the JSON around it. Small models need more help than large ones:
the question is repeated after results; after a failure the answer cannot be chosen while there are other things to try
(`offer`); the same call is not made twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.calls import same_call
from ...core.codec import dump
from ...core.messages import Message, ModelReply, ModelRequest, Part, StopReason, Text, ToolCall, Usage
from ...core.openai_shape import result_text
from ...core.reading.lenient_json import TwoReadings
from ...core.record import replace
from ...core.values import read_json
from ...kernel.ports import Emit
from .answer_stream import AnswerStream, HeldAnswer
from .choice_schema import choice_schema
from .numbers import plain_signs
from .offer import CUT_OFF, Offer, TurnSoFar, earlier_result, turn_of
from .plan_first.plan import mark, step_of
from .plan_first.way import plan_for
from .rounds import Rounds


def _with_part(said: ModelReply, marks: Sequence[Part], part: Part) -> Message:
    """Return the message of a reply with a call and its marks, or with an answer that is not empty."""
    if isinstance(part, ToolCall):
        return Message("assistant", (*_thoughts(said), *marks, part))
    is_empty = isinstance(part, Text) and not part.text
    return Message("assistant", (*_thoughts(said), *(() if is_empty else (part,))))


async def reply_by_choice(ask: Any, request: ModelRequest, emit: Emit, *, plan_first: bool = True) -> ModelReply:
    """Ask the plain model, `ask(request, emit)`, for a call or the answer, as JSON constrained to a schema."""
    turn = turn_of(request)
    if (cleaned := _cleaned_call(turn)) is not None:
        return ModelReply(Message("assistant", (*_marks(request, turn), cleaned)), "tool_use")
    plan, usage = await plan_for(ask, request, turn, emit) if plan_first else (None, Usage())
    rounds = Rounds(request, turn, plan)
    while True:
        held = HeldAnswer(rounds.offer.name, rounds.clears)

        async def show(text: str, kind: str = "text", call_id: str = "", held: HeldAnswer = held) -> None:
            if kind != "text":
                await emit(text, kind)
            elif shown := held.feed(text):
                await emit(shown)

        schema = choice_schema(rounds.offer.tools, rounds.offer.name if rounds.offer.answer else "")
        said: ModelReply = await ask(
            replace(request, messages=rounds.messages, tools=(), schema=schema, settings=_settings(request)), show
        )
        usage = usage + said.usage
        part, problem = read_choice(said, turn, rounds.offer, asked_back=rounds.asked_back)
        if problem == CUT_OFF:
            return replace(said, message=Message("assistant", (*_thoughts(said), *rounds.marks)), usage=usage, problem=problem)
        if rounds.asks_again(said.message.text, part, problem, held):
            continue
        stop: StopReason | None = "tool_use" if isinstance(part, ToolCall) else said.stop_reason
        if rounds.is_ours(part) or (problem and isinstance(part, ToolCall)):  # it is not run a second time
            part, held, stop = (*rounds.answered, said.stop_reason) if rounds.answered else (Text(""), held, "tool_use")
        if isinstance(part, Text) and part.text and (rest := held.rest(part.text)):
            await emit(rest)
        return replace(said, message=_with_part(said, rounds.marks, part), stop_reason=stop, usage=usage)


def _marks(request: ModelRequest, turn: TurnSoFar) -> tuple[Part, ...]:
    """Return the marks of the last call, which is repeated for the same step."""
    last = [message for message in request.messages[turn.since :] if message.calls][-1]
    step = step_of(last)
    return () if step is None else (mark(step),)


def _cleaned_call(turn: TurnSoFar) -> ToolCall | None:
    """Return the failed call of a look-up tool with plain signs instead of full-width ones, × and thousands separators."""
    if not turn.calls:
        return None
    call, result = turn.calls[-1]
    if result is None or not result.is_error or call.name not in turn.pure or not isinstance(call.args, Mapping):
        return None
    args = {name: plain_signs(value) if isinstance(value, str) else value for name, value in call.args.items()}
    again = ToolCall("", call.name, args)
    return again if not same_call(again, call) and earlier_result(again, turn) is None else None


def _thoughts(said: ModelReply) -> tuple[Part, ...]:
    return tuple([part for part in said.message.parts if not isinstance(part, Text | ToolCall)])


def _settings(request: ModelRequest) -> dict[str, Any]:
    return {name: value for name, value in request.settings.items() if name not in ("tool_choice", "parallel_tool_calls")}


def read_choice(said: ModelReply, turn: TurnSoFar, offer: Offer, *, asked_back: bool = False) -> tuple[Part, str]:
    """Return the model's choice and what is wrong with it, or "". An incomplete call is not a call."""
    text, cut = said.message.text, said.stop_reason == "max_tokens"
    if said.message.calls and not cut:  # it could, after all
        return said.message.calls[0], ""
    value, whole = _object(text)
    if value is None or "tool" not in value:
        return _read_words(text, offer, cut=cut)
    args = value.get("args")
    if value["tool"] == offer.name:
        return _read_answer(value.get("text") or (args.get("text") if isinstance(args, Mapping) else args) or "")
    if not whole:
        return Text(""), CUT_OFF if cut else _form(offer)
    call = ToolCall("", str(value["tool"]), args if isinstance(args, Mapping) else {})
    return call, _repeat_problem(call, turn) if call.name in turn.pure or not asked_back else ""


def _read_words(text: str, offer: Offer, *, cut: bool) -> tuple[Text, str]:
    """Read a text that is no choice: an answer that began well, or words without the form."""
    shown = AnswerStream(offer.name).feed(text)
    words = shown or ("" if text.lstrip().startswith("{") else text)  # the beginning of a call is not for the user
    if cut:
        return Text(words), "" if words else CUT_OFF
    return Text(words), "" if shown else _form_problem(text, offer)


def _read_answer(given: Any) -> tuple[Text, str]:
    answer = given if isinstance(given, str) else dump(given)
    return Text(answer), "" if answer.strip() else "The answer is empty. Give it in words."


def _object(text: str) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the object that was written, and True if it is complete; one or two closing brackets may be missing."""
    for ending in ("", "}", "}}", '"}', '"}}'):
        try:
            value = read_json(text.strip() + ending)
        except ValueError:
            continue
        return (_repair_text(value) if isinstance(value, Mapping) else None), not ending
    return None, False


def _repair_text(value: Any) -> Any:
    """Return the value without halves of characters, which cannot be stored or sent."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_repair_text(key): _repair_text(held) for key, held in value.items()}
    return [_repair_text(held) for held in value] if isinstance(value, list) else value


def _form_problem(text: str, offer: Offer) -> str:
    """Return the form to write in; with the reason, if the text can be read in two ways."""
    try:
        read_json(text)
    except TwoReadings as problem:
        return f"The reply is {problem}. {_form(offer)}"
    except ValueError:
        pass
    return _form(offer)


def _form(offer: Offer) -> str:
    names = ", ".join([tool.name for tool in offer.tools])
    return f'Reply with {{"tool": NAME, "args": ARGUMENTS}} (NAME: {names}) or with {{"tool": "{offer.name}", "text": TEXT}}.'


def _repeat_problem(call: ToolCall, turn: TurnSoFar) -> str:
    """Return a remark if the same call was made before. A tool with effects runs again if the model insists."""
    earlier = earlier_result(call, turn)
    if earlier is None:
        return ""
    given = result_text(earlier) or "nothing"
    if call.name in turn.pure:
        missing = f" Not used yet: {', '.join(turn.unused_numbers)}." if turn.unused_numbers else ""
        what = f"Give the answer, or use another tool or other arguments.{missing}"
    else:
        what = "Give the answer; repeat it only if the question asks for it more than once."
    return f"{call.name} was already called with these arguments, and gave: {given}\n{what}"
