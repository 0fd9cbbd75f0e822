"""ReAct for a model that can only write text: tools are described in the instructions, replies are read, streamed and checked.

Generation stops where the model would begin to make up an observation. A reply that cannot be read is asked for again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ....core.errors import RequestRefused
from ....core.messages import (
    NOTE,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    Provided,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from ....core.openai_shape import result_text
from ....core.record import replace
from ....core.values import plain_text
from ....kernel.ports import Emit, Model, Selective
from ..conversation import as_text
from ..modes import OF_NATIVE_TOOLS, left_out
from ..offer import CUT_OFF
from ..tool_text import described
from .labels import label_of
from .parse import Reading, read, reading_of
from .sections import Sections

STOPS = ["\nObservation:", "\n観察:"]
_CALL = "Thought: REASON\nAction: NAME\nAction Input: INPUT"
_END = "Thought: REASON\nFinal Answer: ANSWER"
_FORM = f"Write either\n{_CALL}\nor\n{_END}"
_HOW = f"""You can use tools. Tools:
{{tools}}

Write in exactly this form, one step at a time:
{_CALL}

Then stop. You will be given a line that begins with "Observation:". When you know the answer, or need no tool, write
{_END}

NAME is one of: {{names}}. INPUT is plain text for a tool that takes one argument, else one JSON object. ANSWER is in the \
language of the question and holds the values that were found."""
_LAST = f"""No tool can be used any more. Answer now, from what is known, and say what was not done or found out. Write
{_END}
ANSWER is in the language of the question."""
_ASKED_AGAIN = 2  # times in a row, before the best that there is becomes the answer
_STOP_REFUSED = re.compile(r"\bstop(?:\b|_|s\b|Seq)|停止", re.IGNORECASE)
_PROVIDER = "react_text"
_BLANK = " \t\n\r\f\v\u3000\ufeff\u200b"


class Stops:
    """The stop sequences that go with a request, and whether the server takes any. `setting`: how its provider calls them."""

    def __init__(self, setting: str = "stop") -> None:
        self._setting, self.refused = setting, False

    def beside(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with ours first: without them the model makes up what the tools say. A server may find them too many."""
        if self.refused:
            return dict(settings)
        given = settings.get(self._setting) or []
        theirs = [given] if isinstance(given, str) else list(given)
        return {**settings, self._setting: [*STOPS, *theirs]}


class TextOnly:
    """Any model, used by its text alone. `stop_setting`: how its provider calls stop sequences."""

    def __init__(self, model: Model, *, stop_setting: str = "") -> None:
        self._model, self._stop_setting = model, stop_setting or getattr(model, "stop_setting", "stop")
        self._stops = Stops(self._stop_setting)
        self.name = model.name

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        own = getattr(self._model, "settings", None) or {}
        given = request.settings.get(self._stop_setting, own.get(self._stop_setting))
        settings = {**request.settings, **({self._stop_setting: given} if given else {})}
        return await reply_by_text(self._model.reply, replace(request, settings=settings), emit, stops=self._stops)

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the settings that the text protocol, or the model behind it, leaves out of the requests."""
        own = getattr(self._model, "settings", None) or {}
        behind = list(self._model.ignores(settings)) if isinstance(self._model, Selective) else []
        return list(dict.fromkeys([*left_out({**own, **settings}, "text"), *behind]))

    async def close(self) -> None:
        if (close := getattr(self._model, "close", None)) is not None:
            await close()


async def reply_by_text(ask: Any, request: ModelRequest, emit: Emit, *, stops: Stops | None = None) -> ModelReply:
    """`ask(request, emit)` is the plain model, which knows nothing of tools."""
    if request.schema is not None:
        return await _reply_in_schema(ask, replace(request, messages=told(request)), emit)
    sections = Sections()
    said = await _ask(ask, request, sections, emit, stops or Stops())
    if said.message.calls:  # it could, after all
        return said
    for piece, kind in sections.finish():
        await emit(piece, kind)
    tools = {tool.name: tool.parameters for tool in request.tools}
    careful = frozenset([tool.name for tool in request.tools if tool.effect != "pure"])
    reading = reading_of(sections, tools, careful)
    if said.stop_reason == "max_tokens" and not reading.answer and (reading.problem or not _ends_whole(sections)):
        reading = Reading(reading.thought, problem=CUT_OFF)
    if not request.tools and not reading.answer:
        reading = _without_tools(reading, sections.raw, request)
    if reading.problem and len(unread := _unread(request)) >= _ASKED_AGAIN:
        best = next((words for words in (reading.thought, *[message.text for message in unread]) if words), "")
        reading = Reading(answer=best) if best else reading
    advice = "" if reading.problem == CUT_OFF else _FORM if request.tools else _LAST
    return await _replied(said, reading, advice, sections.shown, emit, last=request.last)


def _ends_whole(sections: Sections) -> bool:
    """Whether the call in a reply that was cut off at the token limit had ended before."""
    last = sections.found[-1].text.rstrip("`\n ")
    return sections.over or last.endswith(("}", "</tool_call>", "</function>", "</invoke>"))


async def _reply_in_schema(ask: Any, request: ModelRequest, emit: Emit) -> ModelReply:
    """The answer without labels and thoughts, shown when all of it is there."""

    async def show(text: str, kind: str = "text", call_id: str = "") -> None:
        if kind != "text":
            await emit(text, kind)

    said: ModelReply = await ask(request, show)
    written = said.message.text.strip(_BLANK)
    answer = written if written[:1] == "{" else read(written, {}).answer or written
    if answer:
        await emit(answer)
    kept = [part for part in said.message.parts if not isinstance(part, Text)]
    return replace(said, message=Message("assistant", (*kept, Text(answer))))


async def _ask(ask: Any, request: ModelRequest, sections: Sections, emit: Emit, stops: Stops) -> ModelReply:
    """A server that takes no stop sequences says so before anything was shown, and is asked again without them."""
    heard = False

    async def show(text: str, kind: str = "text", call_id: str = "") -> None:
        nonlocal heard
        heard = True
        for piece, what in sections.feed(text) if kind == "text" else [(text, kind)]:
            await emit(piece, what)

    plain = {key: value for key, value in request.settings.items() if key not in OF_NATIVE_TOOLS}
    settings = stops.beside(plain) if request.tools else plain
    sent = replace(request, messages=told(request), tools=(), settings=settings)
    try:
        return await ask(sent, show)  # type: ignore[no-any-return]
    except RequestRefused as problem:
        if heard or settings == plain or not _STOP_REFUSED.search(problem.said):
            raise
    said = await ask(replace(sent, settings=plain), show)
    stops.refused = True  # it was that: from now on none of ours are sent
    return said  # type: ignore[no-any-return]


def _is_spoken(request: ModelRequest) -> bool:
    """Whether the protocol has been in use."""
    return any(message.role == "tool" for message in request.messages)


def _without_tools(reading: Reading, text: str, request: ModelRequest) -> Reading:
    """Nothing but an answer was asked for: a call is none. Where the protocol was never spoken of, any text is the answer."""
    if not _is_spoken(request):
        return Reading(answer=reading.thought or text) if text else reading
    if reading.action:
        return Reading(reading.thought, problem="it called a tool, or had no answer")
    return Reading(answer=reading.thought) if reading.thought else reading


def _unread(request: ModelRequest) -> list[Message]:
    """The replies, the last one first, that could not be read just now, one after the other."""
    found = []
    for message in reversed(request.messages):
        if message.role == "assistant" and _as_written(message) is not None:
            found.append(message)
        elif message.role != "user" or not message.text.startswith((CUT_OFF, NOTE)):
            break
    return found


def _as_written(message: Message) -> str | None:
    """What the model wrote, of a reply that could not be read."""
    kept = [part.data for part in message.parts if isinstance(part, Provided) and part.provider == _PROVIDER]
    return str(kept[0].get("written", "")) if kept else None


async def _replied(said: ModelReply, reading: Reading, advice: str, shown: str, emit: Emit, *, last: bool) -> ModelReply:
    """`last`: nobody will read what a tool says. Then the thought is the best that there is to show for it."""
    kept: list[Part] = [part for part in said.message.parts if not isinstance(part, Text)]
    if reading.problem:
        kept.append(Provided(_PROVIDER, {"written": said.message.text.strip()}))
        words = [Text(reading.thought)] if reading.thought else []
        return replace(said, message=Message("assistant", (*kept, *words)), problem=reading.problem, advice=advice)
    if reading.thought:
        kept.append(Thinking(reading.thought))
    if reading.action:
        kept += [Text(reading.thought)] if last and reading.thought else []
        kept.append(ToolCall("", reading.action, reading.args))
        return replace(said, message=Message("assistant", tuple(kept)), stop_reason="tool_use")
    if missing := reading.answer.removeprefix(shown) if reading.answer.startswith(shown) else "":
        await emit(missing)
    stop = said.stop_reason if said.stop_reason == "max_tokens" else "end_turn"
    return replace(said, message=Message("assistant", (*kept, Text(reading.answer))), stop_reason=stop)


def told(request: ModelRequest) -> tuple[Message, ...]:
    """The conversation as text: tools in the instructions, calls as actions, results as observations."""
    last = request.last or (not request.tools and request.schema is None and _is_spoken(request))
    listed = "\n".join([described(tool) for tool in request.tools])
    names = ", ".join([tool.name for tool in request.tools])
    how = [_LAST] if last else [_HOW.format(tools=listed, names=names)] if request.tools else []
    return tuple(as_text(request, how, lambda reply: _render(reply, request.tools), _heard))


def _render(message: Message, tools: tuple[ToolSpec, ...]) -> str:
    if (unread := _as_written(message)) is not None:
        return unread
    lines = [f"Thought: {message.thinking}"] if message.thinking else []
    for call in message.calls:
        lines += [f"Action: {call.name}", f"Action Input: {_input(call, tools)}"]
    if message.text:
        label = label_of(message.text.split("\n", 1)[0], "")  # it is written in this form already
        lines.append(message.text if message.calls or label else f"Final Answer: {message.text}")
    return "\n".join(lines)


def _input(call: ToolCall, tools: tuple[ToolSpec, ...]) -> str:
    """As the model was told to write it: the bare text for a tool of one argument."""
    only = next((list(tool.parameters.get("properties") or {}) for tool in tools if tool.name == call.name), [])
    args: Any = call.args
    if isinstance(args, Mapping) and len(only) == 1 and list(args) == only:
        (args,) = args.values()
    return plain_text(args)


def _heard(result: ToolResult) -> str:
    text = result_text(result)
    error = result.is_error and not text.startswith("Error: ")
    return f"Observation: {'Error: ' if error else ''}{text or 'nothing'}"
