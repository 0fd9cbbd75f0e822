"""The ASGI application: the agents, the routes, and the guard in front of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
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

from ..agent.agent import Agent
from ..agent.work.worker import Worker
from ..config.build import Config, load_config
from ..core.durations import seconds
from ..core.errors import AgentError, ConfigError, JournalError
from ..designs.orchestrator.orchestrator import AgentOrchestrator, agent_behind
from ..memory.retention import Keep, keep_pruning
from ..run.run import GRACE
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
from .forms import (
    AddCase,
    Answers,
    ChangeLesson,
    Correction,
    Fork,
    Rate,
    Remember,
    Rename,
    Resume,
    SayToRun,
    SignInForm,
    StartRun,
    StopRun,
)
from .guard import HOOKS, MEDIA, RequestGuard, RequestLimits, Who
from .openapi import EVENTS, JSON, ApiRoute, document
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
from .runs import RunRoutes
from .service import SHOWN, STOP, OnDisconnect, Service, Shown
from .sessions import SessionRoutes
from .stream import Streams
from .uploads import Uploads
from .users import Users, users_file, users_named_by
from .work.hooks import HookRoutes
from .work.notify import Notifiers
from .work.routes import WorkRoutes

if TYPE_CHECKING:
    from ..kernel.ports import Journal, Sink
    from ..stores.audit.log import AuditLog

_READY_SECONDS = 2.0
_READY_AGAIN = 1.0  # seconds for which an answer is reused
_ENDING = 5.0  # seconds that the worker has to end after its runs
_AT_ONCE = 256  # runs that the server takes at the same time, in addition to those of requests
FILE = "application/octet-stream"
log = getLogger("kaname.serve")
Work = Callable[[], Coroutine[Any, Any, None]]


class Application(RequestGuard):
    """An ASGI application: the guard in front of the routes.

    If you mount it in another application, use `lifespan` as the lifespan of that one: it resumes interrupted runs at the start
    and releases the runs at the end. `closing()` ends the open streams and releases the runs; a server calls it before it waits
    for its connections to end.
    """

    def __init__(self, service: Service, streams: Streams, inner: Starlette, access: Access, **rules: Any) -> None:
        super().__init__(inner, access=access, **rules)
        self.service, self._streams, self._routed = service, streams, inner

    @asynccontextmanager
    async def lifespan(self, outer: Any = None) -> AsyncIterator[None]:
        async with self._routed.router.lifespan_context(self._routed):
            yield
            await self._streams.close()

    async def closing(self) -> None:
        await self._streams.close()
        await self.service.close()

    def hurry(self) -> None:
        """Cut the tool calls that `closing` waits for."""
        self.service.hurry()


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
    grace: float | None = None,
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
        grace: Seconds that tool calls under way have to end when the server shuts down. By default as the file says, otherwise
            10. 0 cuts them at once.

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
    service.grace = in_file.get("grace", GRACE) if grace is None else grace
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
        routes=[*_routes(service, streams, runs, uploads, access), *_more_routes(service, config, mcp, a2a)],
        exception_handlers={AgentError: handle_error, HTTPException: handle_error, Exception: handle_error},
        lifespan=_lifespan(service, recover, background),
    )
    addresses = [*inner.routes]

    async def describe(request: Request) -> Response:
        return Json(document(addresses, request.scope.get("root_path", "")))

    inner.add_route("/openapi.json", describe)

    inner.router.redirect_slashes = False
    proxies = [*in_file.get("proxies", ()), *([proxies] if isinstance(proxies, str) else proxies)]
    return Application(service, streams, inner, access, who=who, hosts=hosts, origins=origins, limits=limits, proxies=proxies)


def _shown(given: Shown | Mapping[str, Shown] | None, service: Service, config: Config | None) -> dict[str, Shown]:
    """Return the parts of questions that each agent shows to people who answer for other users, as the program or the file sets
    them."""
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
    """Return the ways to sign in: the users, the sign-ins of the page, and the OpenID provider of the file."""
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


def _routes(service: Service, streams: Streams, runs: RunRoutes, uploads: Uploads, access: Access) -> list[BaseRoute]:
    """Return the addresses of the page and of the native API, and those of other protocols."""
    whole = service.readers.in_turn
    files, facts, memories, signing = Files(), FactRoutes(service, streams), MemoryRoutes(service), SignInRoutes(access)
    sessions, approvals, evals = SessionRoutes(service, runs.changes), ApprovalRoutes(service), EvaluationRoutes(service)
    figures, learning, media = whole(FigureRoutes(service).figures), LearningRoutes(service), MediaRoutes(service)
    run, memory, session = "/api/runs/{run_id:path}", "/api/memory", "/api/sessions/{session_id:path}"
    both = (JSON, EVENTS)
    addresses: list[BaseRoute] = [
        Route("/", files.first),
        Route("/page/{name:path}", files.file),
        ApiRoute("/healthz", _healthy, "Check that the server is up"),
        ApiRoute("/readyz", Ready(service).ready, "Check that the server can take work"),
        ApiRoute("/api/signin", signing.ways, "List the ways to sign in to the page"),
        ApiRoute("/api/signin", signing.sign_in, "Sign in to the page with a token, for a cookie", "POST", SignInForm),
        ApiRoute("/api/signout", signing.sign_out, "Sign out of the page", "POST", answers=()),
        Route("/signin/oidc", signing.go_to_provider),
        Route("/signin/callback", signing.come_back),
        ApiRoute("/api/agents", sessions.agents, "List the agents"),
        ApiRoute("/api/me", sessions.me, "Get the name and the roles of the caller"),
        ApiRoute(
            "/api/runs",
            whole(runs.all),
            "List and search runs",
            "GET",
            None,
            "agent session_id status user_id q before limit",
            both,
        ),
        ApiRoute("/api/runs", runs.start, "Start a run: wait for it, stream it, or detach", "POST", StartRun, answers=both),
        ApiRoute(MEDIA, uploads.add, "Upload a file (application/octet-stream) for a message", "POST", query="name"),
        ApiRoute("/api/figures", figures, "Get metrics by day: success, cost, tools", query="agent user_id days"),
        ApiRoute("/api/compare", whole(CompareRoutes(service).compare), "Compare two runs line by line", query="one other"),
        ApiRoute("/api/evaluations", whole(evals.all), "List evaluations", query="name limit"),
        ApiRoute("/api/evaluations/cases", evals.add, "Add a recorded run to the evaluation cases", "POST", AddCase),
        ApiRoute("/api/evaluations/compare", whole(evals.compare), "Compare two evaluations", query="one other"),
        ApiRoute("/api/evaluations/{run_id}", whole(evals.get), "Get the report of an evaluation"),
        ApiRoute("/api/learning", whole(learning.overview), "Get failures by cause, successes, lessons", query="agent limit"),
        ApiRoute("/api/learning/lessons/{lesson_id}", learning.change, "Approve or roll back a lesson", "POST", ChangeLesson),
        ApiRoute(memory, memories.all, "List and search memories", query="agent of user_id q past"),
        ApiRoute(memory, memories.add, "Add a memory", "POST", Remember, "agent of user_id"),
        ApiRoute(f"{memory}/{{number}}", memories.correct, "Correct a memory", "PATCH", Correction, "agent of user_id"),
        ApiRoute(f"{memory}/{{number}}", memories.forget, "Delete a memory", "DELETE", query="agent of user_id", answers=()),
        ApiRoute(
            f"{run}/facts", whole(facts.facts), "List facts; as a stream, also new ones", "GET", None, "after whole upto", both
        ),
        ApiRoute(f"{run}/media/{{hash}}", whole(media.media), "Get a picture, sound or file", answers=(FILE,)),
        ApiRoute(f"{run}/state", whole(facts.state), "Get the messages for the model after a fact, and open calls", query="at"),
        ApiRoute(f"{run}/test", whole(facts.test), "Get the run as a test for pytest", answers=("text/x-python",)),
        ApiRoute(f"{run}/rating", runs.rate, "Rate a run as good or bad", "POST", Rate),
        ApiRoute(
            f"{run}/events", runs.follow, "Follow a run, after `Last-Event-ID` or `after`", "GET", None, "after", (EVENTS,)
        ),
        ApiRoute(f"{run}/story", whole(runs.story), "List the chunks of a run so far", query="after limit"),
        ApiRoute(f"{run}/messages", whole(runs.messages), "Get the conversation, in the OpenAI shapes"),
        ApiRoute(f"{run}/messages", runs.say, "Say something to a run while it works", "POST", SayToRun),
        ApiRoute(f"{run}/stop", runs.stop, "Stop a run, wherever it is executed", "POST", StopRun),
        ApiRoute(f"{run}/answers", runs.answer, "Answer the questions of a run and resume it", "POST", Answers, answers=both),
        ApiRoute(f"{run}/resume", runs.resume, "Resume a run after a crash or a stop", "POST", Resume, answers=both),
        ApiRoute(f"{run}/fork", runs.fork, "Start a new run that continues this one from a fact", "POST", Fork, answers=both),
        ApiRoute(f"{run}/replay", whole(runs.replay), "Replay a run offline and compare its decisions", "POST"),
        ApiRoute(run, whole(runs.get), "Get a run: status, output, open questions"),
        ApiRoute(run, runs.delete, "Delete a run", "DELETE", query="cascade", answers=()),
        ApiRoute("/api/questions", whole(sessions.questions), "List the questions that wait for answers", query="before limit"),
        ApiRoute("/api/approvals", approvals.all, "List the approvals that hold for later calls"),
        ApiRoute("/api/approvals/{grant_id:path}", approvals.revoke, "Revoke an approval", "DELETE", answers=()),
        ApiRoute("/api/sessions", whole(sessions.all), "List and search sessions", query="agent user_id q before limit"),
        ApiRoute(session, whole(sessions.get), "Get a session with its messages", query="agent"),
        ApiRoute(session, sessions.rename, "Rename a session", "PATCH", Rename, "agent"),
        ApiRoute(session, sessions.delete, "Delete a session and its runs", "DELETE", query="agent", answers=()),
    ]
    return [*addresses, *_dialects(service, streams)]


def _dialects(service: Service, streams: Streams) -> list[BaseRoute]:
    """Return the routes of other protocols."""
    chat, responses = Chat(service, streams), Responses(service, streams)
    ag_ui, vercel = AgUi(service, streams), Vercel(service, streams)
    return [
        Route("/v1/models", chat.models),
        Route("/v1/models/{name:path}", chat.model),
        Route("/v1/chat/completions", chat.complete, methods=["POST"]),
        Route("/v1/responses", responses.create, methods=["POST"]),
        Route("/v1/responses/{response_id:path}/cancel", responses.cancel, methods=["POST"]),
        Route("/v1/responses/{response_id:path}", service.readers.in_turn(responses.get)),
        Route("/v1/responses/{response_id:path}", responses.delete, methods=["DELETE"]),
        Route("/ag-ui", ag_ui.run, methods=["POST"]),
        Route("/ag-ui/{agent:path}", ag_ui.run, methods=["POST"]),
        Route("/vercel", vercel.run, methods=["POST"]),
        Route("/vercel/{agent:path}", vercel.run, methods=["POST"]),
    ]


def _more_routes(service: Service, config: Config | None, mcp: bool | None, a2a: bool | None) -> list[BaseRoute]:
    work, hooks = WorkRoutes(service), HookRoutes(service, {} if config is None else config.value.get("triggers") or {})
    steer = "Pause, resume or run a schedule, or retry a run that was set aside"
    return [
        ApiRoute("/api/work", work.get, "List workers, queued runs and schedules"),
        ApiRoute("/api/work/{action}/{name:path}", work.steer, steer, "POST"),
        ApiRoute("/metrics", work.metrics, "Get metrics in the format of Prometheus", answers=("text/plain",)),
        Route(f"{HOOKS}{{name}}", hooks.receive, methods=["POST"]),
        *optional_protocols(service, mcp, a2a),
    ]


def _background(service: Service, runs: RunRoutes, keep: Keep | None, config: Config | None) -> list[Work]:
    """Return the work that the server does in the background: removal of old data, auditing, notifications, retention."""
    works: list[Work] = [service.keep_removing_unstored, service.auditor.keep_following, service.auditor.keep_counting]
    works.append(Notifiers(service, {} if config is None else config.value.get("notify") or {}).keep_notifying)
    if keep is not None:
        gone = partial(runs.changes.announce_deleted, None)
        works.append(lambda: keep_pruning(service.journal, keep, gone, service.auditor.before_deleting))
    return works


def _lifespan(service: Service, recover: bool, background: list[Work]) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(inner: Starlette) -> AsyncIterator[None]:
        worker = None
        if recover and service.journal.stores.queue is not None:  # the server takes interrupted and queued runs, too
            worker = Worker(service.agents.values(), concurrency=_AT_ONCE, grace=service.grace, begin=service.begin)
            service.worker = worker
        works = [*([] if worker is None else [worker.work]), *background]
        going = [asyncio.create_task(work()) for work in works]
        async with AsyncExitStack() as stack:
            for mounted in [route.app for route in inner.routes if isinstance(route, Mount)]:
                if (inner_lifespan := getattr(mounted, "lifespan", None)) is not None:
                    await stack.enter_async_context(inner_lifespan())
            try:
                yield
            finally:
                await service.close()
                if worker is not None:  # it has been told to stop
                    await asyncio.wait(going[:1], timeout=_ENDING)
                for task in going:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

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
        journal, health = self._service.journal, self._service.journal.stores.health
        before, self._obstacle, why = self._obstacle, "", ""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await (health.probe() if health is not None else journal.runs(limit=1))
        except TimeoutError:
            self._obstacle, why = "the journal does not answer", f"no answer within {_READY_SECONDS} s"
        except JournalError as problem:
            self._obstacle, why = "the journal cannot be written to", " | ".join(str(problem).splitlines())
        self._asked = time.monotonic()
        if before != self._obstacle:
            log.warning("not ready: %s", why) if why else log.warning("ready again: the journal can be written to")
