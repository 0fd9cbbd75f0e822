"""OpenAI Responses: the run of an agent as a response.

Tools of the agent are `mcp_call` items, which no client runs. A question is an `mcp_approval_request`. A response is named
after its run (`resp_RUN`, or `resp_RUN.FACT` after an answer), so that every response can be fetched again, and
`previous_response_id` continues from its run. With `store: false` neither is possible: the run is deleted when it has ended.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...core.chunks import Chunk, chunks_of
from ...core.errors import ConfigError, RateLimited, RunNotFound
from ...core.events import Answered, Asked, Event
from ...core.notices import notice
from ...core.runs import RunInfo
from ...core.values import plain_text
from ...run.request import new_run_id
from ...run.run import Run
from ..encoding import Json
from ..forms import caller_of, read_body, refuse_malformed
from ..problems import HttpRefused, chunks_for, status_of
from ..runs import user_input, user_of
from ..service import CONTINUE, UNSTORED, Service, is_unstored
from ..stream import Streams
from ..users import Caller
from .chat import model_of, unsupported_error
from .conversation import ServedRun, answer_for, called_and_asked, headers_of_failure, is_own, is_question, read_answers
from .responses_writer import APPROVAL, PREFIX, ResponsesWriter


class Responses:
    """The addresses under `/v1/responses`."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def create(self, request: Request) -> Response:
        caller, asked = caller_of(request, "talk"), await read_body(request, dict[str, Any])
        with refuse_malformed():
            _check(asked)
            run, after = await self._run(request, asked)
        on_its_own = CONTINUE if asked.get("background") else None  # the client fetches the response later
        conversation = ServedRun(self._service, self._streams, caller, run, on_its_own)
        await conversation.begin(request, after, streamed=bool(asked.get("stream")))
        writer = ResponsesWriter(run.run_id, after, asked, conversation.before)
        if asked.get("stream"):
            return await conversation.stream(writer)
        if asked.get("background"):
            await asyncio.sleep(0)
            return Json(writer.response())
        await conversation.write_all(request, writer)
        failure = await conversation.failure()
        if isinstance(failure, RateLimited):  # other failures are a response with the status "failed"
            harmless = not writer.acted and not asked.get("conversation")  # the session already holds the message
            return Json(writer.response(), status_of(failure), headers_of_failure(failure, harmless=harmless))
        return Json(writer.response())

    async def _run(self, request: Request, asked: dict[str, Any]) -> tuple[Run[Any], int | None]:
        """Return the run of the response: a new one, one that continues another, or one that waited for this request.

        For the last kind, also return the number of the fact before.
        """
        caller = caller_of(request, "talk")
        items, before = _items(asked.get("input")), asked.get("previous_response_id")
        unstored = f"{UNSTORED}{new_run_id()}" if asked.get("store") is False else None
        if approvals := [one for one in items if one.get("type") == "mcp_approval_response"]:
            return _as_stored(await self._resume_with_approvals(request, approvals), unstored)
        user = asked.get("user") or asked.get("safety_identifier") if caller.is_admin else None
        if before:
            card, after = await self._find_response(request, str(before))
            if card.status == "waiting":
                return _as_stored(await self._resume_with_text(request, card, after, items), unstored)
            said = user_input(_messages(asked, items))
            return self._service.agent_of(card).fork(card.run_id, user_input=said, new_id=unstored, by=caller.name), None
        agent, session = self._service.agent(model_of(asked)), asked.get("conversation")
        session = session.get("id") if isinstance(session, dict) else session
        said = user_input(_messages(asked, items))
        user = user_of(caller, user)
        return agent.run(said, session_id=session or None, user_id=user, run_id=unstored, by=caller.name), None

    async def _resume_with_approvals(self, request: Request, approvals: list[dict[str, Any]]) -> tuple[Run[Any], int]:
        given = {str(one.get("approval_request_id", "")).removeprefix(APPROVAL): one for one in approvals}
        card, answers = await read_answers(self._service, request, given, _answer)
        return await self._service.resume(card, answers, caller_of(request)), card.seq

    async def _resume_with_text(
        self, request: Request, card: RunInfo, after: int | None, items: list[dict[str, Any]]
    ) -> tuple[Run[Any], int]:
        """Resume a run whose only question has no options with the text of the user. An approval cannot be given like this.

        `after`: the fact after which the response begins that the client answers. It must be the last one of the run.
        """
        result = await self._service.agent_result(card.run_id)
        if (await self._facts(card.run_id, after))[1]:
            raise HttpRefused.of(
                "serve.answered_response",
                "the question of this response was answered, and run {run_id} asks another one: answer its last response",
                http=409,
                run_id=card.run_id,
            )
        open_ones = [key for key, asked in result.questions.items() if not asked.options]
        if len(result.questions) != 1 or not open_ones:
            message = notice(
                "serve.waits", "run {run_id} waits for an approval: send mcp_approval_response", run_id=card.run_id
            )
            raise HttpRefused(409, message)
        caller, text = caller_of(request, "approve"), "\n".join([_text(one.get("content")) for one in items])
        return await self._service.resume(card, {open_ones[0]: text}, caller), card.seq

    async def get(self, request: Request) -> Response:
        if request.query_params.get("stream") in ("true", "1"):
            raise unsupported_error("stream")
        card, after = await self._find_response(request, request.path_params["response_id"])
        return Json((await self._rebuild(caller_of(request), card, after)).response())

    async def _rebuild(self, caller: Caller, card: RunInfo, after: int | None) -> ResponsesWriter:
        """Make a response again from the facts of its run."""
        before = [] if after is None else await called_and_asked(self._service, card.run_id, after)
        facts, followed = await self._facts(card.run_id, after)
        asked = {"model": card.agent, "conversation": card.session or None}
        writer = ResponsesWriter(card.run_id, after, asked, before, created=facts[0].time if facts else None)
        writer.language = caller.language
        writer.begin()
        every = [chunk for fact in facts for chunk in chunks_of(fact) if is_own(chunk, card.run_id)]
        told = chunks_for(every, caller)
        for chunk in [*told, *(_unanswered(before, told) if followed or card.status == "waiting" else ())]:
            writer.take(chunk)
        if writer.ended:
            writer.end()
        return writer

    async def _facts(self, run_id: str, after: int | None) -> tuple[list[Event], bool]:
        """Return the facts of one response, and True if another follows: a response begins with one answer, or several at
        once.
        """
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
        card, after = await self._find_response(request, request.path_params["response_id"])
        stopping = await self._service.stop(card)
        recorded = (await self._rebuild(caller_of(request), card, after)).response()
        return Json({**recorded, "status": "cancelled"} if stopping else recorded)

    async def delete(self, request: Request) -> Response:
        caller_of(request, "talk")
        card, _ = await self._find_response(request, request.path_params["response_id"])
        await self._service.before_deletion(caller_of(request), f"run:{card.run_id}", card.user)
        await self._service.journal.delete(card.run_id)
        return Json({"id": request.path_params["response_id"], "object": "response", "deleted": True})

    async def _find_response(self, request: Request, response_id: str) -> tuple[RunInfo, int | None]:
        run_id, dot, fact = response_id.removeprefix(PREFIX).rpartition(".")
        if not dot or not fact.isdecimal() or len(fact) > 9:
            run_id, fact = response_id.removeprefix(PREFIX), ""
        if not response_id.startswith(PREFIX) or is_unstored(run_id):
            raise RunNotFound(response_id)
        return await self._service.card(run_id, caller_of(request)), int(fact) if fact else None


def _unanswered(before: list[Chunk], told: list[Chunk]) -> list[Chunk]:
    """Return the earlier questions that are still open after some chunks."""
    answered = {chunk.data["key"] for chunk in [*before, *told] if chunk.data.get("status") == "answered"}
    return [chunk for chunk in before if is_question(chunk) and chunk.data["key"] not in answered]


def _as_stored(answered: tuple[Run[Any], int], unstored: str | None) -> tuple[Run[Any], int]:
    """Return the run that an answer resumes. Raise `HttpRefused` for `store: false` if the run is already stored."""
    if unstored and not is_unstored(answered[0].run_id):
        raise HttpRefused.of(
            "serve.stored",
            "run {run_id} is already stored. Answer it without store: false, or start the run with store: false",
            http=409,
            run_id=answered[0].run_id,
        )
    return answered


def _answer(question: Asked, given: dict[str, Any]) -> Any:
    return answer_for(question, given.get("approve") is True, str(given.get("reason") or ""))


def _check(asked: dict[str, Any]) -> None:
    for name in ("tools", "prompt", "include", "max_tool_calls"):
        if asked.get(name):
            raise unsupported_error(name)
    if ((asked.get("text") or {}).get("format") or {}).get("type", "text") != "text":
        raise unsupported_error("text.format")
    if not isinstance(asked.get("store"), bool | None):
        raise ConfigError.of("serve.store", "store must be true or false")
    if asked.get("background") and asked.get("store") is False:
        raise ConfigError.of(
            "serve.background_store", "background needs store: true, because a response that is not stored cannot be fetched"
        )
    if asked.get("conversation") and asked.get("previous_response_id"):
        raise ConfigError.of("serve.one_of", "send either conversation or previous_response_id, not both")


def _items(given: Any) -> list[dict[str, Any]]:
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or not all(isinstance(one, dict) for one in items):
        raise ConfigError.of("serve.input", "input must be a string or a list of items")
    return items


def _messages(asked: dict[str, Any], items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items in the shapes of chat completions."""
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
                raise unsupported_error(notice("serve.input_type", "input of type {other}", other=other))
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
            raise unsupported_error(notice("serve.content_type", "content of type {kind}", kind=kind))
    return parts


def _text(content: Any) -> str:
    held = _content(content)
    return held if isinstance(held, str) else "".join([part.get("text", "") for part in held or ()])
