"""HTTP client: pooled connections, one pool for each event loop, timeouts and their errors.

Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`), certificates too (`SSL_CERT_FILE`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from functools import cache, partial
from types import TracebackType
from typing import Any

from ...core.errors import ConfigError, ModelError, ModelTimeout, ModelUnreachable
from ...core.messages import NOTHING
from ...core.notices import notice
from ...core.record import record
from .address import Route, pass_of, route_to
from .connection import Broken, HttpConnection, ServerSilent
from .errors import Who, failure

_NEXT_ADDRESS = 2.0  # seconds after which another of a name's addresses is tried
_BUFFER = 1 << 18  # bytes that are read at once
_IDLE = 30.0  # seconds after which an unused connection is closed


@record
class Timeouts:
    """Timeouts in seconds: to connect, to the first byte of the answer, and between two pieces of it."""

    connect: float = 10.0
    first_byte: float = 300.0
    between: float = 120.0


PATIENT = Timeouts()


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


class Unconnected(TimeoutError):
    """No connection within so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no connection within {seconds:g} s")
        self.seconds = seconds


class Http:
    """A client that keeps connections open between calls.

    Every event loop has its own pool, closed with the loop or by `close`.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self._pools: dict[asyncio.AbstractEventLoop, tuple[Any, _Pool]] = {}
        self._head: tuple[Any, Any, bytes] = (None, None, b"")

    async def pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        held = self._pools.get(loop)
        if held is None:
            keeper = self._keep_open(loop)
            held = self._pools[loop] = (keeper, await anext(keeper))
        return held[1]

    async def _keep_open(self, loop: asyncio.AbstractEventLoop) -> AsyncIterator[_Pool]:
        """Yield a pool. This is an async generator, because an event loop closes open generators when it ends."""
        pool = _Pool()
        try:
            yield pool
        finally:
            self._pools.pop(loop, None)
            pool.close()
            await asyncio.sleep(0)  # the sockets are closed in the loop's next round

    async def close(self) -> None:
        """Close this event loop's connections. The next call opens others."""
        held = self._pools.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[0].aclose()

    def post(self, url: str, headers: Mapping[str, str], body: bytes, who: Who) -> Post:
        """Return a POST request, to be sent with `async with`."""
        return Post(self, url, headers, body, who)

    def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes, who: Who) -> Post:
        """Return a request on a new connection, on which it is never sent twice."""
        return OnceOnly(method, self, url, headers, body, who)

    def head(self, route: Route, headers: Mapping[str, str]) -> bytes:
        """Return the head of a request up to the length of its body. The last one is kept: it hardly ever changes."""
        if self._head[0] is not route or self._head[1] is not headers:
            self._head = route, headers, _head("POST", route, headers)
        return self._head[2]

    async def send(self, pool: _Pool, route: Route, request: bytes, *, once: bool = False) -> HttpConnection:
        """Send the request. If the server has just closed a kept connection, retry once on a new one."""
        connection = None if once else pool.take(route)
        while True:
            if connection is None:
                try:
                    async with asyncio.timeout(self.timeouts.connect):
                        connection = await pool.connect(route, self.timeouts.connect)
                except TimeoutError as late:
                    raise Unconnected(self.timeouts.connect) from late
            try:
                await connection.ask(request, self.timeouts.first_byte)
            except BaseException as problem:
                connection.close()
                if isinstance(problem, Broken) and problem.early and connection.uses > 1:
                    connection = None
                    continue
                raise
            return connection


class Post:
    """A POST request. Leaving it early, by an error or a cancellation, closes the connection at once."""

    once = False
    __slots__ = ("_body", "_connection", "_headers", "_http", "_pool", "_route", "_url", "_who")

    def __init__(self, http: Http, url: str, headers: Mapping[str, str], body: bytes, who: Who) -> None:
        self._http, self._url, self._headers, self._body, self._who = http, url, headers, body, who

    async def __aenter__(self) -> HttpConnection:
        self._pool, self._route = await self._http.pool(), route_to(self._url)
        request = b"%scontent-length: %d\r\n\r\n%s" % (self._head(), len(self._body), self._body)
        try:
            self._connection = await self._http.send(self._pool, self._route, request, once=self.once)
        except OSError as problem:
            raise _explain(problem, self._url, self._route, self._who) from problem
        return self._connection

    def _head(self) -> bytes:
        return self._http.head(self._route, self._headers)

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.put_back(self._route, self._connection)
        if isinstance(problem, Broken | ServerSilent):
            raise _explain(problem, self._url, self._route, self._who) from problem


class OnceOnly(Post):
    """A request of any method that is sent once."""

    once = True
    __slots__ = ("_method",)

    def __init__(self, method: str, *request: Any) -> None:
        super().__init__(*request)
        self._method = method

    def _head(self) -> bytes:
        return _head(self._method, self._route, self._headers)


class _Pool:
    """The connections of one event loop: all that are open, and the idle ones by their route."""

    def __init__(self) -> None:
        self._open: set[HttpConnection] = set()
        self._waiting: dict[Any, dict[HttpConnection, None]] = {}
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(_BUFFER))
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, route: Route) -> HttpConnection | None:
        waiting = self._waiting.get(route.place)
        if not waiting:
            return None
        return waiting.popitem()[0]

    def put_back(self, route: Route, connection: HttpConnection) -> None:
        if connection.reusable and connection in self._open:
            connection.idle_since = self._loop.time()
            self._waiting.setdefault(route.place, {})[connection] = None
            if self._sweeping is None:
                self._sweeping = self._loop.call_later(_IDLE, self._sweep)
        else:
            connection.close()

    def _sweep(self) -> None:
        """Close the connections that have been idle for too long. One timer serves them all."""
        now, self._sweeping = self._loop.time(), None
        waiting = [connection for some in self._waiting.values() for connection in some]
        for connection in [one for one in waiting if now - one.idle_since >= _IDLE]:
            connection.close()
        if left := [one.idle_since for one in waiting if now - one.idle_since < _IDLE]:
            self._sweeping = self._loop.call_at(min(left) + _IDLE, self._sweep)

    def _forget(self, route: Route, connection: HttpConnection) -> None:
        self._open.discard(connection)
        self._waiting.get(route.place, {}).pop(connection, None)

    async def connect(self, route: Route, seconds: float) -> HttpConnection:
        proxy = route.proxy
        host, port, tls = (route.host, route.port, route.tls)
        if proxy is not None:
            tls = proxy.scheme == "https"
            host, port = proxy.hostname or "", proxy.port or (443 if tls else 80)
        trust = await asyncio.to_thread(_trust) if tls or route.tls else None
        made = partial(HttpConnection, partial(self._forget, route), self._buffer)
        connection = await _open_connection(made, host, port, trust if tls else None)
        if self._closed:
            connection.close()
            raise Broken(notice("model.closed", "the model was closed"))
        self._open.add(connection)
        if proxy is not None and route.tls:
            assert trust is not None
            await _tunnel(route, connection, trust, seconds)
        return connection

    def close(self) -> None:
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self._open):
            connection.close()
        self._waiting.clear()


async def _open_connection(made: partial[HttpConnection], host: str, port: int, trust: ssl.SSLContext | None) -> HttpConnection:
    """Connect to a host, with TLS if `trust` is there, or to the file of a Unix socket."""
    loop, is_file = asyncio.get_running_loop(), host.startswith("/")
    raw = await _connect_file(host) if is_file else await _connect_socket(host, port)
    try:
        if is_file:
            _, connection = await loop.create_unix_connection(made, sock=raw)
        else:
            _, connection = await loop.create_connection(made, sock=raw, ssl=trust, server_hostname=host if trust else None)
    except BaseException:
        raw.close()
        raise
    return connection


async def _connect_file(path: str) -> socket.socket:
    raw = socket.socket(socket.AF_UNIX)
    raw.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(raw, path)
    except BaseException:
        raw.close()
        raise
    return raw


async def _connect_socket(host: str, port: int) -> socket.socket:
    """Connect to the first address of the name that answers. asyncio's own function leaks sockets when it is cancelled."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem: OSError | None = None
    for place, (family, kind, protocol, _, address) in enumerate(found):
        try:
            raw = socket.socket(family, kind, protocol)
        except OSError as failed:  # a kind of address that this machine does not know
            problem = failed
            continue
        raw.setblocking(False)
        try:
            async with asyncio.timeout(None if place == len(found) - 1 else _NEXT_ADDRESS):
                await loop.sock_connect(raw, address)
        except OSError as failed:
            raw.close()
            problem = failed
        except BaseException:
            raw.close()
            raise
        else:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a model may think for minutes without a byte
            return raw
    raise problem or OSError(notice("model.no_address", "{host} has no address", host=host))


async def _tunnel(route: Route, connection: HttpConnection, trust: ssl.SSLContext, seconds: float) -> None:
    """Open a tunnel through the proxy to the server, then start TLS."""
    place = route.netloc if route.netloc.endswith(f":{route.port}") else f"{route.netloc}:{route.port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}", *pass_of(route)]
    try:
        await connection.ask("\r\n".join([*lines, "", ""]).encode(), seconds)
        if connection.status != 200:
            raise Broken(notice("model.proxy_status", "the proxy responded with HTTP {status}", status=connection.status))
        connection.transport = await asyncio.get_running_loop().start_tls(
            connection.transport, connection, trust, server_hostname=route.host
        )
        connection.uses = 0
    except BaseException:
        connection.close()
        raise


def _head(method: str, route: Route, headers: Mapping[str, str]) -> bytes:
    named = {"host": route.netloc, **headers}
    named.pop("content-length", None)
    lines = [f"{method} {route.target} HTTP/1.1", *[f"{name}: {value}" for name, value in named.items()]]
    if route.proxy is not None and not route.tls:
        lines += pass_of(route)
    if any("\r" in line or "\n" in line for line in lines):
        raise ConfigError.of("model.line_break_in_header", "a header or the address contains a line break")
    try:
        return "\r\n".join([*lines, ""]).encode()
    except UnicodeEncodeError:
        broken = notice("model.bad_character_in_header", "a key or a header contains an invalid Unicode character")
        raise ConfigError(broken) from None  # whose message would show it


def timeout_error(limit: str, seconds: float, blocked: float, who: Who) -> ModelError:
    """Return the error for a timeout. `limit`: the field of `Timeouts` that was reached."""
    match limit:
        case "connect":
            told = notice("model.timeout_connect", "no connection within {seconds:g} s (Timeouts.connect)", seconds=seconds)
        case "first_byte":
            told = notice("model.timeout_first", "no answer within {seconds:g} s (Timeouts.first_byte)", seconds=seconds)
        case _:
            told = notice(
                "model.timeout_between", "the answer stopped: no data for {seconds:g} s (Timeouts.between)", seconds=seconds
            )
    if blocked:
        told += notice(
            "model.loop_blocked",
            "; meanwhile the event loop of this program was blocked for {blocked:.1f} s: move blocking code to "
            "asyncio.to_thread",
            blocked=blocked,
        )
    return failure(ModelTimeout, told, 0, who)


def _explain(problem: OSError, url: str, route: Route, who: Who) -> ModelError:
    if isinstance(problem, ServerSilent):
        return timeout_error("between" if problem.begun else "first_byte", problem.seconds, problem.blocked, who)
    if isinstance(problem, Unconnected):
        made = timeout_error("connect", problem.seconds, 0.0, who)
    elif isinstance(problem, TimeoutError):  # by the system
        return failure(ModelTimeout, notice("model.timeout", "no answer in time"), 0, who)
    else:
        made = failure(ModelUnreachable, _unreachable(url, route, problem), 0, who, inside=True)
    if not isinstance(problem, Broken):  # the request was not sent
        made.usage = NOTHING
    return made


def _unreachable(url: str, route: Route, problem: OSError) -> str:
    url = url.partition("?")[0]  # some put a key there
    if isinstance(problem, ssl.SSLCertVerificationError):
        why = problem.verify_message
        return notice(
            "model.certificate",
            "the certificate of {url} is not trusted ({why}); set SSL_CERT_FILE to a file with its authority",
            url=url,
            why=why,
        )
    if isinstance(problem, socket.gaierror):
        place = route.proxy.hostname if route.proxy is not None else route.host
        return notice(
            "model.name_not_resolved", "the host name {place} cannot be resolved: check base_url and the network", place=place
        )
    via = notice("model.via_proxy", " through the proxy {hostname}", hostname=route.proxy.hostname) if route.proxy else ""
    why = f"{type(problem).__name__}: {problem}" if not isinstance(problem, Broken) else str(problem)
    return notice("model.unreachable", "{url} cannot be reached{via}: {why}", url=url, via=via, why=why)
