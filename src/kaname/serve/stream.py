"""Server-sent events: frames from chunks, and the streams that are open. A run does not end with its reader.

One sweeper looks after all streams: it keeps idle ones alive, and cuts those whose client has stopped reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..core.chunks import PARTS, Chunk
from ..core.notices import notice
from .encoding import PATIENCE, PIECE, Part, joined, pieces, share, to_json
from .problems import Refused
from .users import Caller

_SWEEP = 2.5  # seconds
_ALIVE = 15.0  # seconds of silence after which a comment is sent
_ASKED_AGAIN = 10.0  # seconds after which it is looked whether its reader may still read
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy passes them on at once
]


def event(value: Any, name: str = "") -> bytes:
    """A frame of a dialect: its name, if it has one, and JSON."""
    head = b"event: %b\ndata: " % name.encode() if name else b"data: "
    return b"%b%b\n\n" % (head, to_json(value))


class Frames:
    """A run's chunks as frames, numbered without gaps. The id is the fact's number: the place to go on from. A fact that is
    told by several chunks has it at the last; before that the id is `7.1`: of fact 7, one was seen."""

    def __init__(self, last_id: str = "") -> None:
        self.after, self._skip = _place(last_id)
        self._fact = self.after + 1 if self._skip else 0
        self._seq = self._told = 0

    def take(self, chunks: list[Chunk]) -> list[Part]:
        """The frames of some chunks, joined; a large text is a part of its own, which all readers of the run share."""
        parts: list[Part] = []
        for chunk in chunks:
            if not self._seen(chunk):
                parts += self._frame(chunk)
        return joined(parts)

    def _seen(self, chunk: Chunk) -> bool:
        if self._skip and chunk.data.get("fact") == self._fact:
            self._skip -= 1
            self._told += 1
            return True
        return False

    def _frame(self, chunk: Chunk) -> tuple[Part, ...]:
        self._seq += 1
        told = {"time": chunk.time, "agent": chunk.agent, "type": chunk.type}
        head = self._id(chunk) + b"event: %b\ndata: " % chunk.type.encode()
        body = to_json({**told, "data": chunk.data, "seq": self._seq})
        if len(body) <= PIECE:
            return (b"%b%b\n\n" % (head, body),)
        return b'%b%b,"data":' % (head, to_json(told)[:-1]), share(to_json(chunk.data)), b',"seq":%d}\n\n' % self._seq

    def _id(self, chunk: Chunk) -> bytes:
        fact = chunk.data.get("fact")
        if fact is None:
            return b""
        if chunk.type in PARTS:
            self._told += 1
            return b"id: %d.%d\n" % (fact, self._told)
        self.after, self._told, self._skip = fact, 0, 0
        return b"id: %d\n" % fact


def _place(last_id: str) -> tuple[int, int]:
    """The fact after which to go on, and how many chunks of the next one were seen."""
    whole, dot, part = last_id.strip().partition(".")
    if not whole:
        return 0, 0
    if not whole.isdecimal() or (dot and not part.isdecimal()) or len(last_id) > 20:
        raise Refused(400, notice("serve.event_id", "Last-Event-ID is the number of a fact, not {last_id!r}", last_id=last_id))
    return (int(whole) - 1, int(part)) if dot and int(part) and int(whole) else (int(whole), 0)


class Streams:
    """The streams that are open: how many each user has, and who looks after them."""

    def __init__(self, most: int = 5_000, of_each: int = 200) -> None:
        self.most, self.of_each = most, of_each
        self.closing = False
        self._open: set[Stream] = set()
        self._counts: dict[str, int] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def check(self, caller: Caller) -> None:
        """Whether one more may be opened: asked before anything is begun for it."""
        if self.closing:
            raise Refused(503, notice("serve.closing", "the server is shutting down; try again"), retry_after="1")
        if len(self._open) >= self.most or (not caller.is_admin and self._counts.get(caller.name, 0) >= self.of_each):
            raise Refused(429, notice("serve.streams", "too many open streams; close some first"), retry_after="5")

    def enter(self, stream: Stream) -> None:
        who = stream.caller.name
        self.check(stream.caller)
        self._open.add(stream)
        self._counts[who] = self._counts.get(who, 0) + 1
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._sweep())

    def leave(self, stream: Stream) -> None:
        self._open.discard(stream)
        who = stream.caller.name
        self._counts[who] -= 1
        if not self._counts[who]:
            del self._counts[who]

    async def close(self) -> None:
        """End all of them, each with a last word that says where to go on."""
        self.closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for stream in tuple(self._open):
            stream.end()

    async def _sweep(self) -> None:
        while self._open:
            await asyncio.sleep(_SWEEP)
            now = asyncio.get_running_loop().time()
            for stream in tuple(self._open):
                stream.look_after(now)


class Stream(Response):
    """An answer that goes on. `frames` makes its bytes; `closing` the last ones, when the server shuts down; `left` is called
    if the client goes away before the end."""

    def __init__(
        self,
        streams: Streams,
        caller: Caller,
        frames: AsyncGenerator[Part, None],
        *,
        closing: Callable[[], bytes] = bytes,
        left: Callable[[], None] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.caller, self.background, self.status_code = caller, None, 200
        self._streams, self._frames, self._closing, self._left = streams, frames, closing, left
        self._own = [*HEADERS, *[(name.encode(), value.encode()) for name, value in (headers or {}).items()]]
        self._sending, self._sent, self._ending, self._gone = 0.0, 0.0, False, False
        self._task: asyncio.Task[Any] | None = None
        self._send: Any = None
        self._abort: Callable[[], None] = self._leave
        self._comment: asyncio.Task[None] | None = None
        self._still: Callable[[], bool] = lambda: True
        self._asked = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("method") == "HEAD":
            await self._frames.aclose()
            return await Response(headers={"content-type": "text/event-stream; charset=utf-8"})(scope, receive, send)
        self._still = scope.get("kaname.still", self._still)
        self._streams.enter(self)
        self._abort = scope.get("kaname.abort", self._leave)
        whole, send = send, scope.get("kaname.send", send)  # past the middleware, which has to do with the head only
        loop, self._task, self._send = asyncio.get_running_loop(), asyncio.current_task(), send
        watching = asyncio.create_task(self._watch(receive))
        try:
            await whole({"type": "http.response.start", "status": 200, "headers": self._own})
            async with aclosing(self._frames) as frames:
                async for part in frames:
                    for piece in pieces(part) if part else ():
                        self._sending = self._sent = loop.time()
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                        self._sending = 0.0
            await send({"type": "http.response.body", "body": b""})
        except asyncio.CancelledError:
            if not self._gone and not self._ending:
                raise
            if self._task is not None:
                self._task.uncancel()
            if self._ending and not self._gone:
                await send({"type": "http.response.body", "body": self._closing()})
        finally:
            watching.cancel()
            self._streams.leave(self)
            if self._gone and self._left is not None:
                self._left()

    async def _watch(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self._gone = True
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        self._ending = True
        if self._task is not None:
            self._task.cancel()

    def look_after(self, now: float) -> None:
        if now - self._asked > _ASKED_AGAIN:
            self._asked = now
            if not self._still():
                self._leave()
                return
        if self._sending and now - self._sending > PATIENCE:
            self._abort()
        elif not self._sending and now - self._sent > _ALIVE:
            self._sending = self._sent = now
            self._comment = asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        await self._send({"type": "http.response.body", "body": b": \n\n", "more_body": True})
        self._sending = 0.0


@asynccontextmanager
async def noticing_departure(request: Request, left: Callable[[], None]) -> AsyncIterator[None]:
    """Call `left` if the client goes away meanwhile: for an answer that is no stream. The body has been read before."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        left()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
