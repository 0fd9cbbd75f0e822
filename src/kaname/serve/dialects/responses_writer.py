"""The chunks of a run as a response: its items, and the events that announce them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from time import time
from typing import Any

from ...core.chunks import Chunk
from ...core.events import Asked
from ...core.people.visible import visible
from ...core.record import record
from ...core.values import plain_text
from ..language import in_language
from ..problems import RATE_LIMITED
from ..service import is_unstored
from ..stream import event
from .conversation import is_question
from .transcript import INTERRUPTED, SEPARATOR, Kind, Transcript, is_told_by_its_call

PREFIX, APPROVAL, SERVER = "resp_", "mcpr_", "kaname"
_INCOMPLETE = {"blocked": "content_filter"}
_ENDED = ("completed", "degraded", "waiting")
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


@record
class ItemForm:
    """The form of a text or thinking item: its names, and the names of its events."""

    prefix: str
    item: str
    more: dict[str, Any]
    parts: str
    part: dict[str, Any]
    index: str
    events: str
    text_events: str
    beside_text: dict[str, Any]


_FORMS = {
    "text": ItemForm(
        "msg",
        "message",
        {"role": "assistant"},
        "content",
        {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
        "content_index",
        "response.content",
        "response.output_text",
        {"logprobs": []},
    ),
    "thinking": ItemForm(
        "rs",
        "reasoning",
        {},
        "summary",
        {"type": "summary_text", "text": ""},
        "summary_index",
        "response.reasoning_summary",
        "response.reasoning_summary_text",
        {},
    ),
}


class ResponsesWriter(Transcript):
    """Write the events of a response, and the response itself.

    `after`: the fact after which the response begins, for a run that was resumed. `before`: what that run had called and asked
    by then. `asked`: the request, of which some fields are repeated.
    """

    def __init__(
        self,
        run_id: str,
        after: int | None,
        asked: dict[str, Any],
        before: Iterable[Chunk] = (),
        created: float | None = None,
    ) -> None:
        super().__init__(run_id)
        self._asked, self._id = asked, f"{PREFIX}{run_id}" if after is None else f"{PREFIX}{run_id}.{after}"
        self._created, self._number, self._count = int(created or time()), 0, 0
        self._output: list[dict[str, Any]] = []
        self._at = -1  # the index of the open text or thinking item in the output
        self._calls: dict[str, dict[str, Any]] = {one.data["id"]: one.data for one in before if one.type == "tool_call"}
        self._requests = {one.data["tool_call_id"]: self._request_id(one.data["key"]) for one in before if is_question(one)}
        self._places: dict[str, int] = {}  # index in the output, by call
        self.acted = bool(self._calls)

    def begin(self) -> bytes:
        return self._event("response.created", response=self.response()) + self._event(
            "response.in_progress", response=self.response()
        )

    def end(self) -> bytes:
        closed = self.close_open()
        if not self.ended:
            told = {"code": "interrupted", "message": INTERRUPTED, "param": None}
            return closed + self._event("error", **told) + b"data: [DONE]\n\n"
        kind = {"failed": "failed", "completed": "completed", "cancelled": "failed"}.get(self._state, "incomplete")
        return closed + self._event(f"response.{kind}", response=self.response()) + b"data: [DONE]\n\n"

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)

    def _add(self, item: dict[str, Any]) -> tuple[int, bytes]:
        self._output.append(item)
        place = len(self._output) - 1
        return place, self._event("response.output_item.added", output_index=place, item=dict(item))

    def _end_item(self, place: int) -> bytes:
        return self._event("response.output_item.done", output_index=place, item=dict(self._output[place]))

    # Text and thinking

    def open_part(self, kind: Kind) -> bytes:
        self._count += 1
        form = _FORMS[kind]
        item = {"id": f"{form.prefix}_{self.run_id}_{self._count}", "type": form.item, "status": "in_progress", **form.more}
        self._at, added = self._add({**item, form.parts: []})
        self._output[self._at][form.parts] = [dict(form.part)]
        return added + self._event(f"{form.events}_part.added", **self._place(form), part=dict(form.part))

    def write(self, kind: Kind, text: str) -> bytes:
        form = _FORMS[kind]
        self._output[self._at][form.parts][0]["text"] += text
        return self._event(f"{form.text_events}.delta", **self._place(form), delta=text, **form.beside_text)

    def close_part(self, kind: Kind) -> bytes:
        form, item = _FORMS[kind], self._output[self._at]
        item["status"] = "completed"
        (part,) = item[form.parts]
        told = self._event(f"{form.text_events}.done", **self._place(form), text=part["text"], **form.beside_text)
        return told + self._event(f"{form.events}_part.done", **self._place(form), part=dict(part)) + self._end_item(self._at)

    def _place(self, form: ItemForm) -> dict[str, Any]:
        return {"item_id": self._output[self._at]["id"], "output_index": self._at, form.index: 0}

    # Tools

    def call(self, data: dict[str, Any]) -> bytes:
        self._calls[data["id"]] = data
        return b""

    def start_tool(self, call_id: str, name: str) -> bytes:
        if call_id in self._places:
            return b""
        asked = self._calls.get(call_id, {"name": name, "function": {"arguments": "{}"}})
        arguments = asked["function"]["arguments"]
        item: dict[str, Any] = {
            "id": f"mcp_{self.run_id}_{call_id}",
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

    def write_result(self, data: dict[str, Any]) -> bytes:
        told = self.start_tool(data["tool_call_id"], data["name"])
        place = self._places.pop(data["tool_call_id"])
        item, text = self._output[place], plain_text(data["content"])
        item["status"] = "failed" if data["is_error"] else "completed"
        item["error" if data["is_error"] else "output"] = text
        at = {"item_id": item["id"], "output_index": place}
        return told + self._event(f"response.mcp_call.{item['status']}", **at) + self._end_item(place)

    def ask(self, question: Asked) -> bytes:
        """Write the call that is asked about; for a question about something else, or with other options, the text.

        The call may belong to a run inside this one, and not be the call that waits for it.
        """
        about, asked = question.about, self._calls.get(question.call_id)
        said = b"" if is_told_by_its_call(question) else self.write_message(self.question_text(question))
        if about is not None:
            asked = {"name": about.name, "function": {"arguments": visible(json.dumps(about.args, ensure_ascii=False))}}
        item = {
            "id": self._request_id(question.key),
            "type": "mcp_approval_request",
            "server_label": SERVER,
            "name": asked["name"] if asked else in_language(question.prompt, self.language),
            "arguments": asked["function"]["arguments"] if asked else "{}",
        }
        place, told = self._add(item)
        return said + told + self._end_item(place)

    def _request_id(self, key: str) -> str:
        return f"{APPROVAL}{self.run_id}{SEPARATOR}{key}"

    # The whole

    @property
    def _state(self) -> str:
        if not self.ended:
            return "in_progress"
        if self.ended in ("failed", "cancelled"):
            return self.ended
        return "completed" if self.ended in _ENDED else "incomplete"

    def response(self) -> dict[str, Any]:
        asked, state = self._asked, self._state
        code = "rate_limit_exceeded" if self.error == RATE_LIMITED else "server_error"
        problem = {"code": code, "message": self.detail} if state == "failed" else None
        reason = {"reason": _INCOMPLETE.get(self.ended, "max_output_tokens")} if state == "incomplete" else None
        session = asked.get("conversation")
        used = {
            "input_tokens": self.used.input,
            "input_tokens_details": {"cached_tokens": self.used.cached, "cache_write_tokens": 0},
            "output_tokens": self.used.output,
            "output_tokens_details": {"reasoning_tokens": self.used.reasoning},
            "total_tokens": self.used.total,
        }
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(self.ended_at) or None,
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
            "store": not is_unstored(self.run_id),
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "max_tool_calls": None,
            **dict.fromkeys(_NEVER),
            "usage": used if self.ended else None,
            **{name: usual if asked.get(name) is None else asked[name] for name, usual in _ECHOED.items()},
        }
