"""The ASGI application: the agents, the routes, and the guard in front of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cached_property, partial
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from ..agent.agent import Agent
from ..config.build import Config, load_config
from ..core.errors import AgentError, ConfigError, JournalError
from ..core.notices import notice
from ..designs.orchestrator.orchestrator import AgentOrchestrator, agent_behind
from ..journals.default import choose
from ..kernel.ports import Probes
from ..memory.retention import Keep, keep_pruning
from ..workflows.configured import configured_workflows
from ..workflows.workflow import Workflow
from .dialects.ag_ui import AgUi
from .dialects.chat import Chat
from .dialects.responses import Responses
from .dialects.vercel import Vercel
from .encoding import Json
from .guard import RequestGuard, RequestLimits, Who
from .openapi import document
from .page.approvals import ApprovalRoutes
from .page.comparing import CompareRoutes
from .page.facts import FactRoutes
from .page.figures import FigureRoutes
from .page.files import Files
from .page.memories import MemoryRoutes
from .problems import handle_error
from .recovery import Recovery
from .runs import RunRoutes
from .service import STOP, OnDisconnect, Service
from .sessions import SessionRoutes
from .stream import Streams
from .users import Users, users_file, users_named_by

if TYPE_CHECKING:
    from ..kernel.ports import Journal, Sink

_READY_SECONDS = 2.0
_READY_AGAIN = 1.0  # seconds for which an answer is reused
_WHOLE_RUNS = 8  # whole runs that are read at the same time
log = getLogger("kaname.serve")
Handler = Callable[[Request], Awaitable[Response]]


class Application:
    """An ASGI application.

    If you mount it in another application, use `lifespan` as the lifespan of that one: it resumes interrupted runs at the start
    and releases the runs at the end. `closing()` ends the open streams and releases the runs; a server calls it before it waits
    for its connections to end.
    """

    def __init__(self, service: Service, guarded: RequestGuard, streams: Streams, inner: Starlette) -> None:
        self.service, self._guarded, self._streams, self._inner = service, guarded, streams, inner

    @property
    def open(self) -> bool:
        """Return True while no token is needed: there are no users, and the program did not pass `who`."""
        return self._guarded.is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, outer: Any = None) -> AsyncIterator[None]:
        async with self._inner.router.lifespan_context(self._inner):
            yield
            await self._streams.close()

    async def closing(self) -> None:
        await self._streams.close()
        await self.service.close()


Served = Agent[Any] | Workflow | AgentOrchestrator


def app(
    agents: Config | Served | Iterable[Served] | str | Path,
    *,
    users: Users | str | Path | None = None,
    who: Who | None = None,
    journal: Journal | str | Path | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    limits: RequestLimits | None = None,
    sinks: Iterable[Sink] = (),
    recover: bool = True,
    keep: Keep | None = None,
    mcp: bool | None = None,
    a2a: bool | None = None,
    on_disconnect: OnDisconnect | None = None,
) -> Application:
    """Make an ASGI application of agents. Mount it in yours, or run it with `kaname serve`.

    Args:
        agents: A `Config`, the path of one, an agent, a workflow, an orchestrator, or a list of these.
        users: A `Users`, or the path of its file (default: `users.json` next to the journal, and `KANAME_TOKEN`). Without
            users, only direct requests from this machine are answered.
        who: A function that returns the `Caller` of an ASGI scope, or None to refuse it. Replaces `users`.
        journal: The journal, or its path, instead of the one that the agents or the file name.
        hosts, origins: More accepted `Host` headers, and the origins of pages that are allowed to send requests.
        limits, sinks: `RequestLimits` of size and rate, and sinks for the facts of all runs, in addition to each agent's own.
        recover: Resume runs that a crash has interrupted (default: True).
        keep: How long ended runs are kept. By default as the file says, otherwise forever.
        mcp, a2a: Serve these protocols. By default if their packages are installed.
        on_disconnect: "stop" or "continue" a run whose client closes the connection. By default as the file says, otherwise
            "stop".

    Raises:
        ConfigError: If the agents have equal names or different journals, or the file has mistakes.
    """
    listed = [*agents] if isinstance(agents, Iterable) and not isinstance(agents, str | Config) else agents
    listed = load_config(listed) if isinstance(listed, str | Path) else listed
    in_file = (listed.value.get("serve") or {}).get("on_disconnect") if isinstance(listed, Config) else None
    served = _load_served(listed, journal) if isinstance(listed, Config) else listed if isinstance(listed, list) else [listed]
    workflows = [one for one in served if isinstance(one, Workflow)]
    service = Service(_agents(served, tuple(sinks), journal), workflows, on_disconnect or in_file or STOP)
    streams = Streams()
    runs = RunRoutes(service, streams)
    kept = listed.keep if keep is None and isinstance(listed, Config) else keep
    background: list[Callable[[], Coroutine[Any, Any, None]]] = [service.keep_removing_unstored]
    background += (
        [] if kept is None else [lambda: keep_pruning(service.journal, kept, partial(runs.changes.announce_deleted, None))]
    )
    inner = Starlette(
        routes=[*_routes(service, streams, runs), *_optional_protocols(service, mcp, a2a)],
        exception_handlers={AgentError: handle_error, HTTPException: handle_error, Exception: handle_error},
        lifespan=_lifespan(service, recover, background),
    )
    inner.router.redirect_slashes = False
    known = Users(users) if isinstance(users, str | Path) else users
    if known is None and who is None:
        named = users_named_by(listed) if isinstance(listed, Config) else None
        known = Users.from_environment(named or users_file(service.journal))
    guarded = RequestGuard(inner, users=known, who=who, hosts=hosts, origins=origins, limits=limits)
    return Application(service, guarded, streams, inner)


def _load_served(config: Config, journal: Journal | str | Path | None) -> list[Served]:
    """Return the agents and workflows of a configuration. All of them use one journal."""
    shared = choose(journal or config.agent().journal_path or None)
    agents = {name: Agent.from_config(config, agent=name, journal=shared) for name in config.agents}
    workflows = configured_workflows(config, agents, shared)
    origin = {"folder": str(Path.cwd()), "config": [str(Path(file).resolve()) for file in config.files]}
    for agent in agents.values():
        agent.origin = {**origin, "agent": agent.name}
    for flow in workflows:
        flow.origin = {**origin, **flow.origin}
    return [*agents.values(), *workflows]


def _agents(given: Iterable[Any], sinks: tuple[Sink, ...], journal: Journal | str | Path | None) -> list[Agent[Any]]:
    served = [agent_behind(one) for one in given]
    found = [one for one in served if one is not None]
    if len(found) != len(served):
        raise ConfigError(notice("serve.what", "app() expects a Config, the path of one, an Agent, or a list of Agents"))
    for agent in found:
        agent.sinks = (*agent.sinks, *sinks)
        agent.journal = agent.journal if journal is None else choose(journal)
    return found


def _few_at_once(count: int) -> Callable[[Handler], Handler]:
    """Return a decorator that lets only `count` requests be handled at the same time, over all decorated handlers.

    Each request may read a whole run into memory, and one thread reads for all of them: more at once would only need more
    memory. Sending the response is not counted.
    """
    room = asyncio.Semaphore(count)

    def limit(handler: Handler) -> Handler:
        async def within(request: Request) -> Response:
            async with room:
                return await handler(request)

        return within

    return limit


def _routes(service: Service, streams: Streams, runs: RunRoutes) -> list[BaseRoute]:
    whole = _few_at_once(_WHOLE_RUNS)
    sessions = SessionRoutes(service, runs.changes)
    chat, responses = Chat(service, streams), Responses(service, streams)
    ag_ui, vercel = AgUi(service, streams), Vercel(service, streams)
    files, facts, memories = Files(), FactRoutes(service, streams), MemoryRoutes(service)
    approvals = ApprovalRoutes(service)
    one = "/api/runs/{run_id:path}"
    return [
        Route("/", files.first),
        Route("/page/{name:path}", files.file),
        Route("/healthz", _healthy),
        Route("/readyz", Ready(service).ready),
        Route("/openapi.json", _document),
        Route("/api/agents", sessions.agents),
        Route("/api/runs", runs.all),
        Route("/api/runs", runs.start, methods=["POST"]),
        Route("/api/me", sessions.me),
        Route("/api/figures", FigureRoutes(service).figures),
        Route("/api/compare", whole(CompareRoutes(service).compare)),
        Route("/api/memory", memories.all),
        Route("/api/memory", memories.add, methods=["POST"]),
        Route("/api/memory/{number}", memories.correct, methods=["PATCH"]),
        Route("/api/memory/{number}", memories.forget, methods=["DELETE"]),
        Route(f"{one}/facts", whole(facts.facts)),
        Route(f"{one}/state", whole(facts.state)),
        Route(f"{one}/test", whole(facts.test)),
        Route(f"{one}/rating", runs.rate, methods=["POST"]),
        Route(f"{one}/events", runs.follow),
        Route(f"{one}/story", whole(runs.story)),
        Route(f"{one}/messages", whole(runs.messages)),
        Route(f"{one}/messages", runs.say, methods=["POST"]),
        Route(f"{one}/stop", runs.stop, methods=["POST"]),
        Route(f"{one}/answers", runs.answer, methods=["POST"]),
        Route(f"{one}/resume", runs.resume, methods=["POST"]),
        Route(f"{one}/fork", runs.fork, methods=["POST"]),
        Route(f"{one}/replay", runs.replay, methods=["POST"]),
        Route(one, whole(runs.get)),
        Route(one, runs.delete, methods=["DELETE"]),
        Route("/api/questions", sessions.questions),
        Route("/api/approvals", approvals.all),
        Route("/api/approvals/{grant_id:path}", approvals.revoke, methods=["DELETE"]),
        Route("/api/sessions", sessions.all),
        Route("/api/sessions/{session_id:path}", whole(sessions.get)),
        Route("/api/sessions/{session_id:path}", sessions.rename, methods=["PATCH"]),
        Route("/api/sessions/{session_id:path}", sessions.delete, methods=["DELETE"]),
        Route("/v1/models", chat.models),
        Route("/v1/models/{name:path}", chat.model),
        Route("/v1/chat/completions", chat.complete, methods=["POST"]),
        Route("/v1/responses", responses.create, methods=["POST"]),
        Route("/v1/responses/{response_id:path}/cancel", responses.cancel, methods=["POST"]),
        Route("/v1/responses/{response_id:path}", whole(responses.get)),
        Route("/v1/responses/{response_id:path}", responses.delete, methods=["DELETE"]),
        Route("/ag-ui", ag_ui.run, methods=["POST"]),
        Route("/ag-ui/{agent:path}", ag_ui.run, methods=["POST"]),
        Route("/vercel", vercel.run, methods=["POST"]),
        Route("/vercel/{agent:path}", vercel.run, methods=["POST"]),
    ]


def _optional_protocols(service: Service, mcp: bool | None, a2a: bool | None) -> list[BaseRoute]:
    """The protocols that come with packages of their own."""
    from importlib.util import find_spec

    found: list[BaseRoute] = []
    if mcp or (mcp is None and find_spec("fastmcp") is not None):
        from .dialects.mcp import Lazy

        lazy = Lazy(service)
        found += [Route("/mcp", lazy), Mount("/mcp", app=lazy)]
    if a2a or (a2a is None and find_spec("a2a") is not None):
        found.append(Later(("/a2a/", "/.well-known/agent-card.json"), lambda: _a2a(service)))
    return found


def _a2a(service: Service) -> list[BaseRoute]:
    from .dialects.a2a import routes

    return routes(service)


class Later(BaseRoute):
    """Routes that are made on the first request to one of them: the package of a protocol may take long to import."""

    def __init__(self, places: tuple[str, ...], make: Callable[[], list[BaseRoute]]) -> None:
        self._places, self._make = places, make

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        ours = scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")).startswith(self._places)
        return (Match.FULL, {}) if ours else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    @cached_property
    def _router(self) -> Router:
        return Router(self._make(), redirect_slashes=False)


def _lifespan(
    service: Service, recover: bool, background: list[Callable[[], Coroutine[Any, Any, None]]]
) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(inner: Starlette) -> AsyncIterator[None]:
        recovery = Recovery(service)
        works = [*([recovery.keep_looking] if recover else []), *background]
        going = [asyncio.create_task(work()) for work in works]
        async with AsyncExitStack() as stack:
            for mounted in [route.app for route in inner.routes if isinstance(route, Mount)]:
                if (inner_lifespan := getattr(mounted, "lifespan", None)) is not None:
                    await stack.enter_async_context(inner_lifespan())
            try:
                yield
            finally:
                recovery.close()
                for task in going:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                await service.close()

    return lifespan


async def _healthy(request: Request) -> Response:
    return Json({"status": "ok"})


class Ready:
    """`/readyz`: return 200 if the server can take work: the journal can be written to, and the server is not shutting down.

    A trial write costs a sync of the disk, and a request needs no token. So all requests within a second get the same answer.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._asked, self._looking = -_READY_AGAIN, asyncio.Lock()
        self._obstacle = ""

    async def ready(self, request: Request) -> Response:
        async with self._looking:
            if time.monotonic() - self._asked >= _READY_AGAIN:
                await self._look()
        if self._obstacle:
            return Json({"status": self._obstacle}, 503)
        return Json({"status": "closing"}, 503) if self._service.closing else Json({"status": "ready"})

    async def _look(self) -> None:
        journal: object = self._service.journal
        before, self._obstacle, why = self._obstacle, "", ""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await (journal.probe() if isinstance(journal, Probes) else self._service.journal.runs(limit=1))
        except TimeoutError:
            self._obstacle, why = "the journal does not answer", f"no answer within {_READY_SECONDS} s"
        except JournalError as problem:
            self._obstacle, why = "the journal cannot be written to", " | ".join(str(problem).splitlines())
        self._asked = time.monotonic()
        if before != self._obstacle:
            log.warning("not ready: %s", why) if why else log.warning("ready again: the journal can be written to")


async def _document(request: Request) -> Response:
    return Json(document(request.scope.get("root_path", "")))
