"""Adapter for servers that speak OpenAI's chat completions: OpenAI itself, vLLM, Ollama, llama.cpp, LM Studio, OpenRouter, …"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from ...core.codec import dump
from ...core.errors import ConfigError, ModelNotFound, ModelUnavailable, RequestRefused
from ...core.messages import Media, Message, ModelReply, ModelRequest, Provided, Text, ToolResult, ToolSpec, encode_all
from ...core.notices import notice
from ...core.openai_shape import result_text
from ...core.record import replace
from ...kernel.bases import ModelInfo
from ...kernel.ports import Emit
from ..http.address import endpoint
from ..http.client import PATIENT, Timeouts
from ..http.provider import Joiner, ServedModel
from ..media import as_takeable, seen_by, written_in
from ..prices import Price
from ..prompted.inline_calls import CallFilter, written_call
from ..prompted.modes import WatchedEmit, ignored_settings, refuses, with_schema_in_words
from ..strict_schema import make_strict
from .openai_stream import Pieces
from .quirks import NONE, Quirks

if TYPE_CHECKING:
    from ..prompted.react.model import Stops

ToolMode = Literal["auto", "native", "constrained", "text"]
_ROUNDS = 6  # requests of one reply where tools are not native: a plan, a choice, and some questions back
_MODES: tuple[ToolMode, ...] = get_args(ToolMode)[1:]
_TAKEN = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/")  # of tools: few take sound
_SOUNDS = {"mpeg": "mp3", "wave": "wav", "vnd.wave": "wav"}
_BETWEEN = dump({"role": "assistant", "content": "OK"}).encode()  # a result and what the user says next
OPENAI = "https://api.openai.com/v1"


class OpenAI(ServedModel):
    """A model behind OpenAI's chat completions.

    Args:
        model: The name of the model.
        base_url: The address (default `OPENAI_BASE_URL`, else OpenAI's own).
        api_key: The key (default `OPENAI_API_KEY`).
        settings: Settings for every request, such as `temperature`. An agent's settings override them.
        headers: HTTP headers for every request.
        timeouts: Timeouts of the connection.
        price: The price, instead of the table's.
        tool_mode: `native`; for models without tool calls `constrained` (JSON that the server constrains to a schema) or
            `text` (the ReAct protocol). `auto` starts with the first and changes to the next when the server refuses it.
        plan_first: In the mode `constrained`, write a short plan before the first call (default), if there are at least two
            tools with `effect="pure"`.
        takes: The media types that the model accepts, such as ["image/"]; [] for a model that reads only text, which then
            gets the text of pictures and sounds instead (default: everything is sent).
    """

    provider = "openai"
    about = ModelInfo(api="chat", caches_prompts=True)

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
        tool_mode: ToolMode = "auto",
        plan_first: bool = True,
        takes: Sequence[str] | None = None,
    ) -> None:
        if tool_mode not in get_args(ToolMode):
            modes = ", ".join(get_args(ToolMode))
            raise ConfigError.of(
                "model.tool_mode", "tool_mode must be one of {modes}, not {tool_mode!r}", modes=modes, tool_mode=tool_mode
            )
        self.tool_mode: ToolMode = tool_mode  # "auto" becomes another mode with the first reply
        self.plan_first, self.takes = plan_first, takes
        url, key, missing = self._place(model, base_url, api_key)
        named = {"authorization": f"Bearer {key}", **(headers or {})} if key else headers or {}
        super().__init__(model, endpoint(url, "/chat/completions"), named, key, settings, timeouts, price, missing)
        self.about = replace(self.about, takes=takes)
        self._change_mode(tool_mode)
        self.quirks = Quirks()
        self._sent_as = model
        self._more: Mapping[str, Any] = {}  # what goes into every request
        self._schemas = True  # whether the server takes `response_format`, as far as is known
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        self._stops: Stops | None = None  # of the ReAct protocol

    def _place(self, model: str, base_url: str | None, api_key: str | None) -> tuple[str, str, str]:
        """Return the address, the key, and, if the key is missing, the sentence that says so."""
        return openai_key(model, base_url, api_key)

    def _identity(self) -> str:
        return f"{self.tool_mode} {self.plan_first} {super()._identity()}"

    def _change_mode(self, mode: ToolMode) -> None:
        self.tool_mode = mode
        self.about = replace(self.about, tool_mode=mode, rounds=1 if mode in ("auto", "native") else _ROUNDS)

    async def exchange(self, request: ModelRequest, emit: Emit) -> tuple[Joiner, bool]:
        """Send the request. If the server refuses a field or a form that is optional, send it again without it."""
        while True:
            try:
                return await super().exchange(request, emit)
            except RequestRefused as problem:
                if not problem.status or not self.quirks.learns(problem):
                    raise

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask the model. A refusal comes before anything is shown, so the next mode is tried at once, and kept."""
        if self.takes is not None:
            request = seen_by(request, self.takes)
        if not request.tools and self.tool_mode == "text":
            return await self._reply_in("text", request, emit)
        if not request.tools:
            return await self._answer(request, emit)
        return await self._reply_with_tools(request, emit)

    async def _reply_with_tools(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask in the mode for tools that is set, or in each until one is not refused."""
        modes = _MODES if self.tool_mode == "auto" else (self.tool_mode,)
        shown = WatchedEmit(emit)
        for mode in modes:
            try:
                said = await self._reply_in(mode, request, emit if modes == ("native",) else shown)
            except (RequestRefused, ModelNotFound, ModelUnavailable) as problem:
                if shown.anything or mode == modes[-1] or not refuses(mode, problem):
                    raise
            else:
                if mode != "native":
                    self._schemas = self._schemas and (mode != "text" or self.tool_mode != "auto")
                    self._change_mode(mode)
                return said
        raise AssertionError("the last mode returns or raises")

    async def _answer(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask without tools. If the server refuses a schema, it is put into the instructions from then on."""
        if request.schema is None or not self._schemas:
            return await super().reply(with_schema_in_words(request), emit)
        shown = WatchedEmit(emit)
        try:
            return await super().reply(request, shown)
        except (RequestRefused, ModelNotFound, ModelUnavailable) as problem:
            if shown.anything or not refuses("constrained", problem):
                raise
        said = await super().reply(with_schema_in_words(request), emit)
        self._schemas = False
        return said

    async def reply_in_mode(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask for a typed answer. A model whose calls are constrained JSON or text has no tool that it must call."""
        if getattr(request.schema, "mode", "") == "tool" and self.tool_mode in ("constrained", "text"):
            return await self._reply_once(request, emit)
        return await super().reply_in_mode(request, emit)

    def _reply_in(self, mode: str, request: ModelRequest, emit: Emit) -> Awaitable[ModelReply]:
        if mode == "native":
            return self._natively(request, emit) if self.tool_mode == "auto" else super().reply(request, emit)
        if mode == "constrained":
            from ..prompted.json_choice import reply_by_choice

            return reply_by_choice(super().reply, request, emit, plan_first=self.plan_first)
        from ..prompted.react.model import Stops, reply_by_text

        self._stops = self._stops or Stops()
        own = {key: value for key, value in self.settings.items() if key == "stop"}  # kaname adds its own to them
        request = replace(request, settings={**own, **request.settings})
        return reply_by_text(self._answer, request, emit, stops=self._stops)

    async def _natively(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask with native tools.

        If the model writes its call as text, the call is run, and the mode changes for the next requests.
        """
        held = CallFilter(emit)
        said = await super().reply(request, held)
        call = written_call(said, request.tools)
        if call is None:
            await held.release()
            return said
        self._change_mode("constrained")
        kept = [part for part in said.message.parts if not isinstance(part, Text)]
        return replace(said, message=Message("assistant", (*kept, call)), stop_reason="tool_use")

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the settings that `tool_mode` leaves out of the requests."""
        return ignored_settings({**self.settings, **settings}, self.tool_mode)

    def batches(self) -> Any:
        """Return the provider's batch API."""
        from ..batches import OpenAIBatches

        return OpenAIBatches(self, self._url, "/chat/completions")

    def joiner(self, request: ModelRequest) -> Joiner:
        return Pieces(self.who, self.price_for(request))

    def body(self, request: ModelRequest) -> bytes:
        messages = b",".join(_encode_messages(request.messages, self.quirks))
        settings = self.quirks.rename_settings({**self.settings, **request.settings})
        theirs = settings.pop("tools", None) or []  # the provider's own tools, in addition
        if request.schema is not None:
            settings["response_format"] = response_format(request.schema)
        ours = request.tools
        if request.called_tools and "tools" in self.quirks:
            ours, settings["tool_choice"] = request.called_tools, "none"
        if not ours and not theirs:
            settings.pop("tool_choice", None)
            settings.pop("parallel_tool_calls", None)
        streams = {"stream": True, "stream_options": {"include_usage": True}}
        head: dict[str, Any] = {"model": self._sent_as, **streams, **self._more, **settings}
        if "streamed_form" in self.quirks and "response_format" in head:
            head["stream"] = False
        if not head["stream"] or "stream_options" in self.quirks:
            del head["stream_options"]  # refused without a stream
        tools = [*([self._encoded_tools(ours)] if ours else []), *[dump(one).encode() for one in theirs]]
        listed = b',"tools":[' + b",".join(tools) + b"]" if tools else b""
        return dump(head).encode()[:-1] + b',"messages":[' + messages + b"]" + listed + b"}"

    def _encoded_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if self._tools[0] is not tools:
            self._tools = (tools, dump(tool_shapes(tools)).encode()[1:-1])
        return self._tools[1]


def openai_key(model: str, base_url: str | None, api_key: str | None) -> tuple[str, str, str]:
    """Return the address and the key, by default from the environment, and the sentence to show if the key is missing."""
    url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
    key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY", "")
    missing = notice(
        "model.openai_key_missing",
        "openai/{model} needs a key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own",
        model=model,
    )
    return url, key, "" if key or url != OPENAI else missing


def tool_shapes(tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in tools
    ]


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    sent, strict = make_strict(schema)
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": sent, "strict": strict}}


def _encode_messages(messages: tuple[Message, ...], quirks: Quirks) -> list[bytes]:
    form, as_bytes, before = quirks.form, partial(encode, quirks=quirks), ""
    if "order" not in quirks and not _has_pictures(messages):
        return encode_all(messages, form, as_bytes)
    encoded: list[bytes] = []
    for message, pictures in with_pictures(messages):
        if before == "tool" and message.role == "user" and "order" in quirks:
            encoded.append(_BETWEEN)
        encoded.append(message.encode_as(form, as_bytes))
        before = message.role
        if pictures:
            encoded += [*([_BETWEEN] if "order" in quirks else []), dump(pictures_message(pictures)).encode()]
            before = "user"
    return encoded


def _has_pictures(messages: tuple[Message, ...]) -> bool:
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if type(part) is ToolResult and part.media:
                    return True
    return False


def with_pictures(messages: tuple[Message, ...]) -> Iterator[tuple[Message, list[Media]]]:
    """Yield each message with the pictures to send after it.

    The protocol allows no pictures in a tool's result: they follow in a user message, after all results of a turn.
    """
    pictures: list[Media] = []
    for place, message in enumerate(messages):
        if message.role != "tool":
            yield message, []
            continue
        pictures += [media for part in message.parts if isinstance(part, ToolResult) for media in part.media]
        last = place + 1 == len(messages) or messages[place + 1].role != "tool"
        yield message, pictures if last else []
        pictures = [] if last else pictures


def pictures_message(pictures: list[Media]) -> dict[str, Any]:
    text = {"type": "text", "text": "What the tools gave back:"}
    return {"role": "user", "content": [text, *[_content(as_takeable(media, _TAKEN)) for media in pictures]]}


def encode(message: Message, quirks: Quirks = NONE) -> bytes:
    """Encode one message (see `Message.encode_as`)."""
    return dump(shape(message, quirks)).encode()


def shape(message: Message, quirks: Quirks = NONE) -> dict[str, Any]:
    if message.role == "tool":
        (result,) = [part for part in message.parts if isinstance(part, ToolResult)]
        return {"role": "tool", "tool_call_id": quirks.call_id(result.call_id), "content": result_text(result)}
    made: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "user" and [part for part in message.parts if isinstance(part, Media)]:
        made["content"] = [_content(part) for part in message.parts if isinstance(part, Text | Media)]
    if calls := message.calls:
        made["content"] = message.text or None
        made["tool_calls"] = [
            {
                "id": quirks.call_id(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": call.args if isinstance(call.args, str) else dump(call.args)},
            }
            for call in calls
        ]
        if "echo" not in quirks:
            _give_back(message, made)
    return made


def _give_back(message: Message, made: dict[str, Any]) -> None:
    """Send reasoning that belongs to calls back under the name with which it came: some servers refuse results without it."""
    for part in message.parts:
        if isinstance(part, Provided) and part.provider == "openai":
            made |= {part.data["echo"]: message.thinking} if part.data.get("echo") else {}
            made |= {"reasoning_details": part.data["reasoning_details"]} if part.data.get("reasoning_details") else {}
            for call, extra in zip(made["tool_calls"], part.data.get("extra_content") or (), strict=False):
                call |= {"extra_content": extra} if extra else {}


def _content(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if text := written_in(part):
        return {"type": "text", "text": text}
    if part.mime.startswith("audio/"):
        if not part.data:
            raise ConfigError.of("model.audio_by_url", "audio must be passed as Media(data=…), not url=")
        kind = part.mime.partition("/")[2].removeprefix("x-")
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _SOUNDS.get(kind, kind)}}
    address = part.url or f"data:{part.mime};base64,{part.data}"
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": address}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": address}}
