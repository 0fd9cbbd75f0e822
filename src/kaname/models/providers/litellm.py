"""Adapter for every other provider, through LiteLLM: `PROVIDER/NAME`. An extra, loaded with the first reply.

Features of LiteLLM that are switched off here: retries; a price list, headers and tokenizers from the network; its own token
counts where the provider reports none; reading a `.env` file; printed advice. The rest may still block (cloud credentials, a
callback, a tokenizer), so all of it runs in a thread with its own event loop.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from copy import deepcopy
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any
from weakref import WeakSet

from ...core.codec import dump
from ...core.errors import (
    ConfigError,
    ContentFiltered,
    ContextTooLong,
    ModelDenied,
    ModelError,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    ModelUnreachable,
    ReplyGarbled,
)
from ...core.install import install_command
from ...core.messages import Message, ModelReply, ModelRequest, Part, Provided, Thinking, Usage
from ...core.notices import notice
from ...core.record import replace
from ...kernel.bases import ModelBase, ModelInfo
from ...kernel.ports import Emit
from ..http.client import PATIENT, Timeouts, timeout_error
from ..http.connection import PUNCTUAL
from ..http.errors import Who, failure, from_status, garbled_reply, secrets_in
from ..http.provider import as_mapping, force_once
from ..output_modes import reply_in_mode
from ..prices import Price, price_of
from .loop_thread import Handover, LoopThread
from .openai import pictures_message, response_format, shape, tool_shapes, with_pictures
from .openai_stream import Pieces

_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
_FLAGS = {
    "suppress_debug_info": True,
    "telemetry": False,
    "disable_hf_tokenizer_download": True,
    "disable_token_counter": True,  # it counts what the provider did not report, with a tokenizer that it may have to fetch
}
_NO_KEY = re.compile(r"missing credentials|api_key client option must be set|api key not found|missing .{0,20}api.key", re.I)
_NOT_THERE = re.compile(
    r"^Connection error|^Cannot connect to host|name resolution|nodename nor servname|Name or service", re.I
)
_SECRETS = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
_WANT_TOOLS = ("anthropic", "bedrock")  # they refuse calls in the conversation without the tools that were called
_OPENED, _ENDED = object(), object()
_CLOSING = 5.0  # seconds for its connections
_users: WeakSet[LiteLLM] = WeakSet()  # the models that have used LiteLLM's shared clients since these were last closed
_threads: list[LoopThread] = []  # the one in which all of LiteLLM runs; none before the first reply
_starting = Lock()


class LiteLLM(ModelBase):
    """A model behind LiteLLM. Keys and addresses come from the environment, as in LiteLLM's documentation.

    Args:
        model: LiteLLM's name of the model, `provider/name`.
        base_url: The address.
        api_key: The key.
        settings: Settings for every request, including LiteLLM's own parameters. An agent's settings override them.
        headers: HTTP headers for every request.
        timeouts: Timeouts of the connection.
        price: The price, instead of the table's.
    """

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
        if find_spec("litellm") is None:
            how = install_command("litellm")
            message = notice(
                "model.litellm_missing", "{model} needs LiteLLM, which is not installed: {how}", model=model, how=how
            )
            raise ConfigError(message)
        self.model = self.name = model
        self.settings = dict(settings or {})
        self._timeouts, self._price = timeouts, price
        self._where = {"base_url": base_url, "api_key": api_key, "extra_headers": dict(headers) if headers else None}
        provider, _, name = model.partition("/")
        self.who = Who(provider, name or model, (api_key or "", *secrets_in(headers or {})))
        shown = {name: value for name, value in (headers or {}).items() if not secrets_in({name: value})}
        self.about = ModelInfo(served=model, api="litellm", settings=self.settings, identity=dump([base_url, shown]))

    def most_expensive(self, request: ModelRequest, input: int, output: int) -> float | None:
        given, price = {**self.settings, **request.settings}, self._price or price_of(self.name)
        return None if price is None or given.keys() & {"tools", "service_tier", "n"} else price.most(input, output)

    def __repr__(self) -> str:
        return f"<LiteLLM {self.model}>"

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        return await reply_in_mode(self._reply_once, request, emit)

    async def _reply_once(self, request: ModelRequest, emit: Emit) -> ModelReply:
        thread = _thread()
        await thread.run(_load())
        _users.add(self)
        usual = "service_tier" not in {**self.settings, **request.settings}
        pieces = _LiteLLMPieces(
            self.who, self._price or (price_of(self.name) if usual else None), charged=usual or self._price is not None
        )
        received = Handover()
        work = thread.start(self._receive(self.arguments(request), received.put))
        work.add_done_callback(lambda _: received.put(_ENDED))
        try:
            chunk = await self._next(received, "first_byte")
            while chunk is not _ENDED:
                if chunk is not _OPENED:
                    await pieces.take(chunk, emit)
                chunk = await self._next(received, "between")
            work.result()
        finally:
            work.cancel()
        return pieces.reply(ended=True)

    async def _receive(self, arguments: dict[str, Any], put: Callable[[Any], None]) -> None:
        """Read the stream, in LiteLLM's thread."""
        litellm = await _load()
        async with self._explain_errors(litellm):
            stream = await litellm.acompletion(**arguments)
            put(_OPENED)
            lines = getattr(getattr(stream, "completion_stream", None), "streaming_response", None)
            left_open = aclosing(lines) if isinstance(lines, AsyncGenerator) else nullcontext()  # by LiteLLM, for Anthropic
            async with left_open, aclosing(stream):
                async for chunk in stream:
                    put(_as_json(chunk))

    async def _next(self, received: Handover, limit: str) -> Any:
        async with self._within(limit):
            return await received.next()

    @asynccontextmanager
    async def _within(self, limit: str) -> AsyncIterator[None]:
        now = asyncio.get_running_loop().time
        seconds, begun = getattr(self._timeouts, limit), now()
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            late = now() - begun - seconds
            raise timeout_error(limit, seconds, late if late > PUNCTUAL else 0.0, self.who) from None

    def arguments(self, request: ModelRequest) -> dict[str, Any]:
        settings = {**self.settings, **force_once(request, self.settings).settings}
        if request.schema is not None:
            settings["response_format"] = response_format(request.schema)
        tools = [*deepcopy(tool_shapes(request.tools)), *(settings.pop("tools", None) or [])]  # for Gemini they are changed
        if request.called_tools and (
            self.who.provider in _WANT_TOOLS or "claude" in self.model
        ):  # Bedrock knows no choice of none
            settings |= {"tools": deepcopy(tool_shapes(request.called_tools)), "tool_choice": "none"}
            if self.who.provider == "bedrock":
                del settings["tool_choice"]
        elif tools:
            settings["tools"] = tools
        else:
            settings.pop("tool_choice", None)
            settings.pop("parallel_tool_calls", None)
        return {
            "model": self.model,
            "messages": _shapes(request.messages),
            "stream_options": {"include_usage": True},
            "max_retries": 0,
            "num_retries": 0,
            "timeout": self._timeouts.first_byte,
            **{name: value for name, value in self._where.items() if value},
            **settings,
            "stream": True,
        }

    async def close(self) -> None:
        """Release the connections.

        LiteLLM keeps them for the whole process: they are closed with the last model that used them.
        """
        if self not in _users:
            return
        _users.discard(self)
        if not _users and _threads:
            thread = _threads.pop()
            with suppress(TimeoutError):  # it is blocked: its connections end with it
                async with asyncio.timeout(_CLOSING):
                    await thread.run(_close_connections())
            await thread.stop()

    @asynccontextmanager
    async def _explain_errors(self, litellm: Any) -> AsyncIterator[None]:
        import httpx
        import openai

        try:
            yield
        except ModelError:
            raise
        except (openai.OpenAIError, httpx.HTTPError, litellm.BudgetExceededError, TimeoutError, ValueError) as problem:
            raise self._failure(litellm, problem) from None  # its own message may show a key

    def _failure(self, litellm: Any, problem: Any) -> ModelError:
        kinds = litellm.exceptions
        if isinstance(problem, TimeoutError | kinds.Timeout):
            return failure(ModelTimeout, notice("model.timeout", "no answer in time"), 0, self.who)
        keys = [value for name, value in os.environ.items() if _SECRETS.search(name)]  # LiteLLM took one of them
        who = self.who._replace(secrets=(*self.who.secrets, *keys))
        text = _provider_message(problem)
        for kind, ours in (
            (kinds.ContextWindowExceededError, ContextTooLong),
            (kinds.ContentPolicyViolationError, ContentFiltered),
            (kinds.MidStreamFallbackError, ModelUnavailable),
            (kinds.APIConnectionError, ModelUnreachable),
            (kinds.APIResponseValidationError, ReplyGarbled),
        ):
            if isinstance(problem, kind):
                return failure(ours, text, 0, who)
        if "LLM Provider NOT provided" in text:
            unknown = notice("model.litellm_no_provider", "LiteLLM has no provider {provider!r}", provider=who.provider)
            return failure(ModelNotFound, unknown, 0, who)
        if _NO_KEY.search(text):
            return failure(ModelDenied, text, 0, who)
        if _NOT_THERE.search(text):
            return failure(ModelUnreachable, text, 0, who)
        status = getattr(problem, "status_code", None)
        if not isinstance(status, int):  # LiteLLM stumbles over what Groq says in mid-stream: that is what counts
            words = _provider_message(problem.__context__) if problem.__context__ is not None else text
            return failure(ReplyGarbled, words or text or type(problem).__name__, 0, who)
        return from_status(status, getattr(problem, "litellm_response_headers", None) or {}, text.encode(), who)


class _LiteLLMPieces(Pieces):
    """The pieces of LiteLLM's stream: OpenAI's form, with Anthropic's thinking blocks and calls that the provider has run."""

    def __init__(self, who: Who, price: Price | None, *, charged: bool) -> None:
        super().__init__(who, price)
        self._charged = charged
        self._blocks: list[Part] = []
        self._thought: list[str] = []
        self._counted = False

    async def take(self, chunk: dict[str, Any], emit: Emit) -> bool:
        self._counted = self._counted or any(as_mapping(chunk.get("usage")).values())
        for choice in chunk["choices"]:
            for block in choice["delta"].get("thinking_blocks") or ():
                self._think(block)
        return await super().take(chunk, emit)

    def _think(self, block: Mapping[str, Any]) -> None:
        """Collect a thinking block. A signature ends it; a redacted block is complete by itself."""
        if block.get("type") == "redacted_thinking":
            self._blocks.append(Provided("litellm", {"thinking": dict(block)}))
            return
        self._thought.append(block.get("thinking") or "")
        if block.get("signature"):
            self._blocks.append(Thinking("".join(self._thought), block["signature"]))
            self._thought = []

    def count(self, usage: Mapping[str, Any]) -> Usage:
        """Return the usage; unknown if LiteLLM has only zeros, because the provider reported nothing."""
        if not usage.get("total_tokens"):
            return Usage(cost=None)
        seen = super().count(usage)
        tools = as_mapping(usage.get("server_tool_use"))
        return seen if self._charged and not any(tools.values()) else replace(seen, cost=None)

    def reply(self, *, ended: bool) -> ModelReply:
        said = super().reply(ended=ended)
        if not said.message.parts and not self._counted:  # LiteLLM gives a stream without a word an ending of its own
            raise garbled_reply(notice("model.empty_answer", "the answer is empty"), self.who)
        return said

    def thoughts(self) -> list[Part]:
        return list(self._blocks) or super().thoughts()


def _shape(message: Message) -> dict[str, Any]:
    made = shape(message)
    for call in made.get("tool_calls", ()):
        if signed := call.pop("extra_content", None):
            call["provider_specific_fields"] = signed
    blocks: list[Any] = []
    for part in message.parts:
        if isinstance(part, Thinking) and part.signature:
            blocks.append({"type": "thinking", "thinking": part.text, "signature": part.signature})
        elif isinstance(part, Provided) and part.provider == "litellm" and "thinking" in part.data:
            blocks.append(part.data["thinking"])
    return {**made, "thinking_blocks": blocks} if blocks else made


def _shapes(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    shapes = []
    for message, pictures in with_pictures(messages):
        shapes.append(_shape(message))
        if pictures:
            shapes.append(pictures_message(pictures))
    return shapes


def _as_json(chunk: Any) -> dict[str, Any]:
    """Return a chunk in the form of the wire. Written out, because pydantic's own conversion takes a millisecond per chunk."""
    choices = []
    for choice in chunk.choices:
        delta = choice.delta
        reasoning, blocks = getattr(delta, "reasoning_content", None), getattr(delta, "thinking_blocks", None)
        plain = {
            "content": delta.content,
            "reasoning_content": reasoning if isinstance(reasoning, str) else None,
            "thinking_blocks": blocks if isinstance(blocks, list) else None,
            "tool_calls": [_call_as_json(call) for call in delta.tool_calls or ()],
        }
        choices.append({"delta": plain, "finish_reason": choice.finish_reason})
    usage = getattr(chunk, "usage", None)
    return {"choices": choices, "usage": usage.model_dump() if usage is not None else None, "model": chunk.model}


def _call_as_json(call: Any) -> dict[str, Any]:
    """Return a piece of a call in the form of the wire. A program that stands in for LiteLLM may give it as a mapping."""
    if isinstance(call, Mapping):
        function = as_mapping(call.get("function"))
        arguments = function.get("arguments")
        whole = {"name": function.get("name"), "arguments": arguments if isinstance(arguments, str) else dump(arguments or {})}
        return {"index": call.get("index"), "id": call.get("id"), "type": "function", "function": whole}
    return {
        "index": call.index,
        "id": call.id,
        "type": getattr(call, "type", None),
        "function": {"name": call.function.name, "arguments": call.function.arguments},
        "extra_content": _thought_signature(call) or _thought_signature(call.function),
    }


def _thought_signature(held: Any) -> dict[str, Any] | None:
    """Return Gemini's signature of the thought that led to a call. Gemini refuses the call's result without it."""
    fields = as_mapping(getattr(held, "provider_specific_fields", None))
    return {"thought_signature": fields["thought_signature"]} if fields.get("thought_signature") else None


def _thread() -> LoopThread:
    with _starting:
        if not _threads or not _threads[0].alive:
            _threads[:] = [LoopThread("kaname-litellm")]
        return _threads[0]


async def _load() -> Any:
    """Import LiteLLM and switch those features off. The first time takes four seconds and blocks its thread."""
    if (known := sys.modules.get("litellm")) is not None and vars(known).get("kaname_loaded"):
        return known
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    litellm: Any = import_module("litellm")
    for name, flag in {**_FLAGS, "kaname_loaded": True}.items():  # once: what a program sets afterwards counts
        setattr(litellm, name, flag)
    return litellm


async def _close_connections() -> None:
    """Close LiteLLM's connections, in its thread, after cancelled work has ended."""
    litellm = await _load()
    own = {task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == LiteLLM._receive.__name__}
    if own:
        await asyncio.wait(own, timeout=_CLOSING)
    await litellm.close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()  # or the closed ones would be used again
    shared = vars(litellm).get("module_level_aclient")  # is in no cache after that
    if shared is not None:
        await shared.close()


def _provider_message(problem: Any) -> str:
    """Return the provider's message, without LiteLLM's text around it."""
    text = str(problem).partition(" Original exception:")[0].partition(" Handle with `litellm.")[0]
    text = re.sub(r"^(litellm\.)?(\w+: )?(litellm\.)?(\w+: )*(\w+Exception - )?", "", text).strip()
    return re.sub(r"^b(['\"])(.*)\1$", r"\2", text, flags=re.S)  # some providers' bodies are shown as Python shows bytes
