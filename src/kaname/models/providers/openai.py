"""Any server that speaks OpenAI's chat completions: OpenAI itself, vLLM, Ollama, llama.cpp, LM Studio, OpenRouter, …"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from ...core.codec import dump
from ...core.errors import ConfigError, ModelNotFound, ModelUnavailable, RequestRefused
from ...core.messages import Media, Message, ModelReply, ModelRequest, Provided, Text, ToolResult, ToolSpec
from ...core.notices import notice
from ...core.openai_shape import result_text
from ...core.record import replace
from ...kernel.ports import Emit
from ..http.address import endpoint
from ..http.client import PATIENT, Timeouts
from ..http.provider import Joiner, ServedModel
from ..media import takeable
from ..prices import Price
from ..prompted.inline_calls import Held, written_call
from ..prompted.modes import Shown, in_words, left_out, refuses
from .openai_stream import Pieces
from .quirks import NONE, Quirks

if TYPE_CHECKING:
    from ..prompted.react.model import Stops

ToolMode = Literal["auto", "native", "constrained", "text"]
_TAKEN = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/")  # of tools: few take sound
_SOUNDS = {"mpeg": "mp3", "wave": "wav", "vnd.wave": "wav"}
_BETWEEN = dump({"role": "assistant", "content": "OK"}).encode()  # a result and what the user says next
OPENAI = "https://api.openai.com/v1"


class OpenAI(ServedModel):
    """`base_url` and `api_key` come from `OPENAI_BASE_URL` and `OPENAI_API_KEY` where they are not given.

    `settings` (temperature, max_tokens, tool_choice, …) go into every request; an agent's own settings go over them.
    `tool_mode`: `native`, or for models that cannot call tools `constrained` (JSON that the server holds to a schema) or `text`
    (the ReAct protocol). `auto` begins with the first, and goes on with the next when the server says that it cannot.
    `plan_first`: in the mode `constrained` the model writes a short plan before its first call (default), if it has two tools
    that only look (`effect="pure"`) or more.
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
        price: Price | None = None,
        tool_mode: ToolMode = "auto",
        plan_first: bool = True,
    ) -> None:
        if tool_mode not in get_args(ToolMode):
            modes = ", ".join(get_args(ToolMode))
            raise ConfigError(
                notice(
                    "model.tool_mode",
                    "tool_mode is one of {modes}, not {tool_mode!r}",
                    modes=modes,
                    tool_mode=tool_mode,
                )
            )
        self.tool_mode: ToolMode = tool_mode
        self.plan_first = plan_first
        url, key, missing = self._place(model, base_url, api_key)
        named = {"authorization": f"Bearer {key}", **(headers or {})} if key else headers or {}
        super().__init__(model, endpoint(url, "/chat/completions"), named, key, settings, timeouts, price, missing)
        self.quirks = Quirks()
        self._sent_as = model
        self._more: Mapping[str, Any] = {}  # what goes into every request
        self._schemas = True  # whether the server takes `response_format`, as far as is known
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")
        self._stops: Stops | None = None  # of the ReAct protocol

    def _place(self, model: str, base_url: str | None, api_key: str | None) -> tuple[str, str, str]:
        """Return the address, the key, and if it is missing the sentence that says so."""
        return openai_key(model, base_url, api_key)

    async def exchange(self, request: ModelRequest, emit: Emit) -> tuple[Joiner, bool]:
        """Make the request. If the server refuses a field or a form that it can do without, make it once more without."""
        while True:
            try:
                return await super().exchange(request, emit)
            except RequestRefused as problem:
                if not problem.status or not self.quirks.learns(problem):
                    raise

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """A refusal comes before anything was shown, so the next way can be tried at once, and is kept."""
        if not request.tools and self.tool_mode == "text":
            return await self._reply_in("text", request, emit)
        if not request.tools:
            return await self._answer(request, emit)
        modes = get_args(ToolMode)[1:] if self.tool_mode == "auto" else (self.tool_mode,)
        shown = Shown(emit)
        for mode in modes:
            try:
                said = await self._reply_in(mode, request, emit if modes == ("native",) else shown)
            except (RequestRefused, ModelNotFound, ModelUnavailable) as problem:
                if shown.anything or mode == modes[-1] or not refuses(mode, problem):
                    raise
            else:
                if mode != "native":
                    self._schemas = self._schemas and (mode != "text" or self.tool_mode != "auto")
                    self.tool_mode = mode
                return said
        raise AssertionError("the last mode returns or raises")

    async def _answer(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Without tools. A server that takes no schema is told of it in words, once it has said so."""
        if request.schema is None or not self._schemas:
            return await super().reply(in_words(request), emit)
        shown = Shown(emit)
        try:
            return await super().reply(request, shown)
        except (RequestRefused, ModelNotFound, ModelUnavailable) as problem:
            if shown.anything or not refuses("constrained", problem):
                raise
        said = await super().reply(in_words(request), emit)
        self._schemas = False
        return said

    async def _reply_in(self, mode: str, request: ModelRequest, emit: Emit) -> ModelReply:
        if mode == "native":
            return await (self._natively(request, emit) if self.tool_mode == "auto" else super().reply(request, emit))
        if mode == "constrained":
            from ..prompted.json_choice import reply_by_choice

            return await reply_by_choice(super().reply, request, emit, plan_first=self.plan_first)
        from ..prompted.react.model import Stops, reply_by_text

        self._stops = self._stops or Stops()
        own = {key: value for key, value in self.settings.items() if key == "stop"}  # ours go beside them, not over them
        request = replace(request, settings={**own, **request.settings})
        return await reply_by_text(self._answer, request, emit, stops=self._stops)

    async def _natively(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """A model that writes its call as text is understood, and from then on asked in the way that is made for it."""
        held = Held(emit)
        said = await super().reply(request, held)
        call = written_call(said, request.tools)
        if call is None:
            await held.release()
            return said
        self.tool_mode = "constrained"
        kept = [part for part in said.message.parts if not isinstance(part, Text)]
        return replace(said, message=Message("assistant", (*kept, call)), stop_reason="tool_use")

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the settings that `tool_mode` leaves out of the requests."""
        return left_out({**self.settings, **settings}, self.tool_mode)

    def joiner(self, request: ModelRequest) -> Joiner:
        return Pieces(self.who, self.price_for(request))

    def body(self, request: ModelRequest) -> bytes:
        messages = b",".join(_encoded(request.messages, self.quirks))
        settings = self.quirks.named({**self.settings, **request.settings})
        theirs = settings.pop("tools", None) or []  # tools of the provider, beside ours
        if request.schema is not None:
            settings["response_format"] = response_format(request.schema)
        ours = request.tools
        if request.called and "tools" in self.quirks:
            ours, settings["tool_choice"] = request.called, "none"
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
    """Return the address and the key, from the environment where they are not given, and what to say if it is missing."""
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
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": is_strict(schema)}}


def is_strict(schema: Any) -> bool:
    """Strict mode wants every object closed and every property required; anything else is refused by the provider."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", {})):
            return False
    return "default" not in schema and all(is_strict(value) for value in schema.values())


def _encoded(messages: tuple[Message, ...], quirks: Quirks) -> list[bytes]:
    encoded: list[bytes] = []
    form, as_bytes, before = quirks.form, partial(encode, quirks=quirks), ""
    for message, pictures in with_pictures(messages):
        if before == "tool" and message.role == "user" and "order" in quirks:
            encoded.append(_BETWEEN)
        encoded.append(message.encoded(form, as_bytes))
        before = message.role
        if pictures:
            encoded += [*([_BETWEEN] if "order" in quirks else []), dump(shown_after(pictures)).encode()]
            before = "user"
    return encoded


def with_pictures(messages: tuple[Message, ...]) -> Iterator[tuple[Message, list[Media]]]:
    """The protocol takes no pictures in a tool's result: they follow in the user's name, after all the results of a turn."""
    pictures: list[Media] = []
    for place, message in enumerate(messages):
        if message.role != "tool":
            yield message, []
            continue
        pictures += [media for part in message.parts if isinstance(part, ToolResult) for media in part.media]
        last = place + 1 == len(messages) or messages[place + 1].role != "tool"
        yield message, pictures if last else []
        pictures = [] if last else pictures


def shown_after(pictures: list[Media]) -> dict[str, Any]:
    text = {"type": "text", "text": "What the tools gave back:"}
    return {"role": "user", "content": [text, *[_content(takeable(media, _TAKEN)) for media in pictures]]}


def encode(message: Message, quirks: Quirks = NONE) -> bytes:
    """One message, made once; see `Message.encoded`."""
    return dump(shape(message, quirks)).encode()


def shape(message: Message, quirks: Quirks = NONE) -> dict[str, Any]:
    if message.role == "tool":
        (result,) = [part for part in message.parts if isinstance(part, ToolResult)]
        return {"role": "tool", "tool_call_id": quirks.call_id(result.call_id), "content": result_text(result)}
    made: dict[str, Any] = {"role": message.role, "content": message.text}
    if any(isinstance(part, Media) for part in message.parts):
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
    """Reasoning that belongs to calls goes back under the name that it came with: some servers refuse results without it."""
    for part in message.parts:
        if isinstance(part, Provided) and part.provider == "openai":
            made |= {part.data["echo"]: message.thinking} if part.data.get("echo") else {}
            made |= {"reasoning_details": part.data["reasoning_details"]} if part.data.get("reasoning_details") else {}
            for call, extra in zip(made["tool_calls"], part.data.get("extra_content") or (), strict=False):
                call |= {"extra_content": extra} if extra else {}


def _content(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.mime.startswith("audio/"):
        if not part.data:
            raise ConfigError(notice("model.audio_by_url", "audio must be passed as Media(data=…), not url="))
        kind = part.mime.partition("/")[2].removeprefix("x-")
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _SOUNDS.get(kind, kind)}}
    address = part.url or f"data:{part.mime};base64,{part.data}"
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": address}}
    return {"type": "file", "file": {"filename": part.name or "file", "file_data": address}}
