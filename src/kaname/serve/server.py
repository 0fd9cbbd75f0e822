"""Run the application with uvicorn: slow and oversized requests are cut, streams end before the server does."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..core.errors import ConfigError
from ..core.notices import notice

_HEAD_SECONDS = 10.0
_HEAD_BYTES = 64_000
_SHUTDOWN_SECONDS = 15
CONNECTIONS = 10_000


class PatientProtocol(HttpToolsProtocol):
    """A request's head has to come within some seconds, and fit some bytes; the application can cut the connection."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head, self._in_head = 0, True
        self._deadline: asyncio.TimerHandle | None = self.loop.call_later(_HEAD_SECONDS, self._cut)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head += len(data)
            if self._deadline is None:
                self._deadline = self.loop.call_later(_HEAD_SECONDS, self._cut)
        super().data_received(data)
        if self._in_head and self._head > _HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._head, self._in_head = 0, False
        self._unset_deadline()
        self.scope["kaname.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        self._in_head = True
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_deadline()
        super().connection_lost(exc)

    def _unset_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cut(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.abort()


class Server(uvicorn.Server):
    """It tells the application before it waits for the open connections: their streams would never end by themselves."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        closing = getattr(self.config.loaded_app, "closing", None) or getattr(self.config.app, "closing", None)
        if closing is not None:
            await closing()
        await super().shutdown(sockets)


def configured(app: Any, *, host: str, port: int, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        limit_concurrency=CONNECTIONS,
        backlog=1024,
        **more,
    )


def bound(host: str, port: int) -> socket.socket:
    """The address, taken; an error that says who has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind((host, port))
    except (OSError, OverflowError) as problem:
        one.close()
        why = getattr(problem, "strerror", "") or str(problem)
        told = notice("serve.bind", "cannot listen on {host}:{port}: {why}", host=host, port=port, why=why)
        raise ConfigError(told) from None
    one.listen(1024)  # who comes while it starts is answered when it has
    one.set_inheritable(True)
    return one


def serve(app: Any, taken: socket.socket) -> None:
    """Until a signal ends it."""
    host, port = taken.getsockname()[:2]
    Server(configured(app, host=host, port=port)).run(sockets=[taken])
