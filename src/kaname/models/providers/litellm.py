"""Every other provider, through LiteLLM: `PROVIDER/NAME`. It is an extra, and is loaded when the first reply is asked for.

LiteLLM has habits of its own that are switched off here: retries, a price list, headers and tokenizers from the network, tokens
that it counts where the provider reports none, a `.env` file that it reads, advice that it prints. What is left of it may still
block (credentials of a cloud, a callback, a tokenizer), so all of it runs in a thread with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from copy import deepcopy
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any
from weakref import WeakSet

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
from ...kernel.ports import Emit
from ..http.client import PATIENT, Timeouts, timed_out
from ..http.connection import PUNCTUAL
from ..http.errors import Who, failure, from_status, garbled, secrets_in
from ..http.provider import mapping
from ..prices import Price, price_of
from .loop_thread import Handover, LoopThread
from .openai import response_format, shape, shown_after, tool_shapes, with_pictures
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


class LiteLLM:
    """`model` is LiteLLM's name of it, `provider/name`; keys and addresses come from the environment as LiteLLM's docs say.

    `settings` go into every request (LiteLLM's own parameters too); an agent's settings go over them.
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
            raise ConfigError(
                notice(
                    "model.litellm_missing",
                    "{model} goes through LiteLLM, which is not installed: {how}",
                    model=model,
                    how=install_command("litellm"),
                )
            )
        self.model = self.name = model
        self.settings = dict(settings or {})
        self._timeouts, self._price = timeouts, price
        self._where = {"base_url": base_url, "api_key": api_key, "extra_headers": dict(headers) if headers else None}
        provider, _, name = model.partition("/")
        self.who = Who(provider, name or model, (api_key or "", *secrets_in(headers or {})))

    def __repr__(self) -> str:
        return f"<LiteLLM {self.model}>"

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        thread = _thread()
        await thread.run(_loaded())
        _users.add(self)
        usual = "service_tier" not in {**self.settings, **request.settings}
        pieces = _Pieces(
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
        litellm = await _loaded()
        async with self._explained(litellm):
            stream = await litellm.acompletion(**arguments)
            put(_OPENED)
            async with aclosing(stream):
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
            raise timed_out(limit, seconds, late if late > PUNCTUAL else 0.0, self.who) from None

    def arguments(self, request: ModelRequest) -> dict[str, Any]:
        settings = {**self.settings, **request.settings}
        if request.schema is not None:
            settings["response_format"] = response_format(request.schema)
        tools = [*deepcopy(tool_shapes(request.tools)), *(settings.pop("tools", None) or [])]  # for Gemini they are changed
        if request.called and (self.who.provider in _WANT_TOOLS or "claude" in self.model):  # Bedrock knows no choice of none
            settings |= {"tools": deepcopy(tool_shapes(request.called)), "tool_choice": "none"}
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
        """LiteLLM keeps its connections for the whole process: they are closed with the last model that used them."""
        if self not in _users:
            return
        _users.discard(self)
        if not _users and _threads:
            thread = _threads.pop()
            with suppress(TimeoutError):  # it is blocked: its connections end with it
                async with asyncio.timeout(_CLOSING):
                    await thread.run(_closed())
            await thread.stop()

    @asynccontextmanager
    async def _explained(self, litellm: Any) -> AsyncIterator[None]:
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
            unknown = notice("model.litellm_no_provider", "LiteLLM knows no provider {provider!r}", provider=who.provider)
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


class _Pieces(Pieces):
    """LiteLLM's stream is OpenAI's, with Anthropic's blocks of thought, and with calls that the provider has already run."""

    def __init__(self, who: Who, price: Price | None, *, charged: bool) -> None:
        super().__init__(who, price)
        self._charged = charged
        self._blocks: list[Part] = []
        self._thought: list[str] = []
        self._counted = False

    async def take(self, chunk: dict[str, Any], emit: Emit) -> bool:
        self._counted = self._counted or any(mapping(chunk.get("usage")).values())
        for choice in chunk["choices"]:
            for block in choice["delta"].get("thinking_blocks") or ():
                self._think(block)
        return await super().take(chunk, emit)

    def _think(self, block: Mapping[str, Any]) -> None:
        """A signature ends a block; what is withheld is one by itself."""
        if block.get("type") == "redacted_thinking":
            self._blocks.append(Provided("litellm", {"thinking": dict(block)}))
            return
        self._thought.append(block.get("thinking") or "")
        if block.get("signature"):
            self._blocks.append(Thinking("".join(self._thought), block["signature"]))
            self._thought = []

    def count(self, usage: Mapping[str, Any]) -> Usage:
        """Return the usage; unknown where LiteLLM has only zeros, because the provider reported nothing."""
        if not usage.get("total_tokens"):
            return Usage(cost=None)
        seen = super().count(usage)
        tools = mapping(usage.get("server_tool_use"))
        return seen if self._charged and not any(tools.values()) else replace(seen, cost=None)

    def reply(self, *, ended: bool) -> ModelReply:
        said = super().reply(ended=ended)
        if not said.message.parts and not self._counted:  # LiteLLM gives a stream without a word an ending of its own
            raise garbled(notice("model.empty_answer", "an empty answer"), self._who)
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
            shapes.append(shown_after(pictures))
    return shapes


def _as_json(chunk: Any) -> dict[str, Any]:
    """As a server would have sent it. Picked by hand: pydantic's own way takes a millisecond a chunk."""
    choices = []
    for choice in chunk.choices:
        delta = choice.delta
        calls = [
            {
                "index": call.index,
                "id": call.id,
                "type": getattr(call, "type", None),
                "function": {"name": call.function.name, "arguments": call.function.arguments},
                "extra_content": _signed(call) or _signed(call.function),
            }
            for call in delta.tool_calls or ()
        ]
        plain = {
            "content": delta.content,
            "reasoning_content": getattr(delta, "reasoning_content", None),
            "thinking_blocks": getattr(delta, "thinking_blocks", None),
            "tool_calls": calls,
        }
        choices.append({"delta": plain, "finish_reason": choice.finish_reason})
    usage = getattr(chunk, "usage", None)
    return {"choices": choices, "usage": usage.model_dump() if usage is not None else None}


def _signed(held: Any) -> dict[str, Any] | None:
    """Gemini's signature of the thought that led to a call: it refuses the call's result without it."""
    fields = mapping(getattr(held, "provider_specific_fields", None))
    return {"thought_signature": fields["thought_signature"]} if fields.get("thought_signature") else None


def _thread() -> LoopThread:
    with _starting:
        if not _threads or not _threads[0].alive:
            _threads[:] = [LoopThread("kaname-litellm")]
        return _threads[0]


async def _loaded() -> Any:
    """LiteLLM, with its habits switched off. The first time takes four seconds, in which nothing else goes on in its thread."""
    if (known := sys.modules.get("litellm")) is not None and vars(known).get("kaname_loaded"):
        return known
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    litellm: Any = import_module("litellm")
    for name, flag in {**_FLAGS, "kaname_loaded": True}.items():  # once: what a program sets afterwards counts
        setattr(litellm, name, flag)
    return litellm


async def _closed() -> None:
    """Close LiteLLM's connections, in its thread, after what was cancelled has ended."""
    litellm = await _loaded()
    own = {task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == LiteLLM._receive.__name__}
    if own:
        await asyncio.wait(own, timeout=_CLOSING)
    await litellm.close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()  # or the closed ones would be used again
    shared = vars(litellm).get("module_level_aclient")  # is in no cache after that
    if shared is not None:
        await shared.close()


def _provider_message(problem: Any) -> str:
    """Return what the provider said, without LiteLLM's own words around it."""
    text = str(problem).partition(" Original exception:")[0].partition(" Handle with `litellm.")[0]
    text = re.sub(r"^(litellm\.)?(\w+: )?(litellm\.)?(\w+: )*(\w+Exception - )?", "", text).strip()
    return re.sub(r"^b(['\"])(.*)\1$", r"\2", text, flags=re.S)  # some providers' bodies are shown as Python shows bytes
