"""A server that speaks the batch APIs of OpenAI and Anthropic, strictly: what they would refuse is refused, and kept in `faults`.

Its model asks `add(1, 2)`, then `add(3, 4)`, then answers: three steps for each question.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
KEY = "sk-batch-test-key"


class Refused(Exception):
    pass


def need(wanted: bool, why: str) -> None:
    if not wanted:
        raise Refused(why)


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing: a client was killed."""


class BatchServer:
    """`asked`: how often each question was sent at each step. `fate(name, times)`: what becomes of a request, "" for an answer."""

    def __init__(self, polls: int = 1) -> None:
        self.polls, self.faults = polls, list[str]()
        self.asked: Counter[tuple[str, int]] = Counter()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.fate: Callable[[str, int], str] = lambda question, times: ""
        self.before_reply: Callable[[str, str], None] = lambda method, path: None
        self.fail_whole: set[int] = set()  # batches, by their number, that fail as a whole
        self.direct = 0  # calls that did not go through a batch
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # the head and the body in one write: the other side would wait with its acknowledgement

            def do_GET(self) -> None:
                self._do(b"")

            def do_POST(self) -> None:
                self._do(self.rfile.read(int(self.headers["content-length"])))

            def _do(self, body: bytes) -> None:
                try:
                    status, said = 200, server.handle(self.command, self.path, dict(self.headers), body)
                except Refused as problem:
                    server.faults.append(str(problem))
                    status, said = (
                        400,
                        json.dumps({"error": {"message": str(problem), "type": "invalid_request_error"}}).encode(),
                    )
                server.before_reply(self.command, self.path)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)
                self.wfile.flush()

            def log_message(self, *told: Any) -> None:
                pass

        self._http = _Quiet(("127.0.0.1", 0), Handler)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> BatchServer:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
        headers = {name.lower(): value for name, value in headers.items()}
        path, _, query = path.partition("?")
        with self._lock:
            if path.startswith("/v1/messages"):
                need(headers.get("x-api-key") == KEY and "anthropic-version" in headers, "no key, or no version")
                return self._anthropic(method, path.removeprefix("/v1/messages"), query, body)
            need(headers.get("authorization") == f"Bearer {KEY}", "no key")
            return self._openai(method, path.removeprefix("/v1"), headers, body)

    def _openai(self, method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
        match method, path.split("/")[1:]:
            case "POST", ["files"]:
                made = f"file-{len(self.files) + 1}"
                self.files[made] = read_form(headers["content-type"], body)
                return json.dumps({"id": made, "object": "file", "purpose": "batch"}).encode()
            case "POST", ["batches"]:
                return self._make_openai(json.loads(body))
            case "GET", ["batches"]:
                listed = [self._openai_batch(one) for one in reversed(self.batches.values()) if one["kind"] == "openai"]
                return json.dumps({"object": "list", "data": listed, "has_more": False}).encode()
            case "GET", ["batches", name]:
                self._advance(name)
                return json.dumps(self._openai_batch(self.batches[name])).encode()
            case "GET", ["files", name, "content"]:
                need(name in self.files, f"no file {name}")
                return self.files[name]
            case "POST", ["chat", "completions"]:
                self.direct += 1
        raise Refused(f"no such address: {method} {path}")

    def _make_openai(self, wanted: dict[str, Any]) -> bytes:
        need(set(wanted) == {"input_file_id", "endpoint", "completion_window", "metadata"}, f"fields: {sorted(wanted)}")
        need(wanted["completion_window"] == "24h" and wanted["endpoint"] == "/v1/chat/completions", "window or endpoint")
        need(all(isinstance(value, str) and len(value) <= 512 for value in wanted["metadata"].values()), "metadata")
        requests: dict[str, Any] = {}
        for line in self.files[wanted["input_file_id"]].splitlines():
            one = json.loads(line)
            need(set(one) == {"custom_id", "method", "url", "body"}, f"fields of a line: {sorted(one)}")
            need(one["method"] == "POST" and one["url"] == wanted["endpoint"], "method or url of a line")
            need(one["custom_id"] not in requests, "a custom_id twice")
            requests[one["custom_id"]] = one["body"]
        return json.dumps(self._openai_batch(self._make("openai", requests, wanted["metadata"]))).encode()

    def _make(self, kind: str, requests: dict[str, Any], metadata: dict[str, str]) -> dict[str, Any]:
        need(bool(requests), "an empty batch")
        for body in requests.values():
            need("model" in body and not body.get("stream") and "stream_options" not in body, "a request must not stream")
            self.asked[question(body), step(body)] += 1
        name = f"batch_{len(self.batches) + 1}"
        made = {"id": name, "kind": kind, "requests": requests, "metadata": metadata, "polls": 0, "time": time.time()}
        self.batches[name] = made
        return made

    def _advance(self, name: str) -> None:
        need(name in self.batches, f"no batch {name}")
        self.batches[name]["polls"] += 1

    def _ended(self, batch: dict[str, Any]) -> bool:
        return bool(batch["polls"] > self.polls)

    def _openai_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        told = {"id": batch["id"], "object": "batch", "metadata": batch["metadata"], "created_at": int(batch["time"])}
        total = len(batch["requests"])
        if not self._ended(batch):
            return {**told, "status": "in_progress", "request_counts": {"total": total, "completed": 0, "failed": 0}}
        if int(batch["id"].removeprefix("batch_")) in self.fail_whole:
            problem = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}
            return {**told, "status": "failed", "errors": {"object": "list", "data": [problem]}}
        output, errors = list[str](), list[str]()
        for name, body in batch["requests"].items():
            if fate := self.fate(question(body), self.asked[question(body), step(body)]):
                answered = {"status_code": 400, "body": {"error": {"message": "no", "type": "invalid_request_error"}}}
                told_of = (
                    {"response": answered, "error": None} if fate == "refused" else {"response": None, "error": {"code": fate}}
                )
                errors.append(json.dumps({"custom_id": name, **told_of}))
            else:
                answer = {"response": {"status_code": 200, "body": completion(body)}, "error": None}
                output.append(json.dumps({"custom_id": name, **answer}))
        files = {f"{batch['id']}-out": output, f"{batch['id']}-err": errors}
        self.files |= {name: "\n".join(reversed(lines)).encode() for name, lines in files.items()}
        named = {"output_file_id": f"{batch['id']}-out", "error_file_id": f"{batch['id']}-err" if errors else None}
        counts = {"total": total, "completed": len(output), "failed": len(errors)}
        return {**told, **named, "status": "completed", "request_counts": counts}

    def _anthropic(self, method: str, path: str, query: str, body: bytes) -> bytes:
        match method, path.split("/")[1:]:
            case "POST", ["batches"]:
                return self._make_anthropic(json.loads(body))
            case "GET", ["batches"]:
                listed = [self._anthropic_batch(one) for one in reversed(self.batches.values()) if one["kind"] == "anthropic"]
                return json.dumps({"data": listed, "has_more": False, "first_id": None, "last_id": None}).encode()
            case "GET", ["batches", name]:
                self._advance(name)
                return json.dumps(self._anthropic_batch(self.batches[name])).encode()
            case "GET", ["batches", name, "results"]:
                need(name in self.batches and self._ended(self.batches[name]), "no results yet")
                lines = [
                    json.dumps({"custom_id": one, "result": self._result(params)})
                    for one, params in self.batches[name]["requests"].items()
                ]
                return "\n".join(reversed(lines)).encode()
            case "POST", [""] | []:
                self.direct += 1
        raise Refused(f"no such address: {method} {path}")

    def _make_anthropic(self, wanted: dict[str, Any]) -> bytes:
        need(set(wanted) == {"requests"}, f"fields: {sorted(wanted)}")
        requests: dict[str, Any] = {}
        for one in wanted["requests"]:
            need(set(one) == {"custom_id", "params"}, f"fields of a request: {sorted(one)}")
            need(bool(_NAME.fullmatch(one["custom_id"])) and one["custom_id"] not in requests, "custom_id")
            need({"model", "max_tokens", "messages"} <= set(one["params"]), "fields of params")
            requests[one["custom_id"]] = one["params"]
        return json.dumps(self._anthropic_batch(self._make("anthropic", requests, {}))).encode()

    def _anthropic_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        ended, total = self._ended(batch), len(batch["requests"])
        counts = {
            "processing": 0 if ended else total,
            "succeeded": total if ended else 0,
            "errored": 0,
            "canceled": 0,
            "expired": 0,
        }
        created = datetime.fromtimestamp(batch["time"], UTC).isoformat().replace("+00:00", "Z")
        told = {"id": batch["id"], "type": "message_batch", "request_counts": counts, "created_at": created}
        return {**told, "processing_status": "ended" if ended else "in_progress"}

    def _result(self, params: dict[str, Any]) -> dict[str, Any]:
        fate = self.fate(question(params), self.asked[question(params), step(params)])
        if fate == "refused":
            return {"type": "errored", "error": {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}}
        if fate:
            return {"type": "expired"}
        text, call = said(params)
        block = {"type": "text", "text": text}
        if call is not None:
            block = {"type": "tool_use", "id": f"toolu_{step(params)}", "name": "add", "input": call}
        usage = {"input_tokens": 1000, "output_tokens": 100}
        stop = "end_turn" if call is None else "tool_use"
        return {"type": "succeeded", "message": {"type": "message", "role": "assistant", "content": [block], "stop_reason": stop, "usage": usage}}  # fmt: skip


def read_form(kind: str, body: bytes) -> bytes:
    """Return the file of a form, as a server reads it."""
    found = re.fullmatch(r"multipart/form-data; boundary=([\w-]+)", kind)
    need(found is not None, f"content-type: {kind}")
    assert found is not None
    parts = body.split(b"--" + found[1].encode())
    need(parts[0] == b"" and parts[-1] == b"--\r\n" and len(parts) == 4, "the form")
    fields = {}
    for part in parts[1:-1]:
        head, _, content = part.strip(b"\r\n").partition(b"\r\n\r\n")
        name = re.search(rb'name="(\w+)"', head)
        fields[name[1].decode() if name else ""] = content
    need(fields.get("purpose") == b"batch" and "file" in fields, f"fields of the form: {sorted(fields)}")
    return fields["file"]


def question(body: dict[str, Any]) -> str:
    """Return the first words of the user."""
    content = next(one["content"] for one in body["messages"] if one["role"] == "user")
    return content if isinstance(content, str) else str(content[0]["text"])


def step(body: dict[str, Any]) -> int:
    """Return how many results of tools the request has."""
    blocks = [b for one in body["messages"] if isinstance(one["content"], list) for b in one["content"]]
    return sum([one["role"] == "tool" for one in body["messages"]]) + sum([b.get("type") == "tool_result" for b in blocks])


def said(body: dict[str, Any]) -> tuple[str, dict[str, int] | None]:
    number = step(body)
    return (f"done: {question(body)}", None) if number >= 2 else ("", {"a": 2 * number + 1, "b": 2 * number + 2})


def completion(body: dict[str, Any]) -> dict[str, Any]:
    text, call = said(body)
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if call is not None:
        function = {"name": "add", "arguments": json.dumps(call)}
        message["tool_calls"] = [{"id": f"call_{step(body)}", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}
    return {"object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}}
