"""Build one reply from the events of OpenAI's Responses stream: items by their place, deltas as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.messages import REFUSAL, Media, ModelReply, Part, Provided, StopReason, Text, Thinking, ToolCall, Usage
from ...core.notices import notice
from ...core.record import replace
from ...kernel.ports import Emit
from ..http.errors import Who, from_event
from ..http.provider import Joiner, as_count, as_mapping, as_mappings, as_text, parse_arguments
from ..prices import Price
from .client_calls import call_of, is_for_client

MINE = "openai-responses"  # whose pieces are handed back as they came
BETWEEN = "\n\n"  # two messages of one reply
_ASIDE = "commentary"  # the phase of a message that is not the answer
_TEXT = ("response.output_text.delta", "response.refusal.delta")
_THOUGHT = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_BY_THE_PIECE = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call")


class Items(Joiner):
    """The items of a reply. Texts and calls become parts of the message; all others are kept for the provider.

    Commentary before the answer is shown as thinking. Several messages become paragraphs of the answer.
    """

    def __init__(self, who: Who, price: Price | None = None) -> None:
        super().__init__(who, price)
        self._items: dict[int, Mapping[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}  # by the place of the item, for one that was never finished
        self._asides: set[int] = set()  # the places of commentary
        self._emitted: dict[str, int] = {}  # the place of the item that was last shown, by channel
        self._response: Mapping[str, Any] = {}
        self._shown = False

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {"type": "response.completed", "response": answer} if "output" in answer else answer

    async def take(self, chunk: dict[str, Any], emit: Emit) -> bool:
        kind = as_text(chunk.get("type"))
        place = as_count(chunk.get("output_index"))
        self.seen = self.seen or kind.startswith("response.")
        if kind in _TEXT and (text := as_text(chunk.get("delta"))):
            self._texts.setdefault(place, []).append(text)
            await self._show(text, place, "thinking" if place in self._asides else "text", emit)
        elif kind in _THOUGHT and (text := as_text(chunk.get("delta"))):
            await self._show(text, place, "thinking", emit)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._take_item(place, as_mapping(chunk.get("item")), done=kind.endswith("done"))
        elif kind == "response.reasoning_summary_part.added" and as_count(chunk.get("summary_index")):
            await emit("\n\n", "thinking")
        elif kind in _ENDS:
            await self._end(as_mapping(chunk.get("response")), emit)
            return True
        elif kind == "error" or (not kind and any(map(chunk.get, ("error", "message", "detail")))):
            raise from_event(chunk.get("error") or chunk.get("detail") or chunk, self.who)
        return False

    def _take_item(self, place: int, item: Mapping[str, Any], *, done: bool) -> None:
        if done:
            self._items[place] = item
        if item.get("phase") == _ASIDE and not (done and place in self._texts):
            self._asides.add(place)

    async def _show(self, text: str, place: int, channel: str, emit: Emit) -> None:
        if self._emitted.get(channel, place) != place:
            await emit(BETWEEN, channel)
        self._emitted[channel] = place
        self._shown = True
        await emit(text, channel)

    async def _end(self, response: Mapping[str, Any], emit: Emit) -> None:
        self._response = response
        if response.get("status") == "failed" or response.get("error"):
            raise from_event(
                response.get("error") or notice("model.server_gave_up", "the server reported an error without a reason"),
                self.who,
            )
        for place, item in enumerate(as_mappings(response.get("output"))):
            if place not in self._items and item.get("phase") == _ASIDE and place not in self._texts:
                self._asides.add(place)
            self._items.setdefault(place, item)
        if not self._shown:  # it came whole
            for part in self._parts():
                if isinstance(part, Text | Thinking):
                    await (emit(part.text) if isinstance(part, Text) else emit(part.text, "thinking"))

    def reply(self, *, ended: bool) -> ModelReply:
        if not self.seen or not self._response:
            raise self.incomplete()
        self.served = as_text(self._response.get("model"))
        why = as_text(as_mapping(self._response.get("incomplete_details")).get("reason"))
        if why == "content_filter":
            raise self.filtered()
        parts = self._parts()
        if self._asides and not any(isinstance(part, Text | ToolCall) for part in parts):  # nothing else was said
            self._asides.clear()
            parts = self._parts()
        stop: StopReason = "tool_use" if any(isinstance(part, ToolCall) for part in parts) else "end_turn"
        if why or self._response.get("status") == "incomplete":
            stop = "max_tokens"
        return self.build(parts, stop, self.usage())

    def _parts(self) -> list[Part]:
        unfinished = {place: {"type": "message", "content": [{"text": "".join(text)}]} for place, text in self._texts.items()}
        items = {**unfinished, **self._items}
        parts: list[Part] = []
        for place in sorted(items):
            made = _parts_of(items[place], aside=place in self._asides)
            if is_for_client(items[place], items.values()):
                made.append(call_of(items[place]))
            for kind in (Text, Thinking):  # a paragraph of its own, after one of another item
                before = any(isinstance(part, kind) for part in parts)
                first = next((number for number, part in enumerate(made) if isinstance(part, kind)), None)
                if before and first is not None:
                    made.insert(first, kind(BETWEEN))
            parts += made
        return parts

    def usage(self) -> Usage:
        usage = as_mapping(self._response.get("usage"))
        read, made = as_mapping(usage.get("input_tokens_details")), as_mapping(usage.get("output_tokens_details"))
        seen = Usage(
            as_count(usage.get("input_tokens")),
            as_count(usage.get("output_tokens")),
            as_count(read.get("cached_tokens")),
            None,
            as_count(made.get("reasoning_tokens")),
        )
        if self.price is None or any(item.get("type") in _BY_THE_PIECE for item in self._items.values()):
            return seen
        return replace(seen, cost=self.price.of(seen, as_count(read.get("cache_write_tokens"))))


def _parts_of(item: Mapping[str, Any], *, aside: bool) -> list[Part]:
    back = {name: value for name, value in item.items() if value is not None}
    match item.get("type"):
        case "message":
            pieces = as_mappings(item.get("content"))
            return [part for one in pieces for part in (_commentary(one) if aside else _text_parts(one, item.get("phase")))]
        case "function_call":
            return _call_parts(item)
        case "image_generation_call" if picture := as_text(item.get("result")):
            del back["result"]  # the picture follows, and goes back from there
            return [Provided(MINE, back), Media(f"image/{as_text(item.get('output_format')) or 'png'}", picture)]
        case "reasoning":
            back.pop("status", None)  # which is not taken back
            pieces = as_mappings(item.get("summary")) or as_mappings(item.get("content"))
            thought = "\n\n".join([as_text(one.get("text")) for one in pieces])
            return [Provided(MINE, back), *([Thinking(thought)] if thought else [])]
    return [Provided(MINE, back)] if item.get("type") else []


def _commentary(content: Mapping[str, Any]) -> list[Part]:
    text = as_text(content.get("text"))
    return [Provided(MINE, {"type": "message", "phase": _ASIDE, "text": text}), Thinking(text)] if text else []


def _call_parts(item: Mapping[str, Any]) -> list[Part]:
    call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
    call = ToolCall(call_id, as_text(item.get("name")), parse_arguments(as_text(item.get("arguments"))))
    space = as_text(item.get("namespace"))
    return [*([Provided(MINE, {"type": "function_call", "namespace": space})] if space else []), call]


def _text_parts(content: Mapping[str, Any], phase: Any) -> list[Part]:
    """Return a text, and before it the data that is sent back with it: its phase and its citations."""
    text = as_text(content.get("text")) or as_text(content.get("refusal"))
    refused = REFUSAL if content.get("type") == REFUSAL else ""
    about = {"phase": phase, "citations": as_mappings(content.get("annotations"))}
    about = {name: value for name, value in about.items() if value}
    held: list[Part] = [*([Provided(MINE, {"type": "message", **about})] if about else []), Text(text)] if text else []
    return [Provided("openai", {"type": REFUSAL}), *held] if refused and held else held
