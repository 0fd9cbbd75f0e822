"""Adapter for Anthropic's Messages API, and servers that speak it."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Literal

from ...core.codec import dump
from ...core.errors import ConfigError
from ...core.messages import (
    Media,
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
from ...core.notices import notice
from ...core.openai_shape import result_text
from ...core.reading.lazy_regex import lazy_regex
from ...core.record import replace
from ...core.values import AnswerSchema, OutputMode
from ...kernel.bases import ModelInfo
from ...kernel.ports import Emit
from ..http.address import endpoint
from ..http.client import PATIENT, Timeouts
from ..http.provider import Joiner, ServedModel, as_count, as_mapping
from ..media import as_takeable
from ..output_modes import ANSWER, GIVE
from ..prices import Price
from ..prompted.modes import with_schema_in_words
from ..strict_schema import make_strict, without_bounds
from .anthropic_stream import CITATIONS, Blocks

_ANTHROPIC = "https://api.anthropic.com"
_VERSION = "2023-06-01"
_MOST = 8192  # tokens of a reply, if the settings do not say
_PAUSES = 10  # how often a paused turn is gone on with
_TAKEN = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain")
_HAS_FORMATS = lazy_regex(r"claude-(?:opus-4-1|[a-z]+-(?:4-[5-9]|4-\d\d|[5-9]))(?!\d)")  # an output format of their own
PromptCache = Literal["5m", "1h", "off"]
_MARKS: dict[str, bytes] = {
    "5m": b',"cache_control":{"type":"ephemeral"}}',
    "1h": b',"cache_control":{"type":"ephemeral","ttl":"1h"}}',
    "off": b"}",
}


class Anthropic(ServedModel):
    """A model behind Anthropic's Messages API.

    Args:
        model: The name of the model.
        base_url: The address (default `ANTHROPIC_BASE_URL`, else Anthropic's own).
        api_key: The key (default `ANTHROPIC_API_KEY`).
        settings: Settings for every request, in this API's names or in those of chat completions. Unsupported ones are left
            out. `max_tokens` is 8192 by default; if it is not larger than the thinking budget, the budget is added to it.
        headers: HTTP headers for every request.
        timeouts: Timeouts of the connection.
        price: The price, instead of the table's.
        prompt_cache: How long Anthropic keeps instructions, tools and conversation in its cache: "5m" (default), "1h", which
            costs twice the input price to write instead of 1.25 times, or "off".
    """

    provider = "anthropic"
    about = ModelInfo(api="messages", stop_setting="stop_sequences", picture_tokens=6_000, takes=_TAKEN, caches_prompts=True)

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = PATIENT,
        price: Price | None = None,
        prompt_cache: PromptCache = "5m",
    ) -> None:
        if prompt_cache not in _MARKS:
            message = notice(
                "model.prompt_cache", 'prompt_cache must be "5m", "1h" or "off", not {given!r}', given=prompt_cache
            )
            raise ConfigError(message)
        url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or _ANTHROPIC
        key = api_key if api_key is not None else os.environ.get("ANTHROPIC_API_KEY", "")
        missing = notice("model.anthropic_key_missing", "anthropic/{model} needs a key: set ANTHROPIC_API_KEY", model=model)
        named = {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {}), **(headers or {})}
        address = endpoint(url, "/v1/messages", without="/v1")
        lacking = "" if key or url != _ANTHROPIC else missing
        super().__init__(model, address, named, key, settings, timeouts, price, lacking)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        self.prompt_cache = prompt_cache
        self.about = replace(self.about, caches_prompts=prompt_cache != "off")
        self._mark = _MARKS[prompt_cache]

    def batches(self) -> Any:
        """Return the provider's batch API."""
        from ..batches import AnthropicBatches

        return AnthropicBatches(self, self._url)

    def joiner(self, request: ModelRequest) -> Joiner:
        return Blocks(self.who, self.price_for(request), form=request.schema is not None and not _is_native(request.schema))

    def modes_for(self, schema: AnswerSchema) -> tuple[OutputMode, ...]:
        native = _HAS_FORMATS.search(self.model) and make_strict(schema)[1]
        return ("native", "tool") if native else ("tool",)

    async def reply_in_mode(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask for a typed answer. The tool has a form of its own here: its input is shown while it is written."""
        prompted = getattr(request.schema, "mode", "") == "prompted"
        return await self._reply_once(with_schema_in_words(request) if prompted else request, emit)

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the settings of chat completions that this API does not take."""
        return ignored_settings({**self.settings, **settings})

    def longest_reply(self, settings: Mapping[str, Any]) -> int:
        head = {"max_tokens": _MOST, **translate_settings({**self.settings, **settings})}
        self._make_room(head)
        return as_count(head["max_tokens"])

    def shorten_replies(self, settings: Mapping[str, Any], tokens: int) -> Mapping[str, Any]:
        """Return settings with a smaller `max_tokens`. Thinking is a part of it: if it does not fit, there is none."""
        made = {**super().shorten_replies(settings, tokens), "max_tokens": tokens}
        thinking = as_mapping({**self.settings, **settings}.get("thinking"))
        return {**made, "thinking": {"type": "disabled"}} if as_count(thinking.get("budget_tokens")) >= tokens else made

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask the model.

        If the API pauses a long turn of its own tools, the reply so far is sent back and the turn continues.
        """
        said = await super().reply(request, emit)
        for _ in range(_PAUSES):
            if said.stop_reason is not None:
                break
            further = await super().reply(replace(request, messages=(*request.messages, said.message)), emit)
            message = Message("assistant", (*said.message.parts, *further.message.parts))
            said = replace(further, message=message, usage=said.usage + further.usage)
        return said

    def body(self, request: ModelRequest) -> bytes:
        settings = translate_settings({**self.settings, **request.settings})
        head: dict[str, Any] = {"model": self.model, "stream": True, "max_tokens": _MOST, **settings}
        if as_mapping(head.get("thinking")).get("type") == "enabled" and has_call_without_thought(request.messages):
            del head["thinking"]  # the API refuses a thinking model whose last calls have no sealed thought before them
        theirs = [dump(one).encode() for one in head.pop("tools", None) or []]  # the provider's own tools, in addition
        tools = [*self._own_tools(request, head), *theirs]
        self._make_room(head)
        if not tools:
            head.pop("tool_choice", None)
        parts = [b'"tools":[' + b",".join(tools) + b"]"] if tools else []
        instructions = "\n\n".join([m.text for m in request.messages if m.role == "system" and m.text])
        if instructions:
            parts.append(b'"system":[' + _with_mark(dump({"type": "text", "text": instructions}).encode(), self._mark) + b"]")
        turns = [message for message in request.messages if message.role != "system" and message.parts]
        parts.append(b'"messages":[' + b",".join(_turns(turns, self._mark)) + b"]")
        return dump(head).encode()[:-1] + b"," + b",".join(parts) + b"}"

    def _own_tools(self, request: ModelRequest, head: dict[str, Any]) -> list[bytes]:
        """Return the tools of the request, or the one by which an answer is given, and set what the answer has to be."""
        schema = request.schema
        if schema is not None and not _is_native(schema):  # by a tool that it must call
            thinks = (head.get("thinking") or {}).get("type", "disabled") != "disabled"  # a thinking model cannot be forced
            head["tool_choice"] = {"type": "auto"} if thinks else {"type": "tool", "name": ANSWER}
            return [dump({"name": ANSWER, "description": GIVE, "input_schema": schema}).encode()]
        if schema is not None:
            form = {"type": "json_schema", "schema": without_bounds(make_strict(schema)[0])}
            head["output_config"] = {**as_mapping(head.get("output_config")), "format": form}
        if request.called_tools:  # calls in the conversation are refused without their tools
            head["tool_choice"] = {"type": "none"}
            return [self._encoded_tools(request.called_tools)]
        return [self._encoded_tools(request.tools)] if request.tools else []

    def _make_room(self, head: dict[str, Any]) -> None:
        """Raise `max_tokens` above the thinking budget, which is a part of it. Interleaved thinking can exceed it."""
        budget, most = as_mapping(head.get("thinking")).get("budget_tokens"), head["max_tokens"]
        whole = isinstance(budget, int) and isinstance(most, int)
        if whole and most <= budget and "interleaved-thinking" not in self._headers.get("anthropic-beta", ""):
            head["max_tokens"] = most + budget

    def _encoded_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if self._tools[0] is not tools:
            shapes = [
                dump({"name": t.name, "description": t.description, "input_schema": t.parameters}).encode() for t in tools
            ]
            self._tools = (tools, b",".join([*shapes[:-1], _with_mark(shapes[-1], self._mark)]))
        return self._tools[1]


def _is_native(schema: Any) -> bool:
    return getattr(schema, "mode", "") == "native"


def _with_mark(block: bytes, mark: bytes) -> bytes:
    """Return a block up to whose end the API caches the request."""
    return block[:-1] + mark


def _turns(messages: list[Message], mark: bytes) -> list[bytes]:
    """Return the turns. Results and the user message after them form one turn, because the API requires it."""
    turns = []
    for role, group in groupby(messages, key=lambda message: "assistant" if message.role == "assistant" else "user"):
        blocks = [blocks for message in group if (blocks := message.encode_as("anthropic", encode))]
        if blocks:
            turns.append((role, b",".join(blocks)))
    said = [message for message in messages if message.encode_as("anthropic", encode)]
    open_thought = said and isinstance(said[-1].parts[-1], Thinking)  # which takes no mark
    last = -1 if open_thought else len(turns) - 1
    return [
        b'{"role":"' + role.encode() + b'","content":[' + (_with_mark(blocks, mark) if place == last else blocks) + b"]}"
        for place, (role, blocks) in enumerate(turns)
    ]


def encode(message: Message) -> bytes:
    """Return the blocks of one message, joined (see `Message.encode_as`). The citations of a text stand before it."""
    blocks, about = list[dict[str, Any]](), dict[str, Any]()
    for part in message.parts:
        if isinstance(part, Provided) and part.data.get("type") == CITATIONS:
            about = {"citations": part.data["citations"]} if part.provider == "anthropic" else {}
        elif type(part) is Media and message.role == "assistant":
            continue  # another model made it, and the API takes none here
        elif (block := _block(part)) is not None:
            blocks.append({**block, **about} if block["type"] == "text" else block)
            about = {}
    return b",".join([dump(block).encode() for block in blocks])


def _block(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None
        case Thinking(text, signature):
            return {"type": "thinking", "thinking": text, "signature": signature} if signature else None
        case Provided("anthropic", data):
            return dict(data)
        case Media():
            return _media(part)
        case ToolCall(id, name, args):
            return {"type": "tool_use", "id": id, "name": name, "input": args if isinstance(args, Mapping) else {"input": args}}
        case ToolResult():
            shown = [as_takeable(media, _TAKEN) for media in part.media]
            pieces = [_media(one) if isinstance(one, Media) else {"type": "text", "text": one.text} for one in shown]
            content = [{"type": "text", "text": result_text(part) or "(nothing)"}, *pieces]
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": content, "is_error": part.is_error}
    return None


def _media(part: Media) -> dict[str, Any]:
    if part.mime.startswith(("audio/", "video/")):
        raise ConfigError.of("model.media_kind", "the Messages API does not accept {mime}", mime=part.mime)
    if part.mime == "text/plain" and part.data:
        text = b64decode(part.data).decode("utf-8", "replace")
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
    data = {"type": "base64", "media_type": part.mime, "data": part.data}
    source = {"type": "url", "url": part.url} if part.url else data
    return {"type": "image" if part.mime.startswith("image/") else "document", "source": source}


_NOT_HERE = (
    *("seed", "n", "logit_bias", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "prediction", "audio"),
    *("modalities", "response_format", "reasoning_effort", "verbosity", "store", "prompt_cache_key", "safety_identifier"),
)
"""Settings of chat completions for which this API has no counterpart. It refuses a request that holds one."""
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def ignored_settings(given: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that are set but that this API does not accept."""
    names = [name for name in _NOT_HERE if given.get(name) is not None]
    return names if all(one.strip() for one in _stops(given.get("stop"))) else ["stop", *names]


def translate_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in this API's names, without unsupported ones."""
    made = {name: value for name, value in given.items() if name not in (*_NOT_HERE, "stream_options")}
    stops = [one for one in _stops(made.pop("stop", None)) if one.strip()]  # it refuses those that are only white space
    if stops:
        made["stop_sequences"] = [*(made.get("stop_sequences") or ()), *stops]
    if (most := made.pop("max_completion_tokens", None)) is not None:
        made.setdefault("max_tokens", most)
    if (user := made.pop("user", None)) is not None:
        made["metadata"] = {"user_id": user, **(made.get("metadata") or {})}
    together, choice = made.pop("parallel_tool_calls", None), _choice(made.pop("tool_choice", None))
    if together is False and (choice or {}).get("type") != "none":
        choice = {"type": "auto", **(choice or {}), "disable_parallel_tool_use": True}
    return made if choice is None else {**made, "tool_choice": choice}


def _stops(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _choice(given: Any) -> dict[str, Any] | None:
    """Return a `tool_choice` in this API's form."""
    if isinstance(given, str):
        return {"type": _CHOICES.get(given, given)}
    if isinstance(given, Mapping) and isinstance(given.get("function"), Mapping):
        return {"type": "tool", "name": given["function"].get("name")}
    return None if given is None else dict(given)


def has_call_without_thought(messages: tuple[Message, ...]) -> bool:
    """Return True if another model, or this one without thinking, made calls in the turn that is under way."""
    for message in reversed(messages):
        if message.role == "user":
            return False
        if message.role == "assistant" and message.calls and not any(_is_sealed_thought(part) for part in message.parts):
            return True
    return False


def _is_sealed_thought(part: Part) -> bool:
    if isinstance(part, Thinking):
        return bool(part.signature)
    return isinstance(part, Provided) and part.provider == "anthropic" and part.data.get("type") == "redacted_thinking"
