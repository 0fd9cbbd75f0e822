"""An HTTP transport that accepts large answers, supports silent older servers, and records calls that were never sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from fastmcp.client.transports.base import TransportOptions
from fastmcp.client.transports.http import StreamableHttpTransport
from mcp.client.streamable_http import streamable_http_client

from .probe import PROBE, ask_within

_LARGEST = 64 << 20  # bytes of one answer: pictures are some megabytes


class LargeHttp(StreamableHttpTransport):
    """A streamable HTTP transport with a higher limit for the size of answers.

    `patience`: seconds to wait for the server's protocol version; `None` if a person may have to sign in first."""

    def __init__(self, url: str, patience: float | None, **options: Any) -> None:
        super().__init__(url, **options)
        self._patience = patience

    @asynccontextmanager
    async def connect_session(self, *, transport_options: Any = None, **session: Any) -> AsyncIterator[Any]:
        options = transport_options or TransportOptions()
        assert self.httpx_client_factory is not None
        made = self.httpx_client_factory(headers=dict(self.headers), auth=self.auth)
        async with (
            made as client,
            streamable_http_client(str(self.url), http_client=client, max_sse_event_size=_LARGEST) as (read, write),
            options.session_class(read, write, **session) as opened,
        ):
            if self._patience is not None:
                opened.send_discover = partial(ask_within, min(PROBE, self._patience / 2), opened.send_discover)  # type: ignore[method-assign]
            yield opened


class UnsentRecorder(httpx2.AsyncBaseTransport):
    """An HTTP transport that reports tool calls for which no connection could be made: the server has not seen them."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, unsent: Callable[[str], None]) -> None:
        self._inner, self._unsent = inner, unsent

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            self._unsent(call_key_of(request))
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


def call_key(tool: str, args: Any) -> str:
    return json.dumps([tool, args], sort_keys=True, default=str)


def call_key_of(request: httpx2.Request) -> str:
    try:
        params = json.loads(request.content).get("params") or {}
    except (ValueError, AttributeError, httpx2.RequestNotRead):
        return ""
    return call_key(params.get("name", ""), params.get("arguments") or {})
