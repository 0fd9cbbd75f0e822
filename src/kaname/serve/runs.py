"""Runs over HTTP: start, follow, stop, answer, resume, fork, replay, read, list, delete."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from ..core.chunks import Chunk, chunks_of
from ..core.errors import ConfigError, RunNotFound
from ..core.events import Event, ToolFinished
from ..core.messages import ToolResult
from ..core.notices import notice
from ..core.openai_shape import to_openai
from ..core.runs import UNDER_WAY, RunInfo, is_upload
from ..kernel.load import load
from ..people.answers import read_tasks
from ..run.attach import batches, batches_of
from ..run.figures import rate
from ..run.result import Result
from ..run.run import Run, find_live
from .changes import Changes
from .encoding import Json, Part, join_parts
from .forms import (
    LAST,
    Answers,
    Fork,
    Rate,
    Resume,
    SayToRun,
    StartRun,
    StopRun,
    caller_of,
    number,
    read_body,
    read_page,
    refuse_malformed,
)
from .language import in_language
from .problems import HttpRefused, chunks_for, stop_for
from .questions import question, questions_of, summary, with_arguments
from .service import CONTINUE, OnDisconnect, Service, not_waiting, own_run_id
from .stream import Frames, Stream, Streams, event, watch_departure, while_client_waits
from .uploads import Uploads
from .users import Caller

_CREATED = 201
_LOOK, _PAGE = 10_000, 1_000  # runs that one search reads, in all and per page


class RunRoutes:
    """The addresses under `/api/runs`."""

    def __init__(self, service: Service, streams: Streams, uploads: Uploads) -> None:
        self._service, self._streams, self._uploads = service, streams, uploads
        self.changes = Changes(service)

    async def start(self, request: Request) -> Response:
        caller, form = caller_of(request, "talk"), await read_body(request, StartRun)
        agent, leaving, mode = self._service.agent(form.agent), form.on_disconnect, response_mode(request, form.mode)
        content = await self._uploads.attach(form.input, caller)
        with refuse_malformed():
            run = agent.run(
                self._service.input_of(agent, user_input(content)),
                session_id=form.session_id,
                user_id=user_of(caller, form.user_id),
                run_id=None if form.run_id is None else own_run_id(form.run_id, caller),
                when_busy=form.when_busy,
                by=caller.name,
            )
        return await self._respond(request, run, caller, mode, status=_CREATED, on_disconnect=leaving)

    async def _respond(
        self,
        request: Request,
        run: Run[Any],
        caller: Caller,
        mode: str,
        *,
        status: int = 200,
        on_disconnect: OnDisconnect = CONTINUE,
    ) -> Response:
        """Start or resume the run, and return the response of its mode: the result, a stream, or the card."""
        if mode == "stream":
            self._streams.check(caller)
        reader = run.subscribe(0) if mode == "stream" else None
        await self._service.begin(run, request if status == _CREATED else None)  # an answer counts once it is sent
        place = {"location": f"{request.scope.get('root_path', '')}/api/runs/{quote(run.run_id)}"}
        left = partial(self._service.handle_departure, run.run_id, on_disconnect)
        if reader is not None:
            frames = Frames()
            return Stream(
                self._streams,
                caller,
                _frame_chunks(batches_of(reader), frames, caller),
                sent=frames.note_sent,
                closing=lambda: _closing_frame(frames),
                left=left,
                headers={**place, "x-run-id": quote(run.run_id)},
            )
        if mode == "detach":
            return Json(await self._resource(run.run_id, caller), 202, place)
        async with watch_departure(request, left):
            await run.wait()
        return Json(await self._resource(run.run_id, caller, run), status, place)

    async def _resource(self, run_id: str, caller: Caller, run: Run[Any] | None = None) -> dict[str, Any]:
        card, result = await self._service.card_and_result(run_id, run)
        return describe_run(card, result, caller, self._service.tools_of(card))

    async def all(self, request: Request) -> Response:
        caller, asked = caller_of(request), request.query_params
        user = caller.list_of(asked.get("user_id"))
        await self._service.auditor.read(caller, "runs", user)
        if request.headers.get("accept", "").startswith("text/event-stream"):
            return Stream(self._streams, caller, _frame_changes(self.changes, user, caller))
        filters: dict[str, Any] = {name: asked.get(name, "") for name in ("status", "agent")}
        filters |= {"session": asked.get("session_id", ""), "user": user}
        if words := asked.get("q", "").casefold():
            limit, before = number(request, "limit", 100, 1), number(request, "before", 0, 1, LAST)
            found, following = await self._search(words, before, limit, **filters)
        else:
            found, following = await read_page(request, partial(self._service.journal.runs, **filters))
        return Json({"runs": [summary(card) for card in found if not is_upload(card)], "next": following})

    async def _search(self, words: str, before: int, limit: int, **filters: Any) -> tuple[list[RunInfo], int | None]:
        """Find runs whose title or id contains the words. Return them, and the place from which the next search continues."""
        found: list[RunInfo] = []
        for _ in range(_LOOK // _PAGE):
            cards = await self._service.journal.runs(**filters, before=before, limit=_PAGE)
            for card in cards:
                if words in card.title.casefold() or words in card.run_id:
                    found.append(card)
                if len(found) == limit:
                    return found, card.place
            if len(cards) < _PAGE:
                return found, None
            before = cards[-1].place
        return found, before

    async def get(self, request: Request) -> Response:
        caller, run_id = caller_of(request, "read"), request.path_params["run_id"]
        try:
            card = await self._service.card(run_id, caller)
        except RunNotFound:
            return await self._only_questions(run_id, caller)
        return Json(await self._resource(card.run_id, caller))

    async def _only_questions(self, run_id: str, caller: Caller) -> Response:
        """Return the questions of another user's run that the caller can answer, and what the agent shows for that."""
        if not caller.answers_for_others:
            raise RunNotFound(run_id)
        try:
            card = await self._service.card_to_answer(run_id, caller)
        except HttpRefused:
            raise RunNotFound(run_id) from None
        waiting = await questions_of(self._service, card, card, caller) if card.status == "waiting" and not card.parent else []
        if not waiting:
            raise RunNotFound(run_id)
        run = waiting[0]["run"]
        return Json({**run, "questions": [{name: one[name] for name in one if name != "run"} for one in waiting]})

    async def messages(self, request: Request) -> Response:
        card = await self._allowed_card(request, "read")
        result = await self._service.agent_result(card.run_id)
        return Json({"messages": [to_openai(message) for message in result.history]})

    async def story(self, request: Request) -> Response:
        """Return the chunks of the facts so far, in the form of the stream."""
        card = await self._allowed_card(request, "read")
        after, limit = number(request, "after", 0, 0, 10**8), number(request, "limit", 1_000, 1)
        told, last = [], after
        async for fact in self._service.journal.read(card.run_id, after):
            told += chunks_for(chunks_of(fact), caller_of(request))
            last = fact.seq
            if last - after >= limit:
                break
        for seq, chunk in enumerate(told, 1):
            chunk.seq = seq
        return Json({"run_id": card.run_id, "last": last, "facts": card.seq, "chunks": [one.copy() for one in told]})

    async def follow(self, request: Request) -> Response:
        """Stream the run as server-sent events, from a fact until its end, wherever it is executed."""
        card = await self._allowed_card(request, "read")
        frames = Frames(request.headers.get("last-event-id") or request.query_params.get("after", ""))
        if is_read_to_its_end(card, frames.after):
            return Response(status_code=204)
        caller = caller_of(request)
        parts = self._follow(request, card.run_id, frames)
        return Stream(self._streams, caller, parts, sent=frames.note_sent, closing=lambda: _closing_frame(frames))

    async def _follow(self, request: Request, run_id: str, frames: Frames) -> AsyncGenerator[Part, None]:
        """Yield the frames of the recorded facts, then of those to come."""
        journal, after, caller = self._service.journal, frames.after, caller_of(request)

        async def write(fact: Event) -> list[Part]:
            nonlocal after
            after = fact.seq
            return frames.take(chunks_for(chunks_of(fact), caller))

        async with aclosing(self._service.readers.facts(journal, run_id, after, request, write)) as parts:
            async for part in parts:
                yield part
        async for part in _frame_chunks(batches(journal, run_id, after), frames, caller):
            yield part

    async def stop(self, request: Request) -> Response:
        card = await self._allowed_card(request, "talk", queued=True)
        form = await read_body(request, StopRun)
        asked = await self._service.stop(card, form.reason)
        return Json({"run_id": card.run_id, "stopping": asked}, 202 if asked else 200)

    async def say(self, request: Request) -> Response:
        """Store a message for the run. `under_way` is false if the next run of its session gets it."""
        card, form, caller = await self._allowed_card(request, "talk"), await read_body(request, SayToRun), caller_of(request)
        agent = self._service.agent_of(card)
        content = await self._uploads.attach(form.input, caller)
        with refuse_malformed():
            async with while_client_waits(request):  # its files may take a while
                seen = await agent.say(card.run_id, user_input(content), by=caller.name, urgent=form.urgent)
        return Json({"run_id": card.run_id, "under_way": seen}, 202)

    async def answer(self, request: Request) -> Response:
        caller, form = caller_of(request), await read_body(request, Answers)
        card = await self._service.card_to_answer(request.path_params["run_id"], caller)
        answers = {key: with_arguments(given) for key, given in form.answers.items()}
        seen = caller.sees(card.user)
        if not seen and not answers:
            raise not_waiting(card)
        mode = response_mode(request, form.mode) if seen else "detach"
        made = await self._resume(request, card, caller, answers, mode)
        return made if seen else Json({"run_id": card.run_id}, 202)  # what the run of another user returns is not shown

    async def resume(self, request: Request) -> Response:
        card, form = await self._allowed_card(request, "talk"), await read_body(request, Resume)
        if form.answers:
            caller_of(request, "approve")
        if form.takeover:
            caller_of(request, "admin")
        mode = response_mode(request, form.mode)
        return await self._resume(request, card, caller_of(request), form.answers, mode, takeover=form.takeover)

    async def _resume(
        self,
        request: Request,
        card: RunInfo,
        caller: Caller,
        answers: dict[str, Any],
        mode: str,
        *,
        takeover: bool = False,
    ) -> Response:
        if answers and card.status not in (*UNDER_WAY, "completed", "degraded"):
            left = await read_tasks(self._service.journal, await load(self._service.journal, card.run_id))
            if not all(left.has(key) for key in answers):  # else work that it has left behind asks
                raise not_waiting(card)
        run = await self._service.resume(card, answers, caller, takeover=takeover)
        return await self._respond(request, run, caller, mode)

    async def fork(self, request: Request) -> Response:
        card, form, caller = await self._allowed_card(request, "talk"), await read_body(request, Fork), caller_of(request)
        if form.model is not None or form.instructions is not None:
            caller_of(request, "admin")
        at = form.at or card.seq
        if both := sorted(form.results.keys() & set(form.keep)):
            message = notice(
                "serve.result_twice", "{calls} is in both results and keep: use one of them", calls=", ".join(both)
            )
            raise HttpRefused(400, message)
        if form.results or (form.input is None and await self._inherits_answers(card, at)):
            caller_of(request, "approve")
        results = {**form.results, **await self._recorded_results(card, at, form.keep)}
        content = await self._uploads.attach(form.input, caller)
        with refuse_malformed():
            run = self._service.agent_of(card).fork(
                card.run_id,
                at,
                user_input=None if content is None else user_input(content),
                results=results,
                model=form.model,
                instructions=form.instructions,
                by=caller.name,
            )
        return await self._respond(request, run, caller, response_mode(request, form.mode), status=_CREATED)

    async def _recorded_results(self, card: RunInfo, at: int, wanted: list[str]) -> dict[str, ToolResult]:
        """Return the recorded results of calls that were open at a fact. Raise `HttpRefused` if one is missing."""
        found: dict[str, ToolResult] = {}
        if wanted:
            async for fact in self._service.journal.read(card.run_id, at):
                if isinstance(fact.body, ToolFinished) and fact.body.result.call_id in wanted:
                    found.setdefault(fact.body.result.call_id, fact.body.result)
        if missing := [one for one in wanted if one not in found]:
            message = notice(
                "serve.not_recorded", "no result of {calls} is recorded after fact {at}", at=at, calls=", ".join(missing)
            )
            raise HttpRefused(409, message)
        return found

    async def _inherits_answers(self, card: RunInfo, at: int) -> bool:
        """Return True if a fork would run open calls with answers that were given to the other run: that needs `approve`."""
        state = await load(self._service.journal, card.run_id, min(at, card.seq))
        return bool(state.pending and state.answers)

    async def replay(self, request: Request) -> Response:
        card = await self._allowed_card(request, "talk")
        replay = await self._service.agent_of(card).replay(card.run_id)
        return Json({"run_id": card.run_id, "same": replay.same, "told": str(replay)})

    async def rate(self, request: Request) -> Response:
        card, form = await self._allowed_card(request, "talk"), await read_body(request, Rate)
        recipe = self._service.agent_of(card).recipe if form.note else None
        await rate(self._service.journal, card.run_id, form.rating, form.note, recipe)
        return Json({"run_id": card.run_id, "rating": form.rating})

    async def delete(self, request: Request) -> Response:
        card = await self._allowed_card(request, "talk")
        if find_live(self._service.journal, card.run_id) is not None or card.status == "running":
            raise HttpRefused.of("serve.running", "run {run_id} is still running; stop it first", http=409, run_id=card.run_id)
        await self._service.before_deletion(caller_of(request), f"run:{card.run_id}", card.user)
        await self._service.journal.delete(card.run_id, cascade=request.query_params.get("cascade") in ("1", "true"))
        self.changes.announce_deleted(card.user, card.run_id)
        return Response(status_code=204)

    async def _allowed_card(self, request: Request, role: str, *, queued: bool = False) -> RunInfo:
        caller = caller_of(request, role)
        return await self._service.card(request.path_params["run_id"], caller, queued=queued)


async def _frame_chunks(
    stretches: AsyncGenerator[list[Chunk], None], frames: Frames, caller: Caller
) -> AsyncGenerator[Part, None]:
    """Yield frames. Only the frames are kept in memory while the client is waited for: it may never read them."""
    async for chunks in stretches:
        parts = join_parts(frames.take(chunks_for(chunks, caller)))
        chunks.clear()
        for part in parts:
            yield part


async def _frame_changes(changes: Changes, user: str | None, caller: Caller) -> AsyncGenerator[Part, None]:
    """Yield an event for each changed run. A deleted run is announced by its id, to its user and to administrators.

    A caller who answers for other users gets an empty event `questions` when one of their runs has changed.
    """
    yield event({}, "listening")
    async with aclosing(changes.watch()) as watching:
        async for news in watching:
            told = [event({"run_id": run_id}, "gone") if card is None else event(summary(card), "run")
                    for run_id, owner, card in news if user in (None, owner)]  # fmt: skip
            others = [card for _, owner, card in news if card is not None and user not in (None, owner)]
            if caller.answers_for_others and any(one.parent or caller.can_answer(one.user, one.agent) for one in others):
                told.append(event({}, "questions"))
            yield b"".join(told)


def is_read_to_its_end(card: RunInfo, after: int) -> bool:
    """Return True if no event of the run will follow that fact. A 204 then ends the reconnecting of an `EventSource`."""
    return card.status not in UNDER_WAY and after >= card.seq


def _closing_frame(frames: Frames) -> bytes:
    """Return the last event of a server that shuts down. It says from which fact to continue."""
    return event({"type": "status", "data": {"status": "closing", "after": frames.after}}, "closing")


def response_mode(request: Request, mode: str) -> str:
    """Return the mode of the response: "stream" if the client accepts only events, otherwise `mode`."""
    return "stream" if request.headers.get("accept", "").startswith("text/event-stream") else mode


def user_of(caller: Caller, user_id: str | None) -> str:
    """Return the user whose run it becomes.

    Raise `HttpRefused` if a caller other than an administrator names another user.
    """
    if user_id is None or user_id == caller.name:
        return caller.name
    if not caller.is_admin:
        raise HttpRefused.of("serve.other_user", "only an administrator can start runs for another user", http=403)
    return user_id


def user_input(given: Any) -> Any:
    """Return the input of a request.

    Raise `ConfigError` if a picture is given by its URL: fetching it would reach into our network.
    """
    for message in given if isinstance(given, list) else [given]:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            url = part.get("image_url") if isinstance(part, dict) else None
            address = url.get("url") if isinstance(url, dict) else url
            if address is not None and not str(address).startswith("data:"):
                raise ConfigError.of("serve.media", "an image must be sent as a data: URL, not as a web address")
    return given


def describe_run(card: RunInfo, result: Result[Any], caller: Caller, tools: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run as JSON: its card, how it ended or what it waits for, and its output."""
    stop = stop_for(result.stop, caller)
    return {
        **summary(card),
        "output": result.recorded,
        "text": result.text,
        "stop": {"kind": stop.kind, "detail": in_language(stop.detail, caller.language), "error": stop.error},
        "attempt": result.attempt,
        "questions": [question(result, key, tools, caller.language) for key in result.questions if stop.kind == "waiting"],
    }
