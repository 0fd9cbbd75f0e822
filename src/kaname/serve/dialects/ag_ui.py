"""AG-UI 1.0: runs as its events; what a run asks is an interrupt, and the next request resumes it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...api.agent import Agent
from ...api.run import Run
from ...core.chunks import Chunk
from ...core.errors import ConfigError
from ...core.events import Asked
from ...core.messages import Usage
from ...core.notices import notice
from ...core.values import plain_text
from ..forms import caller_of, fitting, read
from ..runs import user_input, user_of
from ..service import Service
from ..stream import Streams, event
from .chat import unsupported
from .conversation import INTERRUPTED, SEPARATOR, Conversation, Words, answer_for, asked_by, last_words, wording

VERSION = "1.0"


class AgUi:
    """`POST /ag-ui/AGENT` with a `RunAgentInput`."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def run(self, request: Request) -> Response:
        caller, asked = caller_of(request, "talk"), await read(request, dict[str, Any])
        agent = self._service.agent(request.path_params.get("agent", ""))
        if asked.get("tools"):
            raise unsupported("tools")
        with fitting():
            run, after = await self._run(request, agent, asked)
        conversation = Conversation(self._service, self._streams, caller, run)
        await conversation.begin(after)
        return await conversation.stream(AgUiWriter(run.run_id, str(asked.get("threadId", "")), str(asked.get("runId", ""))))

    async def _run(self, request: Request, agent: Agent[Any], asked: dict[str, Any]) -> tuple[Run[Any], int | None]:
        """A new run, or the one that an answer was sent for; of that one, the number of its last fact."""
        caller = caller_of(request)
        if resumed := asked.get("resume"):
            run_id, answers = await self._answers(request, resumed)
            card = await self._service.card(run_id, caller)
            return self._service.agent_of(card).resume(run_id, answers, by=caller.name), card.seq
        messages = [one for one in map(_message, asked.get("messages") or []) if one is not None]
        return agent.run(user_input(_paired(messages)), user_id=user_of(caller, None)), None

    async def _answers(self, request: Request, resumed: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        answers: dict[str, Any] = {}
        run_id = ""
        for one in resumed:
            named, key, question = await asked_by(self._service, request, str(one.get("interruptId", "")))
            run_id = run_id or named
            if question is not None and named == run_id:
                answers[key] = _answer(question, one)
        if not answers:
            raise ConfigError(notice("serve.no_question", "none of these questions is open any more"))
        return run_id, answers


def _answer(question: Asked, given: dict[str, Any]) -> Any:
    """What was sent for an interrupt. One that was not resolved is a no; whether a payload is clear, its reader decides."""
    if given.get("status") != "resolved":
        return answer_for(question, False)
    payload = given.get("payload")
    if isinstance(payload, dict) and "editedArgs" in payload and "args" not in payload:
        return {"args" if name == "editedArgs" else name: value for name, value in payload.items()}
    return payload


def _message(given: Any) -> dict[str, Any] | None:
    """A message of theirs in the OpenAI shape; activities and reasoning are the page's own."""
    role = given.get("role") if isinstance(given, dict) else None
    if role in ("activity", "reasoning"):
        return None
    content = given.get("content") if isinstance(given, dict) else None
    if isinstance(content, list):
        content = [_part(part) for part in content]
    shape = {"role": "system" if role == "developer" else role, "content": content}
    if role == "tool":
        return {**shape, "tool_call_id": given.get("toolCallId", ""), "name": ""}
    return {**shape, "tool_calls": given["toolCalls"]} if role == "assistant" and given.get("toolCalls") else shape


def _part(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in ("binary", "image"):
        held = part.get("source") or part
        if held.get("type") == "url":
            held = {"url": held.get("value")}
        data = held.get("data") or held.get("value") or ""
        return {"type": "image_url", "image_url": {"url": held.get("url") or f"data:{held.get('mimeType')};base64,{data}"}}
    return part


def _paired(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls without a result are left out: a run that was cut off has them."""
    answered = {one["tool_call_id"] for one in messages if one["role"] == "tool"}
    kept = []
    for one in messages:
        calls = [call for call in one.get("tool_calls", ()) if call.get("id") in answered]
        kept.append({**one, "tool_calls": calls} if "tool_calls" in one else one)
    return kept


class AgUiWriter:
    """A message is opened with its first word and closed with its fact; a tool call's arguments come at once."""

    def __init__(self, run_id: str, thread: str, named: str) -> None:
        self._run_id, self._thread, self._named = run_id, thread, named or run_id
        self._words, self._message, self._thinking, self._count = Words(), "", "", 0
        self._parent = ""  # the message that calls the tools
        self._used = Usage(cost=None)
        self._interrupts: list[dict[str, Any]] = []
        self._outcome: dict[str, Any] | None = None
        self._result: Any = None
        self._problem: dict[str, Any] | None = None

    def begin(self) -> bytes:
        return _event("RUN_STARTED", threadId=self._thread, runId=self._named, protocolVersion=VERSION)

    def take(self, chunk: Chunk) -> bytes:
        data = chunk.data
        match chunk.type:
            case "delta":
                return self._no_thinking() + self._text(self._words.delta(data["content"]))
            case "thinking":
                return self._think(data["content"])
            case "message":
                return self._no_thinking() + self._text(self._words.rest(data["content"])) + self._no_message()
            case "tool_call":
                call, parent = self._call_id(data["id"]), {"parentMessageId": self._parent} if self._parent else {}
                start = _event("TOOL_CALL_START", toolCallId=call, toolCallName=data["name"], **parent)
                args = _event("TOOL_CALL_ARGS", toolCallId=call, delta=data["function"]["arguments"])
                return self._no_thinking() + start + args + _event("TOOL_CALL_END", toolCallId=call)
            case "tool_response":
                told = plain_text(data["content"])
                call = self._call_id(data["tool_call_id"])
                return _event("TOOL_CALL_RESULT", messageId=f"{call}-result", toolCallId=call, content=told, role="tool")
            case "usage":
                self._parent = ""
                self._used += Usage(data["prompt_tokens"], data["completion_tokens"], data["cached_tokens"])
            case "error":
                self._problem = {"message": data["message"], "code": data["type"]}
            case "status":
                return self._status(chunk)
        return b""

    def _status(self, chunk: Chunk) -> bytes:
        data = chunk.data
        match data["status"]:
            case "waiting":
                self._interrupts.append(
                    {
                        "id": f"{self._run_id}{SEPARATOR}{data['key']}",
                        "reason": _reason(data),
                        "message": wording(data["content"], data["options"]),
                        **({"toolCallId": self._call_id(data["tool_call_id"])} if data["tool_call_id"] else {}),
                        "responseSchema": _schema(data["options"]),
                    }
                )
            case "stopped":
                self._outcome = {"type": "cancelled" if data["kind"] == "cancelled" else "success"}
                self._result = data["output"]
                said = last_words(chunk, self._words)
                return self._text(said) + self._no_message() if said else b""
        return b""

    def end(self) -> bytes:
        closed = self._no_thinking() + self._no_message()
        ids = {"threadId": self._thread, "runId": self._named}
        used = {"inputTokens": self._used.input, "outputTokens": self._used.output, "totalTokens": self._used.total}
        if self._interrupts and self._problem is None:
            outcome = {"type": "interrupt", "interrupts": self._interrupts}
            return closed + _event("RUN_FINISHED", **ids, outcome=outcome, usage=[used])
        if self._outcome is None or self._problem is not None:
            problem = self._problem or {"message": INTERRUPTED, "code": "interrupted"}
            return closed + _event("RUN_ERROR", **problem, usage=[used])
        return closed + _event("RUN_FINISHED", **ids, result=self._result, outcome=self._outcome, usage=[used])

    def _call_id(self, call: str) -> str:
        """A page knows a call by its id in the whole thread; a model's may be the same in every run."""
        return f"{self._run_id}-{call}"

    def _text(self, text: str) -> bytes:
        if not text:
            return b""
        opened = b""
        if not self._message:
            self._count += 1
            self._message = f"{self._run_id}-{self._count}"
            opened = _event("TEXT_MESSAGE_START", messageId=self._message, role="assistant")
        return opened + _event("TEXT_MESSAGE_CONTENT", messageId=self._message, delta=text)

    def _no_message(self) -> bytes:
        closed, self._message = self._message, ""
        self._parent = closed or self._parent
        return _event("TEXT_MESSAGE_END", messageId=closed) if closed else b""

    def _think(self, text: str) -> bytes:
        opened = b""
        if not self._thinking:
            self._count += 1
            self._thinking = f"{self._run_id}-{self._count}"
            opened = _event("REASONING_START", messageId=self._thinking) + _event(
                "REASONING_MESSAGE_START", messageId=self._thinking, role="reasoning"
            )
        return opened + (_event("REASONING_MESSAGE_CONTENT", messageId=self._thinking, delta=text) if text else b"")

    def _no_thinking(self) -> bytes:
        closed, self._thinking = self._thinking, ""
        if not closed:
            return b""
        return _event("REASONING_MESSAGE_END", messageId=closed) + _event("REASONING_END", messageId=closed)


def _reason(data: dict[str, Any]) -> str:
    """Why a run waits. A call that may have happened is not an approval: a client must not offer yes and no for it."""
    if data.get("in_doubt"):
        return "tool_in_doubt"
    return "tool_approval" if data["options"] else "input_required"


def _schema(options: list[str]) -> dict[str, Any]:
    return {"type": "string", "enum": options} if options else {"type": "string"}


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields})
