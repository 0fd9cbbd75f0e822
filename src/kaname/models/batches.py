"""Batch APIs of providers: many requests in one file, answered within a day, at a lower price."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ..core.codec import dump
from ..core.errors import ModelError, ModelUnavailable
from ..core.notices import notice
from ..kernel.ports import BatchProgress, Model
from .http.errors import error_message, failure, from_event, from_status, garbled_reply
from .http.provider import ServedModel, as_count, as_mapping, as_mappings, as_text

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


_ENDED = ("completed", "failed", "expired", "cancelled")
_LABEL = "kaname"  # the name of our label in the metadata of a batch


class OpenAIBatches(HttpBatches):
    """Batches of one model. `kind`: "/chat/completions" or "/responses"."""

    def __init__(self, model: ServedModel, url: str, kind: str) -> None:
        super().__init__(model, url, kind)
        self._endpoint = f"/v1{kind}"
        self.discount = 0.5 if model.provider == "openai" else None  # what others charge is unknown

    async def submit(self, requests: Mapping[str, bytes], label: str) -> str:
        head = f'","method":"POST","url":"{self._endpoint}","body":'.encode()
        lines = [b'{"custom_id":"' + name.encode() + head + body + b"}\n" for name, body in requests.items()]
        kind, form = _as_form(b"".join(lines))
        file = self._id(self._object(await self._model.fetch("POST", self._address("/files"), form, kind)))
        wanted = {"input_file_id": file, "endpoint": self._endpoint, "completion_window": "24h", "metadata": {_LABEL: label}}
        return self._id(await self._post("/batches", wanted))

    async def find(self, label: str, count: int, sample: str, since: float) -> str:
        after = ""
        while True:
            page = await self._get("/batches", f"limit=100{after}")
            listed = as_mappings(page.get("data"))
            for batch in listed:
                if as_mapping(batch.get("metadata")).get(_LABEL) == label:
                    return self._id(batch)
            oldest = as_count(listed[-1].get("created_at")) if listed else 0
            if not listed or not page.get("has_more") or oldest < since - SLACK:
                return ""
            after = f"&after={self._id(listed[-1])}"

    async def progress(self, batch_id: str) -> BatchProgress:
        batch = await self._get(f"/batches/{batch_id}")
        counts = as_mapping(batch.get("request_counts"))
        done = as_count(counts.get("completed")) + as_count(counts.get("failed"))
        return BatchProgress(batch.get("status") in _ENDED, done, as_count(counts.get("total")))

    async def results(self, batch_id: str) -> Mapping[str, bytes | ModelError]:
        batch = await self._get(f"/batches/{batch_id}")
        if batch.get("status") == "failed":
            problems = as_mappings(as_mapping(batch.get("errors")).get("data"))
            return {"": self._not_answered("; ".join([error_message(one) for one in problems[:3]]) or "it failed")}
        found: dict[str, bytes | ModelError] = {}
        for file in (as_text(batch.get("output_file_id")), as_text(batch.get("error_file_id"))):
            for line in await self._lines(f"/files/{file}/content") if file else ():
                response = as_mapping(line.get("response"))
                found[as_text(line.get("custom_id"))] = self._read(as_count(response.get("status_code")), response, line)
        return found

    def _read(self, status: int, response: Mapping[str, object], line: Mapping[str, object]) -> bytes | ModelError:
        if status == 200:
            return as_answer(response.get("body"))
        if status:
            return from_status(status, {}, dump(response.get("body")).encode(), self._model.who)
        return self._not_answered(error_message(line))


def _as_form(file: bytes) -> tuple[str, bytes]:
    """Return the media type and the content of a form with the file."""
    mark = f"kaname-{os.urandom(12).hex()}"
    purpose = 'content-disposition: form-data; name="purpose"\r\n\r\nbatch'
    named = 'content-disposition: form-data; name="file"; filename="kaname.jsonl"\r\ncontent-type: application/jsonl\r\n\r\n'
    head = f"--{mark}\r\n{purpose}\r\n--{mark}\r\n{named}".encode()
    return f"multipart/form-data; boundary={mark}", head + file + f"\r\n--{mark}--\r\n".encode()


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
