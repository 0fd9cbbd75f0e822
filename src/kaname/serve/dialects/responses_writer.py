"""A run's chunks as a response: its items, and the events in which they come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from time import time
from typing import Any

from ...core.chunks import Chunk
from ...core.people.answers import is_yes_or_no
from ...core.values import plain_text
from ..problems import RATE_LIMITED
from ..service import is_unstored
from ..stream import event
from .conversation import INTERRUPTED, SEPARATOR, Words, is_question, last_words, wording

PREFIX, APPROVAL, SERVER = "resp_", "mcpr_", "kaname"
_INCOMPLETE = {"blocked": "content_filter"}
_ENDED = ("completed", "degraded")
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "temperature": 1.0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
    "service_tier": "default",
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
}
_NEVER = ("prompt", "moderation", "prompt_cache_options", "prompt_cache_retention")


class ResponsesWriter:
    """`after`: the fact after which it begins, for a run that went on; `before`: what that run had called and asked by then.
    `asked`: the request, of which some is told again."""

    def __init__(
        self,
        run_id: str,
        after: int | None,
        asked: dict[str, Any],
        before: Iterable[Chunk] = (),
        created: float | None = None,
    ) -> None:
        self._run_id, self._asked = run_id, asked
        self._id = f"{PREFIX}{run_id}" if after is None else f"{PREFIX}{run_id}.{after}"
        self._created, self._number, self._count = int(created or time()), 0, 0
        self._output: list[dict[str, Any]] = []
        self._words, self._message, self._thought = Words(), -1, -1  # where the open ones are in the output
        self._calls: dict[str, dict[str, Any]] = {one.data["id"]: one.data for one in before if one.type == "tool_call"}
        self._requests = {one.data["tool_call_id"]: self._request_id(one.data["key"]) for one in before if is_question(one)}
        self._places: dict[str, int] = {}  # of calls that are being made
        self._input = self._produced = self._cached = self._reasoned = 0
        self._kind, self._detail, self._error = "", "", ""
        self._completed: int | None = None
        self.over = False

    # Events

    def begin(self) -> bytes:
        return self._event("response.created", response=self.response()) + self._event(
            "response.in_progress", response=self.response()
        )

    def take(self, chunk: Chunk) -> bytes:
        data = chunk.data
        match chunk.type:
            case "delta":
                return self._thought_over() + self._speak(self._words.delta(data["content"]))
            case "thinking":
                return self._think(data["content"])
            case "message":
                return self._thought_over() + self._speak(self._words.rest(data["content"])) + self._said()
            case "tool_call":
                self._calls[data["id"]] = data
            case "tool_response":
                return self._call_over(data)
            case "usage":
                self._input += data["prompt_tokens"]
                self._produced += data["completion_tokens"]
                self._cached += data["cached_tokens"]
                self._reasoned += data["reasoning_tokens"]
                return self._thought_over()
            case "error":
                self.over, self._kind, self._detail, self._error = True, "failed", data["message"], data["type"]
                self._completed = int(chunk.stamp)
            case "status":
                return self._status(chunk)
        return b""

    def _status(self, chunk: Chunk) -> bytes:
        data = chunk.data
        match data["status"]:
            case "tool_started":
                return self._call_started(data["tool_call_id"], data["name"])
            case "waiting":
                self.over = True
                self._kind, self._completed = "completed", int(chunk.stamp)
                return self._ask(data)
            case "stopped":
                self.over, self._kind, self._detail = True, data["kind"], data["detail"]
                self._completed = int(chunk.stamp)
                return self._speak(last_words(chunk, self._words)) + self._said()
        return b""

    def end(self) -> bytes:
        closed = self._thought_over() + self._said()
        if not self.over:
            told = {"code": "interrupted", "message": INTERRUPTED, "param": None}
            return closed + self._event("error", **told) + b"data: [DONE]\n\n"
        name = {"failed": "failed", "in_progress": "in_progress", "completed": "completed", "cancelled": "failed"}
        kind = name.get(self._state, "incomplete")
        return closed + self._event(f"response.{kind}", response=self.response()) + b"data: [DONE]\n\n"

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)

    def _add(self, item: dict[str, Any]) -> tuple[int, bytes]:
        self._output.append(item)
        place = len(self._output) - 1
        return place, self._event("response.output_item.added", output_index=place, item=dict(item))

    def _done(self, place: int) -> bytes:
        return self._event("response.output_item.done", output_index=place, item=dict(self._output[place]))

    def _next_id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._run_id}_{self._count}"

    # Messages

    def _speak(self, text: str) -> bytes:
        if not text:
            return b""
        opened = b""
        if self._message < 0:
            item = {"id": self._next_id("msg"), "type": "message", "role": "assistant", "status": "in_progress", "content": []}
            self._message, opened = self._add(item)
            opened += self._event("response.content_part.added", **self._part_at(), part=_text_part(""))
            self._output[self._message]["content"] = [_text_part("")]
        self._output[self._message]["content"][0]["text"] += text
        return opened + self._event("response.output_text.delta", **self._part_at(), delta=text, logprobs=[])

    def _said(self) -> bytes:
        if self._message < 0:
            return b""
        item, at = self._output[self._message], self._part_at()
        item["status"] = "completed"
        (part,) = item["content"]
        told = self._event("response.output_text.done", **at, text=part["text"], logprobs=[])
        told += self._event("response.content_part.done", **at, part=dict(part)) + self._done(self._message)
        self._message = -1
        return told

    def _part_at(self) -> dict[str, Any]:
        return {"item_id": self._output[self._message]["id"], "output_index": self._message, "content_index": 0}

    # What it thinks

    def _think(self, text: str) -> bytes:
        opened = b""
        if self._thought < 0:
            item = {"id": self._next_id("rs"), "type": "reasoning", "summary": [], "status": "in_progress"}
            self._thought, opened = self._add(item)
            part = {"type": "summary_text", "text": ""}
            opened += self._event("response.reasoning_summary_part.added", **self._thought_at(), part=dict(part))
            self._output[self._thought]["summary"] = [part]
        self._output[self._thought]["summary"][0]["text"] += text
        return opened + self._event("response.reasoning_summary_text.delta", **self._thought_at(), delta=text)

    def _thought_over(self) -> bytes:
        if self._thought < 0:
            return b""
        item, at = self._output[self._thought], self._thought_at()
        item["status"] = "completed"
        (part,) = item["summary"]
        told = self._event("response.reasoning_summary_text.done", **at, text=part["text"])
        told += self._event("response.reasoning_summary_part.done", **at, part=dict(part)) + self._done(self._thought)
        self._thought = -1
        return told

    def _thought_at(self) -> dict[str, Any]:
        return {"item_id": self._output[self._thought]["id"], "output_index": self._thought, "summary_index": 0}

    # Tools

    def _call_started(self, call_id: str, name: str) -> bytes:
        if call_id in self._places:
            return b""
        asked = self._calls.get(call_id, {"name": name, "function": {"arguments": "{}"}})
        arguments = asked["function"]["arguments"]
        item: dict[str, Any] = {
            "id": f"mcp_{self._run_id}_{call_id}",
            "type": "mcp_call",
            "status": "in_progress",
            "server_label": SERVER,
            "name": name,
            "arguments": "",
            "output": None,
            "error": None,
            "approval_request_id": self._requests.get(call_id),
        }
        place, told = self._add(item)
        self._places[call_id] = place
        item["arguments"] = arguments
        at = {"item_id": item["id"], "output_index": place}
        told += self._event("response.mcp_call.in_progress", **at)
        told += self._event("response.mcp_call_arguments.delta", **at, delta=arguments)
        return told + self._event("response.mcp_call_arguments.done", **at, arguments=arguments)

    def _call_over(self, data: dict[str, Any]) -> bytes:
        told = self._call_started(data["tool_call_id"], data["name"])
        place = self._places.pop(data["tool_call_id"])
        item, text = self._output[place], plain_text(data["content"])
        item["status"] = "failed" if data["is_error"] else "completed"
        item["error" if data["is_error"] else "output"] = text
        at = {"item_id": item["id"], "output_index": place}
        return told + self._event(f"response.mcp_call.{item['status']}", **at) + self._done(place)

    def _ask(self, data: dict[str, Any]) -> bytes:
        """A question: what would be called, if it is about a call; in words, if it is about something else or wants words.

        The call in question may be one of a run inside this one, and not the call that waits for it."""
        call, asked = data.get("call"), self._calls.get(data["tool_call_id"])
        plain = call is not None and is_yes_or_no(data["options"])
        said = b"" if plain else self._speak(wording(data["content"], data["options"])) + self._said()
        if call is not None:
            asked = {"name": call["name"], "function": {"arguments": json.dumps(call["arguments"], ensure_ascii=False)}}
        item = {
            "id": self._request_id(data["key"]),
            "type": "mcp_approval_request",
            "server_label": SERVER,
            "name": asked["name"] if asked else data["content"],
            "arguments": asked["function"]["arguments"] if asked else "{}",
        }
        place, told = self._add(item)
        return said + told + self._done(place)

    def _request_id(self, key: str) -> str:
        return f"{APPROVAL}{self._run_id}{SEPARATOR}{key}"

    # The whole

    @property
    def acted(self) -> bool:
        """True if a tool was called."""
        return bool(self._calls)

    @property
    def _state(self) -> str:
        if not self.over:
            return "in_progress"
        if self._kind in ("failed", "cancelled"):
            return self._kind
        return "completed" if self._kind in _ENDED else "incomplete"

    def response(self) -> dict[str, Any]:
        asked, state = self._asked, self._state
        code = "rate_limit_exceeded" if self._error == RATE_LIMITED else "server_error"
        problem = {"code": code, "message": self._detail} if state == "failed" else None
        reason = {"reason": _INCOMPLETE.get(self._kind, "max_output_tokens")} if state == "incomplete" else None
        session = asked.get("conversation")
        used = {
            "input_tokens": self._input,
            "input_tokens_details": {"cached_tokens": self._cached, "cache_write_tokens": 0},
            "output_tokens": self._produced,
            "output_tokens_details": {"reasoning_tokens": self._reasoned},
            "total_tokens": self._input + self._produced,
        }
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": self._completed,
            "status": state,
            "background": bool(asked.get("background")),
            "error": problem,
            "incomplete_details": reason,
            "model": str(asked.get("model", "")).removeprefix("kaname/"),
            "output": [dict(item) for item in self._output],
            "parallel_tool_calls": True,
            "previous_response_id": asked.get("previous_response_id"),
            "conversation": {"id": session} if isinstance(session, str) else session,
            "reasoning": {"effort": None, "summary": None},
            "store": not is_unstored(self._run_id),
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "max_tool_calls": None,
            **dict.fromkeys(_NEVER),
            "usage": used if self.over else None,
            **{name: usual if asked.get(name) is None else asked[name] for name, usual in _ECHOED.items()},
        }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
