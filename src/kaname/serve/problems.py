"""Errors as `application/problem+json` (RFC 9457), in the same words as everywhere else.

Only administrators see the words of a model provider and the cause of an internal error. Both are also logged.
"""

from __future__ import annotations

from http import HTTPStatus
from logging import getLogger
from typing import TYPE_CHECKING, Any

from ..core.chunks import Chunk
from ..core.errors import (
    AgentConnectionError,
    AgentError,
    AuditError,
    ConfigError,
    InvalidState,
    JournalError,
    JournalFull,
    ModelError,
    RateLimited,
    ReplayDiverged,
    RunBusy,
    RunExists,
    RunNeeded,
    RunNotFound,
    RunStopped,
    RunSuperseded,
    SessionBusy,
    ToolNotFoundError,
    UnexpectedError,
)
from ..core.notices import Notice, notice, to_json
from ..core.record import replace
from ..core.steps import Stop
from .language import in_language
from .users import Caller, nobody

if TYPE_CHECKING:  # the terminal reads this module, too, also where no server is installed
    from starlette.requests import Request
    from starlette.responses import Response

_STATUS: tuple[tuple[type[AgentError], int], ...] = (  # the first that fits
    (RunNotFound, 404),
    (RunExists, 409),
    (RunBusy, 409),
    (SessionBusy, 409),
    (RunSuperseded, 409),
    (RunNeeded, 409),
    (JournalFull, 507),
    (JournalError, 503),
    (AuditError, 503),
    (ConfigError, 400),
    (ToolNotFoundError, 400),
    (InvalidState, 409),
    (ReplayDiverged, 409),
    (RunStopped, 409),
    (RateLimited, 429),
    (ModelError, 502),
    (AgentConnectionError, 502),
)


RATE_LIMITED = RateLimited.__name__  # the name of the failure in facts and chunks
log = getLogger("kaname.serve")
_MOST_WORDS = 4_000  # characters of a message; what a client sent is not sent back at length
_OURS = UnexpectedError.__name__
HIDDEN = notice("serve.failure", "the agent failed with an internal error; see the server's log")


class HttpRefused(AgentError):
    """A request that is refused with a status. `headers`: additional headers of the response."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}

    @classmethod
    def of(cls, code: str, template: str, /, *, http: int = 400, **values: Any) -> HttpRefused:
        """Return an error with the status `http` (default: 400), whose message is the notice `code`."""
        return HttpRefused(http, notice(code, template, **values))


def status_of(problem: AgentError) -> int:
    if isinstance(problem, HttpRefused):
        return problem.status
    return next((status for kind, status in _STATUS if isinstance(problem, kind)), 500)


def headers_of(problem: AgentError) -> dict[str, str]:
    if isinstance(problem, HttpRefused):
        return problem.headers
    wait = problem.retry_after if isinstance(problem, ModelError) else None
    return {} if wait is None else {"retry-after": str(max(1, round(wait)))}


def as_problem(problem: AgentError, caller: Caller | None = None) -> dict[str, Any]:
    """Return the body of the response. `notice`: the code and values of a short message, for clients in another language."""
    caller = caller or nobody()
    told = words_for(problem, caller)
    text = str.__str__(in_language(told, caller.language))
    kind = HTTPStatus(problem.status).phrase if isinstance(problem, HttpRefused) else type(problem).__name__
    body: dict[str, Any] = {
        "type": f"urn:kaname:error:{kind.replace(' ', '')}",
        "title": kind,
        "status": status_of(problem),
        "detail": text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]} …",
    }
    if problem.run_id:
        body["run_id"] = problem.run_id
    if isinstance(told, Notice) and told.code and len(text) <= _MOST_WORDS:
        body["notice"] = to_json(told)
    return body


def answer(problem: AgentError, path: str = "", caller: Caller | None = None) -> Response:
    """Return the response to an error.

    Under `/v1` it also holds the `error` that clients of OpenAI look for. Under `/vercel` it is plain text: those clients show
    the body to the user as it is.
    """
    from starlette.responses import PlainTextResponse

    from .encoding import Json

    body = as_problem(problem, caller)
    if path.startswith("/vercel"):
        return PlainTextResponse(body["detail"], body["status"], headers_of(problem))
    if path.startswith("/v1/"):
        code = "model_not_found" if body["status"] == 404 and type(problem) is HttpRefused else body["title"]
        code = "rate_limit_exceeded" if code == RATE_LIMITED else code
        body["error"] = {
            "message": body["detail"],
            "type": _TYPES.get(body["status"], "api_error"),
            "param": None,
            "code": code,
        }
    return Json(body, body["status"], headers_of(problem), media_type="application/problem+json")


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


async def handle_error(request: Request, problem: Exception) -> Response:
    """Return the response to an error: the handler for Starlette."""
    caller = request.scope.get("kaname.caller")
    if isinstance(problem, JournalError | AuditError) and status_of(problem) >= 500 and not (caller and caller.is_admin):
        problem = without_path(problem)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return answer(problem if isinstance(problem, AgentError) else UnknownAddress(request, problem), path, caller)


def without_path(problem: JournalError | AuditError) -> HttpRefused:
    """Log an error, and return it without the path, which is only for the owner."""
    log.error("%s", " | ".join(str(problem).splitlines()))
    if isinstance(problem, AuditError):
        message = notice("serve.audit", "this cannot be recorded in the audit log now, so it was refused; see the server's log")
    else:
        message = notice("serve.journal", "the journal is not available now; see the server's log")
    return HttpRefused(status_of(problem), message)


class UnknownAddress(HttpRefused):
    """A request to an address that does not exist, or with a method that it does not have."""

    def __init__(self, request: Request, problem: Exception) -> None:
        from starlette.exceptions import HTTPException

        status = problem.status_code if isinstance(problem, HTTPException) else 500
        path, method = request.url.path, request.method
        if status == 405:
            text = notice("serve.method", "{method} is not allowed at {path}", method=method, path=path)
        elif status == 404:
            text = notice("serve.no_address", "{path} does not exist; /openapi.json lists all addresses", path=path)
        else:
            text = notice("serve.unexpected", "an unexpected error occurred; see the server's log")
        super().__init__(status, text)
        if isinstance(problem, HTTPException) and problem.headers:
            self.headers.update(problem.headers)


def stop_for(stop: Stop, caller: Caller) -> Stop:
    """Return the stop of a run as the caller is allowed to see it. `said` is emptied: an administrator finds it in `detail`."""
    return replace(stop, detail=_words(stop.detail, stop.error, stop.said, caller), said="")


def words_for(problem: AgentError, caller: Caller) -> str:
    """Return the message of an error as the caller is allowed to see it."""
    return _words(problem.public, type(problem).__name__, problem.said, caller)


def chunks_for(chunks: list[Chunk], caller: Caller) -> list[Chunk]:
    return [_redact_error(chunk, caller) if chunk.type == "error" else chunk for chunk in chunks]


def _redact_error(chunk: Chunk, caller: Caller) -> Chunk:
    data = {name: value for name, value in chunk.data.items() if name != "said"}
    told = _words(data.get("message", ""), data.get("type", ""), chunk.data.get("said", ""), caller)
    return Chunk(chunk.stamp, chunk.agent, chunk.type, {**data, "message": told}, chunk.seq)


def _words(detail: str, error: str, said: str, caller: Caller) -> str:
    if not caller.is_admin:
        return HIDDEN if error == _OURS else detail
    return notice("model.said", "{detail}\nDetails: {said}", detail=detail, said=said) if said else detail
