"""Tools for a model that can only write text: the ReAct protocol, streamed.

Thoughts are shown as thinking and the answer as text while they arrive; actions are not shown, they are run. Generation stops
where the model would begin to make up an observation; what it makes up all the same is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..core.messages import Message, ModelReply, ModelRequest, Part, Text, Thinking, ToolCall, ToolResult, ToolSpec, assistant
from ..core.openai_shape import result_text
from ..core.record import replace
from ..core.values import plain_text
from ..kernel.ports import Emit, Model
from .describing import described
from .offer import CUT_OFF
from .react_reading import LABELLED, LABELS, Reading, ends_whole, read

STOPS = ["\nObservation:", "\n観察:"]
_HOW = """You can use tools. Tools:
{tools}

Write in exactly this form, one step at a time:
Thought: what you need to find out next
Action: the name of one tool
Action Input: its input: plain text if it takes one argument, else one JSON object

Then stop. You will be given a line that begins with "Observation:". When you know the answer, or need no tool, write
Thought: why this is the answer
Final Answer: the answer, in the language of the question"""
_LAST = """No tool can be used any more. Answer now, from what is known, and say what was not done or found out. Write
Thought: why this is the answer
Final Answer: the answer, in the language of the question"""
_UNFINISHED = re.compile(
    r"[ \t\u3000>*_#•・-]*(?:\d{1,2}[.)]?[ \t]*)?(?:step[ \t]*\d*[ \t]*[-:.)–—]*[ \t]*)?"
    r"(?P<word>\D*?)[ \t]*\d*[ \t]*[*_]*[ \t]*",
    re.IGNORECASE,
)


class TextOnly:
    """Any model, used by its text alone. `stop_setting`: how its provider calls stop sequences."""

    def __init__(self, model: Model, *, stop_setting: str = "") -> None:
        self._model, self._stop_setting = model, stop_setting or getattr(model, "stop_setting", "stop")
        self.name = model.name

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        own = getattr(self._model, "settings", None) or {}
        given = request.settings.get(self._stop_setting, own.get(self._stop_setting))
        settings = {**request.settings, **({self._stop_setting: given} if given else {})}
        request = replace(request, settings=settings)
        return await reply_by_text(self._model.reply, request, emit, stop_setting=self._stop_setting)

    async def close(self) -> None:
        if (close := getattr(self._model, "close", None)) is not None:
            await close()


async def reply_by_text(ask: Any, request: ModelRequest, emit: Emit, *, stop_setting: str = "stop") -> ModelReply:
    """`ask(request, emit)` is the plain model, which knows nothing of tools."""
    if request.schema is not None:
        return await ask(replace(request, messages=told(request)), emit)  # type: ignore[no-any-return]
    stream = ReactStream()

    async def show(text: str, kind: str = "text", call_id: str = "") -> None:
        if kind != "text":
            await emit(text, kind)
            return
        for piece, what in stream.feed(text):
            await emit(piece, what)

    settings = {key: value for key, value in request.settings.items() if key not in ("tool_choice", "parallel_tool_calls")}
    if request.tools:
        given = settings.get(stop_setting) or []
        settings[stop_setting] = [*STOPS, *([given] if isinstance(given, str) else given)][:4]  # as many as providers take
    said = await ask(replace(request, messages=told(request), tools=(), settings=settings), show)
    if said.message.calls:  # it could, after all
        return said  # type: ignore[no-any-return]
    reading = read(said.message.text, {tool.name: tool.parameters for tool in request.tools})
    unread = not reading.answer or reading.answer.startswith("{")
    if said.stop_reason == "max_tokens" and unread and not ends_whole(said.message.text):
        reading = Reading(reading.thought, problem=CUT_OFF)
    if not request.tools and not reading.answer:  # nothing but an answer was asked for
        reading = Reading(answer=reading.thought or said.message.text.strip())
    return await _replied(said, reading, stream, emit)


async def _replied(said: ModelReply, reading: Reading, stream: ReactStream, emit: Emit) -> ModelReply:
    kept: list[Part] = [part for part in said.message.parts if not isinstance(part, Text)]
    if reading.problem:
        rest = reading.thought or said.message.text.strip()
        return replace(said, message=Message("assistant", (*kept, *([Text(rest)] if rest else []))), problem=reading.problem)
    if reading.thought:
        kept.append(Thinking(reading.thought))
    if reading.action:
        kept.append(ToolCall("", reading.action, reading.args))
        return replace(said, message=Message("assistant", tuple(kept)), stop_reason="tool_use")
    if missing := reading.answer.removeprefix(stream.shown) if reading.answer.startswith(stream.shown) else "":
        await emit(missing)
    stop = said.stop_reason if said.stop_reason == "max_tokens" else "end_turn"
    return replace(said, message=Message("assistant", (*kept, Text(reading.answer))), stop_reason=stop)


def told(request: ModelRequest) -> tuple[Message, ...]:
    """The conversation as text: tools in the instructions, calls as actions, results as observations."""
    instructions = [message.text for message in request.messages if message.role == "system" and message.text]
    if request.last or request.tools:
        tools = "\n".join([described(tool) for tool in request.tools])
        instructions.append(_LAST if request.last else _HOW.format(tools=tools))
    out = [Message("system", (Text("\n\n".join(instructions)),))] if instructions else []
    for message in request.messages:
        if message.role == "assistant":
            out.append(assistant(_written(message, request.tools)))
        elif message.role == "tool":
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            pictures = [media for part in results for media in part.media]
            heard: tuple[Part, ...] = (Text("\n".join([_heard(part) for part in results])), *pictures)
            if out and out[-1].role == "user":
                out[-1] = replace(out[-1], parts=(*out[-1].parts, Text("\n"), *heard))
            else:
                out.append(Message("user", heard))
        elif message.role == "user":
            out.append(message)
    return tuple(out)


def _written(message: Message, tools: tuple[ToolSpec, ...]) -> str:
    lines = [f"Thought: {message.thinking}"] if message.thinking else []
    for call in message.calls:
        lines += [f"Action: {call.name}", f"Action Input: {_input(call, tools)}"]
    if message.text:
        lines.append(message.text if LABELLED.match(message.text) or message.calls else f"Final Answer: {message.text}")
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
    return f"Observation: {'Error: ' if result.is_error else ''}{text or 'nothing'}"


class ReactStream:
    """What can be shown while the text arrives. A line that may yet turn out to be a label is held, and so is what has none."""

    def __init__(self) -> None:
        self._line, self._spaces = "", ""
        self._section = "bare"
        self._boxed: bool | None = None  # whether all of it stands in one code block
        self._begun = False  # whether something of the section was shown
        self._open = False  # whether the current line has been shown in part
        self.shown = ""  # of the answer

    def feed(self, piece: str) -> list[tuple[str, str]]:
        out: list[tuple[str, str]] = []
        *whole, rest = (self._line + piece).split("\n")
        for line in whole:
            self._take(line, "\n", out)
            self._open = False
        self._line = rest
        shown = self._section in ("thought", "answer") and bool(rest) and (self._open or not self._unclear(rest))
        label = None if self._open else LABELLED.match(rest)
        if shown or (label is not None and label["rest"].strip()):
            self._take(rest, "", out)
            self._line, self._open = "", True
        return out

    def _unclear(self, line: str) -> bool:
        return may_be_label(line) or bool(self._boxed and "```".startswith(line.strip()))

    def _take(self, line: str, ending: str, out: list[tuple[str, str]]) -> None:
        if self._boxed is None and line.strip():
            self._boxed = line.lstrip().startswith("```")
        elif self._boxed and line.strip() == "```" and not self._open:
            self._section = "hidden"
        label = None if self._open else LABELLED.match(line)
        if label is not None:
            kind = LABELS[re.sub(r"[ \t]+", " ", label["label"]).lower()]
            over = self._section in ("answer", "hidden") or kind not in ("thought", "answer")
            self._section = "hidden" if over else kind
            self._begun, self._spaces = False, ""
            line = label["rest"]
        if self._section in ("thought", "answer"):
            self._show(line + ending, out)

    def _show(self, text: str, out: list[tuple[str, str]]) -> None:
        """Without spaces before and after the whole."""
        text = self._spaces + text if self._begun else text.lstrip()
        kept = text.rstrip(" \t\n*")  # a bold line's end may belong to its label
        self._spaces = text[len(kept) :]
        if not kept:
            return
        self._begun = True
        if self._section == "answer":
            self.shown += kept
        out.append((kept, "text" if self._section == "answer" else "thinking"))


def may_be_label(line: str) -> bool:
    """The beginning of a line that more could make a label of."""
    if len(line) > 60:
        return False
    label = LABELLED.match(line)
    if label is not None and not label["rest"].strip():
        return True
    found = _UNFINISHED.fullmatch(line)
    word = "" if found is None else re.sub(r"[ \t]+", " ", found["word"]).lower()
    return found is not None and any(label.startswith(word) for label in LABELS)
