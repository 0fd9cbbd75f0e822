"""The UI message stream of the Vercel AI SDK: what `useChat` sends and reads. Tools of the agent are dynamic tools."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...agent.agent import Agent
from ...core.errors import ConfigError
from ...core.events import Asked
from ...core.notices import join_notices
from ...core.people.asking import question_in_words
from ...core.values import plain_text
from ...run.input import as_turn
from ...run.run import Run
from ..forms import caller_of, read_body, refuse_malformed
from ..problems import HttpRefused
from ..runs import user_input, user_of
from ..service import Service
from ..stream import Streams, event
from ..users import Caller
from .chat_answers import ChatAnswer, counts_as_answer, find_answer
from .conversation import ServedRun, answer_for, read_answers
from .transcript import INTERRUPTED, SEPARATOR, Kind, Transcript, is_told_by_its_call

_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
_DONE = b"data: [DONE]\n\n"


class Vercel:
    """`POST /vercel/AGENT` with the messages of a chat."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def run(self, request: Request) -> Response:
        caller, asked = caller_of(request, "talk"), await read_body(request, dict[str, Any])
        agent = self._service.agent(request.path_params.get("agent", ""))
        with refuse_malformed():
            run, after, message_id, denied = await self._run(request, agent, asked)
        conversation = ServedRun(self._service, self._streams, caller, run)
        await conversation.begin(request, after)
        goes_on = bool(message_id) and message_id == asked["messages"][-1].get("id")
        earlier = () if goes_on else [one.data for one in conversation.before if one.type == "tool_call"]
        return await conversation.stream(VercelWriter(run.run_id, message_id, denied, earlier), _HEADERS)

    async def _run(
        self, request: Request, agent: Agent[Any], asked: dict[str, Any]
    ) -> tuple[Run[Any], int | None, str, set[str]]:
        """Return the run, its last fact, the id of the message that continues, and the denied calls.

        The run is new, or was decided on.
        """
        caller, messages = caller_of(request), asked.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
            raise ConfigError.of("serve.messages", "messages must be a list that ends with the user's message")
        last = messages[-1]
        if answered := _decided_approvals(last):
            card, answers = await read_answers(self._service, request, answered, _answer)
            return await self._service.resume(card, answers, caller), card.seq, str(last.get("id", "")), _denied_calls(last)
        said = as_turn(user_input([one for message in messages for one in _to_openai(message)]))
        found = await find_answer(self._service, agent, caller.name, said)
        if found is not None and counts_as_answer(found, caller):
            return *await self._resume_with_text(caller, agent, found), set()
        return agent.run(said, user_id=user_of(caller, None)), None, "", set()

    async def _resume_with_text(self, caller: Caller, agent: Agent[Any], found: ChatAnswer) -> tuple[Run[Any], int, str]:
        """Resume the run whose question was shown as a text and answered in words."""
        if found.unclear:
            raise HttpRefused(409, join_notices("\n\n", [found.unclear, question_in_words(found.card.run_id, found.question)]))
        run = await self._service.resume(found.card, found.answer, caller)
        return run, found.card.seq, f"msg-{run.run_id}-{found.card.seq}"


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("parts") or []
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _decided_approvals(message: dict[str, Any]) -> dict[str, Any]:
    """Return the approvals in a message of the assistant that the user has decided on."""
    decided = [
        part["approval"] for part in _parts(message) if part.get("state") == "approval-responded" and part.get("approval")
    ]
    return {str(one.get("id", "")): one for one in decided} if message.get("role") == "assistant" else {}


def _answer(question: Asked, given: dict[str, Any]) -> Any:
    return answer_for(question, given.get("approved") is True, str(given.get("reason") or ""))


def _denied_calls(message: dict[str, Any]) -> set[str]:
    """Return the ids of the calls that the user has denied."""
    refused = [part for part in _parts(message) if part.get("state") == "approval-responded" and part.get("approval")]
    return {str(part.get("toolCallId", "")) for part in refused if part["approval"].get("approved") is not True}


def _to_openai(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message in the OpenAI shapes. A message of the assistant is split where tools were called."""
    role, said = message.get("role"), []
    content: list[dict[str, Any]] = []
    for part in _parts(message):
        kind = str(part.get("type", ""))
        if kind == "text":
            content.append({"type": "text", "text": str(part.get("text", ""))})
        elif kind == "file" and role == "user":
            content.append({"type": "image_url", "image_url": {"url": str(part.get("url", ""))}})
        elif role == "assistant" and part.get("toolCallId") and str(part.get("state", "")).startswith("output-"):
            name = part.get("toolName") or kind.removeprefix("tool-")
            call = {"id": part["toolCallId"], "function": {"name": name, "arguments": part.get("input") or {}}}
            told = plain_text(part.get("output")) if part["state"] == "output-available" else part.get("errorText", "denied")
            said.append({"role": role, "content": _join_text(content), "tool_calls": [call]})
            said.append({"role": "tool", "tool_call_id": part["toolCallId"], "name": name, "content": told})
            content = []
    if content or not said:
        said.append({"role": role, "content": content if role == "user" else _join_text(content)})
    return said


def _join_text(content: list[dict[str, Any]]) -> str:
    return "".join([part["text"] for part in content if part["type"] == "text"])


class VercelWriter(Transcript):
    """Write the parts of a UI message stream.

    `message_id`: the message that continues after an approval. `denied`: calls that were not allowed. `earlier`: calls of the
    run that are in another message; if one returns, it is written into this one, too.
    """

    def __init__(
        self,
        run_id: str,
        message_id: str = "",
        denied: Set[str] = frozenset(),
        earlier: Iterable[dict[str, Any]] = (),
    ) -> None:
        super().__init__(run_id)
        self._message_id, self._denied, self._count, self._in_step = message_id or f"msg-{run_id}", denied, 0, False
        self._name = self._id = ""  # of the text or the reasoning that is open
        self._earlier = {call["id"]: call for call in earlier}
        self._calls: dict[str, tuple[str, Any]] = {}  # of this message: name and arguments

    def begin(self) -> bytes:
        return _part("start", messageId=self._message_id, messageMetadata={"runId": self.run_id})

    def open_part(self, kind: Kind) -> bytes:
        self._count += 1
        self._name = "text" if kind == "text" else "reasoning"
        self._id = f"{self._name}-{self._count}"
        return self._step() + _part(f"{self._name}-start", id=self._id)

    def write(self, kind: Kind, text: str) -> bytes:
        return _part(self._name + "-delta", id=self._id, delta=text)

    def close_part(self, kind: Kind) -> bytes:
        return _part(f"{self._name}-end", id=self._id)

    def call(self, data: dict[str, Any]) -> bytes:
        call = {"toolCallId": data["id"], "toolName": data["name"], "dynamic": True}
        self._calls[data["id"]] = (data["name"], data["arguments"])
        begun = self._step() + _part("tool-input-start", **call)
        return begun + _part("tool-input-available", **call, input=data["arguments"])

    def write_result(self, data: dict[str, Any]) -> bytes:
        earlier, told = self._earlier.pop(data["tool_call_id"], None), {"toolCallId": data["tool_call_id"], "dynamic": True}
        if data["is_error"] and data["tool_call_id"] in self._denied:
            outcome = _part("tool-output-denied", toolCallId=data["tool_call_id"])
        elif data["is_error"]:
            outcome = _part("tool-output-error", **told, errorText=plain_text(data["content"]))
        else:
            outcome = _part("tool-output-available", **told, output=data["content"])
        return (b"" if earlier is None else self.call(earlier)) + outcome + self._step_over()

    def ask(self, question: Asked) -> bytes:
        in_words = self.question_in_words(question)
        if not question.call_id or not question.options:
            return self.write_message(in_words)
        about = question.about and (question.about.name, question.about.args)
        shown = about == self._calls.get(question.call_id, "")  # else it is a call of a run inside this one
        told = b"" if shown and is_told_by_its_call(question) else self.write_message(in_words)
        approval = f"{self.run_id}{SEPARATOR}{question.key}"
        return told + _part("tool-approval-request", approvalId=approval, toolCallId=question.call_id)

    def write_stop(self) -> bytes:
        return self.close_open() + _part("abort") if self.ended == "cancelled" else b""

    def end(self) -> bytes:
        closed = self.close_open() + self._step_over()
        if not self.ended or self.ended == "failed":
            return closed + _part("error", errorText=self.detail or INTERRUPTED) + _DONE
        return closed + _part("finish") + _DONE

    def _step(self) -> bytes:
        opened, self._in_step = not self._in_step, True
        return _part("start-step") if opened else b""

    def _step_over(self) -> bytes:
        closed, self._in_step = self._in_step, False
        return _part("finish-step") if closed else b""


def _part(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields})
