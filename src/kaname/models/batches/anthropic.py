"""Anthropic's Message Batches API: the requests are in the body, the answers in a file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ...core.errors import ModelError
from ...kernel.ports import BatchProgress
from ..http.errors import from_event
from ..http.provider import ServedModel, as_count, as_mapping, as_mappings, as_text
from .api import SLACK, HttpBatches, as_answer

_COUNTS = ("processing", "succeeded", "errored", "canceled", "expired")
PAUSE = 15.0  # seconds between two looks at a batch that may be ours


class AnthropicBatches(HttpBatches):
    """Batches of one model. A batch has no label of ours: it is recognised by the names of its requests."""

    most_requests, most_bytes = 100_000, 200_000_000

    def __init__(self, model: ServedModel, url: str) -> None:
        super().__init__(model, url, "")

    async def submit(self, requests: Mapping[str, bytes], label: str) -> str:
        listed = [b'{"custom_id":"' + name.encode() + b'","params":' + body + b"}" for name, body in requests.items()]
        body = b'{"requests":[' + b",".join(listed) + b"]}"
        return self._id(self._object(await self._model.fetch("POST", self._address("/batches"), body)))

    async def find(self, label: str, count: int, sample: str, since: float) -> str:
        """Look for the batch among those of its size since then. The names are known when a batch has ended: wait for it."""
        after = ""
        while True:
            page = await self._get("/batches", f"limit=100{after}")
            listed = as_mappings(page.get("data"))
            for batch in listed:
                if _total(batch) == count and _time(batch) > since - SLACK and await self._has(self._id(batch), sample):
                    return self._id(batch)
            if not listed or not page.get("has_more") or _time(listed[-1]) < since - SLACK:
                return ""
            after = f"&after_id={self._id(listed[-1])}"

    async def _has(self, batch_id: str, sample: str) -> bool:
        while not (await self.progress(batch_id)).ended:  # noqa: ASYNC110  the provider tells nobody
            await asyncio.sleep(PAUSE)
        return sample in await self.results(batch_id)

    async def progress(self, batch_id: str) -> BatchProgress:
        batch = await self._get(f"/batches/{batch_id}")
        total = _total(batch)
        left = as_count(as_mapping(batch.get("request_counts")).get("processing"))
        return BatchProgress(batch.get("processing_status") == "ended", total - left, total)

    async def results(self, batch_id: str) -> Mapping[str, bytes | ModelError]:
        lines = await self._lines(f"/batches/{batch_id}/results")
        return {as_text(line.get("custom_id")): self._read(as_mapping(line.get("result"))) for line in lines}

    def _read(self, result: Mapping[str, Any]) -> bytes | ModelError:
        if result.get("type") == "succeeded":
            return as_answer(result.get("message"))
        if result.get("type") == "errored":
            told = as_mapping(result.get("error"))
            return from_event(told.get("error", told), self._model.who)
        return self._not_answered(as_text(result.get("type")))


def _total(batch: Mapping[str, Any]) -> int:
    counts = as_mapping(batch.get("request_counts"))
    return sum([as_count(counts.get(name)) for name in _COUNTS])


def _time(batch: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(as_text(batch.get("created_at"))).timestamp()
    except ValueError:
        return 0.0
