"""One connection to a server: one request at a time, its answer read as it arrives. llhttp does the parsing."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httptools

from ...core.notices import notice

_ENOUGH = 1 << 18  # bytes that wait for the reader before the server is paused
_LONGEST_HEAD = 1 << 18
PUNCTUAL = 1.0  # seconds by which a timer may be late before the event loop must have been blocked


class ServerSilent(TimeoutError):
    """The server was silent for so many seconds.

    `begun`: a part of the answer had arrived. `blocked`: seconds in which the event loop of this process was blocked.
    """

    def __init__(self, seconds: float, begun: bool, blocked: float) -> None:
        super().__init__(f"silent for {seconds:g} s")
        self.seconds, self.begun, self.blocked = seconds, begun, blocked


class Broken(OSError):
    """The connection ended, or the data was not HTTP. `early`: no byte of the answer had arrived."""

    def __init__(self, text: str, *, early: bool = False) -> None:
        super().__init__(text)
        self.early = early


class HttpConnection(asyncio.BufferedProtocol):
    """A connection. `ask` sends a request and waits for the head of the answer; `more` returns its body piece by piece, then
    b"".

    `whole` is True when the answer is complete. `buffer` is what the network writes to. All connections of an event loop can
    share one, because it is read at once; a buffer for every read would cost more than the parsing.
    """

    def __init__(self, gone: Callable[[HttpConnection], None], buffer: memoryview) -> None:
        self._gone, self._buffer = gone, buffer
        self._loop = asyncio.get_running_loop()
        self.transport: Any = None
        self.uses = 0
        self.idle_since = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._patience = self._limit = 0.0
        self.whole = self._kept = False
        self._clear()

    def _clear(self) -> None:
        """Forget the last answer. A parser that has read a whole answer reads the next one, too; it is slow to make."""
        if not (self.whole and self._kept and self.uses):
            self._parser: Any = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._waiting = self._head_size = self._read = 0
        self._inflate: Any = None
        self._started = self._paused = self.whole = self._kept = False
        self._problem: Exception | None = None

    @property
    def reusable(self) -> bool:
        """Return True if nothing of the last exchange is left on either side."""
        clean = self.whole and self._kept and not self._pieces and not self._paused
        return clean and self.transport.get_write_buffer_size() == 0

    # --- asked by us ---

    async def ask(self, request: bytes, seconds: float) -> None:
        self._clear()
        self.uses += 1
        if self.transport is None or self.transport.is_closing():
            raise Broken(notice("model.connection_closed", "the connection was closed"), early=True)
        self.transport.write(request)
        until, self._limit = self._loop.time() + seconds, seconds
        while not self.status and self._problem is None:
            await self._wait(until)
        if not self.status and self._problem is not None:
            raise self._problem

    async def more(self, seconds: float) -> bytes:
        while True:
            while not self._pieces:
                if self.whole:
                    return b""
                if self._problem is not None:
                    raise self._problem
                self._limit = seconds
                await self._wait(self._loop.time() + seconds)
            pieces, self._pieces, self._waiting = self._pieces, [], 0
            self._read += 1
            if self._paused:
                self._paused = False
                self.transport.resume_reading()
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if self._inflate is None:
                return data
            try:
                if unpacked := self._inflate.decompress(data):
                    return unpacked  # type: ignore[no-any-return]
            except zlib.error as problem:
                raise Broken(notice("model.packed", "the answer cannot be unpacked: {problem}", problem=problem)) from problem

    async def read_body(self, seconds: float, limit: int | None = None) -> bytes:
        """Return the rest of the answer, or about `limit` bytes of it."""
        read, size = [], 0
        while (limit is None or size < limit) and (piece := await self.more(seconds)):
            read.append(piece)
            size += len(piece)
        return b"".join(read)[:limit]

    async def finish(self, seconds: float) -> None:
        """Read the end of the answer, if the server sends it soon. Everything needed has been read."""
        if self.whole:
            self._pieces, self._waiting = [], 0
            return
        with suppress(TimeoutError, Broken):
            async with asyncio.timeout(seconds):
                while await self.more(seconds):
                    pass

    def close(self) -> None:
        """Close the connection at once, even during a request."""
        if self.transport is not None:
            self.transport.abort()

    async def _wait(self, until: float) -> None:
        """Wait for data until that time.

        One timer serves all waits: setting one up for each piece would cost more than reading it.
        """
        waiter = self._waiter = self._loop.create_future()
        self._patience = until
        if self._timer is None or self._timer.when() > self._patience:
            self._watch()
        try:
            await waiter
        finally:
            self._waiter = None

    def _watch(self) -> None:
        """Fail the wait if its time is over, else check again when it could be."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if (late := self._loop.time() - self._patience) >= 0:
            self._waiter.set_exception(ServerSilent(self._limit, bool(self._read), late if late > PUNCTUAL else 0.0))
        else:
            self._timer = self._loop.call_at(self._patience, self._watch)

    # --- called by the network ---

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._started = True
        try:
            self._parser.feed_data(self._buffer[:nbytes])
            self._head_size += 0 if self.status else nbytes
            if self._head_size > _LONGEST_HEAD:
                raise httptools.HttpParserError("the headers do not end")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as problem:
            self._fail(Broken(notice("model.not_http", "the answer is not HTTP: {problem}", problem=problem)))
            self.close()
            return
        if self._waiting > _ENOUGH and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, problem: Exception | None) -> None:
        until_the_end = self.status and not {"content-length", "transfer-encoding"} & self.headers.keys()
        if until_the_end and problem is None:
            self.whole = True
        else:
            self._fail(Broken(str(problem or "the server closed the connection"), early=not self._started))
        self._wake()
        if self._timer is not None:
            self._timer.cancel()
        self._gone(self)

    def _fail(self, problem: Exception) -> None:
        if self._problem is None and not self.whole:
            self._problem = problem
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- called by the parser ---

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.whole:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        code = self._parser.get_status_code()
        if self.whole:  # a second answer, without a request
            self.close()
        elif code < 200:  # 100 Continue and its like: the answer is still to come
            self.headers = {}
        else:
            self.status = code
        if self.headers.get("content-encoding", "").lower() in ("gzip", "deflate"):
            self._inflate = zlib.decompressobj(47)

    def on_body(self, body: bytes) -> None:
        if not self.whole:
            self._pieces.append(body)
            self._waiting += len(body)

    def on_message_complete(self) -> None:
        if self.status:
            self.whole = True
            self._kept = self._parser.should_keep_alive()
