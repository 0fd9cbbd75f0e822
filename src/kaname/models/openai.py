"""Any server that speaks OpenAI's chat completions: OpenAI itself, vLLM, Ollama, llama.cpp, LM Studio, OpenRouter, …"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..core.codec import dump
from ..core.errors import ConfigError, ContentFiltered
from ..core.language import say
from ..core.messages import (
    Media,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from ..core.openai_shape import result_text
from ..kernel.ports import Emit
from .failures import Who, failure, from_event, garbled
from .http import PATIENT, Timeouts
from .served import Joiner, ServedModel, parsed_arguments

_STOPS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "end_turn": "end_turn",
}
_OPENAI = "https://api.openai.com/v1"


class OpenAI(ServedModel):
    """`base_url` and `api_key` come from `OPENAI_BASE_URL` and `OPENAI_API_KEY` where they are not given.

    `settings` (temperature, max_tokens, tool_choice, …) go into every request; an agent's own settings go over them.
    """

    provider = "openai"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = PATIENT,
    ) -> None:
        url = base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
        key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
        if not key and url == _OPENAI:
            raise ConfigError(
                say(
                    f"openai/{model} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own",
                    f"openai/{model} にはキーが必要です。OPENAI_API_KEY を、自前のサーバーなら OPENAI_BASE_URL を"
                    "設定してください",
                )
            )
        named = {"authorization": f"Bearer {key}"} if key else {}
        super().__init__(model, url.rstrip("/") + "/chat/completions", {**named, **(headers or {})}, key, settings, timeouts)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    def joiner(self, request: ModelRequest) -> Joiner:
        return _Pieces(self.who)

    def body(self, request: ModelRequest) -> bytes:
        messages = b",".join([message.encoded("openai", encode) for message in request.messages])
        settings: dict[str, Any] = {**self.settings, **request.settings}
        if request.schema is not None:
            settings["response_format"] = response_format(request.schema)
        if not request.tools:
            settings.pop("tool_choice", None)
            settings.pop("parallel_tool_calls", None)
        head: dict[str, Any] = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}, **settings}
        tools = b',"tools":' + self._encoded_tools(request.tools) if request.tools else b""
        return dump(head).encode()[:-1] + b',"messages":[' + messages + b"]" + tools + b"}"

    def _encoded_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if self._tools[0] is not tools:
            shapes = [
                {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
                for t in tools
            ]
            self._tools = (tools, dump(shapes).encode())
        return self._tools[1]


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": _is_strict(schema)}}


def _is_strict(schema: Any) -> bool:
    """Strict mode wants every object closed and every property required; anything else is refused by the provider."""
    if isinstance(schema, list):
        return all(_is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", {})):
            return False
    return "default" not in schema and all(_is_strict(value) for value in schema.values())


def encode(message: Message) -> bytes:
    """One message, made once; see `Message.encoded`."""
    return dump(_shape(message)).encode()


def _shape(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        (result,) = [part for part in message.parts if isinstance(part, ToolResult)]
        return {"role": "tool", "tool_call_id": result.call_id, "content": result_text(result)}
    shape: dict[str, Any] = {"role": message.role, "content": message.text}
    if any(isinstance(part, Media) for part in message.parts):
        shape["content"] = [_content(part) for part in message.parts if isinstance(part, Text | Media)]
    if calls := message.calls:
        shape["content"] = message.text or None
        shape["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.args if isinstance(call.args, str) else dump(call.args)},
            }
            for call in calls
        ]
    return shape


def _content(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.mime.startswith("audio/"):
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.mime.partition("/")[2]}}
    address = part.url or f"data:{part.mime};base64,{part.data}"
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": address}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": address}}


class _Pieces:
    """The pieces of a reply, however the server cuts them."""

    def __init__(self, who: Who) -> None:
        self._who = who
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
            self._usage = _usage(usage)
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
        parts: list[Part] = []
        if self._thinking:
            parts.append(Thinking("".join(self._thinking)))
        if self._text:
            parts.append(Text("".join(self._text)))
        parts += [
            ToolCall(call["id"], call["name"], parsed_arguments("".join(call["arguments"])))
            for call in self._calls
            if call["name"]
        ]
        stop = _STOPS.get(self._finish)
        return ModelReply(Message("assistant", tuple(parts)), stop, self._usage, self._who.model)


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Usage(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0, cached, None)
