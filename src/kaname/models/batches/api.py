"""Base of the batch APIs: send requests to the addresses next to the model's, and read what comes back."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ...core.codec import dump
from ...core.errors import ModelError, ModelUnavailable
from ...core.notices import notice
from ...kernel.ports import Model
from ..http.errors import failure, garbled_reply
from ..http.provider import ServedModel, as_mapping

SLACK = 300.0  # seconds by which the provider's clock may differ from ours


class HttpBatches:
    """The batch API of a model's provider. `url`: the address of a model call, which ends with `ending`."""

    most_requests, most_bytes = 50_000, 200_000_000
    discount: float | None = 0.5

    def __init__(self, model: ServedModel, url: str, ending: str) -> None:
        self._model, self._parts = model, urlsplit(url)
        self._base = self._parts.path.removesuffix(ending)

    def through(self, send: Callable[[bytes], Awaitable[bytes]]) -> Model:
        return self._model.through(send)

    def _address(self, path: str, query: str = "") -> str:
        asked = "&".join([part for part in (self._parts.query, query) if part])
        return urlunsplit(self._parts._replace(path=self._base + path, query=asked))

    async def _get(self, path: str, query: str = "") -> Mapping[str, Any]:
        return self._object(await self._model.fetch("GET", self._address(path, query)))

    async def _post(self, path: str, content: Any) -> Mapping[str, Any]:
        return self._object(await self._model.fetch("POST", self._address(path), dump(content).encode()))

    async def _lines(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Return the objects of a file with one in each line."""
        content = await self._model.fetch("GET", self._address(path))
        return (self._object(line) for line in content.splitlines() if line.strip())

    def _object(self, content: bytes) -> Mapping[str, Any]:
        try:
            decoded = json.loads(content)
        except (ValueError, RecursionError) as problem:
            raise garbled_reply(f"{problem}: {content[:200]!r}", self._model.who) from problem
        if not isinstance(decoded, dict):
            raise garbled_reply(repr(content[:200]), self._model.who)
        return decoded

    def _id(self, made: Mapping[str, Any]) -> str:
        if not isinstance(made.get("id"), str) or not made["id"]:
            raise garbled_reply(notice("batch.no_id", "the provider returned no id for the batch"), self._model.who)
        return str(made["id"])

    def _not_answered(self, why: str) -> ModelError:
        """Return the error of a request that was not answered: it expired, or its batch failed."""
        return failure(ModelUnavailable, f"the batch did not answer this request: {why}", 0, self._model.who)


def as_answer(value: Any) -> bytes:
    return dump(as_mapping(value)).encode()
