"""OpenAI Responses: an agent's run as a response. Its tools are `mcp_call` items, which no client runs; what it asks is an
`mcp_approval_request`.

A response is named after its run (`resp_RUN`, or `resp_RUN.FACT` where the run went on after an answer), so that every
response can be fetched again, and `previous_response_id` goes on from its run. With `store: false` neither is possible: the
run is deleted when it is over.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...api.open_run import new_run_id
from ...api.run import Run
from ...core.chunks import chunks_of
from ...core.errors import ConfigError, RateLimited, RunNotFound
from ...core.events import Answered, Event
from ...core.notices import notice
from ...core.runs import RunInfo
from ...core.values import plain_text
from ..admin_only import chunks_for
from ..encoding import Json
from ..forms import caller_of, fitting, read
from ..problems import Refused, status_of
from ..runs import user_input, user_of
from ..service import CONTINUE, UNSTORED, Service, is_unstored
from ..stream import Streams
from ..users import Caller
from .chat import model_of, unsupported
from .conversation import Conversation, answer_for, asked_by, called_and_asked, headers_of_failure, is_own, is_question
from .responses_writer import APPROVAL, PREFIX, ResponsesWriter


class Responses:
    """The addresses under `/v1/responses`."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def create(self, request: Request) -> Response:
        caller, asked = caller_of(request, "talk"), await read(request, dict[str, Any])
        with fitting():
            _check(asked)
            run, after = await self._run(request, asked)
        on_its_own = CONTINUE if asked.get("background") else None  # a client fetches it later
        conversation = Conversation(self._service, self._streams, caller, run, on_its_own)
        await conversation.begin(after, streamed=bool(asked.get("stream")))
        writer = ResponsesWriter(run.run_id, after, asked, conversation.before)
        if asked.get("stream"):
            return await conversation.stream(writer)
        if asked.get("background"):
            await asyncio.sleep(0)
            return Json(writer.response())
        await conversation.whole(request, writer)
        failure = await conversation.failure()
        if isinstance(failure, RateLimited):  # the run is told as a failed response otherwise
            harmless = not writer.acted and not asked.get("conversation")  # a session holds what was said already
            return Json(writer.response(), status_of(failure), headers_of_failure(failure, harmless=harmless))
        return Json(writer.response())

    async def _run(self, request: Request, asked: dict[str, Any]) -> tuple[Run[Any], int | None]:
        """The run that answers: a new one, one that goes on from another, or one that waited for this. Of the last, the number
        of the fact before."""
        caller = caller_of(request, "talk")
        items, before = _items(asked.get("input")), asked.get("previous_response_id")
        unstored = f"{UNSTORED}{new_run_id()}" if asked.get("store") is False else None
        if approvals := [one for one in items if one.get("type") == "mcp_approval_response"]:
            return _as_stored(await self._answered(request, approvals), unstored)
        user = asked.get("user") or asked.get("safety_identifier") if caller.is_admin else None
        if before:
            card, _ = await self._found(request, str(before))
            if card.status == "waiting":
                return _as_stored(await self._told(request, card, items), unstored)
            said = user_input(_messages(asked, items))
            return self._service.agent_of(card).fork(card.run_id, user_input=said, new_id=unstored), None
        agent, session = self._service.agent(model_of(asked)), asked.get("conversation")
        session = session.get("id") if isinstance(session, dict) else session
        said = user_input(_messages(asked, items))
        return agent.run(said, session_id=session or None, user_id=user_of(caller, user), run_id=unstored), None

    async def _answered(self, request: Request, approvals: list[dict[str, Any]]) -> tuple[Run[Any], int]:
        run_id, answers = "", {}
        for one in approvals:
            named = str(one.get("approval_request_id", "")).removeprefix(APPROVAL)
            found, key, question = await asked_by(self._service, request, named)
            run_id = run_id or found
            if question is None or found != run_id:
                raise ConfigError(notice("serve.no_question", "none of these questions is open any more"))
            answers[key] = answer_for(question, one.get("approve") is True, str(one.get("reason") or ""))
        card = await self._service.card(run_id, caller_of(request))
        return self._resumed(request, card, answers), card.seq

    async def _told(self, request: Request, card: RunInfo, items: list[dict[str, Any]]) -> tuple[Run[Any], int]:
        """A question without options is answered by what the user says next; an approval is not."""
        result = await self._service.agent_result(card.run_id)
        open_ones = [key for key, asked in result.questions.items() if not asked.options]
        if len(result.questions) != 1 or not open_ones:
            told = notice("serve.waits", "run {run_id} waits for an approval: send mcp_approval_response", run_id=card.run_id)
            raise Refused(409, told)
        caller_of(request, "approve")
        text = "\n".join([_text(one.get("content")) for one in items])
        return self._resumed(request, card, {open_ones[0]: text}), card.seq

    def _resumed(self, request: Request, card: RunInfo, answers: dict[str, Any]) -> Run[Any]:
        return self._service.agent_of(card).resume(card.run_id, answers, by=caller_of(request).name)

    async def get(self, request: Request) -> Response:
        if request.query_params.get("stream") in ("true", "1"):
            raise unsupported("stream")
        card, after = await self._found(request, request.path_params["response_id"])
        return Json((await self._recorded(caller_of(request), card, after)).response())

    async def _recorded(self, caller: Caller, card: RunInfo, after: int | None) -> ResponsesWriter:
        """A response made again from the run's facts."""
        before = [] if after is None else await called_and_asked(self._service, card.run_id, after)
        facts, followed = await self._facts(card.run_id, after)
        asked = {"model": card.agent, "conversation": card.session or None}
        writer = ResponsesWriter(card.run_id, after, asked, before, created=facts[0].time if facts else None)
        writer.begin()
        every = [chunk for fact in facts for chunk in chunks_of(fact) if is_own(chunk, card.run_id)]
        told = chunks_for(every, caller)
        for chunk in told:
            writer.take(chunk)
        if followed or card.status == "waiting":
            answered = {chunk.data["key"] for chunk in [*before, *told] if chunk.data.get("status") == "answered"}
            for chunk in before:
                if is_question(chunk) and chunk.data["key"] not in answered:
                    writer.take(chunk)
        if writer.over:
            writer.end()
        return writer

    async def _facts(self, run_id: str, after: int | None) -> tuple[list[Event], bool]:
        """The facts of one response, and whether another follows: one begins with each answer, or with several at once."""
        facts: list[Event] = []
        begun = 0 if after is None else -1
        async for fact in self._service.journal.read(run_id, after or 0):
            if isinstance(fact.body, Answered) and not (facts and isinstance(facts[-1].body, Answered)):
                begun += 1
                if begun > 0:
                    return facts, True
            facts.append(fact)
        return facts, False

    async def cancel(self, request: Request) -> Response:
        caller_of(request, "talk")
        card, after = await self._found(request, request.path_params["response_id"])
        stopping = await self._service.stop(card)
        recorded = (await self._recorded(caller_of(request), card, after)).response()
        return Json({**recorded, "status": "cancelled"} if stopping else recorded)

    async def delete(self, request: Request) -> Response:
        caller_of(request, "talk")
        card, _ = await self._found(request, request.path_params["response_id"])
        await self._service.journal.delete(card.run_id)
        return Json({"id": request.path_params["response_id"], "object": "response", "deleted": True})

    async def _found(self, request: Request, response_id: str) -> tuple[RunInfo, int | None]:
        run_id, dot, fact = response_id.removeprefix(PREFIX).rpartition(".")
        if not dot or not fact.isdecimal() or len(fact) > 9:
            run_id, fact = response_id.removeprefix(PREFIX), ""
        if not response_id.startswith(PREFIX) or is_unstored(run_id):
            raise RunNotFound(response_id)
        return await self._service.card(run_id, caller_of(request)), int(fact) if fact else None


def _as_stored(answered: tuple[Run[Any], int], unstored: str | None) -> tuple[Run[Any], int]:
    """Return the run that an answer resumes. `store: false` comes too late if the run is stored already."""
    if unstored and not is_unstored(answered[0].run_id):
        told = notice(
            "serve.stored",
            "run {run_id} is stored: answer it without store: false, or begin it with store: false",
            run_id=answered[0].run_id,
        )
        raise Refused(409, told)
    return answered


def _check(asked: dict[str, Any]) -> None:
    for name in ("tools", "prompt", "include", "max_tool_calls"):
        if asked.get(name):
            raise unsupported(name)
    if ((asked.get("text") or {}).get("format") or {}).get("type", "text") != "text":
        raise unsupported("text.format")
    if not isinstance(asked.get("store"), bool | None):
        raise ConfigError(notice("serve.store", "store is true or false"))
    if asked.get("background") and asked.get("store") is False:
        told = notice(
            "serve.background_store", "background needs store: true, because a response that is not stored cannot be fetched"
        )
        raise ConfigError(told)
    if asked.get("conversation") and asked.get("previous_response_id"):
        raise ConfigError(notice("serve.one_of", "give either conversation or previous_response_id"))


def _items(given: Any) -> list[dict[str, Any]]:
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or not all(isinstance(one, dict) for one in items):
        raise ConfigError(notice("serve.input", "input is a text, or a list of items"))
    return items


def _messages(asked: dict[str, Any], items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items in the shapes of chat completions."""
    instructions = asked.get("instructions")
    said: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    for one in items:
        match one.get("type", "message"):
            case "message":
                role = "system" if one.get("role") == "developer" else one.get("role")
                said.append({"role": role, "content": _content(one.get("content"))})
            case "mcp_call":
                call = {"id": one.get("id", ""), "function": {"name": one.get("name"), "arguments": one.get("arguments")}}
                told = one.get("output") if one.get("error") is None else plain_text(one.get("error"))
                said.append({"role": "assistant", "content": "", "tool_calls": [call]})
                said.append({"role": "tool", "tool_call_id": call["id"], "name": one.get("name"), "content": told})
            case "reasoning" | "mcp_approval_request":
                pass
            case other:
                raise unsupported(notice("serve.input_type", "input of type {other}", other=other))
    return said


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts: list[Any] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else ""
        if kind in ("input_text", "output_text"):
            parts.append({"type": "text", "text": part.get("text", "")})
        elif kind == "input_image" and part.get("image_url"):
            parts.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
        elif kind == "refusal":
            parts.append({"type": "text", "text": part.get("refusal", "")})
        else:
            raise unsupported(notice("serve.content_type", "content of type {kind}", kind=kind))
    return parts


def _text(content: Any) -> str:
    held = _content(content)
    return held if isinstance(held, str) else "".join([part.get("text", "") for part in held or ()])
