"""One reply from the pieces of OpenAI's stream, however a server cuts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.codec import dump
from ..core.errors import ContentFiltered
from ..core.language import say
from ..core.messages import Message, ModelReply, Part, StopReason, Text, Thinking, ToolCall, Usage
from ..core.record import replace
from ..kernel.ports import Emit
from .failures import Who, failure, from_event, garbled
from .prices import Price
from .served import parsed_arguments

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "end_turn": "end_turn",
}


class Pieces:
    """The pieces of a reply, however the server cuts them."""

    def __init__(self, who: Who, price: Price | None = None) -> None:
        self._who, self._price = who, price
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[Any, dict[str, Any]] = {}
        self._finish = ""
        self._usage = Usage(cost=None)
        self._seen = False

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        return answer  # its `message` is read as one large delta

    async def take(self, chunk: dict[str, Any], emit: Emit) -> None:
        if chunk.get("error"):
            raise from_event(chunk["error"], self._who)
        self._seen = True
        if usage := chunk.get("usage"):
            self._usage = self.count(usage)
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or choice.get("message") or {}
            if text := delta.get("content") or delta.get("refusal"):
                self._text.append(text)
                await emit(text)
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            if thought and isinstance(thought, str):
                self._thinking.append(thought)
                await emit(thought, "thinking")
            for fragment in delta.get("tool_calls") or ():
                self._join(fragment)
            self._finish = choice.get("finish_reason") or self._finish

    def _join(self, fragment: dict[str, Any]) -> None:
        """By index; a server without one starts a new call with every new id, and with every name."""
        index, name = fragment.get("index"), (fragment.get("function") or {}).get("name")
        call = self._by_index.get(index) if index is not None else None
        if index is None and self._calls and not (fragment.get("id") and fragment["id"] != self._calls[-1]["id"]):
            call = self._calls[-1] if not name or not self._calls[-1]["name"] else None
        if call is None:
            call = {"id": fragment.get("id") or "", "name": "", "arguments": []}
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
        call["name"] = call["name"] or name or ""
        arguments = (fragment.get("function") or {}).get("arguments")
        if arguments is not None and arguments != "":
            call["arguments"].append(arguments if isinstance(arguments, str) else dump(arguments))

    def reply(self, *, ended: bool) -> ModelReply:
        if not self._seen:
            raise garbled(say("an empty answer", "空の返答"), self._who)
        if not ended and not self._finish:
            broken = say("the connection ended in the middle of the answer", "返答の途中で接続が切れました")
            raise garbled(broken, self._who)
        if self._finish == "content_filter" and not self._calls:
            withheld = say("the provider's filter withheld the answer", "提供元のフィルターで返答が止められました")
            raise failure(ContentFiltered, withheld, 0, self._who)
        parts: list[Part] = self.thoughts()
        if self._text:
            parts.append(Text("".join(self._text)))
        parts += [
            ToolCall(call["id"], call["name"], parsed_arguments("".join(call["arguments"])))
            for call in self._calls
            if call["name"]
        ]
        stop = _STOPS.get(self._finish)
        return ModelReply(Message("assistant", tuple(parts)), stop, self._usage, self._who.model)

    def thoughts(self) -> list[Part]:
        return [Thinking("".join(self._thinking))] if self._thinking else []

    def count(self, usage: Mapping[str, Any]) -> Usage:
        """A price of ours goes before what the server says that it took; OpenRouter does say so."""
        read, made = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
        told = usage.get("cost")
        counted = Usage(
            usage.get("prompt_tokens") or 0,
            usage.get("completion_tokens") or 0,
            read.get("cached_tokens") or 0,
            float(told) if isinstance(told, int | float) else None,
            made.get("reasoning_tokens") or 0,
        )
        if self._price is None:
            return counted
        return replace(counted, cost=self._price.of(counted, read.get("cache_write_tokens") or 0))
