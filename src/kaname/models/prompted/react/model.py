"""ReAct for a model that only writes text: describes tools in the instructions, and reads, streams and checks replies.

Generation stops where the model would begin to invent an observation. If a reply cannot be read, the model is asked again.
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
from ....kernel.bases import ModelBase, model_info, optional
from ....kernel.identity import model_identity
from ....kernel.ports import Emit, Model
from ..conversation import as_text
from ..modes import OF_NATIVE_TOOLS, ignored_settings
from ..offer import CUT_OFF
from ..tool_text import describe_tool
from .labels import label_of
from .parse import UNCLEAR, ReplyReading, read_reply, reading_of
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
_ASKED_AGAIN = 2  # times in a row, before prose that speaks of a call is taken for the answer
_STOP_REFUSED = re.compile(r"\bstop(?:\b|_|s\b|Seq)|停止", re.IGNORECASE)
_PROVIDER = "react_text"
_BLANK = " \t\n\r\f\v\u3000\ufeff\u200b"


class Stops:
    """The stop sequences of a request, and whether the server accepts any. `setting`: the provider's name for them."""

    def __init__(self, setting: str = "stop") -> None:
        self._setting, self.refused = setting, False

    def beside(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with kaname's stop sequences first: without them the model invents observations.

        A server may refuse them as too many.
        """
        if self.refused:
            return dict(settings)
        given = settings.get(self._setting) or []
        theirs = [given] if isinstance(given, str) else list(given)
        return {**settings, self._setting: [*STOPS, *theirs]}


class TextOnly(ModelBase):
    """A model that is used through its text alone, with the ReAct protocol.

    Args:
        model: Any model.
        stop_setting: The provider's name for stop sequences (default "stop").
    """

    def __init__(self, model: Model, *, stop_setting: str = "") -> None:
        self._model, self._stop_setting = model, stop_setting or model_info(model).stop_setting
        self._stops = Stops(self._stop_setting)
        self.name, self.settings = model.name, model_info(model).settings
        identity = f"text {self._stop_setting} {known}" if (known := model_identity(model)) else ""
        self.about = replace(model_info(model), tool_mode="text", identity=identity)

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        given = request.settings.get(self._stop_setting, self.settings.get(self._stop_setting))
        settings = {**request.settings, **({self._stop_setting: given} if given else {})}
        return await reply_by_text(self._model.reply, replace(request, settings=settings), emit, stops=self._stops)

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the settings that the text protocol, or the model behind it, leaves out of the requests."""
        behind = optional(self._model, ModelBase, "ignores")(settings)
        return list(dict.fromkeys([*ignored_settings({**self.settings, **settings}, "text"), *behind]))

    async def close(self) -> None:
        await optional(self._model, ModelBase, "close")()


async def reply_by_text(ask: Any, request: ModelRequest, emit: Emit, *, stops: Stops | None = None) -> ModelReply:
    """Reply through the text protocol. `ask(request, emit)` is the plain model, which knows nothing of tools."""
    if request.schema is not None:
        return await _reply_in_schema(ask, replace(request, messages=build_messages(request)), emit)
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
        reading = ReplyReading(reading.thought, problem=CUT_OFF)
    if not request.tools and not reading.answer:
        reading = _without_tools(reading, sections.raw, request)
    if reading.prose and _count_unread(request) >= _ASKED_AGAIN:
        reading = ReplyReading(answer=reading.prose)
    complete = reading.problem == CUT_OFF or reading.problem.startswith(UNCLEAR)  # they say what to do
    advice = "" if complete else _FORM if request.tools else _LAST
    return await _build_reply(said, reading, advice, sections.shown, emit, last=request.last)


def _ends_whole(sections: Sections) -> bool:
    """Return True if the call in a reply that was cut off at the token limit was complete."""
    last = sections.found[-1].text.rstrip("`\n ")
    return sections.over or last.endswith(("}", "</tool_call>", "</function>", "</invoke>"))


async def _reply_in_schema(ask: Any, request: ModelRequest, emit: Emit) -> ModelReply:
    """Return the answer without labels and thoughts. It is shown when it is complete."""

    async def show(text: str, kind: str = "text", call_id: str = "") -> None:
        if kind != "text":
            await emit(text, kind)

    said: ModelReply = await ask(request, show)
    written = said.message.text.strip(_BLANK)
    answer = written if written[:1] == "{" else read_reply(written, {}).answer or written
    if answer:
        await emit(answer)
    kept = [part for part in said.message.parts if not isinstance(part, Text)]
    return replace(said, message=Message("assistant", (*kept, Text(answer))))


async def _ask(ask: Any, request: ModelRequest, sections: Sections, emit: Emit, stops: Stops) -> ModelReply:
    """Ask the model.

    A server that refuses stop sequences does so before anything is shown, and is asked again without them.
    """
    heard = False

    async def show(text: str, kind: str = "text", call_id: str = "") -> None:
        nonlocal heard
        heard = True
        for piece, what in sections.feed(text) if kind == "text" else [(text, kind)]:
            await emit(piece, what)

    plain = {key: value for key, value in request.settings.items() if key not in OF_NATIVE_TOOLS}
    settings = stops.beside(plain) if request.tools else plain
    sent = replace(request, messages=build_messages(request), tools=(), settings=settings)
    try:
        return await ask(sent, show)  # type: ignore[no-any-return]
    except RequestRefused as problem:
        if heard or settings == plain or not _STOP_REFUSED.search(problem.said):
            raise
    said = await ask(replace(sent, settings=plain), show)
    stops.refused = True  # it was that: from now on none of ours are sent
    return said  # type: ignore[no-any-return]


def _is_spoken(request: ModelRequest) -> bool:
    """Return True if the protocol has been in use."""
    return any(message.role == "tool" for message in request.messages)


def _without_tools(reading: ReplyReading, text: str, request: ModelRequest) -> ReplyReading:
    """Read a reply to a request for an answer only: a call is an error.

    If the protocol was never used, any text is the answer.
    """
    if not _is_spoken(request):
        return ReplyReading(answer=reading.thought or text) if text else reading
    if reading.action:
        return ReplyReading(reading.thought, problem="it called a tool, or had no answer")
    return ReplyReading(answer=reading.thought) if reading.thought else reading


def _count_unread(request: ModelRequest) -> int:
    """Count the latest replies in a row that could not be read."""
    count = 0
    for message in reversed(request.messages):
        if message.role == "assistant" and _as_written(message) is not None:
            count += 1
        elif message.role != "user" or not message.text.startswith((CUT_OFF, NOTE, UNCLEAR)):
            break
    return count


def _as_written(message: Message) -> str | None:
    """Return the original text of a reply that could not be read, or None."""
    kept = [part.data for part in message.parts if isinstance(part, Provided) and part.provider == _PROVIDER]
    return str(kept[0].get("written", "")) if kept else None


async def _build_reply(
    said: ModelReply, reading: ReplyReading, advice: str, shown: str, emit: Emit, *, last: bool
) -> ModelReply:
    """Build the reply. `last`: a tool's result would not be read, so the thought is the best there is to show."""
    kept: list[Part] = [part for part in said.message.parts if not isinstance(part, Text)]
    if reading.problem:
        kept.append(Provided(_PROVIDER, {"written": said.message.text.strip()}))
        words = [Thinking(reading.thought)] if reading.thought else []  # never an answer
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


def build_messages(request: ModelRequest) -> tuple[Message, ...]:
    """Return the conversation as text: tools in the instructions, calls as actions, results as observations."""
    last = request.last or (not request.tools and request.schema is None and _is_spoken(request))
    listed = "\n".join([describe_tool(tool) for tool in request.tools])
    names = ", ".join([tool.name for tool in request.tools])
    how = [_LAST] if last else [_HOW.format(tools=listed, names=names)] if request.tools else []
    return tuple(as_text(request, how, lambda reply: _render(reply, request.tools), _describe_result))


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
    """Return the input in the form that the instructions ask for: the bare text for a tool of one argument."""
    only = next((list(tool.parameters.get("properties") or {}) for tool in tools if tool.name == call.name), [])
    args: Any = call.args
    if isinstance(args, Mapping) and len(only) == 1 and list(args) == only:
        (args,) = args.values()
    return plain_text(args)


def _describe_result(result: ToolResult) -> str:
    text = result_text(result)
    error = result.is_error and not text.startswith("Error: ")
    return f"Observation: {'Error: ' if error else ''}{text or 'nothing'}"
