"""Build one reply from the pieces of OpenAI's stream, however a server cuts them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from ...core.codec import dump
from ...core.messages import REFUSAL, ModelReply, Part, Provided, StopReason, Text, Thinking, ToolCall, Usage
from ...core.notices import notice
from ...core.record import replace
from ...kernel.ports import Emit
from ..http.errors import Who, from_event, garbled_reply
from ..http.provider import Joiner, as_count, as_mapping, as_mappings, as_text, parse_arguments
from ..media import Brought
from ..prices import Price

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
_UNKNOWN = Usage(cost=None)
_FILTERED = ("content_filter", "safety", "recitation", "prohibited_content", "blocklist")


class Pieces(Joiner):
    """The pieces of a reply. Reasoning that a provider wants back is kept as it came (`Provided`)."""

    def __init__(self, who: Who, price: Price | None = None) -> None:
        super().__init__(who, price)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._details: list[Any] = []
        self._citations: list[Mapping[str, Any]] = []
        self._brought: Brought | None = None  # pictures and sound
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[Any, dict[str, Any]] = {}
        self._joined: tuple[Any, dict[str, Any]] = (None, {})  # the index of the last piece, and its call
        self._finish = ""
        self._usage = _UNKNOWN
        self._echoed = self._refused = False

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        return answer  # its `message` is read as one large delta

    async def take(self, chunk: dict[str, Any], emit: Emit) -> bool:
        choices = as_mappings(chunk.get("choices"))
        if "error" in chunk or not choices:
            self._raise_error(chunk, choices)
        usage = chunk.get("usage")
        if usage is None and ("x_groq" in chunk or (choices and "usage" in choices[0])):  # Groq, Moonshot
            usage = as_mapping(chunk.get("x_groq")).get("usage") or (choices[0].get("usage") if choices else None)
        if usage and type(usage) is dict:
            self._usage = self.count(usage)
        self.served = self.served or as_text(chunk.get("model"))
        for choice in choices:
            self.seen = True
            if choice.get("index"):  # of several answers, the first
                continue
            if choice.get("finish_reason") is not None or "error" in choice:
                self._end_choice(choice)
            delta: Any = choice.get("delta") or choice.get("message")
            for name, value in delta.items() if type(delta) is dict else ():  # here, because a call for each chunk is dear
                if not value or name == "role":
                    continue
                if name == "content" and type(value) is str:
                    self._text.append(value)
                    await emit(value)
                elif name == "tool_calls":
                    for fragment in as_mappings(value):
                        self._join(fragment)
                else:
                    await self._take(name, value, delta, emit)
        return False

    def _raise_error(self, chunk: Mapping[str, Any], choices: list[Mapping[str, Any]]) -> None:
        """Raise the error that a chunk reports, if it does."""
        if chunk.get("error") or (
            not choices and (chunk.get("object") == "error" or chunk.get("message") or chunk.get("detail"))
        ):
            raise from_event(chunk.get("error") or chunk.get("detail") or chunk, self.who)

    def _end_choice(self, choice: Mapping[str, Any]) -> None:
        if choice.get("error") or choice.get("finish_reason") == "error":
            raise from_event(
                choice.get("error") or notice("model.server_gave_up", "the server reported an error without a reason"),
                self.who,
            )
        self._finish = as_text(choice.get("finish_reason")) or self._finish

    async def _take(self, name: str, value: Any, delta: Mapping[str, Any], emit: Emit) -> None:
        """Take a field of a delta other than plain text and calls."""
        if name == "content" and type(value) is list:  # parts, as Mistral's reasoning models write them
            await self._parts(as_mappings(value), emit)
        elif name == "refusal" and type(value) is str:
            self._refused = True
            self._text.append(value)
            await emit(value)
        elif name in ("reasoning_content", "reasoning") and type(value) is str:
            if name == "reasoning" and delta.get("reasoning_content"):
                return  # both names, the same words
            self._echoed = self._echoed or name == "reasoning_content"
            self._thinking.append(value)
            await emit(value, "thinking")
        elif name == "reasoning_details":
            self._details += as_mappings(value)
        elif name == "annotations":
            self._citations += as_mappings(value)
        elif name in ("images", "audio"):
            self._brought = self._brought or Brought()
            await self._brought.take(name, value, emit, self._text)

    async def _parts(self, parts: list[Mapping[str, Any]], emit: Emit) -> None:
        for part in parts:
            if text := as_text(part.get("text")):
                self._text.append(text)
                await emit(text)
            for thought in as_mappings(part.get("thinking")):
                self._thinking.append(as_text(thought.get("text")))
                await emit(as_text(thought.get("text")), "thinking")

    def _join(self, fragment: Mapping[str, Any]) -> None:
        index, function = fragment.get("index"), as_mapping(fragment.get("function"))
        if len(fragment) == 2 and len(function) == 1 and index is not None and index == self._joined[0]:
            more = function.get("arguments")  # nothing but the next piece of the same arguments
            if type(more) is str:
                self._joined[1]["arguments"].append(more)
                return
        id = as_text(fragment.get("id"))
        call = self._belongs_to(index, id, function)
        self._joined = (index, call)
        call["name"] = call["name"] or as_text(function.get("name"))
        call["id"] = call["id"] or id
        call["extra"] = fragment.get("extra_content") or call["extra"]
        call["type"] = as_text(fragment.get("type")) or call["type"]
        arguments = function.get("arguments")
        if arguments is not None and arguments != "":
            call["arguments"].append(arguments if isinstance(arguments, str) else dump(arguments))

    def _belongs_to(self, index: Any, id: str, function: Mapping[str, Any]) -> dict[str, Any]:
        """Return the call of that index, else of that id, else the last; a new one, if a name shows that one begins."""
        known = self._by_index.get(str(index)) if index is not None else None
        if index is None and self._calls:
            known = next((one for one in reversed(self._calls) if one["id"] == id), None) if id else self._calls[-1]
        if known is not None and not _begins(function, known):
            return known
        made: dict[str, Any] = {"id": id, "name": "", "arguments": [], "extra": None, "type": ""}
        self._calls.append(made)
        if index is not None:
            self._by_index[str(index)] = made
        return made

    def _check_finish(self, finish: str) -> None:
        """Raise the error of a reply without a call that ended for this reason."""
        if finish in _FILTERED:
            raise self.filtered()
        if "malformed" in finish:  # Gemini's word for a call that it could not write
            raise garbled_reply(notice("model.malformed_call", "the model wrote a tool call that cannot be read"), self.who)

    def reply(self, *, ended: bool) -> ModelReply:
        if not self.seen or not (ended or self._finish):
            raise self.incomplete()
        if not self._calls:
            self._check_finish(self._finish.lower())
        parts = self._said()
        made = [call for call in self._calls if call["name"]]
        parts += [_call(call) for call in made]
        calls = [call for call in made if not _is_theirs(call)]
        if calls and (back := self._given_back(calls)):
            parts.append(Provided("openai", back))
        stop = _STOPS.get(self._finish.lower())
        stop = "end_turn" if stop == "tool_use" and made and not calls else stop
        return self.build(parts, stop, self._usage)

    def usage(self) -> Usage:
        return self._usage

    def _said(self) -> list[Part]:
        """Return everything but the calls."""
        parts = self.thoughts()
        if self._refused:
            parts.append(Provided("openai", {"type": REFUSAL}))
        if self._citations:
            parts.append(Provided("openai", {"type": "citations", "citations": self._citations}))
        if self._text:
            parts.append(Text("".join(self._text)))
        return parts if self._brought is None else [*parts, *self._brought.parts()]

    def _given_back(self, calls: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the data that belongs to the calls of a turn and must be sent back, under its original names."""
        back: dict[str, Any] = {"echo": "reasoning_content"} if self._echoed else {}
        if self._details:
            back["reasoning_details"] = _merge_details(self._details)
        if any(call["extra"] for call in calls):
            back["extra_content"] = [call["extra"] for call in calls]
        return back

    def thoughts(self) -> list[Part]:
        return [Thinking("".join(self._thinking))] if self._thinking else []

    def count(self, usage: Mapping[str, Any]) -> Usage:
        """Return the tokens and their cost: by the known price, or as the server reports it (OpenRouter, Perplexity, xAI)."""
        read, made = as_mapping(usage.get("prompt_tokens_details")), as_mapping(usage.get("completion_tokens_details"))
        given, written, thought = [
            as_count(one) for one in (usage.get("prompt_tokens"), usage.get("completion_tokens"), made.get("reasoning_tokens"))
        ]
        if thought and as_count(usage.get("total_tokens")) == given + written + thought:  # xAI does not count it as written
            written += thought
        cached = read.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
        seen = Usage(given, written, as_count(cached), _reported_cost(usage), thought)
        if any(as_mapping(usage.get("server_tool_use")).values()):  # searches and the like are charged by the piece
            return replace(seen, cost=None)
        if self.price is None:
            return seen
        written = as_count(read.get("cache_write_tokens"))
        hour = as_count(as_mapping(read.get("cache_creation_token_details")).get("ephemeral_1h_input_tokens"))  # by LiteLLM
        return replace(seen, cost=self.price.of(seen, max(0, written - hour), hour))


def _is_theirs(call: Mapping[str, Any]) -> bool:
    """Return True if the provider has run the call itself: its type is not `function`, or its id is Anthropic's for that."""
    return call["type"] not in ("", "function") or call["id"].startswith("srvtoolu_")


def _call(call: Mapping[str, Any]) -> Part:
    arguments = parse_arguments("".join(call["arguments"]))
    if _is_theirs(call):
        return Provided("server_tool", {"id": call["id"], "name": call["name"], "input": arguments})
    return ToolCall(call["id"], call["name"], arguments)


def _begins(function: Mapping[str, Any], known: dict[str, Any]) -> bool:
    """Return True if another call begins: servers give all calls one index, or repeat the name with every piece.

    A call with complete arguments accepts no more.
    """
    name = as_text(function.get("name"))
    if not name or not known["name"]:
        return False
    complete = known["arguments"] and isinstance(parse_arguments("".join(known["arguments"])), dict)
    return name != known["name"] or bool(complete and function.get("arguments"))


def _merge_details(details: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join the pieces of each reasoning block. Pieces of one block have the same type and index."""
    blocks: dict[Any, dict[str, Any]] = {}
    for place, piece in enumerate(details):
        index = piece.get("index")
        block = blocks.setdefault((piece.get("type"), place if index is None else index), {})
        for name, value in piece.items():
            joined = name in ("text", "summary", "data") and isinstance(block.get(name), str) and isinstance(value, str)
            if value is not None:
                block[name] = block[name] + value if joined else value
    return list(blocks.values())


def _reported_cost(usage: Mapping[str, Any]) -> float | None:
    """Return the cost of the reply in dollars, as the server reports it."""
    cost = usage.get("cost")
    if (ticks := _money(usage.get("cost_in_usd_ticks"))) is not None:
        return ticks / 1e10
    return _money(as_mapping(cost).get("total_cost") if isinstance(cost, dict) else cost)


def _money(told: Any) -> float | None:
    if told is None or isinstance(told, bool) or not isinstance(told, int | float):
        return None
    return float(told) if isfinite(told) and told >= 0 else None
