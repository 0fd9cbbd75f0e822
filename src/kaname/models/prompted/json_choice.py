"""Tools for a model that cannot call any by itself: it writes JSON that the server holds to a schema, one form a tool and one
for the answer. What is shown while it writes is the answer's text, never the JSON around it.

Small models need more help than large ones. What they get here, from the conversation alone: the question is put again after
results; after a failure there is no answer to choose while there are other things to try (`offer`); the same question is not
put to a tool twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.codec import dump
from ...core.messages import Message, ModelReply, ModelRequest, Part, StopReason, Text, ToolCall, Usage, assistant, user
from ...core.openai_shape import result_text
from ...core.reading.lenient_json import TwoReadings
from ...core.record import replace
from ...core.values import identity, read_json
from ...kernel.ports import Emit
from .answer_stream import AnswerStream
from .choice_prompt import told
from .choice_schema import choice_schema
from .doubt import Doubt, copied
from .numbers import plain_signs
from .offer import CUT_OFF, Offer, Turn, offer_for, turn_of

_ASKED_AGAIN = 2
_FORCED = (1, 2)  # calls made so far: with none it may know by itself, and after more of them it has looked enough


async def reply_by_choice(ask: Any, request: ModelRequest, emit: Emit) -> ModelReply:
    """`ask(request, emit)` is the plain model."""
    turn = turn_of(request)
    if (cleaned := _cleaned(turn)) is not None:
        return ModelReply(Message("assistant", (cleaned,)), "tool_use")
    offer = offer_for(turn, request)
    messages, usage = told(request, turn), Usage()
    doubt = Doubt(request, turn) if offer.tools and turn.pure else None
    for left in reversed(range(_ASKED_AGAIN + 1)):
        stream = _Held(AnswerStream(offer.name), doubt)

        async def show(text: str, kind: str = "text", call_id: str = "", stream: _Held = stream) -> None:
            if kind != "text":
                await emit(text, kind)
            elif shown := stream.feed(text):
                await emit(shown)

        schema = choice_schema(offer.tools, offer.name if offer.answer else "")
        said: ModelReply = await ask(
            replace(request, messages=messages, tools=(), schema=schema, settings=_settings(request)), show
        )
        usage = usage + said.usage
        part, problem = chosen(said, turn, offer, asked_back=left < _ASKED_AGAIN)
        problem = problem or (copied(part, offer.tools) if left else "")
        if problem == CUT_OFF:
            return replace(said, message=Message("assistant", _thoughts(said)), usage=usage, problem=problem)
        if not problem and left and doubt is not None and (problem := doubt.about(part)):
            doubt = None  # once
            messages = (*messages, assistant(said.message.text), user(problem))
            offer = _without_answer(offer, turn) if isinstance(part, Text) else offer
            continue
        if problem and left:
            messages = (*messages, assistant(said.message.text), user(problem))
            if left == 1 and offer.tools and turn.calls:
                offer = replace(offer, tools=(), answer=True)
            continue
        if problem and isinstance(part, ToolCall):  # it will not be run a second time: what it gave is the best there is
            part = Text(_given_before(part, turn))
        if isinstance(part, Text) and part.text and (rest := stream.rest(part.text)):
            await emit(rest)
        stop: StopReason | None = "tool_use" if isinstance(part, ToolCall) else said.stop_reason
        said_now = (*_thoughts(said), part) if not isinstance(part, Text) or part.text else _thoughts(said)
        return ModelReply(Message("assistant", said_now), stop, usage, said.model)
    raise AssertionError("the last round always returns")


class _Held:
    """An answer as it is written, without what may have to be given again."""

    def __init__(self, stream: AnswerStream, doubt: Doubt | None) -> None:
        self._stream, self._doubt = stream, doubt
        self._held = ""

    def feed(self, piece: str) -> str:
        self._held += self._stream.feed(piece)
        until = len(self._held) if self._doubt is None else self._doubt.clear(self._held)
        shown, self._held = self._held[:until], self._held[until:]
        return shown

    def rest(self, answer: str) -> str:
        """What has not been shown of it."""
        return self._held if self._stream.shown else answer


def _cleaned(turn: Turn) -> ToolCall | None:
    """The call that just failed, of a tool that only looks, with plain signs: full-width ones, ×, commas between thousands."""
    if not turn.calls:
        return None
    call, result = turn.calls[-1]
    if result is None or not result.is_error or call.name not in turn.pure or not isinstance(call.args, Mapping):
        return None
    args = {name: plain_signs(value) if isinstance(value, str) else value for name, value in call.args.items()}
    again = ToolCall("", call.name, args)
    return again if args != call.args and not _given_before(again, turn) else None


def _without_answer(offer: Offer, turn: Turn) -> Offer:
    """After a doubt: a small model repeats what it said if it may. Only tools that look are left to it, and only at first."""
    looking = tuple([tool for tool in offer.tools if tool.effect == "pure"])
    return replace(offer, tools=looking, answer=False) if len(turn.calls) in _FORCED else offer


def _thoughts(said: ModelReply) -> tuple[Part, ...]:
    return tuple([part for part in said.message.parts if not isinstance(part, Text | ToolCall)])


def _settings(request: ModelRequest) -> dict[str, Any]:
    return {name: value for name, value in request.settings.items() if name not in ("tool_choice", "parallel_tool_calls")}


def chosen(said: ModelReply, turn: Turn, offer: Offer, *, asked_back: bool = False) -> tuple[Part, str]:
    """What the model chose, and what is wrong with it, if anything is. A call that is not all there is no call."""
    text, cut = said.message.text, said.stop_reason == "max_tokens"
    if said.message.calls and not cut:  # it could, after all
        return said.message.calls[0], ""
    value, whole = _object(text)
    if value is None or "tool" not in value:
        shown = AnswerStream(offer.name).feed(text)
        words = shown or ("" if text.lstrip().startswith("{") else text)  # the beginning of a call is not for the user
        if cut:
            return Text(words), "" if words else CUT_OFF
        return Text(words), "" if shown else _unread(text, offer)
    args = value.get("args")
    if value["tool"] == offer.name:
        given = value.get("text") or (args.get("text") if isinstance(args, Mapping) else args) or ""
        answer = given if isinstance(given, str) else dump(given)
        return Text(answer), "" if answer.strip() else "The answer is empty. Give it in words."
    if not whole:
        return Text(""), CUT_OFF if cut else _form(offer)
    call = ToolCall("", str(value["tool"]), args if isinstance(args, Mapping) else {})
    return call, _made_before(call, turn) if call.name in turn.pure or not asked_back else ""


def _object(text: str) -> tuple[Mapping[str, Any] | None, bool]:
    """The object that was written, and whether all of it is there: a bracket or two may be missing at its end."""
    for ending in ("", "}", "}}", '"}', '"}}'):
        try:
            value = read_json(text.strip() + ending)
        except ValueError:
            continue
        return (_sound(value) if isinstance(value, Mapping) else None), not ending
    return None, False


def _sound(value: Any) -> Any:
    """Without halves of characters, which no file and no wire takes."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_sound(key): _sound(held) for key, held in value.items()}
    return [_sound(held) for held in value] if isinstance(value, list) else value


def _unread(text: str, offer: Offer) -> str:
    """The form to write in; with the reason, if what was written can be read in two ways."""
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


def _made_before(call: ToolCall, turn: Turn) -> str:
    """A tool that only looks is not asked the same twice. Another is run again if the model insists: a die, say."""
    given = _given_before(call, turn)
    if not given:
        return ""
    if call.name in turn.pure:
        missing = f" Not used yet: {', '.join(turn.unused)}." if turn.unused else ""
        what = f"Give the answer, or use another tool or other arguments.{missing}"
    else:
        what = "Give the answer; repeat it only if the question asks for it more than once."
    return f"{call.name} was already called with these arguments, and gave: {given}\n{what}"


def _given_before(call: ToolCall, turn: Turn) -> str:
    for earlier, result in turn.calls:
        if earlier.name == call.name and identity(earlier.args) == identity(call.args) and result is not None:
            return result_text(result) or "nothing"
    return ""
