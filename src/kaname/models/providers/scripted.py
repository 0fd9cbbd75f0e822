"""A model that follows a script, for tests, demonstrations and dry runs. It is an adapter like any other.

    ScriptedModel([call("weather", city="Kyoto"), "It is sunny in Kyoto."])

Its replies depend only on the request (the number of replies in the conversation), so that a run that was killed and resumed
gets the same replies.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, ModelError
from ...core.messages import Message, ModelReply, ModelRequest, Part, StopReason, Text, Thinking, ToolCall, Usage
from ...core.record import replace
from ...kernel.bases import ModelBase, ModelInfo
from ...kernel.ports import Emit
from ..prices import Price

Reply = str | ToolCall | Sequence[ToolCall] | ModelReply | Exception
Script = Sequence[Any] | Callable[[ModelRequest], Any]
_PIECE = 8
A_LITTLE = Usage(10, 5)  # what a reply costs where nothing is said of it


def call(tool: str, /, **args: Any) -> ToolCall:
    """Return a tool call for a script.

    Args:
        tool: The name of the tool.
        args: Its arguments.
    """
    return ToolCall("", tool, args)


class ScriptedModel(ModelBase):
    """A model that replies by a script.

    Args:
        script: The replies in order (texts, calls, lists of both, `ModelReply`), or a function from the request to a reply. An
            exception in it is raised. The function reads what a person said with `request.messages[-1].text`, and what a tool
            returned with `request.messages[-1].results[0].output`.
        name: The name of the model.
        pace: Seconds between two pieces of streamed text (default 0).
        usage: The usage of each reply that does not have its own.
        price: The price of the tokens. Without it, replies cost what their usage says.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        pace: float = 0.0,
        usage: Usage = A_LITTLE,
        price: Price | None = None,
    ) -> None:
        self.name, self._script, self._pace, self._price = name, script, pace, price
        self._usage = usage if price is None else replace(usage, cost=price.of(usage))
        self.about = ModelInfo(identity=script if callable(script) else tuple(script))

    def most_expensive(self, request: ModelRequest, input: int, output: int) -> float:
        return 0.0 if self._price is None else self._price.most(input, output)

    @classmethod
    def from_file(cls, path: str) -> ScriptedModel:
        """Read the replies from a JSON file: a list of texts and of objects with `text`, `thinking` and `calls`."""
        try:
            entries = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls([_from_entry(entry) for entry in entries], name=f"scripted/{path}")
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ConfigError.of(
                "scripted.unreadable",
                "the script {path} cannot be used: {problem}; expected a JSON list of texts and of objects like "
                '{{"calls": [{{"name": "add", "args": {{"a": 1}}}}]}}',
                path=path,
                problem=problem,
            ) from problem

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        reply = self._complete(self._next_entry(request))
        for part in reply.message.parts:
            if isinstance(part, Text | Thinking):
                kind = "text" if isinstance(part, Text) else "thinking"
                for start in range(0, len(part.text), _PIECE):
                    if self._pace:
                        await asyncio.sleep(self._pace)
                    await emit(part.text[start : start + _PIECE], kind)
        return reply

    def _next_entry(self, request: ModelRequest) -> Any:
        if callable(self._script):
            return self._script(request)
        turn = sum([message.role == "assistant" for message in request.messages])
        if turn >= len(self._script):
            raise ModelError.of(
                "scripted.no_more_replies",
                "the script of {name!r} has only {count} replies, and one more was requested",
                name=self.name,
                count=len(self._script),
            )
        return self._script[turn]

    def _complete(self, entry: Any) -> ModelReply:
        match entry:
            case ModelReply():
                return entry
            case Exception():
                raise entry
            case str():
                return ModelReply(Message("assistant", (Text(entry),) if entry else ()), "end_turn", self._usage)
            case ToolCall():
                return ModelReply(Message("assistant", (entry,)), "tool_use", self._usage)
            case [*parts]:
                reason: StopReason = "tool_use" if any(isinstance(p, ToolCall) for p in parts) else "end_turn"
                said: list[Part] = [Text(part) if isinstance(part, str) else part for part in parts]
                return ModelReply(Message("assistant", tuple(said)), reason, self._usage)
            case _:
                raise ConfigError.of(
                    "scripted.entry",
                    "a script entry must be a text, a tool call, a list of both, a reply or an exception, not {entry!r}",
                    entry=entry,
                )


def _from_entry(entry: Any) -> Any:
    if isinstance(entry, str):
        return entry
    parts: list[Any] = [Thinking(entry["thinking"])] if entry.get("thinking") else []
    parts += [entry["text"]] if entry.get("text") else []
    return [*parts, *[call(c["name"], **c.get("args", {})) for c in entry.get("calls", [])]]
