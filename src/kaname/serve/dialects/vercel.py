"""The UI message stream of the Vercel AI SDK: what `useChat` sends and reads. Tools that the agent runs are dynamic tools."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...api.agent import Agent
from ...api.input import as_turn
from ...api.run import Run
from ...core.chunks import Chunk
from ...core.errors import ConfigError
from ...core.notices import joined, notice
from ...core.people.answers import is_yes_or_no
from ...core.values import plain_text
from ..forms import caller_of, fitting, read
from ..problems import Refused
from ..runs import user_input, user_of
from ..service import Service
from ..stream import Streams, event
from ..users import Caller
from .chat_answers import Answer, concerns, find_answer, resume_with
from .conversation import INTERRUPTED, SEPARATOR, Conversation, Words, answer_for, asked_by, last_words, wording

_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
_DONE = b"data: [DONE]\n\n"


class Vercel:
    """`POST /vercel/AGENT` with the messages of a chat."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def run(self, request: Request) -> Response:
        caller, asked = caller_of(request, "talk"), await read(request, dict[str, Any])
        agent = self._service.agent(request.path_params.get("agent", ""))
        with fitting():
            run, after, message_id, denied = await self._run(request, agent, asked)
        conversation = Conversation(self._service, self._streams, caller, run)
        await conversation.begin(after)
        goes_on = bool(message_id) and message_id == asked["messages"][-1].get("id")
        earlier = () if goes_on else [one.data for one in conversation.before if one.type == "tool_call"]
        return await conversation.stream(VercelWriter(run.run_id, message_id, denied, earlier), _HEADERS)

    async def _run(
        self, request: Request, agent: Agent[Any], asked: dict[str, Any]
    ) -> tuple[Run[Any], int | None, str, set[str]]:
        """A new run, or the one that was decided on: with its last fact, the message that goes on, and what was denied."""
        caller, messages = caller_of(request), asked.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
            raise ConfigError(notice("serve.messages", "messages is a list that ends with the user's message"))
        last = messages[-1]
        if answered := _answered(last):
            run_id, answers = await self._answers(request, answered)
            card = await self._service.card(run_id, caller)
            run = self._service.agent_of(card).resume(run_id, answers, by=caller.name)
            return run, card.seq, str(last.get("id", "")), _denied(last)
        said = as_turn(user_input([one for message in messages for one in _plain(message)]))
        found = await find_answer(self._service, agent, caller.name, said)
        if found is not None and concerns(found, caller):
            return *await self._told(caller, agent, found), set()
        return agent.run(said, user_id=user_of(caller, None)), None, "", set()

    async def _told(self, caller: Caller, agent: Agent[Any], found: Answer) -> tuple[Run[Any], int, str]:
        """Go on with the run whose question, which was shown as a text, the user has answered in words."""
        if found.unclear:
            raise Refused(409, joined("\n\n", [found.unclear, wording(found.question.prompt, found.question.options)]))
        run = await resume_with(self._service, agent, found, caller.name)
        return run, found.card.seq, f"msg-{run.run_id}-{found.card.seq}"

    async def _answers(self, request: Request, answered: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        run_id, answers = "", {}
        for question_id, given in answered.items():
            named, key, question = await asked_by(self._service, request, question_id)
            run_id = run_id or named
            if question is not None and named == run_id:
                answers[key] = answer_for(question, given.get("approved") is True, str(given.get("reason") or ""))
        if not answers:
            raise ConfigError(notice("serve.no_question", "none of these questions is open any more"))
        return run_id, answers


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = message.get("parts") or []
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _answered(message: dict[str, Any]) -> dict[str, Any]:
    """The approvals of an assistant's message that the user has decided on."""
    decided = [
        part["approval"] for part in _parts(message) if part.get("state") == "approval-responded" and part.get("approval")
    ]
    return {str(one.get("id", "")): one for one in decided} if message.get("role") == "assistant" else {}


def _denied(message: dict[str, Any]) -> set[str]:
    """The calls that the user does not allow."""
    refused = [part for part in _parts(message) if part.get("state") == "approval-responded" and part.get("approval")]
    return {str(part.get("toolCallId", "")) for part in refused if part["approval"].get("approved") is not True}


def _plain(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message of theirs in the OpenAI shapes: an assistant's is parted where tools were called."""
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
            said.append({"role": role, "content": _joined(content), "tool_calls": [call]})
            said.append({"role": "tool", "tool_call_id": part["toolCallId"], "name": name, "content": told})
            content = []
    if content or not said:
        said.append({"role": role, "content": content if role == "user" else _joined(content)})
    return said


def _joined(content: list[dict[str, Any]]) -> str:
    return "".join([part["text"] for part in content if part["type"] == "text"])


class VercelWriter:
    """`message_id`: of the message that goes on after an approval; `denied`: the calls that were not allowed. `earlier`: calls
    of the run that are in another message: if one returns, it is told in this one too."""

    def __init__(
        self,
        run_id: str,
        message_id: str = "",
        denied: Set[str] = frozenset(),
        earlier: Iterable[dict[str, Any]] = (),
    ) -> None:
        self._run_id, self._message_id = run_id, message_id or f"msg-{run_id}"
        self._words, self._count, self._text_id, self._thinking_id = Words(), 0, "", ""
        self._in_step = self._over = False
        self._denied = denied
        self._earlier = {call["id"]: call for call in earlier}
        self._shown: dict[str, dict[str, Any]] = {}  # calls of this message, as their questions name them
        self._problem = ""

    def begin(self) -> bytes:
        return _part("start", messageId=self._message_id, messageMetadata={"runId": self._run_id})

    def take(self, chunk: Chunk) -> bytes:
        data = chunk.data
        match chunk.type:
            case "delta":
                return self._text(self._words.delta(data["content"]))
            case "thinking":
                return self._think(data["content"])
            case "message":
                return self._text(self._words.rest(data["content"])) + self._closed()
            case "tool_call":
                return self._call(data)
            case "usage":
                return self._closed()
            case "tool_response":
                earlier = self._earlier.pop(data["tool_call_id"], None)
                return (b"" if earlier is None else self._call(earlier)) + self._returned(data) + self._step_over()
            case "error":
                self._over, self._problem = True, data["message"]
            case "status":
                return self._status(chunk)
        return b""

    def _call(self, data: dict[str, Any]) -> bytes:
        call = {"toolCallId": data["id"], "toolName": data["name"], "dynamic": True}
        self._shown[data["id"]] = {"name": data["name"], "arguments": data["arguments"]}
        begun = self._step() + self._closed() + _part("tool-input-start", **call)
        return begun + _part("tool-input-available", **call, input=data["arguments"])

    def _returned(self, data: dict[str, Any]) -> bytes:
        told = {"toolCallId": data["tool_call_id"], "dynamic": True}
        if data["is_error"] and data["tool_call_id"] in self._denied:
            return _part("tool-output-denied", toolCallId=data["tool_call_id"])
        if data["is_error"]:
            return _part("tool-output-error", **told, errorText=plain_text(data["content"]))
        return _part("tool-output-available", **told, output=data["content"])

    def _status(self, chunk: Chunk) -> bytes:
        data = chunk.data
        if data["status"] == "waiting":
            self._over = True
            approval = f"{self._run_id}{SEPARATOR}{data['key']}"
            if not data["tool_call_id"] or not data["options"]:
                return self._text(wording(data["content"], data["options"])) + self._closed()
            known = data.get("call") == self._shown.get(data["tool_call_id"], "")  # else it is one of a run inside this one
            told = b""
            if not known or not is_yes_or_no(data["options"]):
                told = self._text(wording(data["content"], data["options"])) + self._closed()
            return told + _part("tool-approval-request", approvalId=approval, toolCallId=data["tool_call_id"])
        if data["status"] == "stopped":
            self._over = True
            if data["kind"] == "cancelled":
                return self._closed() + _part("abort")
            return self._text(last_words(chunk, self._words)) + self._closed()
        return b""

    def end(self) -> bytes:
        closed = self._closed() + self._step_over()
        if not self._over or self._problem:
            return closed + _part("error", errorText=self._problem or INTERRUPTED) + _DONE
        return closed + _part("finish") + _DONE

    def _step(self) -> bytes:
        opened, self._in_step = not self._in_step, True
        return _part("start-step") if opened else b""

    def _step_over(self) -> bytes:
        closed, self._in_step = self._in_step, False
        return _part("finish-step") if closed else b""

    def _text(self, text: str) -> bytes:
        if not text:
            return b""
        opened = b""
        if not self._text_id:
            opened = self._step() + self._closed()
            self._count += 1
            self._text_id = f"text-{self._count}"
            opened += _part("text-start", id=self._text_id)
        return opened + _part("text-delta", id=self._text_id, delta=text)

    def _think(self, text: str) -> bytes:
        opened = b""
        if not self._thinking_id:
            opened = self._step() + self._closed()
            self._count += 1
            self._thinking_id = f"reasoning-{self._count}"
            opened += _part("reasoning-start", id=self._thinking_id)
        return opened + _part("reasoning-delta", id=self._thinking_id, delta=text)

    def _closed(self) -> bytes:
        """End what is open, text or thinking."""
        text, thinking, self._text_id, self._thinking_id = self._text_id, self._thinking_id, "", ""
        return (_part("text-end", id=text) if text else b"") + (_part("reasoning-end", id=thinking) if thinking else b"")


def _part(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields})
