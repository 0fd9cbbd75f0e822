"""The ASGI application: the agents, the routes, and the guard in front of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from ..agent.agent import Agent
from ..config.build import Config, load_config
from ..core.durations import seconds
from ..core.errors import AgentError, ConfigError, JournalError
from ..designs.orchestrator.orchestrator import AgentOrchestrator, agent_behind
from ..kernel.ports import Probes
from ..memory.retention import Keep, keep_pruning
from ..stores.default import choose
from ..workflows.configured import configured_parts
from ..workflows.workflow import Workflow
from .access.auditor import Auditor, audit_of
from .access.cookies import SignIns
from .access.signin import Access, SignInRoutes, share_roles
from .dialects.ag_ui import AgUi
from .dialects.chat import Chat
from .dialects.optional import optional_protocols
from .dialects.responses import Responses
from .dialects.vercel import Vercel
from .encoding import Json
from .guard import HOOKS, MEDIA, RequestGuard, RequestLimits, Who
from .openapi import document
from .page.approvals import ApprovalRoutes
from .page.comparing import CompareRoutes
from .page.evaluations import EvaluationRoutes
from .page.facts import FactRoutes
from .page.figures import FigureRoutes
from .page.files import Files
from .page.learning import LearningRoutes
from .page.media import MediaRoutes
from .page.memories import MemoryRoutes
from .problems import handle_error
from .questions import SHOWN, Shown
from .runs import RunRoutes
from .service import STOP, OnDisconnect, Service
from .sessions import SessionRoutes
from .stream import Streams
from .uploads import Uploads
from .users import Users, users_file, users_named_by
from .work.hooks import HookRoutes
from .work.notify import Notifiers
from .work.recovery import Recovery
from .work.routes import WorkRoutes

if TYPE_CHECKING:
    from ..kernel.ports import Journal, Sink
    from ..stores.audit.log import AuditLog

_READY_SECONDS = 2.0
_READY_AGAIN = 1.0  # seconds for which an answer is reused
_WHOLE_RUNS = 8  # whole runs that are read at the same time
log = getLogger("kaname.serve")
Handler = Callable[[Request], Awaitable[Response]]
Work = Callable[[], Coroutine[Any, Any, None]]


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
    proxies: Iterable[str] = (),
    sinks: Iterable[Sink] = (),
    recover: bool = True,
    keep: Keep | None = None,
    mcp: bool | None = None,
    a2a: bool | None = None,
    on_disconnect: OnDisconnect | None = None,
    audit: AuditLog | str | Path | bool | None = None,
    approvers_see: Shown | Mapping[str, Shown] | None = None,
) -> Application:
    """Make an ASGI application of agents. Mount it in yours, or run it with `kaname serve`.

    Args:
        agents: A `Config`, the path of one, an agent, a workflow, an orchestrator, or a list of these.
        users: A `Users`, or the path of its file (default: `users.json` next to the journal, and `KANAME_TOKEN`). Without
            users, only direct requests from this machine are answered.
        who: A function that returns the `Caller` of an ASGI scope, or None to refuse it. Replaces `users`.
        journal: The journal, or its path, instead of the one that the agents or the file name.
        hosts, origins: More accepted `Host` headers, and the origins of pages that are allowed to send requests.
        proxies: Addresses or networks of the proxies in front of the server, in addition to those in the file. Only their
            `X-Forwarded-For` says where a request came from.
        limits, sinks: `RequestLimits` of size and rate, and sinks for the facts of all runs, in addition to each agent's own.
        recover: Resume runs that a crash has interrupted (default: True).
        keep: How long ended runs are kept. By default as the file says, otherwise forever.
        mcp, a2a: Serve these protocols. By default if their packages are installed.
        on_disconnect: "stop" or "continue" a run whose client closes the connection. By default as the file says, otherwise
            "stop".
        audit: An `AuditLog`, its path, or False for none (default: as the file says, otherwise `audit.log` next to the
            journal; none for a journal in memory).
        approvers_see: What people see who answer questions for other users: "nothing", "call" (default), "turn" or "run". One
            value for all agents, or a mapping from the names of agents. Replaces what the file says.

    Raises:
        ConfigError: If the agents have equal names or different journals, a proxy is not an address, `approvers_see` has an
            unknown value or agent, or the file has mistakes.
        AuditError: If the audit log cannot be written.
    """
    config, served = _load_served(agents, journal)
    in_file = {} if config is None else config.value.get("serve") or {}
    workflows = [one for one in served if isinstance(one, Workflow)]
    leaving = on_disconnect or in_file.get("on_disconnect") or STOP
    service = Service(_agents(served, tuple(sinks), journal), workflows, leaving)
    service.auditor = Auditor(audit_of(audit, service.journal, config), service.journal)
    service.shown = _shown(approvers_see, service, config)
    streams = Streams()
    uploads = Uploads(service, (limits or RequestLimits()).files)
    runs = RunRoutes(service, streams, uploads)
    kept = config.keep if keep is None and config is not None else keep
    background = _background(service, runs, kept, config)
    access = _access(users, service, config) if who is None else Access(None, None, service.auditor)
    share_roles(service.agents.values(), access.roles_of)
    service.auditor.note_permissions(service.agents.values(), access.users)
    inner = Starlette(
        routes=[
            *SignInRoutes(access).routes(),
            *_routes(service, streams, runs, uploads),
            *_more_routes(service, config, mcp, a2a),
        ],
        exception_handlers={AgentError: handle_error, HTTPException: handle_error, Exception: handle_error},
        lifespan=_lifespan(service, recover, background),
    )
    inner.router.redirect_slashes = False
    guarded = RequestGuard(
        inner,
        access=access,
        who=who,
        hosts=hosts,
        origins=origins,
        limits=limits,
        proxies=[*in_file.get("proxies", ()), *([proxies] if isinstance(proxies, str) else proxies)],
    )
    return Application(service, guarded, streams, inner)


def _shown(given: Shown | Mapping[str, Shown] | None, service: Service, config: Config | None) -> dict[str, Shown]:
    """Return what the agents show to people who answer for other users, where the program or the file says it."""
    agents = {} if config is None else config.value.get("agents") or {}
    in_file = {name: one["approvers_see"] for name, one in agents.items() if one and one.get("approvers_see")}
    own = {} if given is None else given if isinstance(given, Mapping) else dict.fromkeys(service.agents, given)
    for name, shown in own.items():
        if name not in service.agents or shown not in SHOWN:
            raise ConfigError.of(
                "serve.approvers_see",
                "approvers_see must be one of {values}, or map the names of served agents ({agents}) to one: "
                "not {shown!r} for {name!r}",
                values=", ".join(SHOWN),
                agents=", ".join(service.agents),
                shown=shown,
                name=name,
            )
    return {**in_file, **own}


def _access(given: Users | str | Path | None, service: Service, config: Config | None) -> Access:
    """Return who can sign in: the users, the sign-ins of the page, and the OpenID provider of the file."""
    settings = {} if config is None else config.value.get("serve") or {}
    if given is None:
        named = None if config is None else users_named_by(config)
        users = Users.from_environment(named or users_file(service.journal))
    else:
        users = given if isinstance(given, Users) else Users(given)
    place = (users.path or users_file(service.journal)).with_name("signed_in.json")
    longest = seconds(settings["session"]) if settings.get("session") else None
    provider = None
    if settings.get("oidc"):
        from .access.oidc import Provider

        provider = Provider(**settings["oidc"])
        users.close()
    return Access(users, SignIns(place, users, longest), service.auditor, provider)


def _load_served(
    given: Config | Served | Iterable[Served] | str | Path, journal: Journal | str | Path | None
) -> tuple[Config | None, list[Any]]:
    """Return the configuration, if one is given, and the agents and workflows."""
    found = load_config(given) if isinstance(given, str | Path) else given
    if isinstance(found, Config):
        return found, _load_config(found, journal)
    return None, [*found] if isinstance(found, Iterable) else [found]


def _load_config(config: Config, journal: Journal | str | Path | None) -> list[Served]:
    """Return the agents and workflows of a configuration, and say in them where they come from."""
    parts = configured_parts(config, journal)
    origin = {"folder": str(Path.cwd()), "config": [str(Path(file).resolve()) for file in config.files]}
    for part in parts:
        part.origin = {**origin, **(part.origin if isinstance(part, Workflow) else {"agent": part.name})}
        if isinstance(part, Workflow):
            part.agent.origin = part.origin
    return list(parts)


def _agents(given: Iterable[Any], sinks: tuple[Sink, ...], journal: Journal | str | Path | None) -> list[Agent[Any]]:
    served = [agent_behind(one) for one in given]
    found = [one for one in served if one is not None]
    if len(found) != len(served):
        raise ConfigError.of("serve.what", "app() expects a Config, the path of one, an Agent, or a list of Agents")
    chosen = None if journal is None else choose(journal)  # one for all: each "memory" would be another
    for agent in found:
        agent.sinks = (*agent.sinks, *sinks)
        agent.journal = chosen or agent.journal
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


def _routes(service: Service, streams: Streams, runs: RunRoutes, uploads: Uploads) -> list[BaseRoute]:
    whole = _few_at_once(_WHOLE_RUNS)
    sessions = SessionRoutes(service, runs.changes)
    files, facts, memories = Files(), FactRoutes(service, streams), MemoryRoutes(service)
    approvals, evaluations = ApprovalRoutes(service), EvaluationRoutes(service)
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
        Route(MEDIA, uploads.add, methods=["POST"]),
        Route("/api/me", sessions.me),
        Route("/api/figures", FigureRoutes(service).figures),
        Route("/api/compare", whole(CompareRoutes(service).compare)),
        Route("/api/evaluations", whole(evaluations.all)),
        Route("/api/evaluations/cases", evaluations.add, methods=["POST"]),
        Route("/api/evaluations/compare", whole(evaluations.compare)),
        Route("/api/evaluations/{run_id}", whole(evaluations.get)),
        *LearningRoutes(service).routes(whole),
        Route("/api/memory", memories.all),
        Route("/api/memory", memories.add, methods=["POST"]),
        Route("/api/memory/{number}", memories.correct, methods=["PATCH"]),
        Route("/api/memory/{number}", memories.forget, methods=["DELETE"]),
        Route(f"{one}/facts", whole(facts.facts)),
        Route(f"{one}/media/{{hash}}", whole(MediaRoutes(service).media)),
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
        *_dialects(service, streams, whole),
    ]


def _dialects(service: Service, streams: Streams, whole: Callable[[Handler], Handler]) -> list[BaseRoute]:
    """Return the routes of other protocols."""
    chat, responses = Chat(service, streams), Responses(service, streams)
    ag_ui, vercel = AgUi(service, streams), Vercel(service, streams)
    return [
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


def _more_routes(service: Service, config: Config | None, mcp: bool | None, a2a: bool | None) -> list[BaseRoute]:
    work, hooks = WorkRoutes(service), HookRoutes(service, {} if config is None else config.value.get("triggers") or {})
    return [
        Route("/api/work", work.get),
        Route("/api/work/{action}/{name:path}", work.steer, methods=["POST"]),
        Route("/metrics", work.metrics),
        Route(f"{HOOKS}{{name}}", hooks.receive, methods=["POST"]),
        *optional_protocols(service, mcp, a2a),
    ]


def _background(service: Service, runs: RunRoutes, keep: Keep | None, config: Config | None) -> list[Work]:
    """Return what the server does besides answering."""
    works: list[Work] = [service.keep_removing_unstored, service.auditor.keep_following, service.auditor.keep_counting]
    works.append(Notifiers(service, {} if config is None else config.value.get("notify") or {}).keep_notifying)
    if keep is not None:
        gone = partial(runs.changes.announce_deleted, None)
        works.append(lambda: keep_pruning(service.journal, keep, gone, service.auditor.before_deleting))
    return works


def _lifespan(service: Service, recover: bool, background: list[Work]) -> Callable[[Starlette], Any]:
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
