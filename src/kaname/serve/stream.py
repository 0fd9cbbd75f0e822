"""Server-sent events: frames from chunks, and the open streams. A run does not end with its reader.

One sweeper keeps idle streams alive, and aborts those whose client has stopped reading.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..core.chunks import PARTS, Chunk
from ..core.notices import notice
from .encoding import PATIENCE, Part, pieces, share, size_of, to_json
from .problems import HttpRefused
from .users import Caller

_SWEEP = 2.5  # seconds
_ALIVE = 15.0  # seconds of silence after which a comment is sent
_LEFT = 408  # the status of a response that nobody reads, in the access log
_ASKED_AGAIN = 10.0  # seconds between two checks if the reader is still allowed to read
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy passes events on at once
]


def event(value: Any, name: str = "") -> bytes:
    """Return a frame: the name of the event, if it has one, and the value as JSON."""
    head = b"event: %b\ndata: " % name.encode() if name else b"data: "
    return b"%b%b\n\n" % (head, to_json(value))


class Frames:
    """Turn the chunks of a run into frames, numbered without gaps. `after`: the last fact whose frames were sent.

    The id of a frame is the number of the fact: the place to continue from. If a fact has several chunks, the last one has that
    id; the ids before it are `7.1`, `7.2`: of fact 7, so many chunks were sent.
    """

    def __init__(self, last_id: str = "") -> None:
        self.after, self._skip = _place(last_id)
        self._fact = self.after + 1 if self._skip else 0
        self._seq = self._told = 0
        self._written = self._sent = 0  # bytes
        self._ends = deque[tuple[int, int]]()  # of each fact that is not sent yet: the bytes up to its end, and its number

    def take(self, chunks: list[Chunk]) -> list[Part]:
        """Return the frames of some chunks. All readers of the run share a large text."""
        return [self._frame(chunk) for chunk in chunks if not self._is_seen(chunk)]

    def note_sent(self, part: Part) -> None:
        """Remember that the next bytes were sent."""
        self._sent += size_of(part)
        while self._ends and self._ends[0][0] <= self._sent:
            _, self.after = self._ends.popleft()

    def _is_seen(self, chunk: Chunk) -> bool:
        if self._skip and chunk.data.get("fact") == self._fact:
            self._skip -= 1
            self._told += 1
            return True
        return False

    def _frame(self, chunk: Chunk) -> Part:
        self._seq += 1
        head = self._id(chunk) + b"event: %b\ndata: " % chunk.type.encode()
        body, tail = _encode(chunk), b',"seq":%d}\n\n' % self._seq
        frame: Part = b"%b%b%b" % (head, body, tail) if isinstance(body, bytes) else (head, body, tail)
        self._written += size_of(frame)
        fact = chunk.data.get("fact")
        if fact is not None and chunk.type not in PARTS:
            self._ends.append((self._written, fact))
        return frame

    def _id(self, chunk: Chunk) -> bytes:
        fact = chunk.data.get("fact")
        if fact is None:
            return b""
        if chunk.type in PARTS:
            self._told += 1
            return b"id: %d.%d\n" % (fact, self._told)
        self._told, self._skip = 0, 0
        return b"id: %d\n" % fact


def _encode(chunk: Chunk) -> Part:
    """Return the chunk as JSON, up to its number. It is encoded once for all readers of the run."""
    if chunk.encoded:
        known: Part = chunk.encoded[0]
        return known
    told = {"time": chunk.time, "agent": chunk.agent, "type": chunk.type, "data": chunk.data}
    body = share(to_json(told)[:-1])
    if chunk.encoded is not None:
        chunk.encoded.append(body)
    return body


def _place(last_id: str) -> tuple[int, int]:
    """Return the fact to continue after, and how many chunks of the next fact were already sent."""
    whole, dot, part = last_id.strip().partition(".")
    if not whole:
        return 0, 0
    if not whole.isdecimal() or (dot and not part.isdecimal()) or len(last_id) > 20:
        raise HttpRefused.of(
            "serve.event_id", "Last-Event-ID must be the number of a fact, not {last_id!r}", http=400, last_id=last_id
        )
    return (int(whole) - 1, int(part)) if dot and int(part) and int(whole) else (int(whole), 0)


class Streams:
    """The open streams: how many each user has, and the task that looks after them."""

    def __init__(self, most: int = 5_000, of_each: int = 200) -> None:
        self.most, self.of_each = most, of_each
        self.closing = False
        self._open: set[Stream] = set()
        self._counts: dict[str, int] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def check(self, caller: Caller) -> None:
        """Raise `HttpRefused` if no further stream can be opened. Called before anything is started for the stream."""
        if self.closing:
            raise HttpRefused(503, notice("serve.closing", "the server is shutting down; try again"), retry_after="1")
        if len(self._open) >= self.most or (not caller.is_admin and self._counts.get(caller.name, 0) >= self.of_each):
            raise HttpRefused(429, notice("serve.streams", "too many open streams; close some first"), retry_after="5")

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
        """End all streams. The last event of each says where to continue."""
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
    """A response that continues until its frames end.

    `frames`: yields the bytes. A part is sent whole, also if the server shuts down. `sent`: called with each part as soon as it
    was sent. `closing`: returns the last bytes if the server shuts down. `left`: called if the client leaves before the end.
    """

    def __init__(
        self,
        streams: Streams,
        caller: Caller,
        frames: AsyncGenerator[Part, None],
        *,
        sent: Callable[[Part], None] = lambda part: None,
        closing: Callable[[], bytes] = bytes,
        left: Callable[[], None] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.caller, self.background, self.status_code = caller, None, 200
        self._streams, self._frames, self._note_sent, self._closing, self._left = streams, frames, sent, closing, left
        given = {name.lower().encode(): value.encode() for name, value in (headers or {}).items()}
        self._own = [*[(name, value) for name, value in HEADERS if name not in given], *given.items()]
        self._has_comments = b"content-type" not in given  # another format has none, and is not kept alive by them
        self._sending, self._sent, self._ending, self._gone, self._in_part = 0.0, 0.0, False, False, False
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
        whole, send = send, scope.get("kaname.send", send)  # without the middleware, which changes only the headers
        self._task, self._send = asyncio.current_task(), send
        watching = asyncio.create_task(self._watch(receive))
        try:
            await whole({"type": "http.response.start", "status": 200, "headers": self._own})
            async with aclosing(self._frames) as frames:
                async for part in frames:
                    if part:
                        await self._send_part(part)
                    self._note_sent(part)
                    if self._ending:
                        break
            await send({"type": "http.response.body", "body": self._closing() if self._ending else b""})
        except asyncio.CancelledError:
            if not self._gone and (self._in_part or not self._ending):
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

    async def _send_part(self, part: Part) -> None:
        loop, self._in_part = asyncio.get_running_loop(), True
        for piece in pieces(part):
            self._sending = self._sent = loop.time()
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            self._sending = 0.0
        self._in_part = False

    def _leave(self) -> None:
        self._gone = True
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """End the stream with its closing bytes. A part that is being sent is sent to its end."""
        ending, self._ending = self._ending, True
        if self._task is not None and not ending and not self._in_part:
            self._task.cancel()

    def look_after(self, now: float) -> None:
        if now - self._asked > _ASKED_AGAIN:
            self._asked = now
            if not self._still():
                self._leave()
                return
        if self._sending and now - self._sending > PATIENCE:
            self._abort()
        elif not self._sending and now - self._sent > _ALIVE and self._has_comments:
            self._sending = self._sent = now
            self._comment = asyncio.create_task(self._keep_alive())

    async def _keep_alive(self) -> None:
        await self._send({"type": "http.response.body", "body": b": \n\n", "more_body": True})
        self._sending = 0.0


@asynccontextmanager
async def watch_departure(request: Request, left: Callable[[], None]) -> AsyncIterator[None]:
    """Call `left` if the client leaves while the block runs.

    For a response that is not a stream; a body must have been read.
    """

    async def watch() -> None:
        ended = False
        while (message := await request.receive())["type"] != "http.disconnect":
            if ended:  # this server repeats the end of the body, and does not say when a client leaves
                return
            ended = not message.get("more_body", False)
        left()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


@asynccontextmanager
async def while_client_waits(request: Request) -> AsyncIterator[None]:
    """Cancel the block if the client leaves while it runs. Its response is then a refusal, which nobody reads."""
    task, gone = asyncio.current_task(), False
    assert task is not None

    def leave() -> None:
        nonlocal gone
        gone = True
        task.cancel()

    try:
        async with watch_departure(request, leave):
            yield
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise HttpRefused(_LEFT, notice("serve.left", "the client disconnected")) from None
