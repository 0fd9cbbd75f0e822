"""Describe a run as lines, each with its fact: for `kaname runs show`, `kaname runs diff` and the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from ..events import (
    Answered,
    Asked,
    Event,
    HandedOff,
    Interjected,
    ModelReplied,
    Noted,
    Received,
    Resumed,
    Stopped,
    ToolFinished,
    ToolStarted,
    Warned,
)
from ..messages import ToolCall, ToolResult
from ..notices import notice
from ..openai_shape import result_text
from .visible import call_line, visible_line

Kind = Literal[
    "asked", "noted", "thought", "said", "call", "result", "error", "started",
    "question", "answer", "resumed", "handed", "warned", "stopped",
]  # fmt: skip
_SPEAKING = (Received, Interjected, Noted, ModelReplied, Asked, Answered, Resumed, HandedOff, Stopped)


SIGNS: dict[Kind, str] = {
    "asked": ">", "noted": "·", "thought": "…", "call": "→", "result": "←", "error": "✗", "started": "…",
    "question": "?", "answer": "!", "resumed": "—", "handed": "—", "warned": "!", "stopped": "—",
}  # fmt: skip


class StoryLine(NamedTuple):
    """A line of the description.

    `whose`: the call of a result, the author of an answer, the source of a warning, or how a run stopped. `apart`: True for a
    result that does not stand below its call.
    """

    event: Event
    kind: Kind
    text: str
    whose: str = ""
    apart: bool = False


class Order:
    """Decide where a result is shown: below its call, or at its own place.

    A result stands below its call as long as no message, question or answer was recorded since. An approved call therefore
    returns after its approval. Only the ids of open calls are kept.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._below: set[str] = set()

    def take(self, event: Event) -> bool:
        """Take the next fact. Return True if it is a result that stands apart from its call."""
        body = event.body
        if isinstance(body, ToolFinished):
            apart = body.result.call_id not in self._below
            self._known.discard(body.result.call_id)
            return apart
        if isinstance(body, _SPEAKING):
            self._below.clear()
        if isinstance(body, ModelReplied):
            self._begin([call.id for call in body.reply.message.calls])
        elif isinstance(body, ToolStarted) and body.call.id not in self._known:
            self._begin([body.call.id])  # a task of a workflow: no reply asked for it
        return False

    def _begin(self, calls: list[str]) -> None:
        self._known.update(calls)
        self._below.update(calls)


def lines(events: Iterable[Event]) -> list[StoryLine]:
    """Return the lines of these facts, in the order in which they are read."""
    order, told = Order(), list[list[StoryLine]]()
    calls: dict[str, list[StoryLine]] = {}  # of the open calls: the call, and then its result
    started: dict[str, list[list[StoryLine]]] = {}
    for event in events:
        apart = order.take(event)
        match event.body:
            case ModelReplied(reply):
                told.append([*_each(event, "thought", reply.message.thinking), *_each(event, "said", reply.message.text)])
                for call in reply.message.calls:
                    calls[call.id] = [StoryLine(event, "call", _call_line(call), call.name)]
                    told.append(calls[call.id])
            case ToolStarted(call) if call.id in calls:
                begun_line = notice("story.started", "{name} was started", name=visible_line(call.name))
                told.append([StoryLine(event, "started", begun_line)])
                started.setdefault(call.id, []).append(told[-1])
            case ToolStarted(call):
                calls[call.id] = [StoryLine(event, "call", f"{call.id}: {_call_line(call)}", call.id)]
                told.append(calls[call.id])
            case ToolFinished(result):
                for begun in started.pop(result.call_id, []):
                    begun.clear()
                below = calls.pop(result.call_id, [])
                whose = below[0].whose if below else result.name
                if apart or not below:
                    below = []
                    told.append(below)
                below.append(_result_line(event, result, whose, apart))
            case _:
                told.append(list(_spoken_lines(event)))
    return [line for group in told for line in group]


def _spoken_lines(event: Event) -> Iterator[StoryLine]:
    match event.body:
        case Received(message):
            yield from _each(event, "asked", message.text)
        case Interjected(message, by):
            yield from _each(event, "asked", message.text, by)
        case Noted(message):
            yield from _each(event, "noted", message.text)
        case Asked(_, prompt):
            yield StoryLine(event, "question", prompt)
        case Answered(_, answer, by):
            yield StoryLine(event, "answer", answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False), by)
        case Resumed():
            yield StoryLine(event, "resumed", notice("story.resumed", "resumed"))
        case HandedOff(to):
            yield StoryLine(event, "handed", notice("story.handed", "transferred to {to}", to=to))
        case Warned(source, text):
            yield StoryLine(event, "warned", text, source)
        case Stopped(stop) if stop.kind != "completed":
            yield StoryLine(event, "stopped", stop.detail, stop.kind)


def _result_line(event: Event, result: ToolResult, whose: str, apart: bool) -> StoryLine:
    text = result.error if result.error is not None and result.output is None else result_text(result)
    return StoryLine(event, "error" if result.is_error else "result", text, whose, apart)


def _each(event: Event, kind: Kind, text: str, whose: str = "") -> list[StoryLine]:
    return [StoryLine(event, kind, text, whose)] if text.strip() else []


def _call_line(call: ToolCall) -> str:
    return call_line(call.name, call.args)
