"""AG-UI 1.0: a run as a stream of events. A question is an interrupt, and the next request resumes the run."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...agent.agent import Agent
from ...core.events import Asked
from ...core.values import plain_text
from ...run.run import Run
from ..forms import caller_of, read_body, refuse_malformed
from ..runs import user_input, user_of
from ..service import Service
from ..stream import Streams, event
from .chat import unsupported_error
from .conversation import ServedRun, answer_for, read_answers
from .transcript import INTERRUPTED, SEPARATOR, Kind, Transcript

VERSION = "1.0"


class AgUi:
    """`POST /ag-ui/AGENT` with a `RunAgentInput`."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def run(self, request: Request) -> Response:
        caller, asked = caller_of(request, "talk"), await read_body(request, dict[str, Any])
        agent = self._service.agent(request.path_params.get("agent", ""))
        if asked.get("tools"):
            raise unsupported_error("tools")
        if isinstance(props := asked.get("forwardedProps"), dict) and props.get("sayTo"):
            return await self._say_to(request, str(props["sayTo"]), asked, urgent=props.get("urgent") is True)
        with refuse_malformed():
            run, after = await self._run(request, agent, asked)
        conversation = ServedRun(self._service, self._streams, caller, run)
        await conversation.begin(request, after)
        return await conversation.stream(AgUiWriter(run.run_id, str(asked.get("threadId", "")), str(asked.get("runId", ""))))

    async def _say_to(self, request: Request, run_id: str, asked: dict[str, Any], *, urgent: bool) -> Response:
        """Store the last message for a run that works. The answer comes in the stream of that run."""
        caller = caller_of(request, "talk")
        card = await self._service.card(run_id, caller)
        said = next((one for one in map(_message, reversed(asked.get("messages") or [])) if one is not None), {})
        with refuse_malformed():
            given = user_input(said)
            under_way = await self._service.agent_of(card).say(card.run_id, given, by=caller.name, urgent=urgent)
        ids = {"threadId": str(asked.get("threadId", "")), "runId": str(asked.get("runId", ""))}
        told = {"result": {"runId": card.run_id, "underWay": under_way}, "outcome": {"type": "success"}}
        body = _event("RUN_STARTED", **ids, protocolVersion=VERSION) + _event("RUN_FINISHED", **ids, **told)
        return Response(body, media_type="text/event-stream")

    async def _run(self, request: Request, agent: Agent[Any], asked: dict[str, Any]) -> tuple[Run[Any], int | None]:
        """Return a new run, or the run that was answered and the number of its last fact."""
        caller = caller_of(request)
        if resumed := asked.get("resume"):
            given = {str(one.get("interruptId", "")): one for one in resumed}
            card, answers = await read_answers(self._service, request, given, _answer)
            return await self._service.resume(card, answers, caller), card.seq
        messages = [one for one in map(_message, asked.get("messages") or []) if one is not None]
        return agent.run(user_input(_without_open_calls(messages)), user_id=user_of(caller, None)), None


def _answer(question: Asked, given: dict[str, Any]) -> Any:
    """Return the answer to an interrupt.

    An interrupt that was not resolved is a no. The kernel checks if a payload is clear.
    """
    if given.get("status") != "resolved":
        return answer_for(question, False)
    payload = given.get("payload")
    if isinstance(payload, dict) and "editedArgs" in payload and "args" not in payload:
        return {"args" if name == "editedArgs" else name: value for name, value in payload.items()}
    return payload


def _message(given: Any) -> dict[str, Any] | None:
    """Return a message in the OpenAI shape; None for activities and reasoning, which belong to the client."""
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


def _without_open_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out calls without a result. A run that was interrupted has them."""
    answered = {one["tool_call_id"] for one in messages if one["role"] == "tool"}
    kept = []
    for one in messages:
        calls = [call for call in one.get("tool_calls", ()) if call.get("id") in answered]
        kept.append({**one, "tool_calls": calls} if "tool_calls" in one else one)
    return kept


class AgUiWriter(Transcript):
    """Write AG-UI events.

    A message is opened with its first word and closed with its fact; arguments of a call come at once.
    """

    def __init__(self, run_id: str, thread: str, named: str) -> None:
        super().__init__(run_id)
        self._thread, self._named, self._count = thread, named or run_id, 0
        self._parent = ""  # the message that calls the tools
        self._interrupts: list[dict[str, Any]] = []

    def begin(self) -> bytes:
        return _event("RUN_STARTED", threadId=self._thread, runId=self._named, protocolVersion=VERSION)

    @property
    def _message(self) -> str:
        """Return the id of the open message."""
        return f"{self.run_id}-{self._count}"

    def open_part(self, kind: Kind) -> bytes:
        self._count += 1
        if kind == "text":
            return _event("TEXT_MESSAGE_START", messageId=self._message, role="assistant")
        begun = _event("REASONING_START", messageId=self._message)
        return begun + _event("REASONING_MESSAGE_START", messageId=self._message, role="reasoning")

    def write(self, kind: Kind, text: str) -> bytes:
        named = "TEXT_MESSAGE_CONTENT" if kind == "text" else "REASONING_MESSAGE_CONTENT"
        return _event(named, messageId=self._message, delta=text)

    def close_part(self, kind: Kind) -> bytes:
        if kind == "text":
            self._parent = self._message
            return _event("TEXT_MESSAGE_END", messageId=self._message)
        return _event("REASONING_MESSAGE_END", messageId=self._message) + _event("REASONING_END", messageId=self._message)

    def call(self, data: dict[str, Any]) -> bytes:
        call, parent = self._call_id(data["id"]), {"parentMessageId": self._parent} if self._parent else {}
        start = _event("TOOL_CALL_START", toolCallId=call, toolCallName=data["name"], **parent)
        args = _event("TOOL_CALL_ARGS", toolCallId=call, delta=data["function"]["arguments"])
        return start + args + _event("TOOL_CALL_END", toolCallId=call)

    def write_result(self, data: dict[str, Any]) -> bytes:
        call, told = self._call_id(data["tool_call_id"]), plain_text(data["content"])
        return _event("TOOL_CALL_RESULT", messageId=f"{call}-result", toolCallId=call, content=told, role="tool")

    def end_reply(self) -> bytes:
        self._parent = ""
        return b""

    def ask(self, question: Asked) -> bytes:
        self._interrupts.append(
            {
                "id": f"{self.run_id}{SEPARATOR}{question.key}",
                "reason": _reason(question),
                "message": self.question_text(question),
                **({"toolCallId": self._call_id(question.call_id)} if question.call_id else {}),
                "responseSchema": {"type": "string", **({"enum": list(question.options)} if question.options else {})},
            }
        )
        return b""

    def end(self) -> bytes:
        closed = self.close_open()
        ids = {"threadId": self._thread, "runId": self._named}
        used = {"inputTokens": self.used.input, "outputTokens": self.used.output, "totalTokens": self.used.total}
        if not self.ended or self.ended == "failed":
            problem = {"message": self.detail or INTERRUPTED, "code": self.error or "interrupted"}
            return closed + _event("RUN_ERROR", **problem, usage=[used])
        if self._interrupts:
            outcome = {"type": "interrupt", "interrupts": self._interrupts}
            return closed + _event("RUN_FINISHED", **ids, outcome=outcome, usage=[used])
        outcome = {"type": "cancelled" if self.ended == "cancelled" else "success"}
        return closed + _event("RUN_FINISHED", **ids, result=self.output, outcome=outcome, usage=[used])

    def _call_id(self, call: str) -> str:
        """Return an id of the call that is unique in the thread. A model may use the same id in every run."""
        return f"{self.run_id}-{call}"


def _reason(question: Asked) -> str:
    """Return the reason of an interrupt. A call in doubt is not an approval: a client must not offer yes and no for it."""
    if question.in_doubt:
        return "tool_in_doubt"
    return "tool_approval" if question.options else "input_required"


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields})
