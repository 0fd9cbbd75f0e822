"""Base of the HTTP adapters: send the request, check the answer, join the pieces of the stream."""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from typing import Any, Self

from ...core.codec import dump
from ...core.durations import seconds
from ...core.errors import ConfigError, ContentFiltered, ModelError
from ...core.messages import Message, ModelReply, ModelRequest, Part, StopReason, Usage
from ...core.notices import notice
from ...core.reading.lenient_json import strict_json
from ...core.record import replace
from ...core.tracing import current
from ...core.values import AnswerSchema, OutputMode
from ...kernel.bases import ModelBase, ModelInfo
from ...kernel.ports import Emit
from ..output_modes import OutputModes, reply_in_mode
from ..prices import Price, price_of
from .client import Http, Timeouts
from .connection import Broken, HttpConnection
from .errors import Who, failure, from_status, garbled_reply, secrets_in
from .keys import demand_key
from .rates import rates_of
from .sse import EventStream, Halves

_ERROR_BYTES = 20_000
_EXPLANATION = 5.0  # seconds for the next piece of an error's explanation
_ENDING = 0.05  # seconds for what follows the last event
_EXCERPT = 400
_ASIDE = frozenset({"extra_headers", "timeout"})  # settings that do not go into the body
_UNUSUAL_NUMBER = re.compile(r"[0-9][eE]|[0-9]{16}")
_SEARCHES = frozenset({"web_search_options", "search_parameters", "plugins"})
_USUAL_TIERS = (None, "default", "standard_only")


class Joiner(ABC):
    """Builds one reply from the pieces of its stream.

    Args:
        who: The model that is asked, for errors.
        price: The price of its tokens, or None.
    """

    def __init__(self, who: Who, price: Price | None = None) -> None:
        self.who, self.price = who, price
        self.seen = False  # whether a piece has come
        self.served = ""  # the provider's name of the model

    @abstractmethod
    async def take(self, chunk: dict[str, Any], emit: Emit) -> bool:
        """Take a piece. Return True if it was the last."""

    @abstractmethod
    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer that was not streamed as one piece."""

    @abstractmethod
    def usage(self) -> Usage:
        """Return the tokens of the reply and their cost."""

    @abstractmethod
    def reply(self, *, ended: bool) -> ModelReply:
        """Return the reply. `ended`: the stream said that it was over."""

    def incomplete(self) -> ModelError:
        """Return the error for a stream in which nothing came, or that did not end."""
        if not self.seen:
            return garbled_reply(notice("model.empty_answer", "the answer is empty"), self.who)
        return garbled_reply(notice("model.cut_off", "the connection ended in the middle of the answer"), self.who)

    def filtered(self) -> ModelError:
        """Return the error for an answer that the provider's filter has withheld."""
        withheld = notice("model.filtered", "the provider's filter withheld the answer")
        error = failure(ContentFiltered, withheld, 0, self.who)
        error.usage = self.usage()
        return error

    def build(self, parts: Sequence[Part], stop: StopReason | None, usage: Usage) -> ModelReply:
        """Return the reply with these parts."""
        served = {"served": self.served, "request_id": self.who.request_id}
        return ModelReply(Message("assistant", tuple(parts)), stop, usage, self.who.model, **served)


def force_once(request: ModelRequest, own: Mapping[str, Any]) -> ModelRequest:
    """Return the request with a `tool_choice` that forces a call only before the first result: else it would never end."""
    wanted = request.settings.get("tool_choice", own.get("tool_choice"))
    if wanted in ("auto", "none", None) or not request.messages or request.messages[-1].role != "tool":
        return request
    return replace(request, settings={**request.settings, "tool_choice": "auto"})


class ServedModel(ModelBase, ABC):
    """A model at an address. Subclasses build the request (`body`) and read the answer (`joiner`).

    `missing_key`: a sentence that names the missing key, or "". Of the settings, `extra_headers` are sent as headers, and
    `timeout` is the time for a reply. A subclass says more about itself in its class attribute `about`.
    """

    provider = ""
    about = ModelInfo(caches_prompts=True)
    _send: Callable[[bytes], Awaitable[bytes]] | None = None  # instead of HTTP

    def __init__(
        self,
        model: str,
        url: str,
        headers: Mapping[str, str],
        key: str,
        settings: Mapping[str, Any] | None,
        timeouts: Timeouts,
        price: Price | None,
        missing_key: str = "",
    ) -> None:
        demand_key(missing_key)
        self._missing_key = missing_key
        self.model, self.name = model, f"{self.provider}/{model}"
        self._url = url
        given = dict(settings or {})
        named = {**headers, **_as_headers(given.pop("extra_headers", None))}
        self._headers = {"content-type": "application/json", **{name.lower(): value for name, value in named.items()}}
        limit = given.pop("timeout", None)
        self.who = Who(self.provider, model, (key, *secrets_in(self._headers)))
        self.settings = given
        self._http = Http(timeouts)
        self.rates = rates_of(url, self.who.secrets, model)
        self.about = replace(
            self.about,
            served=model,
            settings=given,
            patience=self.about.patience if limit is None else seconds(limit),
            instance=(type(self).__name__, self.name, url, *sorted(self._headers.items())),
            identity=self._identity(),
            rates=self.rates,
        )
        self._price, self._listed, self._modes = price, price_of(self.name), OutputModes()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model} at {self._url.partition('?')[0]}>"

    def _identity(self) -> str:
        """Return the address and the headers but for the keys: a beta header, for one, changes replies."""
        told = {name: value for name, value in self._headers.items() if not secrets_in({name: value})}
        return dump([self._url.partition("?")[0], told])

    @abstractmethod
    def body(self, request: ModelRequest) -> bytes:
        """Return the request in the provider's form."""

    @abstractmethod
    def joiner(self, request: ModelRequest) -> Joiner:
        """Return the object that builds the reply to this request."""

    def price_for(self, request: ModelRequest) -> Price | None:
        """Return the given price, or that of the table, which does not cover other service tiers."""
        if self._price is not None:
            return self._price
        if _SEARCHES & {*self.settings, *request.settings}:  # charged by the piece
            return None
        tier = request.settings.get("service_tier", self.settings.get("service_tier"))
        return self._listed if tier in _USUAL_TIERS else None

    def most_expensive(self, request: ModelRequest, input: int, output: int) -> float | None:
        """Return the highest possible cost of a reply. The provider's own tools have no known price."""
        given, price = {**self.settings, **request.settings}, self.price_for(request)
        return None if price is None or given.get("tools") else price.most(input, output)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._http.close()

    def _headers_with_trace(self) -> Mapping[str, str]:
        """Return the headers, with the trace to which this call belongs."""
        trace = current.get()
        return {**self._headers, "traceparent": trace} if trace else self._headers

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        if "tool_choice" in request.settings or "tool_choice" in self.settings:
            request = force_once(request, self.settings)
        if request.schema is not None and isinstance(request.schema, AnswerSchema):
            return await self._modes.reply(self.reply_in_mode, request, emit, self.modes_for(request.schema))
        joiner, ended = await self.exchange(request, emit)
        return joiner.reply(ended=ended)

    async def _reply_once(self, request: ModelRequest, emit: Emit) -> ModelReply:
        joiner, ended = await self.exchange(request, emit)
        return joiner.reply(ended=ended)

    def modes_for(self, schema: AnswerSchema) -> tuple[OutputMode, ...]:
        """Return the modes in which a typed answer is asked for if the agent names none: the next, if one is refused."""
        return ("native",)

    async def reply_in_mode(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Ask for a typed answer in the mode that the schema of the request names."""
        return await reply_in_mode(self._reply_once, request, emit)

    async def exchange(self, request: ModelRequest, emit: Emit) -> tuple[Joiner, bool]:
        """Send one request and read its answer. Return the joiner, and True if the stream said that it was over."""
        self._demand_key()
        if self._send is not None:
            return await self._exchange_whole(self._send, request, emit), True
        pause, patience = self._http.timeouts.between, self._http.timeouts.first_byte
        headers, who = self._headers_with_trace(), self.who
        if request.settings and _ASIDE & request.settings.keys():
            request, headers, who = self._set_aside(request, headers)
        async with self._http.post(self._url, headers, self.body(request), who) as response:
            self.rates.learn(response.status, response.headers)
            kind = response.headers.get("content-type", "").lower()
            if response.status != 200:
                raise from_status(response.status, response.headers, await _read_explanation(response), who)
            who = who.answered(response.headers)
            if "html" in kind:
                page = notice("model.web_page_answer", "the server returned a web page instead of an answer: check base_url")
                raise garbled_reply(page, who)
            joiner = self.joiner(request)
            joiner.who = who
            slice_ = await response.more(patience)
            while slice_ and not slice_.strip():  # signs of life before a whole answer
                slice_ = await response.more(patience)
            if slice_.lstrip()[:1] == b"{":  # a server that does not stream; no event begins like that
                whole = self._decode_chunk(slice_ + await response.read_body(pause), who)
                await joiner.take(joiner.whole(whole), emit)
                return joiner, True
            events, halves = EventStream(), Halves()
            while slice_:
                for chunk in self._decode_events(events.feed(slice_), who, halves):
                    if chunk is None or await joiner.take(chunk, emit):
                        await response.finish(_ENDING)
                        return joiner, True
                slice_ = await response.more(pause)
            for event in events.end():
                if event != b"[DONE]":
                    await joiner.take(self._decode_chunk(event, who, halves), emit)
            return joiner, False

    def _demand_key(self) -> None:
        if self._missing_key:
            raise ConfigError(self._missing_key)

    async def _exchange_whole(self, send: Callable[[bytes], Awaitable[bytes]], request: ModelRequest, emit: Emit) -> Joiner:
        request = self._set_aside(request, {})[0]
        answer = await send(_without_stream(self.body(request)))
        joiner = self.joiner(request)
        await joiner.take(joiner.whole(self._decode_chunk(answer, self.who)), emit)
        return joiner

    def through(self, send: Callable[[bytes], Awaitable[bytes]]) -> Self:
        """Return this model with another way to its provider. `send` gets the body of a request, and returns the answer."""
        other = copy(self)
        other._send = send
        return other

    async def fetch(self, method: str, url: str, body: bytes = b"", kind: str = "application/json") -> bytes:
        """Send a request that is not a model call, and return the answer."""
        self._demand_key()
        headers = {**self._headers, "content-type": kind}
        async with self._http.request(method, url, headers, body, self.who) as response:
            if not 200 <= response.status < 300:
                raise from_status(response.status, response.headers, await _read_explanation(response), self.who)
            return await response.read_body(self._http.timeouts.between)

    def _set_aside(self, request: ModelRequest, headers: Mapping[str, str]) -> tuple[ModelRequest, Mapping[str, str], Who]:
        """Return the request without the settings that are not for its body, the headers with those it brings, and whose
        secrets they hold."""
        settings = {name: value for name, value in request.settings.items() if name not in _ASIDE}
        own = {name.lower(): value for name, value in _as_headers(request.settings.get("extra_headers")).items()}
        who = self.who._replace(secrets=(*self.who.secrets, *secrets_in(own)))
        return replace(request, settings=settings), {**headers, **own}, who

    def _decode_events(self, events: list[bytes], who: Who, halves: Halves) -> Iterable[dict[str, Any] | None]:
        """Return the chunks of events, and None for the one that ends the stream.

        Events that came together are decoded together. If that fails, each is decoded when it is taken: those before a broken
        one are shown.
        """
        if len(events) > 1 and not halves.kept:
            ends = events[-1] == b"[DONE]"
            decode, wrong = _json()
            try:
                chunks: list[Any] = decode(b"[%b]" % b",".join(events[:-1] if ends else events))
            except (wrong, ValueError, RecursionError):
                chunks = []
            if len(chunks) == len(events) - ends and set(map(type, chunks)) == {dict}:
                return [*chunks, None] if ends else chunks
        return (None if event == b"[DONE]" else self._decode_chunk(event, who, halves) for event in events)

    def _decode_chunk(self, data: bytes, who: Who, halves: Halves | None = None) -> dict[str, Any]:
        decode, wrong = _json()
        try:
            chunk = halves.decode(data) if halves is not None and halves.kept else decode(data)
        except (wrong, ValueError, RecursionError) as problem:
            chunk = None if halves is None else _decode_halves(data, halves)
            if chunk is None:
                raise garbled_reply(f"{problem}: {_excerpt(data, who)}", who) from problem
        if not isinstance(chunk, dict):
            raise garbled_reply(_excerpt(data, who), who)
        return chunk


def _as_headers(given: Any) -> dict[str, str]:
    if not isinstance(given or {}, Mapping):
        raise ConfigError.of("agent.extra_headers", "extra_headers must be a mapping of texts, not {given!r}", given=given)
    return {str(name): str(value) for name, value in (given or {}).items()}


def _without_stream(body: bytes) -> bytes:
    """Return a request for a whole answer."""
    decoded = json.loads(body)  # which takes half a surrogate pair
    return dump({name: value for name, value in decoded.items() if name not in ("stream", "stream_options")}).encode()


def _decode_halves(data: bytes, halves: Halves) -> Any:
    """Decode JSON in which a character was cut in two. Return None if anything else is wrong with it."""
    if b"\\ud" not in data.lower():
        return None
    try:
        return halves.decode(data)
    except (ValueError, RecursionError):
        return None


async def _read_explanation(response: HttpConnection) -> bytes:
    """Read the body of an error. It may be incomplete or endless; the status already says that it is an error."""
    try:
        async with asyncio.timeout(_EXPLANATION):
            return await response.read_body(_EXPLANATION, _ERROR_BYTES)
    except (Broken, TimeoutError):
        return b""


def _excerpt(data: bytes, who: Who) -> str:
    """Return an excerpt. Secrets are masked before it is cut, because half a key would not be found."""
    return who.mask(data[: 10 * _EXCERPT].decode("utf-8", "replace"))[:_EXCERPT]


@cache
def _json() -> tuple[Callable[[bytes], Any], type[Exception]]:
    """Return the decoder and its error. They are loaded with the first answer: it takes as long as loading the rest."""
    import msgspec

    return msgspec.json.Decoder().decode, msgspec.DecodeError


def parse_arguments(text: str) -> Any:
    """Return the object that a model's arguments spell, or the text itself if they are not an object or repeat a key."""
    decode, wrong = _json()
    try:
        value = decode(text.encode() or b"{}")  # also refuses halves of characters, which no journal takes
        if type(value) is not dict or text.count(":") != len(value) or _UNUSUAL_NUMBER.search(text):
            value = strict_json(text or "{}")  # else no key can be given twice: every key has a colon
    except (wrong, ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def as_count(value: Any) -> int:
    """Return a number of tokens, 0 for anything else that a server sends."""
    if type(value) is int:  # nearly always
        return value if 0 <= value < 1 << 53 else 0
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if type(value) is dict else {}


def as_mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; an empty list for anything else."""
    if type(value) is not list:
        return []
    if len(value) == 1 and type(value[0]) is dict:  # nearly always
        return value
    return [one for one in value if type(one) is dict]


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""
