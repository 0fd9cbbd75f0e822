"""What the adapters for HTTP providers share: send, look at what comes back, put the stream's pieces together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ..core.language import say
from ..core.messages import ModelReply, ModelRequest
from ..kernel.ports import Emit
from .failures import Who, from_status, garbled
from .http import Http, Timeouts
from .prices import Price, price_of
from .sse import EventStream

_ERROR_BYTES = 20_000
_USUAL_TIERS = (None, "default", "standard_only")


class Joiner(Protocol):
    """Puts one reply together from the pieces of its stream."""

    async def take(self, chunk: dict[str, Any], emit: Emit) -> None: ...
    def whole(self, answer: dict[str, Any]) -> dict[str, Any]: ...
    def reply(self, *, ended: bool) -> ModelReply: ...


class ServedModel(ABC):
    """A model behind an address. Subclasses say what to send (`body`) and how to read the answer (`joiner`)."""

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
    ) -> None:
        self.model, self.name = model, f"{self.provider}/{model}"
        self.who = Who(self.provider, model, key)
        self.settings = dict(settings or {})
        self._url, self._headers = url, {"content-type": "application/json", **headers}
        self._http = Http(timeouts)
        self._price = price

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model} at {self._url}>"

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
        return price_of(self.name) if tier in _USUAL_TIERS else None

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._http.close()

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        joiner, ended = await self.exchange(request, emit)
        return joiner.reply(ended=ended)

    async def exchange(self, request: ModelRequest, emit: Emit) -> tuple[Joiner, bool]:
        """One request, and all the pieces of its answer; whether the stream said that it was over."""
        pause = self._http.timeouts.between
        async with self._http.post(self._url, self._headers, self.body(request), self.who) as response:
            kind = response.headers.get("content-type", "")
            if response.status != 200:
                raise from_status(response.status, response.headers, await response.read(pause, _ERROR_BYTES), self.who)
            if "html" in kind:
                page = "Web ページが返りました。base_url を確認してください"
                raise garbled(say("a web page instead of an answer: is base_url right?", page), self.who)
            joiner = self.joiner(request)
            if "event-stream" not in kind and "json" in kind:  # a server that does not stream
                await joiner.take(joiner.whole(self._decoded(await response.read(pause))), emit)
                return joiner, True
            events, ended = EventStream(), False
            while slice_ := await response.more(pause):
                for event in events.feed(slice_):
                    ended = await self._take(event, joiner, emit) or ended
            for event in events.end():
                ended = await self._take(event, joiner, emit) or ended
            return joiner, ended

    async def _take(self, event: bytes, joiner: Joiner, emit: Emit) -> bool:
        if event == b"[DONE]":
            return True
        await joiner.take(self._decoded(event), emit)
        return False

    def _decoded(self, data: bytes) -> dict[str, Any]:
        try:
            chunk = _decode(data)
        except msgspec.DecodeError as problem:
            raise garbled(f"{problem}: {data[:120]!r}", self.who) from problem
        if not isinstance(chunk, dict):
            raise garbled(f"{data[:120]!r}", self.who)
        return chunk


_decode = msgspec.json.Decoder().decode


def parsed_arguments(text: str) -> Any:
    """The object that a model's arguments spell; the text itself where they spell none."""
    try:
        value = _decode(text.encode()) if text else {}
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return value if isinstance(value, dict) else text
