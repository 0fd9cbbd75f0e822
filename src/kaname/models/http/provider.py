"""Base of the HTTP adapters: send, check the answer, put the stream's pieces together."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ...core.errors import ConfigError
from ...core.messages import ModelReply, ModelRequest
from ...core.notices import notice
from ...core.reading.lenient_json import strict_json
from ...core.tracing import current
from ...kernel.ports import Emit
from ..prices import Price, price_of
from .client import Http, Timeouts
from .connection import Broken, Connection
from .errors import Who, from_status, garbled, secrets_in
from .keys import demand_key
from .sse import EventStream
from .surrogates import Halves

_ERROR_BYTES = 20_000
_EXPLANATION = 5.0  # seconds for the next piece of an error's explanation
_ENDING = 0.05  # seconds for what follows the last event
_EXCERPT = 400
_USUAL_TIERS = (None, "default", "standard_only")


class Joiner(Protocol):
    """Puts one reply together from the pieces of its stream."""

    async def take(self, chunk: dict[str, Any], emit: Emit) -> bool: ...  # whether it was the last
    def whole(self, answer: dict[str, Any]) -> dict[str, Any]: ...
    def reply(self, *, ended: bool) -> ModelReply: ...


class ServedModel(ABC):
    """A model behind an address. Subclasses say what to send (`body`) and how to read the answer (`joiner`).

    `missing_key`: the sentence that says which key is missing, if one is.
    """

    provider = ""

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
        self._headers = {"content-type": "application/json", **{name.lower(): value for name, value in headers.items()}}
        self.who = Who(self.provider, model, (key, *secrets_in(self._headers)))
        self.settings = dict(settings or {})
        self._http = Http(timeouts)
        self._price, self._listed = price, price_of(self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model} at {self._url.partition('?')[0]}>"

    @abstractmethod
    def body(self, request: ModelRequest) -> bytes:
        """The request as the provider wants it."""

    @abstractmethod
    def joiner(self, request: ModelRequest) -> Joiner:
        """What puts the answer to this request together."""

    def price_for(self, request: ModelRequest) -> Price | None:
        """The price that was given, or that of the table, which does not know what other tiers of service cost."""
        if self._price is not None:
            return self._price
        tier = request.settings.get("service_tier", self.settings.get("service_tier"))
        return self._listed if tier in _USUAL_TIERS else None

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._http.close()

    def _sent(self) -> Mapping[str, str]:
        """The headers, with the trace that this call belongs to."""
        trace = current.get()
        return {**self._headers, "traceparent": trace} if trace else self._headers

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        joiner, ended = await self.exchange(request, emit)
        return joiner.reply(ended=ended)

    async def exchange(self, request: ModelRequest, emit: Emit) -> tuple[Joiner, bool]:
        """One request, and all the pieces of its answer; whether the stream said that it was over."""
        if self._missing_key:
            raise ConfigError(self._missing_key)
        pause, patience = self._http.timeouts.between, self._http.timeouts.first_byte
        async with self._http.post(self._url, self._sent(), self.body(request), self.who) as response:
            kind = response.headers.get("content-type", "").lower()
            if response.status != 200:
                raise from_status(response.status, response.headers, await _what_came(response), self.who)
            if "html" in kind:
                page = notice("model.web_page_answer", "a web page instead of an answer: is base_url right?")
                raise garbled(page, self.who)
            joiner = self.joiner(request)
            slice_ = await response.more(patience)
            while slice_ and not slice_.strip():  # signs of life before a whole answer
                slice_ = await response.more(patience)
            if slice_.lstrip()[:1] == b"{":  # a server that does not stream; no event begins like that
                whole = self._decoded(slice_ + await response.read(pause))
                await joiner.take(joiner.whole(whole), emit)
                return joiner, True
            events, halves = EventStream(), Halves()
            while slice_:
                for event in events.feed(slice_):
                    if event == b"[DONE]" or await joiner.take(self._decoded(event, halves), emit):
                        await response.finish(_ENDING)
                        return joiner, True
                slice_ = await response.more(pause)
            for event in events.end():
                if event != b"[DONE]":
                    await joiner.take(self._decoded(event, halves), emit)
            return joiner, False

    def _decoded(self, data: bytes, halves: Halves | None = None) -> dict[str, Any]:
        try:
            chunk = halves.decoded(data) if halves else _decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as problem:
            chunk = None if halves is None else _with_halves(data, halves)
            if chunk is None:
                raise garbled(f"{problem}: {_excerpt(data, self.who)}", self.who) from problem
        if not isinstance(chunk, dict):
            raise garbled(_excerpt(data, self.who), self.who)
        return chunk


def _with_halves(data: bytes, halves: Halves) -> Any:
    """What is no Unicode because a character was cut in two, if that is all that is wrong with it."""
    if b"\\ud" not in data.lower():
        return None
    try:
        return halves.decoded(data)
    except (ValueError, RecursionError):
        return None


async def _what_came(response: Connection) -> bytes:
    """Of an error's explanation. It may break off or never end; that it is an error stands in the status."""
    try:
        async with asyncio.timeout(_EXPLANATION):
            return await response.read(_EXPLANATION, _ERROR_BYTES)
    except (Broken, TimeoutError):
        return b""


def _excerpt(data: bytes, who: Who) -> str:
    """Masked before it is cut: half a key would not be found."""
    return who.masked(data[: 10 * _EXCERPT].decode("utf-8", "replace"))[:_EXCERPT]


_decode = msgspec.json.Decoder().decode


def parsed_arguments(text: str) -> Any:
    """Return the object that a model's arguments spell; the text itself where they spell none, or give a key twice."""
    try:
        _decode(text.encode() or b"{}")  # also refuses halves of characters, which no journal takes
        value = strict_json(text or "{}")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def counted(value: Any) -> int:
    """A number of tokens; whatever a server sends in its place is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0


def mapping(value: Any) -> Mapping[str, Any]:
    """The object that was expected here, or an empty one."""
    return value if type(value) is dict else {}


def listed(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list that was expected here."""
    return [one for one in value if type(one) is dict] if type(value) is list else []


def words(value: Any) -> str:
    return value if isinstance(value, str) else ""
