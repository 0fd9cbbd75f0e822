"""An MCP server whose tools are the agents.

A question of a run is returned as `InputRequiredResult`, with the run as its state, so that no connection stays open. Clients
of older protocols are asked by elicitation. If a client cancels its call, the run is stopped. The package takes a second to
load, so that happens with the first request.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from logging import getLogger
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...agent.agent import Agent
from ...core.errors import AgentError, ConfigError, InvalidState
from ...core.events import Asked
from ...core.notices import notice
from ...core.people.labels import FLOW, LABELS_KEY
from ...core.values import plain_text
from ...kernel.boundary import Failure, attempt
from ...kernel.load import load
from ...kernel.ports import Journal
from ...run.result import Result
from ...run.run import Run
from ..forms import require
from ..language import in_language
from ..problems import HttpRefused, stop_for, words_for
from ..service import Service, not_waiting
from ..users import Caller, nobody
from ..workers import is_one_of_several
from .conversation import answer_for

SERVER_KEY = "KANAME_SERVER_KEY"  # the key that seals the states of questions; else it is in a file next to the journal
_KEY_FILE, _KEY_BYTES = "server.key", 32
log = getLogger("kaname.serve")
_ENDED = ("completed", "degraded")
_TRIES = 3  # questions, until the answer is clear
_ANSWERABLE = 30 * 86_400.0  # seconds for which the state of a question is accepted
_CALLERS = "kaname.callers"  # in the ASGI scope: the callers by name, with the roles of their last request
_GONE = "kaname.gone"  # in the ASGI scope: a list that is not empty once the client has closed the connection


class Lazy:
    """The server as an ASGI application. It is made on first use, and ends with `lifespan`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._app: ASGIApp | None = None
        self._making = asyncio.Lock()
        self._ready, self._over = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._callers: dict[str, Caller] = {}  # by name, as each of them came last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._making:
            if self._app is None:
                self._task = asyncio.create_task(
                    self._run_app(server(self._service).http_app(path="/", stateless_http=is_one_of_several()))
                )
                await self._ready.wait()
        assert self._app is not None
        caller = scope.get("kaname.caller", nobody())
        self._callers[caller.name] = caller
        scope = {**scope, _GONE: (gone := []), _CALLERS: self._callers, "user": _sdk_user(caller)}

        async def receive_noticing() -> Message:
            message = await receive()
            gone.extend([True] if message["type"] == "http.disconnect" else [])
            return message

        if not scope["path"].endswith("/"):  # `/mcp` is `/mcp/`: a redirect would lose the body
            scope = {**scope, "root_path": scope["path"], "path": f"{scope['path']}/"}
        await self._app(scope, receive_noticing, send)

    async def _run_app(self, made: Any) -> None:
        """Run the lifespan of the application: it must begin and end in the same task."""
        async with made.lifespan(made):
            self._app = made
            self._ready.set()
            await self._over.wait()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._over.set()
            if self._task is not None:
                await self._task


def server(service: Service) -> Any:
    """Return a FastMCP server with a tool for each agent."""
    from fastmcp import FastMCP
    from fastmcp.tools import Tool
    from mcp.server.request_state import RequestStateSecurity

    sealing = RequestStateSecurity(keys=[server_key(service.journal)], ttl=_ANSWERABLE)
    # a ToolError carries what the client is allowed to see
    made = FastMCP("kaname", mask_error_details=True, request_state_security=sealing)
    for agent in service.agents.values():
        text = f"Ask the agent {agent.name!r}. It works with: {', '.join(sorted(agent.tools)) or 'no tools'}."
        made.add_tool(Tool.from_function(_ask_tool(service, agent), name=agent.name, description=text, output_schema=None))
    return made


def _ask_tool(service: Service, agent: Agent[Any]) -> Any:
    from fastmcp import Context
    from fastmcp.exceptions import ToolError

    async def ask(task: str, session_id: str = "", ctx: Context = None) -> Any:  # type: ignore[assignment]
        """Run a task. `session_id`: the session that it belongs to."""
        who, run = _caller(), None
        try:
            require(who, "talk")
            if ctx.request_state:
                run = await _resume_with_responses(service, ctx, who)
            else:
                run = agent.run(task, session_id=session_id or None, user_id=who.name)
            return await _result(service, run, ctx, who)
        except AgentError as problem:
            raise ToolError(words_for(problem, who)) from None
        except asyncio.CancelledError:
            if run is not None and _is_cancelled_by_client(ctx):
                service.handle_departure(run.run_id, waiting=True)
            raise

    ask.__annotations__ = {"task": str, "session_id": str, "ctx": Context, "return": Any}
    return ask


def _caller() -> Caller:
    found: Caller = _scope().get("kaname.caller", nobody())
    return found


def _sdk_user(caller: Caller) -> Any:
    """Return the caller in the form that the SDK knows.

    A session belongs to the user who opened it: for another user, the SDK answers as for a session that does not exist.
    """
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id="kaname", scopes=[], subject=caller.name))


def _scope() -> MutableMapping[str, Any]:
    from fastmcp.server.dependencies import get_http_request

    return get_http_request().scope


async def _resume_with_responses(service: Service, ctx: Any, who: Caller) -> Run[Any]:
    """Resume the run that the client has answered. The state only names the run; its owner is looked up."""
    require(who, "approve")
    card = await service.card(str(ctx.request_state), who)
    result = await service.agent_result(card.run_id)
    if result.stop.kind != "waiting":
        raise not_waiting(card)
    responses = ctx.input_responses or {}
    answers = {key: answer_of_form(asked, responses[key]) for key, asked in result.questions.items() if key in responses}
    return await service.resume(card, answers, who)


def answer_of_form(asked: Asked, response: Any) -> Any:
    """Return the answer in the response of the client. A form that was declined or closed is a no."""
    if getattr(response, "action", "") != "accept":
        return answer_for(asked, False)
    content = getattr(response, "content", None)
    return content.get("answer") if isinstance(content, dict) and {*content} == {"answer"} else None


async def _result(service: Service, run: Run[Any], ctx: Any, who: Caller) -> Any:
    try:
        await service.begin(run)
    except InvalidState as unclear:
        if not ctx.request_state:
            raise
        problem = in_language(str(unclear), who.language)
        return _input_required(await service.agent_result(run.run_id), who.language, f"{problem}\n")
    async for chunk in run.subscribe(0):
        if chunk.type == "status" and chunk.data["status"] == "tool_started" and "fact" in chunk.data:
            await ctx.report_progress(chunk.data["fact"], None, str(chunk.data["name"]))
    result = await run.outcome()
    while result.stop.kind == "waiting" and result.questions:
        _require_elicitation(ctx, result)
        if _asks_by_result(ctx):
            return _input_required(result, who.language)
        require(who, "approve")
        result = await (await _elicit_and_resume(service, result, ctx, who)).outcome()
    if result.stop.kind not in _ENDED:
        raise HttpRefused(500, f"{result.stop.kind}: " + stop_for(result.stop, who).detail + f" ({result.run_id})")
    return await _with_labels(plain_text(result.recorded).encode("utf-8", "replace").decode(), service, result.run_id)


async def _with_labels(text: str, service: Service, run_id: str) -> Any:
    """Return the answer, and say in its `_meta` if the run has read other people's text."""
    if FLOW not in (await load(service.journal, run_id)).custom:
        return text
    from fastmcp.tools.base import ToolResult

    return ToolResult(content=text, meta={LABELS_KEY: {"result": "untrusted"}})


async def _elicit_and_resume(service: Service, result: Result[Any], ctx: Any, who: Caller) -> Run[Any]:
    """Ask the client while the call waits, and resume the run with the answers. Ask once more if one is unclear."""
    card, problem = await service.card(result.run_id, who), ""
    for _ in range(_TRIES):
        answers = await _elicit(ctx, result, problem, who.language)
        require(_scope()[_CALLERS][who.name], "approve")  # it may have lost the role since it was asked
        try:
            return await service.begin(await service.resume(card, answers, who))
        except InvalidState as unclear:
            problem = f"{in_language(str(unclear), who.language)}\n"
    raise HttpRefused(409, problem.strip())


def _asks_by_result(ctx: Any) -> bool:
    version = str(getattr(ctx.request_context, "protocol_version", "") or "")
    return version >= "2026"


def _is_cancelled_by_client(ctx: Any) -> bool:
    """Return True unless something else ends the call, such as a server that shuts down.

    A client of the present protocol cancels a call by closing its stream; in older ones it sends a notification.
    """
    return not _asks_by_result(ctx) or bool(_scope().get(_GONE))


def _require_elicitation(ctx: Any, result: Result[Any]) -> None:
    """Raise the protocol's own error, with the run's id, if the client has not declared that its user can be asked."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import (
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        ClientCapabilities,
        ElicitationCapability,
        FormElicitationCapability,
        MissingRequiredClientCapabilityErrorData,
    )

    if not _asks_by_result(ctx) and not ctx.session.can_send_request:  # several workers: its capabilities are not known
        raise _cannot_ask(result)
    declared = getattr(ctx.session.client_capabilities, "elicitation", None)
    if declared is not None and (declared.form is not None or declared.url is None):
        return
    wanted = ClientCapabilities(elicitation=ElicitationCapability(form=FormElicitationCapability()))
    data = MissingRequiredClientCapabilityErrorData(required_capabilities=wanted)
    told = data.model_dump(by_alias=True, mode="json", exclude_none=True)
    raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(_cannot_ask(result)), {**told, "runId": result.run_id})


def _cannot_ask(result: Result[Any]) -> HttpRefused:
    asked = "\n".join([one.prompt for one in result.questions.values()])
    message = notice("serve.asks", "run {run_id} asks: {prompt} Answer at /api/runs/{run_id}/answers",
                  run_id=result.run_id, prompt=asked)  # fmt: skip
    return HttpRefused(409, message)


def _schema(asked: Asked) -> dict[str, Any]:
    wanted = {"type": "string", **({"enum": list(asked.options)} if asked.options else {})}
    return {"type": "object", "properties": {"answer": wanted}, "required": ["answer"]}


def _input_required(result: Result[Any], language: str, problem: str = "") -> Any:
    from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

    wanted: dict[str, Any] = {}
    for key, asked in result.questions.items():
        text = problem + in_language(asked.prompt, language)
        wanted[key] = ElicitRequest(params=ElicitRequestFormParams(message=text, requested_schema=_schema(asked)))
    return InputRequiredResult(input_requests=wanted, request_state=result.run_id)


async def _elicit(ctx: Any, result: Result[Any], problem: str, language: str) -> dict[str, Any]:
    """Ask the client while the call waits, as in older versions of the protocol."""
    answers = {}
    for key, asked in result.questions.items():
        text, options = problem + in_language(asked.prompt, language), list(asked.options) if asked.options else str
        given = await attempt(ctx.elicit, text, options, passing=())
        if isinstance(given, Failure):  # the client did not understand, or has gone
            raise _cannot_ask(result)
        answers[key] = getattr(given, "data", None) if given.action == "accept" else answer_for(asked, False)
    return answers


def server_key(journal: Journal) -> bytes:
    """Return the key of the servers on that journal: `KANAME_SERVER_KEY`, or `server.key` next to the file of the journal.

    The file is made on first use, readable by its owner only. A journal without a file ends with the process, and so does its
    key. If the file cannot be used, a warning is logged and the process uses its own key.
    """
    if given := os.environ.get(SERVER_KEY, ""):
        return _long_enough(given.encode("utf-8", "surrogateescape"), SERVER_KEY)
    place = journal.stores.place
    if not place:
        return secrets.token_bytes(_KEY_BYTES)
    path = Path(place).expanduser().resolve().with_name(_KEY_FILE)
    try:
        return _long_enough(_read_or_make(path), str(path))
    except OSError as problem:
        log.warning("%s cannot be used (%s): MCP clients cannot answer questions after a restart, or of another worker",
                    path, problem.strerror)  # fmt: skip
        return secrets.token_bytes(_KEY_BYTES)


def _read_or_make(path: Path) -> bytes:
    """Read the key, or make it. If several workers make one at the same time, the first wins and all read that one."""
    if not path.exists():
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_hex(_KEY_BYTES).encode())
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return path.read_bytes().strip()


def _long_enough(key: bytes, place: str) -> bytes:
    if len(key) < _KEY_BYTES:
        raise ConfigError.of(
            "serve.short_key",
            "the key in {place} has fewer than {least} bytes; set a longer one",
            place=place,
            least=_KEY_BYTES,
        )
    return key
