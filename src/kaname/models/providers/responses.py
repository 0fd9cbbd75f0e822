"""Adapter for OpenAI's Responses API, and servers that speak it.

Nothing is stored there: every request has the whole conversation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ...core.codec import dump
from ...core.errors import ConfigError, RequestRefused
from ...core.messages import (
    CLIENT_CALLS,
    Media,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    Provided,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from ...core.openai_shape import result_text
from ...core.record import replace
from ...core.values import AnswerSchema, OutputMode
from ...kernel.bases import ModelInfo
from ...kernel.ports import Emit, Model
from ..http.address import endpoint
from ..http.client import PATIENT, Timeouts
from ..http.provider import Joiner, ServedModel
from ..media import as_takeable, written_in
from ..prices import Price
from ..strict_schema import make_strict
from .client_calls import item_of, output_item
from .openai import OPENAI, OpenAI, openai_key
from .responses_stream import BETWEEN, MINE, Items

_BY_RESPONSES = re.compile(r"(?:ft:)?(?:gpt-[5-9](?!.*-(?:chat|search))|o1(?!-(?:mini|preview))|o[2-9]|codex|computer-use)")
"""Models whose reasoning only goes back this way."""
_NOT_HERE = ("stop", "seed", "n", "logit_bias", "frequency_penalty", "presence_penalty", "logprobs", "prediction", "audio")
"""Settings of chat completions for which this API has no counterpart."""
_RENAMED = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
TAKEN = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/")
_LONGEST_LIST = 1_000  # characters of the names in a namespace
_SEARCHES = re.compile(r"(?:ft:)?gpt-(?:5\.(?:[4-9]|\d\d)|[6-9])(?!.*-chat)")  # models with a tool search of their own
_ENCRYPTED = "reasoning.encrypted_content"


def openai(model: str, *, base_url: str | None = None, **given: Any) -> Model:
    """Return the model for `openai/NAME`: Responses for reasoning models at OpenAI's own address, else chat completions."""
    host = urlsplit(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI).hostname or ""
    if (
        (host == "api.openai.com" or host.endswith(".api.openai.com"))
        and not given.keys() & {"tool_mode", "plan_first"}
        and _BY_RESPONSES.match(model)
    ):
        return OpenAIResponses(model, base_url=base_url, **given)
    return OpenAI(model, base_url=base_url, **given)


class OpenAIResponses(ServedModel):
    """A model behind OpenAI's Responses API.

    Args:
        model: The name of the model.
        base_url: The address (default `OPENAI_BASE_URL`, else OpenAI's own).
        api_key: The key (default `OPENAI_API_KEY`).
        settings: Settings for every request, in this API's names (`max_output_tokens`, `reasoning`, …) or in those of chat
            completions. `tools` among them are the provider's own tools, used in addition; their results are sent back
            unchanged.
        headers: HTTP headers for every request.
        timeouts: Timeouts of the connection.
        price: The price, instead of the table's.
    """

    provider = "openai"
    about = ModelInfo(api="responses", caches_prompts=True)

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
    ) -> None:
        url, key, missing = openai_key(model, base_url, api_key)
        named = {"authorization": f"Bearer {key}", **(headers or {})} if key else headers or {}
        super().__init__(model, endpoint(url, "/responses"), named, key, settings, timeouts, price, missing)
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        self.about = replace(self.about, searches_tools=bool(_SEARCHES.match(model)))
        self._sealed = True  # whether the model takes the wish for sealed reasoning, as far as is known

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask the model. If it does not reason, it refuses to encrypt its reasoning: it is asked without that from then on."""
        try:
            return await super().reply(request, emit)
        except RequestRefused as problem:
            if not self._sealed or "ncrypted" not in problem.said:
                raise
        self._sealed = False
        return await super().reply(request, emit)

    def modes_for(self, schema: AnswerSchema) -> tuple[OutputMode, ...]:
        return "native", "tool", "prompted"

    def batches(self) -> Any:
        """Return the provider's batch API."""
        from ..batches import OpenAIBatches

        return OpenAIBatches(self, self._url, "/responses")

    def joiner(self, request: ModelRequest) -> Joiner:
        return Items(self.who, self.price_for(request))

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the settings of chat completions that this API does not take."""
        return [name for name in _NOT_HERE if {**self.settings, **settings}.get(name) is not None]

    def body(self, request: ModelRequest) -> bytes:
        head = {"model": self.model, "stream": True, "store": False, **_settings({**self.settings, **request.settings})}
        if not head["store"] and self._sealed:  # then what was thought comes along, for us to give it back
            head["include"] = list(dict.fromkeys([*head.get("include", ()), _ENCRYPTED]))
        theirs = head.pop("tools", None) or []
        if request.schema is not None:
            head["text"] = {**head.get("text", {}), "format": _answer_format(request.schema)}
        if not request.tools and not theirs:
            head.pop("tool_choice", None)
            head.pop("parallel_tool_calls", None)
        if instructions := _instructions(request):
            head["instructions"] = instructions
        items = [items for m in request.messages if m.role != "system" and (items := _items_of(m, request.messages))]
        ours = self._encoded_tools(request.tools) if request.tools else b""
        tools = [*([ours] if ours else []), *[dump(one).encode() for one in theirs]]
        listed = b',"tools":[' + b",".join(tools) + b"]" if tools else b""
        return dump(head).encode()[:-1] + b',"input":[' + b",".join(items) + b"]" + listed + b"}"

    def _encoded_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if self._tools[0] is not tools:
            shapes = _tool_shapes([t for t in tools if t.name not in CLIENT_CALLS])  # those the provider's own tools call
            self._tools = (tools, dump(shapes).encode()[1:-1])
        return self._tools[1]


def _tool_shapes(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the tools, and those that the provider looks up in their namespaces: the model is told these, with the names."""
    made: list[dict[str, Any]] = []
    spaces: dict[str, list[dict[str, Any]]] = {}
    for t in tools:
        shape = {"type": "function", "name": t.name, "description": t.description, "parameters": t.parameters, "strict": False}
        if t.namespace:
            spaces.setdefault(t.namespace, []).append({**shape, "defer_loading": True})
        else:
            made.append(shape)
    for name, held in spaces.items():
        told = ", ".join([one["name"] for one in held])[:_LONGEST_LIST]
        made.append({"type": "namespace", "name": name, "description": told, "tools": held})
    return [*made, {"type": "tool_search"}] if spaces else made


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in this API's names."""
    made = {_RENAMED.get(name, name): value for name, value in given.items()}
    for name in (*_NOT_HERE, "stream_options"):  # usage is always reported here
        made.pop(name, None)
    if form := made.pop("response_format", None):
        made["text"] = {**made.get("text", {}), "format": _text_format(form)}
    if verbosity := made.pop("verbosity", None):
        made["text"] = {**made.get("text", {}), "verbosity": verbosity}
    if effort := made.pop("reasoning_effort", None):
        made["reasoning"] = {**made.get("reasoning", {}), "effort": effort}
    choice = made.get("tool_choice")
    if isinstance(choice, Mapping) and isinstance(choice.get("function"), Mapping):
        made["tool_choice"] = {"type": "function", "name": choice["function"].get("name")}
    return made


def _text_format(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return a `response_format` of chat completions in this API's form: without the nested object."""
    return {"type": form.get("type"), **(form.get("json_schema") or {})}


def _items_of(message: Message, conversation: Sequence[Message]) -> bytes:
    """Return the items of one message. The form of a client call's result depends on what else is sent, and is not kept."""
    if message.role == "tool" and getattr(message.parts[0], "name", "") in CLIENT_CALLS:
        return encode(message, conversation)
    return message.encode_as("responses", encode)


def encode(message: Message, conversation: Sequence[Message] = ()) -> bytes:
    """Return the items of one message, joined (see `Message.encode_as`). `conversation`: has the calls of its results."""
    items = _assistant_items(message) if message.role == "assistant" else _input_items(message, conversation)
    return b",".join([dump(item).encode() for item in items])


def _input_items(message: Message, conversation: Sequence[Message]) -> list[dict[str, Any]]:
    if message.role != "tool":
        return [{"role": message.role, "content": [_content(part) for part in message.parts]}]
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    return [_output_item(one, conversation) for one in results]


def _output_item(result: ToolResult, conversation: Sequence[Message]) -> dict[str, Any]:
    item = item_of(result.call_id, conversation, MINE) if result.name in CLIENT_CALLS else None
    if item is not None:
        return output_item(item, result, _output(result))
    return {"type": "function_call_output", "call_id": result.call_id, "output": _output(result)}


def _output(result: ToolResult) -> Any:
    text = result_text(result)
    return [_content(Text(text)), *[_content(as_takeable(media, TAKEN)) for media in result.media]] if result.media else text


def _answer_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    sent, strict = make_strict(schema)
    return {"type": "json_schema", "name": "answer", "schema": sent, "strict": strict}


def _instructions(request: ModelRequest) -> str:
    return "\n\n".join([m.text for m in request.messages if m.role == "system" and m.text])


def _call_item(id: str, name: str, args: Any, about: Mapping[str, Any]) -> dict[str, Any]:
    space = {"namespace": about["namespace"]} if "namespace" in about else {}
    arguments = args if isinstance(args, str) else dump(args)
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments, **space}


def _assistant_items(message: Message) -> list[dict[str, Any]]:
    """Return the items of a reply, in order. The phase of a text or the namespace of a call stands before it."""
    items: list[dict[str, Any]] = []
    about: Mapping[str, Any] = {}
    for part in message.parts:
        match part:
            case Provided(provider, data) if provider == MINE:
                kind = data.get("type")
                if kind == "message" and "text" in data:
                    items.append(_message(data["text"], data))  # commentary in addition to the answer
                elif kind in ("message", "function_call"):
                    about = data
                else:
                    items.append(dict(data))
            case Media() if items and items[-1].get("type") == "image_generation_call":
                items[-1] |= {"result": part.data or None}
            case Text(text) if text and text != BETWEEN:
                items.append(_message(text, about))
                about = {}
            case ToolCall(id, name, args) if name not in CLIENT_CALLS or items[-1:] == [] or items[-1].get("type") != name:
                items.append(_call_item(id, name, args, about))
                about = {}
    return items


def _message(text: str, about: Mapping[str, Any]) -> dict[str, Any]:
    said = [{"type": "output_text", "text": text, "annotations": about.get("citations", [])}]
    phase = {"phase": about["phase"]} if "phase" in about else {}
    return {"type": "message", "role": "assistant", "content": said, **phase}


def _content(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if not isinstance(part, Media) or part.mime.startswith(("audio/", "video/")):
        kind = part.mime if isinstance(part, Media) else type(part).__name__
        raise ConfigError.of("model.responses_media", "the Responses API does not accept {kind}", kind=kind)
    if text := written_in(part):
        return {"type": "input_text", "text": text}
    address = part.url or f"data:{part.mime};base64,{part.data}"
    if part.mime.startswith("image/"):
        return {"type": "input_image", "image_url": address}
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.name or "file", "file_data": address}
