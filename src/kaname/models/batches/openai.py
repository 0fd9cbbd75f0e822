"""OpenAI's batch API, for chat completions and responses: the requests are a file, and so are the answers."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...core.codec import dump
from ...core.errors import ModelError
from ...kernel.ports import BatchProgress
from ..http.errors import error_message, from_status
from ..http.provider import ServedModel, as_count, as_mapping, as_mappings, as_text
from .api import SLACK, HttpBatches, as_answer

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
