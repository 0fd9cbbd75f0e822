"""The checks that every request passes first: host, origin, caller, content type, size and rate. Also the headers of every
response.

A page of another site cannot use a browser against a server on this machine: its name in `Host` would be a foreign one (DNS
rebinding), its `Origin` is refused, and a form cannot send JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable
from logging import getLogger

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..core import tracing
from ..core.errors import AgentError, AuditError, ConfigError
from ..core.notices import notice
from ..core.reading.media_types import LARGEST_FILE
from ..core.record import record, replace
from .access import signin
from .access.guessing import Rates, TokenRefused
from .access.proxies import Proxies, address_of, parse_address
from .access.signin import Access
from .encoding import PATIENCE, PIECE
from .language import wanted_language
from .problems import HttpRefused, answer, without_path
from .users import OWNER, Caller, nobody

LOCAL = ("localhost", "127.0.0.1", "[::1]")
OPEN = ("/healthz", "/readyz", "/")  # health checks, and the page, which holds no data: no token is needed
_PAGE = "/page/"
HOOKS = "/hooks/"  # requests that are signed
MEDIA = "/api/media"  # where a file is sent as it is
# A proxy adds one of these, or several. The address of such a request is that of the proxy, not of its sender.
_RELAYED = frozenset(["via", "cdn-loop", "cf-ray", "x-envoy-external-address"])
_RELAYING = re.compile("forwarded|real-ip|client-?ip|connecting-ip|user-ip|tailscale-")  # in the names of proxies' headers
_SAFE = ("GET", "HEAD", "OPTIONS")
_BODY_SECONDS = 30.0
_LEAST_SPEED = 100_000  # bytes a second: a large body has more time
_LARGE_AT_ONCE = 8  # bodies with files that arrive at the same time
_POLICY = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_METHODS = b"GET, POST, PATCH, DELETE"
access = getLogger("kaname.access")

Who = Callable[[Scope], Caller | None]


@record
class RequestLimits:
    """Limits on requests.

    Args:
        body: The largest body of a request in bytes, without files (default: 4,000,000).
        files: How many bytes the files of a request can have in all (default: 20,000,000). Only callers with the role `talk`
            can send files.
        rate: How many requests a caller can send per second, on average (default: 50).
        burst: How many requests a caller can send at once (default: 200).
    """

    body: int = 4_000_000
    rate: float = 50.0
    burst: int = 200
    files: int = LARGEST_FILE

    @property
    def with_files(self) -> int:
        """Return the largest body of a request with files, which are base64 there."""
        return self.body + (self.files + 2) // 3 * 4


class RequestGuard:
    """An ASGI middleware that lets a request in or refuses it.

    `access`: the users who are allowed in, and how; without users, only this machine is answered. `who`: a function of the
    program that returns the caller, instead of users. `proxies`: those whose `X-Forwarded-For` counts.
    """

    def __init__(
        self,
        inner: ASGIApp,
        *,
        access: Access,
        who: Who | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        limits: RequestLimits | None = None,
        proxies: Iterable[str] = (),
    ) -> None:
        self._inner, self.access, self._users, self._who = inner, access, access.users, who
        self._hosts, self._origins = {*LOCAL, *map(str.lower, hosts)}, {*origins}
        self._limits = limits or RequestLimits()
        self._rates = Rates(self._limits.rate, self._limits.burst)
        self._proxies = Proxies(proxies)
        self._large = set[LimitedBody]()  # the large ones that arrive now

    @property
    def open(self) -> bool:
        """Return True while no token is needed: there are no users, and the program did not pass `who`."""
        return self._who is None and (self._users is None or not self._users.requires_token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._inner(scope, receive, send)
            return None  # no WebSockets: the connection is closed
        headers = _headers(scope)
        self._proxies.resolve(scope, headers)
        line = AccessLine(scope)
        sending = self._with_headers(send, line, headers.get("origin", ""), scope.get("kaname.abort", _do_nothing))
        try:
            scope["kaname.send"] = send
            scope["kaname.caller"] = caller = replace(self._let_in(scope, headers), language=wanted_language(headers))
            if caller.name and _bearer_token(headers):
                await self.access.auditor.sign_in(caller, "token", address_of(scope))
            scope["kaname.still"] = lambda: self._is_still(caller, scope, headers)
            line.user = caller.name
            tracing.current.set(
                headers.get("traceparent", "") if tracing.parse_traceparent(headers.get("traceparent", "")) else ""
            )
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                return await _preflight(sending, headers.get("access-control-request-headers", ""))
            body = LimitedBody(receive, self._limits, caller.may("talk"), self._large, is_file=_path(scope) == MEDIA)
            try:
                await self._inner(scope, body.receive, sending)
            finally:
                self._large.discard(body)
        except AgentError as problem:
            if line.status:
                raise
            if isinstance(problem, TokenRefused):
                await self.access.auditor.fail_sign_in("token", address_of(scope))
            elif isinstance(problem, AuditError):
                problem = without_path(problem)
            await answer(problem, _path(scope), nobody(wanted_language(headers)))(scope, receive, sending)
        finally:
            line.write()

    def _let_in(self, scope: Scope, headers: dict[str, str]) -> Caller:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
        if "*" not in self._hosts and name.lower() not in self._hosts:
            raise HttpRefused.of(
                "serve.host", "the host {name!r} is not allowed; allow it with --allow-host", http=421, name=name[:100]
            )
        self._check_origin(scope, headers, host)
        path = _path(scope)
        self._check_type(scope, headers, path)
        if path in (*OPEN, *signin.OPEN) or path.startswith(_PAGE) or scope["method"] == "OPTIONS":
            return nobody()
        caller = nobody() if path.startswith(HOOKS) else self._caller(scope, headers, name.lower())
        wait = 0 if caller.is_admin else self._rates.wait(caller.name or address_of(scope))
        if wait:
            message = notice("serve.rate", "too many requests; try again in {wait} s", wait=wait)
            raise HttpRefused(429, message, retry_after=str(wait))
        return caller

    def _check_type(self, scope: Scope, headers: dict[str, str], path: str) -> None:
        """Raise `HttpRefused` for a body that a form of another site can send: only JSON and files as they are, are read."""
        if scope["method"] not in _SAFE and not (_is_file(headers) if path == MEDIA else _is_json(headers)):
            if path == MEDIA:
                raise HttpRefused.of("serve.file", "send the file, with Content-Type: application/octet-stream", http=415)
            raise HttpRefused.of("serve.json", "send JSON, with Content-Type: application/json", http=415)

    def _check_origin(self, scope: Scope, headers: dict[str, str], host: str) -> None:
        origin = headers.get("origin", "")
        same = origin.partition("://")[2] == host
        foreign = bool(origin) and not same and origin not in self._origins and "*" not in self._origins
        cross = not origin and headers.get("sec-fetch-site") == "cross-site" and scope["method"] not in _SAFE
        if foreign or cross:
            message = notice("serve.origin", "pages from {origin!r} cannot use this server; allow them with --allow-origin",
                          origin=(origin or "another site")[:100])  # fmt: skip
            raise HttpRefused(403, message)

    def _caller(self, scope: Scope, headers: dict[str, str], host: str) -> Caller:
        if self._who is not None:
            found = self._who(scope)
            self.access.note_roles(found) if found is not None else None
        elif self._users is not None and self._users.requires_token:
            found = self._find_caller(scope, headers)
        elif not _is_local(address_of(scope)):
            raise HttpRefused.of(
                "serve.local_only",
                "without users, this server answers only its own machine. Add one: kaname serve users add NAME",
                http=403,
            )
        elif host not in LOCAL or _is_relayed(scope, headers):
            raise HttpRefused.of(
                "serve.relayed",
                "this request came through a proxy, and this server has no users yet, so it cannot tell who sent it. "
                "Add a user with `kaname serve users add NAME`, set KANAME_TOKEN, or pass users= or who= to "
                "kaname.serve.app()",
                http=403,
            )
        else:
            return OWNER
        if found is None:
            message = notice(
                "serve.token", "a token is needed (Authorization: Bearer …). Create one: kaname serve users add NAME"
            )
            raise HttpRefused(401, message, www_authenticate="Bearer")
        return found

    def _is_still(self, caller: Caller, scope: Scope, headers: dict[str, str]) -> bool:
        """Return True if the caller would still be let in: a token may have been removed while a stream is open."""
        if self._users is None or self._who is not None or not self._users.requires_token:
            return True
        try:
            found = self._find_caller(scope, headers)
            return found is not None and (found.name, found.roles) == (caller.name, caller.roles)
        except TokenRefused:
            return False
        except HttpRefused:  # the file cannot be read now
            return True

    def _find_caller(self, scope: Scope, headers: dict[str, str]) -> Caller | None:
        """Return the user of the token or of the cookie, or None without both. A cookie counts only for our own page."""
        try:
            if token := _bearer_token(headers):
                return self.access.check_token(token, address_of(scope))
            if self.access.signins is None or not _is_own_page(scope, headers):
                return None
            found = self.access.signins.caller(self.access.signins.given_in(headers.get("cookie", "")))
            scope["kaname.signed_in"] = found is not None
            return found
        except ConfigError as problem:  # the path and the mistake are only for the owner
            getLogger("kaname.serve").error("%s", problem)
            raise HttpRefused.of("serve.users", "tokens cannot be checked now; see the server's log", http=503) from None

    def _with_headers(self, send: Send, line: AccessLine, origin: str, abort: Callable[[], None]) -> Send:
        """Return a `send` that adds the headers of every response, and sends a large body in pieces."""
        shared = [(b"access-control-allow-origin", origin.encode()), (b"vary", b"origin")] if origin in self._origins else []
        if "*" in self._origins and origin:
            shared = [(b"access-control-allow-origin", b"*")]
        shared += (
            [(b"access-control-expose-headers", b"location, x-run-id, mcp-session-id, retry-after, x-should-retry")]
            if shared
            else []
        )

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                line.status = message["status"]
                own = {name for name, _ in message["headers"]}
                policy = [] if b"content-security-policy" in own else [(b"content-security-policy", _POLICY)]
                kept = [] if b"cache-control" in own else [(b"cache-control", b"no-store")]
                message = {**message, "headers": [*message["headers"], *_ALWAYS, *policy, *kept, *shared]}
            await (_in_pieces(send, message, abort) if len(message.get("body", b"")) > PIECE else send(message))

        return send_with_headers


class LimitedBody:
    """A body that is refused if it is too large or arrives too slowly, or if too many large ones arrive at once.

    `files`: True if the caller can send files. `large`: the large bodies that arrive now. `is_file`: the body is a file.
    """

    def __init__(
        self, receive: Receive, limits: RequestLimits, files: bool, large: set[LimitedBody], *, is_file: bool = False
    ) -> None:
        self._receive, self._limits, self._large, self._is_file = receive, limits, large, is_file
        self._most = limits.body if not files else limits.files if is_file else limits.with_files
        self._read, self._done, self._begun = 0, False, asyncio.get_running_loop().time()

    async def receive(self) -> Message:
        if self._done:
            return await self._receive()
        seconds = _BODY_SECONDS + self._read / _LEAST_SPEED  # for all of it, however it is cut
        try:
            async with asyncio.timeout_at(self._begun + seconds):
                message = await self._receive()
        except TimeoutError:
            told = notice("serve.slow_body", "the request did not arrive within {seconds} s", seconds=round(seconds))
            raise HttpRefused(408, told, connection="close") from None
        self._read += len(message.get("body", b""))
        self._done = not message.get("more_body", False)
        if self._read > self._most:
            if self._is_file:
                raise file_too_large(self._most)
            told = notice("serve.body", "the request is larger than {most} bytes", most=self._most)
            raise HttpRefused(413, told, connection="close")
        if self._read > self._limits.body:
            self._count_as_large()
        if self._done:
            self._large.discard(self)
        return message

    def _count_as_large(self) -> None:
        if len(self._large - {self}) >= _LARGE_AT_ONCE:
            message = notice("serve.busy", "too many files arrive at the moment; try again")
            raise HttpRefused(503, message, connection="close", retry_after="2")
        self._large.add(self)


def file_too_large(most: int) -> HttpRefused:
    """Return the error for a file, or the files of a message, of more than so many bytes."""
    message = notice("serve.files", "the files of a message can have {most:,} bytes in all", most=most)
    return HttpRefused(413, message, connection="close")


class AccessLine:
    """A line of the access log, as JSON. The query is left out, because it may hold secrets."""

    def __init__(self, scope: Scope) -> None:
        self.status, self.user = 0, ""
        self._scope, self._begun = scope, time.perf_counter()

    def write(self) -> None:
        if access.isEnabledFor(20):
            told = {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "method": self._scope["method"],
                "path": self._scope["path"][:500],
                "status": self.status,
                "ms": round((time.perf_counter() - self._begun) * 1000, 1),
                "client": address_of(self._scope),
                "user": self.user,
            }
            access.info(json.dumps(told, ensure_ascii=False))


async def _in_pieces(send: Send, message: Message, abort: Callable[[], None]) -> None:
    """Send a large body piece by piece. If the client does not take a piece in time, abort the connection."""
    body = message["body"]
    try:
        for start in range(0, len(body), PIECE):
            more = message.get("more_body", False) or start + PIECE < len(body)
            async with asyncio.timeout(PATIENCE):
                await send({**message, "body": bytes(body[start : start + PIECE]), "more_body": more})
    except TimeoutError:
        abort()


def _do_nothing() -> None:
    """Do nothing: a server other than ours closes a connection with an incomplete response by itself."""


async def _preflight(send: Send, wanted: str) -> None:
    """Answer a CORS preflight request. The origin is allowed, so any headers are."""
    allowed = wanted.encode("latin-1", "replace")
    headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-allow-headers", allowed)]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by name. Repeated headers are joined, so that two hosts or two origins match nothing."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _bearer_token(headers: dict[str, str]) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _is_file(headers: dict[str, str]) -> bool:
    """Return True if the body is a file. A page of another site cannot send this type without asking first."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "application/octet-stream"


def _is_json(headers: dict[str, str]) -> bool:
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    custom = empty and not kind and headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    return kind == "application/json" or kind.endswith("+json") or custom


def _is_own_page(scope: Scope, headers: dict[str, str]) -> bool:
    """Return True if a request with a cookie comes from our own page: not from another site, port or subdomain.

    A browser says so in `Sec-Fetch-Site`, or at least in `Origin` for everything that changes something.
    """
    origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "")
    same = origin.partition("://")[2] == headers.get("host", "")
    if site not in ("", "same-origin", "none") or (origin and not same):
        return False
    return scope["method"] in _SAFE or same or site == "same-origin"


def _is_relayed(scope: Scope, headers: dict[str, str]) -> bool:
    """Return True if a proxy passed the request on.

    The address does not show it: it is the address of the proxy, or one that was taken from a header. A proxy
    without any settings (nginx) adds no header, but speaks HTTP/1.0.
    """
    named = not _RELAYED.isdisjoint(headers) or _RELAYING.search(" ".join(headers)) is not None
    return named or scope.get("http_version") == "1.0"


def _is_local(address: str) -> bool:
    """Return True if the address is this machine. A Unix socket has no address: the permissions of its file protect it."""
    found = parse_address(address)
    return not address or (found is not None and found.is_loopback)
