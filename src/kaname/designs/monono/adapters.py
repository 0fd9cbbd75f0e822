"""MONONO's LLM adapters: one interface, `chat`, which yields a reply as chunks; and any model of kaname behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import Parameter, isawaitable, signature
from itertools import count
from time import time
from typing import Any, cast

from ...core.chunks import chunks_of, delta_chunk
from ...core.durations import seconds
from ...core.errors import ConfigError, ModelError, UnexpectedError, nearest
from ...core.events import Delta, Event, ModelReplied
from ...core.messages import Message, ModelReply, ModelRequest, Thinking, ToolSpec, Usage
from ...core.notices import notice
from ...core.openai_shape import from_openai, to_openai
from ...core.steps import CallModel
from ...kernel.chain import overrides
from ...kernel.ports import Emit, Model
from ...models.http.client import Timeouts
from ...models.registry import maker, resolve

_EXPECTED = '{"type": "delta", "data": {"content": "…"}}, or one of type "tool_call", "usage", "thinking" or "error"'


class LLMAdapter:
    """Access to a model through one method, `chat`. Override it for a new provider: what it yields is what a run uses.

    Without a `chat` of its own it asks a model of kaname: `LLMAdapter("mistral/…")`, `OpenAIAdapter("gpt-5.4-mini")`.

    Args:
        model: The model's name, or a model. An agent that has a `model` of its own passes that to `chat`.
        timeout: Seconds to the first byte of a reply, and between two pieces of it; or `Timeouts`.
        options: Passed on to the model: `api_key`, `base_url`, `settings`, …

    Attributes:
        models: The names that the provider has, if you know them. An agent with another name is refused when it is made.
    """

    provider = ""
    models: Sequence[str] = ()

    def __init__(self, model: str | Model = "", *, timeout: Any = None, **options: Any) -> None:
        if timeout is not None:
            told = timeout if isinstance(timeout, Timeouts) else Timeouts(first_byte=seconds(timeout), between=seconds(timeout))
            options["timeouts"] = told
        self.model, self.options = model, options
        self._served: dict[str, Model] = {}

    @property
    def name(self) -> str:
        named = self.model if isinstance(self.model, str) else self.model.name
        return f"{self.provider}/{named}" if self.provider else named or type(self).__name__

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        model: str = "",
        stream: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **settings: Any,
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Ask the model, and yield its reply: `delta` while it is written, then each `tool_call`, and `usage`.

        Args:
            messages: The conversation in the OpenAI shapes, the system prompt first.
            model: The model's name; by default the adapter's own.
            stream: False yields the text as one `delta`, when the reply is complete.
            tools: Tool definitions in the OpenAI shape.
            settings: `temperature`, `max_tokens`, …, and `response_format` for an answer that fits a JSON Schema.

        Raises:
            ModelError: The provider failed. An adapter of your own can yield an `error` chunk instead.
        """
        told: asyncio.Queue[Any] = asyncio.Queue()

        async def emit(text: str, kind: str = "text", call_id: str = "") -> None:
            if stream:
                told.put_nowait(delta_chunk(time(), self.name, Delta(text, kind, call_id)))  # type: ignore[arg-type]

        form = settings.pop("response_format", None)
        schema = form["json_schema"]["schema"] if form else None
        said = tuple([from_openai(message) for message in messages])
        request = ModelRequest(said, _specs(tools or ()), schema, settings, stream)
        task = asyncio.ensure_future(self.resolve_model(model).reply(request, emit))
        task.add_done_callback(lambda _: told.put_nowait(None))
        seq = count(1)
        try:
            while (chunk := await told.get()) is not None:
                chunk.seq = next(seq)
                yield chunk
            reply = await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, ModelError):
                await task
        event = Event("", 0, time(), self.name, ModelReplied(reply, CallModel()))
        whole = [] if stream else [delta_chunk(time(), self.name, Delta(reply.message.text))]
        for chunk in [*whole, *[one for one in chunks_of(event) if one.type != "message"]]:
            chunk.seq = next(seq)
            yield chunk

    def resolve_model(self, model: str | Model = "") -> Model:
        """Return the model of kaname that a `chat` of this adapter asks. Raises `ConfigError`."""
        wanted = model or self.model
        if not isinstance(wanted, str):
            return resolve(wanted)
        if not wanted:
            raise ConfigError.of(
                "monono.no_model", "{kind} needs the name of a model: {kind}(model=…)", kind=type(self).__name__
            )
        if wanted not in self._served:
            rest = wanted.removeprefix(f"{self.provider}/")
            self._served[wanted] = maker(self.provider)(rest, **self.options) if self.provider else self._resolve_name(wanted)
        return self._served[wanted]

    def _resolve_name(self, name: str) -> Model:
        provider, slash, rest = name.partition("/")
        return maker(provider)(rest, **self.options) if slash and self.options else resolve(name)

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Be a `Model`: an adapter can be passed to a plain `Agent` too."""
        return await model_of(self, "").reply(request, emit)

    async def close(self) -> None:
        for served in self._served.values():
            if (close := getattr(served, "close", None)) is not None:
                await close()


class OpenAIAdapter(LLMAdapter):
    """OpenAI, and servers that speak its API (`base_url`). The key is `api_key` or `OPENAI_API_KEY`."""

    provider = "openai"


class AnthropicAdapter(LLMAdapter):
    """Anthropic's Messages API. The key is `api_key` or `ANTHROPIC_API_KEY`."""

    provider = "anthropic"


def model_of(adapter: Any, model: Any) -> Model:
    """Return the model that a run uses for an adapter: one that calls its `chat`, if that is the user's, else kaname's own."""
    named = model if isinstance(model, str) else getattr(model, "name", "")
    known, wanted = getattr(adapter, "models", None) or (), named or getattr(adapter, "model", "")
    if known and wanted not in known:
        message = notice("monono.unknown_model", "{kind} has no model {name!r}", kind=type(adapter).__name__, name=wanted)
        raise ConfigError(message + nearest(str(wanted), known))
    if isinstance(adapter, LLMAdapter):
        if overrides(adapter, "chat", LLMAdapter):
            return ChatModel(adapter, named or getattr(adapter, "model", ""))
        return cast(Model, adapter) if overrides(adapter, "reply", LLMAdapter) else adapter.resolve_model(model or "")
    if callable(getattr(adapter, "reply", None)):
        return resolve(adapter)
    if callable(getattr(adapter, "chat", None)):
        return ChatModel(adapter, named)
    raise ConfigError.of(
        "monono.adapter", "{it!r:.100} is not an LLM adapter: it has no chat(messages, model, stream)", it=adapter
    )


class ChatModel:
    """A model that calls the `chat` of an adapter, with what that takes of `model`, `stream`, `tools` and the settings."""

    def __init__(self, adapter: Any, model: str) -> None:
        self._adapter, self._model = adapter, model if isinstance(model, str) else model.name
        self.name = self._model or str(getattr(adapter, "name", type(adapter).__name__))
        parameters = signature(adapter.chat).parameters
        every = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
        self._taken = None if every else frozenset(parameters)

    def accepts(self, name: str) -> bool:
        return self._taken is None or name in self._taken

    def ignores(self, settings: Mapping[str, Any]) -> list[str]:
        return [name for name in settings if not self.accepts(name)]

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        options: dict[str, Any] = {"model": self._model, "stream": request.stream, **request.settings}
        if request.tools:
            options["tools"] = [_definition(tool) for tool in request.tools]
        if request.schema is not None:
            options["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": request.schema}}
        for needed in [name for name in ("tools", "response_format") if name in options and not self.accepts(name)]:
            raise UnexpectedError(f"{type(self._adapter).__name__}.chat() has no parameter {needed!r}, which this call needs")
        taken = {name: value for name, value in options.items() if self.accepts(name)}
        given = self._adapter.chat([to_openai(message) for message in request.messages], **taken)
        given = await given if isawaitable(given) else given
        pieces = _Pieces(type(self._adapter).__name__, emit)
        if isinstance(given, AsyncIterator) or hasattr(given, "__aiter__"):
            async for chunk in given:
                await pieces.take(chunk)
        else:
            await pieces.take_whole(given)
        return pieces.reply()

    async def close(self) -> None:
        if (close := getattr(self._adapter, "close", None)) is not None:
            closing = close()
            if isawaitable(closing):
                await closing


class _Pieces:
    """A reply from the chunks of a `chat`."""

    def __init__(self, kind: str, emit: Emit) -> None:
        self._kind, self._emit = kind, emit
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Mapping[str, Any]] = []
        self._usage = Usage(cost=None)  # nobody has told

    async def take(self, chunk: Any) -> None:
        match {"type": "delta", "data": {"content": chunk}} if isinstance(chunk, str) else chunk:
            case {"type": "delta", "data": {"content": str(text)}}:
                self._texts.append(text)
                await self._emit(text)
            case {"type": "thinking", "data": {"content": str(text)}}:
                self._thoughts.append(text)
                await self._emit(text, "thinking")
            case {"type": "tool_call", "data": {"function": {"name": str(name)} as function, **rest}}:
                self._calls.append({"id": rest.get("id", ""), "function": {**function, "name": name}})
            case {"type": "usage", "data": {"prompt_tokens": int(read), "completion_tokens": int(written), **rest}}:
                more: Any = rest
                self._usage = Usage(
                    read, written, more.get("cached_tokens", 0), more.get("cost"), more.get("reasoning_tokens", 0)
                )
            case {"type": "error", "data": {"message": message}}:
                raise ModelError(str(message))
            case _:
                raise UnexpectedError(f"{self._kind}.chat gave {repr(chunk)[:100]}; expected {_EXPECTED}")

    async def take_whole(self, given: Any) -> None:
        """Take a reply that came at once: a text, or an assistant's message in the OpenAI shape."""
        if not isinstance(given, str | Mapping):
            raise UnexpectedError(f"{self._kind}.chat gave {repr(given)[:100]}; expected an async iterator of chunks")
        message = {"content": given} if isinstance(given, str) else given
        if message.get("content"):
            await self.take(message["content"])
        for call in message.get("tool_calls") or ():
            await self.take({"type": "tool_call", "data": call})
        if message.get("usage"):
            await self.take({"type": "usage", "data": message["usage"]})

    def reply(self) -> ModelReply:
        said = from_openai({"role": "assistant", "content": "".join(self._texts), "tool_calls": self._calls})
        thought = (Thinking("".join(self._thoughts)),) if self._thoughts else ()
        message = Message("assistant", (*thought, *said.parts))
        return ModelReply(message, "tool_use" if self._calls else "end_turn", self._usage)


def _definition(tool: ToolSpec) -> dict[str, Any]:
    inner = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": inner}


def _specs(tools: Iterable[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    inner = [tool.get("function", tool) for tool in tools]
    return tuple(
        [ToolSpec(one["name"], one.get("description", ""), one.get("parameters", {"type": "object"})) for one in inner]
    )
