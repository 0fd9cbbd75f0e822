"""The server: uvicorn with limits.

Slow and oversized requests are refused, connections of clients that do not read are aborted, and streams end before the server
does.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
from contextlib import suppress
from logging import getLogger
from time import monotonic
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..core.errors import ConfigError
from .encoding import PATIENCE

_HEAD_SECONDS = 10.0
_HEAD_BYTES = 64_000
_SHUTDOWN_SECONDS = 15
TWICE = 1.0  # seconds within which a second signal is the same one
_SWEEP = 10  # ticks of uvicorn, of a tenth of a second each
_TOLD_AGAIN = 60.0  # seconds
_UNSENT_BYTES = 131_072
_ALLOCATIONS = 20_000  # more than were released, before the collector looks at them
CONNECTIONS = 10_000
log = getLogger("kaname.serve")


class CountingTransport:
    """The transport of a connection, with a count of the bytes written. The client has taken what is not in the buffer."""

    def __init__(self, transport: Any) -> None:
        self._transport, self._write = transport, transport.write
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class PatientProtocol(HttpToolsProtocol):
    """HTTP with limits on time and size.

    The head of a request has to arrive within some seconds and fit into some bytes. The client has to read what is sent: of any
    response, whole or a stream, also after the server has closed the connection and only waits for the rest to be read. The
    application can abort the connection (`kaname.abort` in the scope).
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = self._counted = CountingTransport(transport)  # type: ignore[assignment]
        _hold_little(transport.get_extra_info("socket"))
        self._taken, self._taken_at = 0, monotonic()
        self._head, self._in_head = 0, True
        self._head_size, self._oversized = 0, False
        self._deadline: asyncio.TimerHandle | None = self.loop.call_later(_HEAD_SECONDS, self._abort)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head += len(data)
            if self._deadline is None:
                self._deadline = self.loop.call_later(_HEAD_SECONDS, self._abort)
        super().data_received(data)
        if self._in_head and self._head > _HEAD_BYTES and not self.transport.is_closing():  # incomplete, and already too large
            self._refuse_head()

    def on_message_begin(self) -> None:
        self._head_size = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def _count(self, size: int) -> None:
        """Count what the parser has read of a head, however it arrived. Raise ValueError if it is too large."""
        self._head_size += size
        if self._head_size > _HEAD_BYTES:
            self._oversized = True
            raise ValueError("the head is too large")

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be parsed."""
        self._refuse_head() if self._oversized else super().send_400_response(msg)

    def _refuse_head(self) -> None:
        self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
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

    def look_after(self, now: float) -> None:
        """Abort the connection if its client has not read anything for a while although something waits for it."""
        waiting = self._counted.get_write_buffer_size()
        taken = self._counted.written - waiting
        if not waiting or taken != self._taken:
            self._taken, self._taken_at = taken, now
        elif now - self._taken_at > PATIENCE:
            log.info("a client did not read for %.0f s: its connection is cut, %d bytes were left", PATIENCE, waiting)
            self._counted.abort()

    def _unset_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.abort()


def _hold_little(connection: Any) -> None:
    """Have the system buffer little that is not on its way to the client.

    Otherwise it takes megabytes for each client that does not read, and shows only in large steps that a client reads slowly.
    """
    if (
        connection is not None
        and connection.family in (socket.AF_INET, socket.AF_INET6)
        and hasattr(socket, "TCP_NOTSENT_LOWAT")
    ):
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)


class Descriptors:
    """Log an error when the process has no file descriptors left: new connections are not accepted then.

    It is checked now and then, so a shortage of less than a second can pass unseen.
    """

    def __init__(self) -> None:
        self._told_at: float | None = None

    def look(self, now: float) -> None:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as problem:
            if problem.errno in (errno.EMFILE, errno.ENFILE) and (self._told_at is None or now - self._told_at > _TOLD_AGAIN):
                self._told_at = now
                log.error("out of file descriptors (%s): new connections are not accepted until others are closed. "
                          "Raise the limit: ulimit -n, or LimitNOFILE= in a systemd unit", problem.strerror)  # fmt: skip
            return
        if self._told_at is not None:
            self._told_at = None
            log.warning("there are file descriptors again: connections are accepted")


class StreamingServer(uvicorn.Server):
    """A uvicorn server that closes the application before it waits for open connections: streams would not end by themselves.

    Once a second it checks the connections and the file descriptors.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._descriptors = Descriptors()
        self._told = 0.0  # when the first signal came
        self._loop: asyncio.AbstractEventLoop | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down, and at the next signal without waiting for tools. A signal that arrives twice at once counts once.

        Terminals and supervisors send it to a process and to its children, which pass it on.
        """
        now = monotonic()
        if not self.should_exit:
            self._told = now
            super().handle_exit(sig, frame)
        elif now - self._told > TWICE:
            super().handle_exit(sig, frame)
            hurry = getattr(self.config.loaded_app, "hurry", None)
            if self._loop is not None and hurry is not None:
                self._loop.call_soon_threadsafe(hurry)

    async def on_tick(self, counter: int) -> bool:
        if counter % _SWEEP == 0:
            now = monotonic()
            self._descriptors.look(now)
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, PatientProtocol):
                    connection.look_after(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        for server in self.servers:
            server.close()
        closing = getattr(self.config.loaded_app, "closing", None) or getattr(self.config.app, "closing", None)
        if closing is not None:
            await closing()
        await super().shutdown(sockets)


def uvicorn_config(app: Any, *, host: str, port: int, **more: Any) -> uvicorn.Config:
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
        proxy_headers=False,  # the application knows which proxies to believe
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        limit_concurrency=CONNECTIONS,
        backlog=1024,
        **more,
    )


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address. Raise `ConfigError` with the reason if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind((host, port))
    except (OSError, OverflowError) as problem:
        one.close()
        why = getattr(problem, "strerror", "") or str(problem)
        raise ConfigError.of("serve.bind", "cannot listen on {host}:{port}: {why}", host=host, port=port, why=why) from None
    one.listen(1024)  # requests that arrive during the start are answered after it
    one.set_inheritable(True)
    return one


def _collect_rarely() -> None:
    """Have the garbage collector look less often, and not at what is loaded already.

    A server has thousands of streams open, and nearly everything that a stream allocates is released without the collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 20)


def serve(app: Any, taken: socket.socket) -> None:
    """Serve the application until a signal arrives."""
    _collect_rarely()
    host, port = taken.getsockname()[:2]
    StreamingServer(uvicorn_config(app, host=host, port=port)).run(sockets=[taken])
