"""A model that carries out an honest plan step by step, and obeys every injected instruction as soon as it has read it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kaname import Message, ModelReply, ModelRequest, ToolCall, ToolResult, Usage
from kaname.core.messages import Text
from kaname.kernel.bases import ModelBase

Step = Sequence[Any]  # [tool, arguments], or a list of such steps that are called together


class ObedientModel(ModelBase):
    """A model that obeys.

    Args:
        plan: The honest steps. "<<regex>>" in an argument is taken from what was read, and waits until it can be.
        answer: What it says at the end.
        injected: The instructions of others: `parts`, the texts that must all have been read; `calls`, what they ask for;
            `after`, the number of honest steps before which it is not obeyed (a delayed instruction).
    """

    name = "obedient"

    def __init__(self, plan: Sequence[Step], answer: str, injected: Sequence[Mapping[str, Any]] = ()) -> None:
        self._plan, self._answer = [_together(step) for step in plan], answer
        self._injected = list(injected)
        self._done = 0
        self.meant: list[tuple[str, dict[str, Any]]] = []  # the honest calls, with their arguments as they were sent

    @property
    def finished(self) -> bool:
        return self._done == len(self._plan)

    async def reply(self, request: ModelRequest, emit: Any) -> ModelReply:
        read = "\n".join(_texts_of(request))
        calls = self._obey(read)
        if not calls and not self.finished:
            calls = self._go_on(read)
        if not request.tools or not calls:
            said = self._answer if self.finished else "I need the results of the calls that wait before I can go on."
            return ModelReply(Message("assistant", (Text(said),)), "end_turn", Usage(10, 5))
        parts = tuple(ToolCall("", name, args) for name, args in calls)
        return ModelReply(Message("assistant", parts), "tool_use", Usage(10, 5))

    def _obey(self, read: str) -> list[tuple[str, dict[str, Any]]]:
        due = [
            each
            for each in self._injected
            if self._done >= each.get("after", 0) and all(_squeeze(part) in _squeeze(read) for part in each["parts"])
        ]
        self._injected = [each for each in self._injected if each not in due]
        return [(name, _fill(args, read) or {}) for each in due for name, args in each["calls"]]

    def _go_on(self, read: str) -> list[tuple[str, dict[str, Any]]]:
        filled = [(name, _fill(args, read)) for name, args in self._plan[self._done]]
        calls = [(name, args) for name, args in filled if args is not None]
        if len(calls) < len(filled):
            return []
        self._done += 1
        self.meant += calls
        return calls


def _together(step: Step) -> list[tuple[str, dict[str, Any]]]:
    steps = [step] if isinstance(step[0], str) else step
    return [(each[0], each[1] if len(each) > 1 else {}) for each in steps]


def _fill(args: Mapping[str, Any], read: str) -> dict[str, Any] | None:
    """Return the arguments with what was read put in; None if it has not been read yet."""
    made: dict[str, Any] = {}
    for name, value in args.items():
        if isinstance(value, str):
            for hole in re.findall(r"<<(.+?)>>", value):
                if not (found := re.findall(hole, read)):
                    return None
                value = value.replace(f"<<{hole}>>", found[-1])
        made[name] = value
    return made


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _texts_of(request: ModelRequest) -> Iterator[str]:
    """Yield everything that the model reads but the user's own words: instructions, descriptions of tools, results."""
    for spec in request.tools:
        yield spec.description
    for message in request.messages:
        if message.role == "user":  # an injected text that repeats the user's words has not been read yet
            continue
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield from _strings(part.output if part.error is None else part.error)
            elif isinstance(part, Text) and message.role != "assistant":
                yield part.text


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
            if value[:1] in "[{":
                with contextlib.suppress(ValueError):
                    yield from _strings(json.loads(value))
        case Mapping():
            for each in value.values():
                yield from _strings(each)
        case list() | tuple():
            for each in value:
                yield from _strings(each)
        case None:
            pass
        case _:
            yield str(value)
