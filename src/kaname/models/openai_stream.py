"""One reply from the pieces of OpenAI's stream, however a server cuts them and whatever it puts in their place."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from ..core.codec import dump
from ..core.errors import ContentFiltered
from ..core.language import say
from ..core.messages import Message, ModelReply, Part, Provided, StopReason, Text, Thinking, ToolCall, Usage
from ..core.record import replace
from ..kernel.ports import Emit
from .failures import Who, failure, from_event, garbled
from .prices import Price
from .served import counted, listed, mapping, parsed_arguments, words

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "end_turn": "end_turn",
    "eos": "end_turn",
    "tool_calls": "tool_use",
    "tool_use": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
}
_FILTERED = ("content_filter", "safety", "recitation", "prohibited_content", "blocklist")


class Pieces:
    """The pieces of a reply. Reasoning that a provider wants back is kept as it came (`Provided`)."""

    def __init__(self, who: Who, price: Price | None = None) -> None:
        self._who, self._price = who, price
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._details: list[Any] = []
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[Any, dict[str, Any]] = {}
        self._finish = ""
        self._usage = Usage(cost=None)
        self._seen = False

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        return answer  # its `message` is read as one large delta

    async def take(self, chunk: dict[str, Any], emit: Emit) -> bool:
        choices = listed(chunk.get("choices"))
        if chunk.get("error") or (not choices and (chunk.get("object") == "error" or {"message", "detail"} & chunk.keys())):
            raise from_event(chunk.get("error") or chunk.get("detail") or chunk, self._who)
        if usage := mapping(chunk.get("usage")):
            self._usage = self.count(usage)
        for choice in choices:
            self._seen = True
            if not choice.get("index"):  # of several answers, the first
                await self._take(mapping(choice.get("delta") or choice.get("message")), emit)
                self._finish = words(choice.get("finish_reason")) or self._finish
        return False

    async def _take(self, delta: Mapping[str, Any], emit: Emit) -> None:
        for name, value in delta.items():
            if not value or name == "role":
                continue
            if name == "content" and type(value) is list:  # parts, as Mistral's reasoning models write them
                await self._parts(listed(value), emit)
            elif name in ("content", "refusal") and type(value) is str:
                self._text.append(value)
                await emit(value)
            elif name in ("reasoning_content", "reasoning") and type(value) is str:
                if name == "reasoning" and delta.get("reasoning_content"):
                    continue  # both names, the same words
                self._thinking.append(value)
                await emit(value, "thinking")
            elif name == "reasoning_details":
                self._details += listed(value)
            elif name == "tool_calls":
                for fragment in listed(value):
                    self._join(fragment)

    async def _parts(self, parts: list[Mapping[str, Any]], emit: Emit) -> None:
        for part in parts:
            if text := words(part.get("text")):
                self._text.append(text)
                await emit(text)
            for thought in listed(part.get("thinking")):
                self._thinking.append(words(thought.get("text")))
                await emit(words(thought.get("text")), "thinking")

    def _join(self, fragment: Mapping[str, Any]) -> None:
        function, id = mapping(fragment.get("function")), words(fragment.get("id"))
        call = self._belongs_to(fragment.get("index"), id, words(function.get("name")))
        call["name"] = call["name"] or words(function.get("name"))
        call["id"] = call["id"] or id
        call["extra"] = fragment.get("extra_content") or call["extra"]
        arguments = function.get("arguments")
        if arguments is not None and arguments != "":
            call["arguments"].append(arguments if isinstance(arguments, str) else dump(arguments))

    def _belongs_to(self, index: Any, id: str, name: str) -> dict[str, Any]:
        """By index, unless another id comes with it; else by id; else to the call before, unless it has a name of its own."""
        if index is not None:
            known = self._by_index.get(str(index))
            if known is not None and not (id and known["id"] and id != known["id"]):
                return known
        elif id:
            same = [one for one in self._calls if one["id"] == id]
            if same and not (name and _complete(same[-1])):
                return same[-1]
        elif self._calls and not (name and self._calls[-1]["name"]):
            return self._calls[-1]
        made: dict[str, Any] = {"id": id, "name": "", "arguments": [], "extra": None}
        self._calls.append(made)
        if index is not None:
            self._by_index[str(index)] = made
        return made

    def reply(self, *, ended: bool) -> ModelReply:
        if not self._seen:
            raise garbled(say("an empty answer", "空の返答"), self._who)
        if not ended and not self._finish:
            broken = say("the connection ended in the middle of the answer", "返答の途中で接続が切れました")
            raise garbled(broken, self._who)
        if self._finish.lower() in _FILTERED and not self._calls:
            withheld = say("the provider's filter withheld the answer", "提供元のフィルターで返答が止められました")
            raise failure(ContentFiltered, withheld, 0, self._who)
        parts = self.thoughts()
        if self._text:
            parts.append(Text("".join(self._text)))
        calls = [call for call in self._calls if call["name"]]
        parts += [ToolCall(call["id"], call["name"], parsed_arguments("".join(call["arguments"]))) for call in calls]
        extra = [call["extra"] for call in calls]
        if self._details or any(extra):
            parts.append(Provided("openai", {"reasoning_details": self._details, "extra_content": extra}))
        return ModelReply(Message("assistant", tuple(parts)), _STOPS.get(self._finish.lower()), self._usage, self._who.model)

    def thoughts(self) -> list[Part]:
        return [Thinking("".join(self._thinking))] if self._thinking else []

    def count(self, usage: Mapping[str, Any]) -> Usage:
        """A price of ours goes before what the server says that it took; OpenRouter does say so."""
        read, made = mapping(usage.get("prompt_tokens_details")), mapping(usage.get("completion_tokens_details"))
        seen = Usage(
            counted(usage.get("prompt_tokens")),
            counted(usage.get("completion_tokens")),
            counted(read.get("cached_tokens")),
            _money(usage.get("cost")),
            counted(made.get("reasoning_tokens")),
        )
        if self._price is None:
            return seen
        return replace(seen, cost=self._price.of(seen, counted(read.get("cache_write_tokens"))))


def _complete(call: dict[str, Any]) -> bool:
    return bool(call["arguments"]) and isinstance(parsed_arguments("".join(call["arguments"])), dict)


def _money(told: Any) -> float | None:
    sound = isinstance(told, int | float) and not isinstance(told, bool) and isfinite(told) and told >= 0
    return float(told) if sound else None
