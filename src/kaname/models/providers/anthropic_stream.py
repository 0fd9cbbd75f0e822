"""Build one reply from the events of Anthropic's stream: content blocks by their index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.codec import dump
from ...core.messages import ModelReply, Part, Provided, StopReason, Text, Thinking, ToolCall, Usage
from ...core.record import replace
from ...kernel.ports import Emit
from ..http.errors import Who, from_event
from ..http.provider import Joiner, as_count, as_mapping, as_mappings, as_text, parse_arguments
from ..output_modes import ANSWER
from ..prices import Price, price_of

CITATIONS = "citations"
_PAUSED = "pause_turn"
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_MADE = "cache_creation"  # how long what was put into the cache is kept there
_STOPS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "stop_sequence": "stop_sequence",
}


class Blocks(Joiner):
    """The content blocks of a reply, by their index."""

    def __init__(self, who: Who, price: Price | None, *, form: bool) -> None:
        super().__init__(who, price)
        self._form = form  # `form`: the call of the answer tool is the answer
        self._blocks: dict[int, dict[str, Any]] = {}
        self._counts: dict[str, Any] = {}
        self._rounds: list[Mapping[str, Any]] = []  # of a reply that took several: compaction, an advisor, the message
        self._stop = ""
        self._tools_of_theirs = False

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {"type": "whole", "message": answer}

    async def take(self, chunk: dict[str, Any], emit: Emit) -> bool:
        kind = chunk.get("type")
        self.seen = self.seen or kind != "ping"
        if kind == "content_block_delta":
            block = self._blocks.setdefault(as_count(chunk.get("index")), {"type": "text"})
            await self._delta(block, as_mapping(chunk.get("delta")), emit)
        elif kind == "content_block_start":
            block = self._blocks[as_count(chunk.get("index"))] = dict(as_mapping(chunk.get("content_block")))
            if text := as_text(block.get("text")):
                await emit(text)
        elif kind == "message_start":
            message = as_mapping(chunk.get("message"))
            self.served = as_text(message.get("model"))
            self._count(message.get("usage"))
        elif kind == "message_delta":
            self._stop = as_text(as_mapping(chunk.get("delta")).get("stop_reason")) or self._stop
            self._count(chunk.get("usage"))
        elif kind == "error" or (kind is None and chunk.get("error")):
            raise from_event(chunk.get("error"), self.who)
        elif kind == "whole":
            await self._take_whole(chunk["message"], emit)
        return kind == "message_stop"

    async def _delta(self, block: dict[str, Any], delta: Mapping[str, Any], emit: Emit) -> None:
        """Collect a piece. Pieces are kept in lists and joined at the end."""
        kind = delta.get("type")
        if kind == "text_delta" and (text := as_text(delta.get("text"))):
            block.setdefault("texts", []).append(text)
            await emit(text)
        elif kind == "thinking_delta" and (text := as_text(delta.get("thinking"))):
            block.setdefault("thoughts", []).append(text)
            await emit(text, "thinking")
        elif kind == "signature_delta":
            block["signature"] = as_text(block.get("signature")) + as_text(delta.get("signature"))
        elif kind == "input_json_delta" and (text := as_text(delta.get("partial_json"))):
            block.setdefault("json", []).append(text)
            if self._form and block.get("name") == ANSWER:
                await emit(text)
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        elif kind == "compaction_delta" and (text := as_text(delta.get("content"))):
            block["content"] = as_text(block.get("content")) + text
            await emit(text, "thinking")

    async def _take_whole(self, message: dict[str, Any], emit: Emit) -> None:
        if message.get("type") == "error" or message.get("error"):
            raise from_event(message.get("error"), self.who)
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_mappings(content)
        self._blocks = dict(enumerate([dict(block) for block in blocks]))
        self._stop, self.served = as_text(message.get("stop_reason")), as_text(message.get("model"))
        self._count(message.get("usage"))
        for block in self._blocks.values():
            match block.get("type"):
                case "text":
                    await emit(as_text(block.get("text")))
                case "thinking" | "compaction":
                    await emit(as_text(block.get("thinking")) or as_text(block.get("content")), "thinking")

    def _count(self, usage: Any) -> None:
        usage = as_mapping(usage)
        self._counts |= {name: as_count(usage[name]) for name in _COUNTS if usage.get(name) is not None}
        if (made := usage.get(_MADE)) is not None:
            self._counts[_MADE] = made
        self._rounds = as_mappings(usage.get("iterations")) or self._rounds
        self._tools_of_theirs = self._tools_of_theirs or any(as_mapping(usage.get("server_tool_use")).values())

    def reply(self, *, ended: bool) -> ModelReply:
        if not self.seen or not self._stop:
            raise self.incomplete()
        blocks = [block for _, block in sorted(self._blocks.items())]
        if self._form and any(_is_form(block) for block in blocks):  # text next to the form is not the answer
            blocks = [block for block in blocks if block.get("type") != "text"]
        parts = [part for block in blocks for part in self._parts(block)]
        if self._stop == "refusal":
            raise self.filtered()
        return self.build(parts, self._stop_reason(parts), self.usage())

    def _stop_reason(self, parts: list[Part]) -> StopReason | None:
        answered = self._stop == "tool_use" and not any(isinstance(part, ToolCall) for part in parts)
        return None if self._stop == _PAUSED else "end_turn" if answered else _STOPS.get(self._stop, "end_turn")

    def usage(self) -> Usage:
        """Return the sum of all rounds. The usage field itself only counts the message."""
        rounds = [self._counted_round(one) for one in self._rounds or [self._counts]]
        usage = sum(rounds[1:], rounds[0])
        return replace(usage, cost=None) if self._tools_of_theirs else usage  # searches and the like are charged by the piece

    def _counted_round(self, one: Mapping[str, Any]) -> Usage:
        fresh, output, read, made = [as_count(one.get(name)) for name in _COUNTS]
        hour = as_count(as_mapping(one.get(_MADE)).get("ephemeral_1h_input_tokens"))
        usage = Usage(fresh + read + made, output, read, None)
        kind, price = as_text(one.get("type")), self.price
        if kind == "advisor_message":  # by another model
            price = price_of(f"anthropic/{as_text(one.get('model'))}")
        if price is None or kind not in ("", "message", "compaction", "advisor_message"):
            return usage
        return replace(usage, cost=price.of(usage, max(0, made - hour), hour))

    def _parts(self, block: dict[str, Any]) -> list[Part]:
        """Return the parts of a block, with the citations before their text. Both are sent back."""
        part, cited = self._part(block), as_mappings(block.get("citations"))
        if part is None or not cited or not isinstance(part, Text):
            return [] if part is None else [part]
        return [Provided("anthropic", {"type": CITATIONS, "citations": cited}), part]

    def _part(self, block: dict[str, Any]) -> Part | None:
        """Return the part of a block. kaname runs `tool_use`; everything the provider ran itself is sent back unchanged."""
        given, kind = "".join(block.pop("json", [])), block.get("type")
        text, thought = "".join(block.pop("texts", [])), "".join(block.pop("thoughts", []))
        if kind == "text":
            text = as_text(block.get("text")) + text
            return Text(text) if text else None
        if kind == "thinking":
            return Thinking(as_text(block.get("thinking")) + thought, as_text(block.get("signature")))
        if kind == "tool_use":
            args = parse_arguments(given) if given else block.get("input") or {}
            if self._form and block.get("name") == ANSWER:
                return Text(given or dump(args))
            return ToolCall(as_text(block.get("id")), as_text(block.get("name")), args)
        return Provided("anthropic", {**block, "input": parse_arguments(given)} if given else dict(block))


def _is_form(block: dict[str, Any]) -> bool:
    return block.get("type") == "tool_use" and block.get("name") == ANSWER
