"""The way to a provider: pooled connections, one pool an event loop, and what can go wrong on it.

Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`), certificates too (`SSL_CERT_FILE`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from weakref import WeakKeyDictionary

from ..core.errors import ConfigError, ModelError, ModelTimeout, ModelUnreachable
from ..core.language import say
from ..core.record import record
from .connection import Broken, Connection, Late
from .failures import Who, failure

_IDLE = 30.0  # seconds after which an unused connection is closed


@record
class Timeouts:
    """Seconds: to connect, to the first byte of the answer, and between two pieces of it."""

    connect: float = 10.0
    first_byte: float = 300.0
    between: float = 120.0


PATIENT = Timeouts()


class Route(NamedTuple):
    """Where a request goes, worked out once: the address, what is said in the request line, and the proxy on the way."""

    host: str
    port: int
    tls: bool
    target: str
    netloc: str
    proxy: SplitResult | None

    @property
    def place(self) -> tuple[str, int, bool, SplitResult | None]:
        return self.host, self.port, self.tls, self.proxy


@cache
def route_to(url: str) -> Route:
    """The environment is looked at once for each address."""
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError(
            say(f"{url!r} is no address: it begins with http:// or https://", f"{url!r} は http:// か https:// で始まりません")
        )
    tls = address.scheme == "https"
    port = address.port or (443 if tls else 80)
    path = (address.path or "/") + (f"?{address.query}" if address.query else "")
    proxy = _proxy_for(address)
    host = f"[{address.hostname}]" if ":" in address.hostname else address.hostname
    netloc = host if address.port is None else f"{host}:{port}"
    target = f"http://{netloc}{path}" if proxy is not None and not tls else path
    return Route(address.hostname, port, tls, target, netloc, proxy)


def _proxy_for(address: SplitResult) -> SplitResult | None:
    from urllib.request import getproxies, proxy_bypass  # slow to load, and a local server needs no proxy

    proxies = getproxies()
    found = proxies.get(address.scheme) or proxies.get("all")
    if not found or proxy_bypass(address.hostname or ""):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise ConfigError(
            say(
                f"the proxy from the environment is {proxy.scheme}://: only http and https proxies are understood",
                f"環境変数のプロキシ {proxy.scheme}:// には対応していません。http か https のみです",
            )
        )
    return proxy


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


class Http:
    """Keeps connections open between calls. Every event loop has a pool of its own, closed with the loop or by `close`."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Any, _Pool]] = WeakKeyDictionary()

    async def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        held = self._pools.get(loop)
        if held is None:
            keeper = _keep_open()
            held = self._pools[loop] = (keeper, await anext(keeper))
        return held[1]

    async def close(self) -> None:
        """Close this event loop's connections. The next call opens others."""
        held = self._pools.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[0].aclose()

    @asynccontextmanager
    async def post(self, url: str, headers: Mapping[str, str], body: bytes, who: Who) -> AsyncIterator[Connection]:
        """Leaving early, by an error or a cancellation, closes the connection at once."""
        pool, route = await self._pool(), route_to(url)
        try:
            connection = await self._asked(pool, route, _request("POST", route, headers, body))
        except OSError as problem:
            raise _explained(problem, url, route, who) from problem
        try:
            yield connection
        except (Broken, Late) as problem:
            raise _explained(problem, url, route, who) from problem
        finally:
            pool.put_back(route, connection)

    async def _asked(self, pool: _Pool, route: Route, request: bytes) -> Connection:
        """A kept connection may have been closed by the server at this very moment: then once more, on a new one."""
        connection = pool.take(route)
        while True:
            if connection is None:
                async with asyncio.timeout(self.timeouts.connect):
                    connection = await pool.connect(route, self.timeouts.connect)
            try:
                await connection.ask(request, self.timeouts.first_byte)
            except BaseException as problem:
                connection.close()
                if isinstance(problem, Broken) and problem.early and connection.uses > 1:
                    connection = None
                    continue
                raise
            return connection


async def _keep_open() -> AsyncIterator[_Pool]:
    """An async generator, because an event loop closes those that are open when it ends."""
    pool = _Pool()
    try:
        yield pool
    finally:
        pool.close()
        await asyncio.sleep(0)  # the sockets are closed in the loop's next round


class _Pool:
    """The connections of one event loop: those that are open, and those of them that wait, by where they lead."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._waiting: dict[Any, dict[Connection, None]] = {}

    def take(self, route: Route) -> Connection | None:
        waiting = self._waiting.get(route.place)
        if not waiting:
            return None
        connection, _ = waiting.popitem()
        connection.rest(None)
        return connection

    def put_back(self, route: Route, connection: Connection) -> None:
        if connection.reusable and connection in self._open:
            self._waiting.setdefault(route.place, {})[connection] = None
            connection.rest(_IDLE)
        else:
            connection.close()

    def _forget(self, route: Route, connection: Connection) -> None:
        connection.rest(None)
        self._open.discard(connection)
        self._waiting.get(route.place, {}).pop(connection, None)

    async def connect(self, route: Route, seconds: float) -> Connection:
        loop, proxy = asyncio.get_running_loop(), route.proxy
        host, port, tls = (route.host, route.port, route.tls)
        if proxy is not None:
            host, port, tls = (proxy.hostname or "", proxy.port or 3128, proxy.scheme == "https")
        trust = await asyncio.to_thread(_trust) if tls or route.tls else None
        transport, connection = await loop.create_connection(
            lambda: Connection(partial(self._forget, route)), host, port, ssl=trust if tls else None, happy_eyeballs_delay=0.25
        )
        if (raw := transport.get_extra_info("socket")) is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a model may think for minutes without a byte
        self._open.add(connection)
        if proxy is not None and route.tls:
            assert trust is not None
            await _tunnel(route, connection, trust, seconds)
        return connection

    def close(self) -> None:
        for connection in list(self._open):
            connection.rest(None)
            connection.close()
        self._waiting.clear()


async def _tunnel(route: Route, connection: Connection, trust: ssl.SSLContext, seconds: float) -> None:
    """Through the proxy to the server, and only then TLS."""
    place = route.netloc if route.netloc.endswith(f":{route.port}") else f"{route.netloc}:{route.port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}", *_pass(route)]
    try:
        await connection.ask("\r\n".join([*lines, "", ""]).encode(), seconds)
        if connection.status != 200:
            raise Broken(f"the proxy answers {connection.status}")
        connection.transport = await asyncio.get_running_loop().start_tls(
            connection.transport, connection, trust, server_hostname=route.host
        )
        connection.uses = 0
    except BaseException:
        connection.close()
        raise


def _request(method: str, route: Route, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {route.target} HTTP/1.1", f"host: {route.netloc}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if route.proxy is not None and not route.tls:
        lines += _pass(route)
    if any("\r" in line or "\n" in line for line in lines):
        raise ConfigError(say("a header or the address contains a line break", "ヘッダーまたはアドレスに改行があります"))
    return "\r\n".join([*lines, "", ""]).encode() + body


def _pass(route: Route) -> list[str]:
    """The proxy's user and password, where its address has them."""
    if route.proxy is None or not route.proxy.username:
        return []
    name, word = unquote(route.proxy.username), unquote(route.proxy.password or "")
    return ["proxy-authorization: Basic " + b64encode(f"{name}:{word}".encode()).decode()]


def _explained(problem: OSError, url: str, route: Route, who: Who) -> ModelError:
    if isinstance(problem, TimeoutError):
        return failure(ModelTimeout, say("no answer in time", "時間内に返答がありません"), 0, who)
    return failure(ModelUnreachable, _unreachable(url, route, problem), 0, who)


def _unreachable(url: str, route: Route, problem: OSError) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        why = problem.verify_message
        return say(
            f"the certificate of {url} is not trusted ({why}); see SSL_CERT_FILE",
            f"{url} の証明書を信頼できません ({why})。SSL_CERT_FILE を確認してください",
        )
    if isinstance(problem, socket.gaierror):
        place = route.proxy.hostname if route.proxy is not None else route.host
        return say(
            f"the name {place} cannot be resolved: check base_url and the network",
            f"{place} の名前を解決できません。base_url とネットワークを確認してください",
        )
    via = say(f" through the proxy {route.proxy.hostname}", f" (プロキシ {route.proxy.hostname} 経由)") if route.proxy else ""
    why = f"{type(problem).__name__}: {problem}" if not isinstance(problem, Broken) else str(problem)
    return say(f"{url} cannot be reached{via}: {why}", f"{url} に接続できません{via}: {why}")
