"""A2A 1.0: the runs of an agent as tasks, on the SDK of the protocol (JSON-RPC and REST).

A task is a run, and a context is a session. The journal is the only store.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import ParseDict
from google.protobuf.timestamp_pb2 import Timestamp
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ... import __version__
from ...agent.agent import Agent
from ...core.chunks import Chunk
from ...core.errors import AgentError, RunNotFound
from ...core.messages import Message
from ...core.people.asking import question_text
from ...core.runs import UNDER_WAY, RunInfo
from ...core.values import plain_text
from ...kernel.boundary import Failure, attempt
from ...run.attach import batches, batches_of
from ...run.request import new_run_id
from ...run.result import Result
from ...run.run import Run
from ..encoding import Json
from ..language import in_language
from ..problems import HIDDEN, stop_for, words_for
from ..service import Service, log
from ..users import Caller
from .conversation import is_own
from .transcript import TextTranscript

_STATES = {
    "completed": "COMPLETED",
    "degraded": "COMPLETED",
    "cancelled": "CANCELED",
    "waiting": "INPUT_REQUIRED",
    "running": "WORKING",
    "released": "WORKING",
}
_PAGE = 50
_QUESTION = "question"  # in the metadata of a message: the key of the question that it asks or answers


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of each agent: its card and both bindings.

    The card of the first agent is also at the well-known address.
    """
    found: list[BaseRoute] = [Route("/.well-known/agent-card.json", _card_of(service, ""))]
    for name, agent in service.agents.items():
        base, handler = f"/a2a/{name}", Tasks(service, agent)
        found.append(Route(f"{base}/.well-known/agent-card.json", _card_of(service, name)))
        for place in (f"{base}/", base):
            found += create_jsonrpc_routes(handler, place, context_builder=Builder())
        rest = create_rest_routes(handler, context_builder=Builder(), path_prefix=base)
        found += [
            route for route in rest if isinstance(route, Route)
        ]  # without the routes of tenants, which would match anything
    return found


class Builder(DefaultServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state["caller"] = request.scope["kaname.caller"]
        return context


def _card_of(service: Service, name: str) -> Any:
    async def card(request: Request) -> Response:
        agent = service.agent(name)
        place = f"{request.url.scheme}://{request.headers.get('host', 'localhost')}{request.scope.get('root_path', '')}"
        url = f"{place}/a2a/{quote(agent.name)}"
        kinds = ("JSONRPC", "HTTP+JSON")
        told = pb.AgentCard(
            name=agent.name,
            description=f"The agent {agent.name}, served by kaname",
            version=__version__,
            supported_interfaces=[pb.AgentInterface(url=url, protocol_binding=kind, protocol_version="1.0") for kind in kinds],
            capabilities=pb.AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain", "application/json"],
            skills=[_skill(agent)],
        )
        return Json(agent_card_to_dict(told), headers={"cache-control": "private, max-age=60"})

    return card


def _skill(agent: Agent[Any]) -> Any:
    text = f"Works with: {', '.join(sorted(agent.tools)) or 'no tools'}"
    return pb.AgentSkill(id=agent.name, name=agent.name, description=text, tags=sorted(agent.tools) or ["chat"])


class Tasks(RequestHandler):
    """The methods of the protocol, for one agent."""

    def __init__(self, service: Service, agent: Agent[Any]) -> None:
        self._service, self._agent = service, agent

    # Start and stream

    async def on_message_send(self, params: Any, context: ServerCallContext) -> Any:
        run, _ = await self._begin(params, context)
        if not params.configuration.return_immediately:
            await run.wait()
        return await self._task(run.run_id, _caller(context, "talk"))

    async def on_message_send_stream(self, params: Any, context: ServerCallContext) -> AsyncGenerator[Any, None]:
        run, after = await self._begin(params, context)
        stretches = batches_of(run.subscribe(after, wait_for_me=True))
        async for one in self._stream_task(run.run_id, stretches, _caller(context, "talk")):
            yield one

    async def on_subscribe_to_task(self, params: Any, context: ServerCallContext) -> AsyncGenerator[Any, None]:
        card = await self._card(params.id, context)
        if card.status not in UNDER_WAY:
            raise UnsupportedOperationError(message=f"task {card.run_id} is over: {card.status}")
        stretches = batches(self._service.journal, card.run_id, card.seq)
        async for one in self._stream_task(card.run_id, stretches, _caller(context, "read")):
            yield one

    async def _begin(self, params: Any, context: ServerCallContext) -> tuple[Run[Any], int]:
        caller, message = _caller(context, "talk"), params.message
        text = "\n".join([_text(part) for part in message.parts])
        after = 0
        if message.task_id:
            card = await self._card(message.task_id, context)
            if card.status == "running" and (here := self._service.run_here(card.run_id)) is not None:
                await self._agent.say(card.run_id, text, by=caller.name)
                return here, card.seq
            result = await self._agent.result(card.run_id)
            if not result.questions or result.stop.kind != "waiting":
                raise UnsupportedOperationError(message=f"task {card.run_id} takes no message: {card.status}")
            _caller(context, "approve")
            key, after = _named_question(message, result), card.seq
            run = await self._service.resume(card, {key: _answer(message, text)}, caller)
        else:
            run_id = new_run_id()
            run = self._agent.run(text, session_id=message.context_id or f"a2a-{run_id}", user_id=caller.name, run_id=run_id)
        try:
            begun = await attempt(self._service.begin, run, passing=(AgentError,))
        except AgentError as problem:
            raise InvalidParamsError(message=words_for(problem, caller)) from None
        if isinstance(begun, Failure):  # the SDK would show the whole exception
            log.warning("a run of %s did not begin: %s", self._agent.name, begun)
            raise InternalError(message=HIDDEN)
        return run, after

    async def _stream_task(
        self, run_id: str, stretches: AsyncGenerator[list[Chunk], None], caller: Caller
    ) -> AsyncGenerator[Any, None]:
        """Yield the task, its text as one artifact, and its status: how it ended or what it asks."""
        yield await self._task(run_id, caller, brief=True)
        (card,) = await self._service.journal.runs(run_id=run_id, limit=1)
        spoken, begun = TextTranscript(run_id), False
        async for chunks in stretches:
            for chunk in [one for one in chunks if is_own(one, run_id)]:
                text = spoken.take(chunk).decode()
                if replaced := spoken.withdrawn:
                    text, begun, spoken.withdrawn = _whole(spoken.said), False, False
                if text or replaced:
                    artifact = pb.Artifact(artifact_id=f"{run_id}-text", name="text", parts=[pb.Part(text=text)])
                    yield pb.TaskArtifactUpdateEvent(task_id=run_id, context_id=card.session, artifact=artifact, append=begun)
                    begun = True
        task = await self._task(run_id, caller)
        yield pb.TaskStatusUpdateEvent(task_id=run_id, context_id=card.session, status=task.status)

    # Read and list

    async def on_get_task(self, params: Any, context: ServerCallContext) -> Any:
        card = await self._card(params.id, context)
        task = await self._task(card.run_id, _caller(context, "read"))
        if params.HasField("history_length"):
            kept = list(task.history)[-params.history_length :] if params.history_length else []
            del task.history[:]
            task.history.extend(kept)
        return task

    async def on_list_tasks(self, params: Any, context: ServerCallContext) -> Any:
        caller = _caller(context, "read")
        user = caller.list_of()
        wanted: dict[str, Any] = {"agent": self._agent.name, "session": params.context_id, "user": user}
        size, before = params.page_size or _PAGE, int(params.page_token[:15]) if params.page_token.isdecimal() else 0
        tallies = await self._service.journal.count(**wanted)
        fitting = [one for one in tallies if not params.status or _state(one.status) == params.status]
        statuses = {one.status for one in fitting} if params.status else {""}
        found = [
            card for status in statuses for card in await self._list_outer_runs({**wanted, "status": status}, before, size + 1)
        ]
        found.sort(key=lambda card: -card.place)
        shown, following = found[:size], str(found[size - 1].place) if len(found) > size else ""
        total = sum([one.runs for one in fitting])
        tasks = [await self._task(card.run_id, caller, brief=not params.history_length) for card in shown]
        return pb.ListTasksResponse(tasks=tasks, next_page_token=following, page_size=size, total_size=total)

    async def _list_outer_runs(self, wanted: dict[str, Any], before: int, limit: int) -> list[RunInfo]:
        """Return the next runs that are not inside another run."""
        found: list[RunInfo] = []
        while len(found) < limit and (cards := await self._service.journal.runs(**wanted, before=before, limit=limit)):
            before = cards[-1].place
            found += [card for card in cards if not card.parent]
        return found[:limit]

    async def on_cancel_task(self, params: Any, context: ServerCallContext) -> Any:
        card = await self._card(params.id, context, "talk")
        if card.status not in UNDER_WAY:
            raise TaskNotCancelableError(message=f"task {card.run_id} is over: {card.status}")
        await self._service.stop(card)
        async for _ in batches(self._service.journal, card.run_id, card.seq):
            pass
        return await self._task(card.run_id, _caller(context, "talk"))

    async def _card(self, run_id: str, context: ServerCallContext, role: str = "read") -> RunInfo:
        try:
            card = await self._service.card(run_id, _caller(context, role))
        except RunNotFound:
            raise TaskNotFoundError(message=f"there is no task {run_id!r}") from None
        if card.agent != self._agent.name:
            raise TaskNotFoundError(message=f"there is no task {run_id!r}")
        return card

    async def _task(self, run_id: str, caller: Caller, *, brief: bool = False) -> Any:
        (card,) = await self._service.journal.runs(run_id=run_id, limit=1)
        result = await self._agent.result(run_id)
        when = Timestamp()
        when.FromNanoseconds(int(card.updated * 1e9))
        status = pb.TaskStatus(state=_state(result.stop.kind), timestamp=when)
        told = stop_for(result.stop, caller).detail if result.stop.kind not in ("completed", "degraded") else ""
        first = next(iter(result.questions.values()), None) if result.stop.kind == "waiting" else None
        if first is not None:  # one of several: a message answers one
            told = in_language(question_text(first), caller.language)
        if told:
            status.message.CopyFrom(_message(run_id, f"{run_id}-status", card.session, "agent", told))
        if first is not None:
            status.message.metadata.update({_QUESTION: first.key})
        if result.stop.error:
            status.message.metadata.update({"error": result.stop.error})
        task = pb.Task(id=run_id, context_id=card.session, status=status)
        if not brief:
            task.history.extend(_history(run_id, card.session, result))
            if result.stop.kind in ("completed", "degraded"):
                task.artifacts.append(_artifact(run_id, result))
        return task

    # Not supported

    async def on_create_task_push_notification_config(self, params: Any, context: ServerCallContext) -> Any:
        raise PushNotificationNotSupportedError

    on_get_task_push_notification_config = on_create_task_push_notification_config
    on_list_task_push_notification_configs = on_create_task_push_notification_config
    on_delete_task_push_notification_config = on_create_task_push_notification_config

    async def on_get_extended_agent_card(self, params: Any, context: ServerCallContext) -> Any:
        raise UnsupportedOperationError(message="there is no extended card")


def _caller(context: ServerCallContext, role: str) -> Caller:
    caller: Caller = context.state["caller"]
    if not caller.may(role):
        raise InvalidParamsError(message=f"this request needs the role {role!r}")
    return caller


def _state(kind: str) -> Any:
    return pb.TaskState.Value(f"TASK_STATE_{_STATES.get(kind, 'FAILED')}")


def _text(part: Any) -> str:
    kind = part.WhichOneof("content")
    if kind == "text":
        return str(part.text)
    if kind == "data":
        from google.protobuf.json_format import MessageToDict

        return json.dumps(MessageToDict(part.data), ensure_ascii=False)
    raise InvalidParamsError(message="only text and data parts are understood")


def _named_question(message: Any, result: Result[Any]) -> str:
    """Return the key of the question that a message answers: the first one, or the one that its metadata names."""
    named = str(message.metadata[_QUESTION]) if _QUESTION in message.metadata else next(iter(result.questions))
    if named not in result.questions:
        raise UnsupportedOperationError(message=f"the question {named!r} is no longer open")
    return named


def _answer(message: Any, text: str) -> Any:
    """Return the answer in a message: an object if it is a single data part, such as `{"args": …}`, otherwise the text."""
    (part, *more) = message.parts
    return json.loads(text) if part.WhichOneof("content") == "data" and not more else text


def _whole(text: str) -> str:
    """Replace half a surrogate pair, which protobuf does not accept."""
    return text.encode("utf-8", "replace").decode()


def _message(run_id: str, message_id: str, session: str, role: str, text: str) -> Any:
    kind = pb.Role.Value("ROLE_USER" if role == "user" else "ROLE_AGENT")
    return pb.Message(message_id=message_id, task_id=run_id, context_id=session, role=kind, parts=[pb.Part(text=_whole(text))])


def _history(run_id: str, session: str, result: Result[Any]) -> list[Any]:
    said: list[Message] = [one for one in result.state.turn if one.role in ("user", "assistant") and one.text]
    return [_message(run_id, f"{run_id}-{number}", session, one.role, one.text) for number, one in enumerate(said)]


def _artifact(run_id: str, result: Result[Any]) -> Any:
    output = result.recorded
    part = pb.Part(text=_whole(plain_text(output)))
    if isinstance(output, dict | list):
        part = pb.Part()
        ParseDict(output, part.data)
    return pb.Artifact(artifact_id=f"{run_id}-text", name="text", parts=[part])
