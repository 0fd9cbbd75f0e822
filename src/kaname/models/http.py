"""The way to a provider: pooled connections, one pool an event loop, and what can go wrong on it.

Proxies come from the environment (`HTTPS_PROXY`, `NO_PROXY`), certificates too (`SSL_CERT_FILE`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..core.errors import ModelTimeout, ModelUnreachable
from ..core.language import say
from ..core.record import record
from .failures import Who, failure

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession


@record
class Timeouts:
    """Seconds: to connect, to the first byte of the answer, and between two pieces of it."""

    connect: float = 10.0
    first_byte: float = 300.0
    between: float = 120.0


PATIENT = Timeouts()


@cache
def proxy_for(url: str) -> str | None:
    """From the environment, looked up once: aiohttp's own way reads a file in a thread before every request."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    address = urlsplit(url)
    if address.hostname is None or proxy_bypass(address.hostname):
        return None
    proxies = getproxies()
    return proxies.get(address.scheme) or proxies.get("all")


class Http:
    """Keeps connections open between calls. Every event loop has a pool of its own, closed with the loop or by `close`."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    async def session(self) -> ClientSession:
        loop = asyncio.get_running_loop()
        held = self._pools.get(loop)
        if held is None or held[1].closed:
            keeper = self._keep_open()
            held = self._pools[loop] = (keeper, await anext(keeper))
        session: ClientSession = held[1]
        return session

    async def _keep_open(self) -> AsyncIterator[ClientSession]:
        """An async generator, because an event loop closes those that are open when it ends."""
        if "aiohttp" not in sys.modules:  # a fifth of a second, in which the loop must not stand still
            await asyncio.to_thread(import_module, "aiohttp")
        import aiohttp

        limits = aiohttp.ClientTimeout(total=None, sock_connect=self.timeouts.connect, sock_read=self.timeouts.between)
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=300)
        session = aiohttp.ClientSession(connector=connector, timeout=limits)
        try:
            yield session
        finally:
            await session.close()

    async def close(self) -> None:
        """Close this event loop's pool. The next call opens another."""
        held = self._pools.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[0].aclose()

    @asynccontextmanager
    async def post(self, url: str, headers: dict[str, str], body: bytes, who: Who) -> AsyncIterator[ClientResponse]:
        """Leaving early, by an error or a cancellation, closes the connection at once."""
        session = await self.session()
        import aiohttp

        try:
            async with asyncio.timeout(self.timeouts.first_byte):
                response = await session.post(url, data=body, headers=headers, proxy=proxy_for(url))
            try:
                yield response
            except BaseException:
                response.close()  # mid-stream: not to be used again
                raise
            response.release()
        except TimeoutError as problem:
            raise failure(ModelTimeout, say("no answer in time", "時間内に返答がありません"), 0, who) from problem
        except aiohttp.ClientConnectorCertificateError as problem:
            text = say(f"the certificate of {url} is not trusted; see SSL_CERT_FILE", f"{url} の証明書を信頼できません")
            raise failure(ModelUnreachable, text, 0, who) from problem
        except (aiohttp.ClientError, OSError) as problem:
            why = f"{type(problem).__name__}: {problem}"
            text = say(f"{url} cannot be reached: {why}", f"{url} に接続できません: {why}")
            raise failure(ModelUnreachable, text, 0, who) from problem
