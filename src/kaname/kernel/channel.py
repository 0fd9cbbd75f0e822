"""From the run to its reader: bounded, so that a slow reader slows the run instead of filling memory."""

from __future__ import annotations

import asyncio
from collections import deque
from time import time

from ..core.chunks import Chunk, chunks_of, delta_chunk
from ..core.errors import InvalidState
from ..core.events import Delta, Event
from ..core.language import say

CAPACITY = 256


class Channel:
    """One writer side (the run, its parallel tools), one reader. Numbers the chunks of the stream without gaps."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._chunks: deque[Chunk] = deque()
        self._capacity = capacity
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self._seq = 0
        self.muted = False  # nobody reads: chunks are not even made
        self.unbounded = False  # the run is ending: never wait for the reader
        self.closed = False

    async def event(self, event: Event) -> None:
        if not self.muted:
            for chunk in chunks_of(event):
                await self.put(chunk)

    async def delta(self, text: str, kind: str, call_id: str, agent: str) -> None:
        if self.muted:
            return
        if kind == "text":
            chunk = Chunk(time(), agent, "delta", {"content": text})
        else:
            chunk = delta_chunk(time(), agent, Delta(text, kind, call_id))  # type: ignore[arg-type]
        await self.put(chunk)

    async def put(self, chunk: Chunk) -> None:
        while len(self._chunks) >= self._capacity and not (self.muted or self.unbounded or self.closed):
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._writers.append(room)
            await room
        if self.muted:
            return
        self._seq += 1
        chunk.seq = self._seq
        self._chunks.append(chunk)
        if self._reader is not None:
            _wake(self._reader)

    async def get(self) -> Chunk | None:
        """The next chunk; `None` when the run has ended and everything was read."""
        while not self._chunks:
            if self.closed:
                return None
            if self._reader is not None:
                raise InvalidState(say("a run has one reader at a time", "実行を同時に読めるのは一人だけです"))
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        chunk = self._chunks.popleft()
        if self._writers and len(self._chunks) <= self._capacity // 2:
            self._let_writers_in()
        return chunk

    def mute(self) -> None:
        self.muted = True
        self._chunks.clear()
        self._let_writers_in()

    def end_soon(self) -> None:
        self.unbounded = True
        self._let_writers_in()

    def close(self) -> None:
        self.closed = True
        self._let_writers_in()
        if self._reader is not None:
            _wake(self._reader)

    def _let_writers_in(self) -> None:
        while self._writers:
            _wake(self._writers.popleft())


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
