"""From the run to its readers: any number of them, each with a bounded queue. No reader holds the run up.

A reader that is too slow loses deltas, and is told how many; facts it reads again from the journal. One that wants every
delta asks the run to wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from time import time
from typing import Self

from ..core.chunks import Chunk, chunks_of, delta_chunk
from ..core.errors import InvalidState
from ..core.events import Delta, Event
from ..core.language import say

CAPACITY = 256
Reread = Callable[[int], AsyncIterator[Event]]


class Reader(AsyncIterator[Chunk]):
    """One who reads a run. It numbers the chunks of its stream without gaps.

    `reread(after)`: the facts after a number, from the journal. `after`: the last fact that it has seen, where it has. `waits`:
    the run waits for it instead of leaving deltas out.
    """

    def __init__(self, reread: Reread, *, after: int | None = None, waits: bool = False, capacity: int = CAPACITY) -> None:
        self.waits, self.closed = waits, False
        self.last = after  # the last fact that is in the queue, or was
        self._reread, self._capacity = reread, capacity
        self._chunks: deque[Chunk] = deque()
        self._seq = self._skipped = 0
        self._asked_at = -1
        self._missed = 0  # the last fact that came while it was behind
        self._behind = self._stalled = False
        self._waiting: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def begin_behind(self) -> None:
        """Begin with the facts that were before it."""
        self._behind, self.last = True, self.last or 0

    # The run's side

    def put_fact(self, chunks: list[Chunk], fact: int) -> None:
        if self.last is None:
            self.last = fact - 1
        if fact <= self.last or self.closed:
            return
        room = 2 * self._capacity - len(chunks)  # facts may take as much again as deltas
        if not self._behind and len(self._chunks) > room:
            self._drop_deltas()
            self._behind = len(self._chunks) > room
        if self._behind:
            self._missed = fact
        else:
            self._chunks.extend(chunks)
            self.last = fact
        self._wake()

    def put_delta(self, chunk: Chunk, *, again: bool = False) -> bool:
        """Whether that is done with. `again`: it had its chance to make room; until it reads, nobody waits for it any more."""
        if len(self._chunks) < self._capacity and not self._behind:
            self._chunks.append(chunk)
            if self._waiting is not None:
                self._wake()
            return True
        self._stalled = self._stalled or again
        if self._stalled and not self.waits:
            self._skipped += 1
            return True
        return False

    def reads(self) -> bool:
        """Whether it has taken anything since this was last asked."""
        before, self._asked_at = self._asked_at, self._seq
        return before != self._seq

    async def room(self) -> None:
        """Until it has read half of what it has."""
        while self.waits and not self.closed and len(self._chunks) >= self._capacity:
            self._room = self._room or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def close(self) -> None:
        """No more comes: what is in the queue can still be read."""
        self.closed = True
        self._wake()
        self.stop_waiting()

    def stop_waiting(self) -> None:
        self.waits = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def _drop_deltas(self) -> None:
        before = len(self._chunks)
        self._chunks = deque([chunk for chunk in self._chunks if "fact" in chunk.data])
        self._skipped += before - len(self._chunks)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # The reader's side

    async def get(self) -> Chunk | None:
        """The next chunk; `None` when the run has ended and everything was read."""
        self._stalled = False
        if self._chunks and not self._skipped and self._room is None:
            chunk = self._chunks.popleft()
            if not chunk.seq:
                self._seq = chunk.seq = self._seq + 1
                return chunk
            return self._numbered(chunk)
        while True:
            if self._skipped:
                told = {"status": "skipped", "deltas": self._skipped}
                self._skipped = 0
                return self._numbered(Chunk(time(), "", "status", told))
            if self._chunks:
                chunk = self._chunks.popleft()
                if self._room is not None and len(self._chunks) <= self._capacity // 2:
                    self._room.set_result(None)
                    self._room = None
                return self._numbered(chunk)
            if self._behind:
                await self._catch_up()
            elif self.closed:
                return None
            else:
                await self._wait()

    async def _wait(self) -> None:
        if self._waiting is not None:
            raise InvalidState(
                say(
                    "two tasks read one stream at once; use run.subscribe() for another", "一つのストリームは一人しか読めません"
                )
            )
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    async def _catch_up(self) -> None:
        """Take the facts that did not fit from the journal, a queueful at a time."""
        async for event in self._reread(self.last or 0):
            self._chunks.extend(chunks_of(event))
            self.last = event.seq
            if len(self._chunks) >= self._capacity:
                return
        if (self.last or 0) >= self._missed:
            self._behind = False

    def _numbered(self, chunk: Chunk) -> Chunk:
        if chunk.seq:  # it is another reader's too
            chunk = Chunk(chunk.stamp, chunk.agent, chunk.type, chunk.data)
        self._seq = chunk.seq = self._seq + 1
        return chunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.get()
        if chunk is None:
            raise StopAsyncIteration
        return chunk


class Channel:
    """The run's side of all its readers."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self.ending = False  # the run is ending: nobody is waited for any more
        self.closed = False
        self._deltas = 0

    def add(self, reader: Reader) -> Reader:
        if self.closed:
            reader.close()
        else:
            self.readers.append(reader)
        return reader

    def remove(self, reader: Reader) -> None:
        if reader in self.readers:
            self.readers.remove(reader)
        reader.close()

    async def event(self, event: Event) -> None:
        if not self.readers:
            return
        chunks = chunks_of(event)
        for reader in tuple(self.readers):
            if reader.waits and not self.ending:
                await reader.room()
            reader.put_fact(chunks, event.seq)

    async def show(self, chunk: Chunk) -> None:
        """A chunk that is no fact of this run: a child's, say."""
        for reader in tuple(self.readers):
            if not reader.put_delta(Chunk(chunk.stamp, chunk.agent, chunk.type, chunk.data)):
                await self._wait_for([reader], chunk)

    async def delta(self, text: str, kind: str, call_id: str, agent: str) -> None:
        if not self.readers:
            return
        if kind == "text":
            chunk = Chunk(time(), agent, "delta", {"content": text})
        else:
            chunk = delta_chunk(time(), agent, Delta(text, kind, call_id))  # type: ignore[arg-type]
        self._deltas += 1
        late = None
        for reader in self.readers:
            if not reader.put_delta(chunk):
                late = [*(late or ()), reader]
        if late is not None:
            await self._wait_for(late, chunk)
        elif not self._deltas % CAPACITY:  # a model that never pauses lets others in, now and then
            await asyncio.sleep(0)

    async def _wait_for(self, late: list[Reader], chunk: Chunk) -> None:
        """A reader that is only waiting for its turn gets it; one that does something else is not waited for."""
        for reader in late:
            done = False
            while not done and reader.reads():
                await asyncio.sleep(0)
                done = reader.put_delta(chunk)
            if reader.waits and not self.ending:
                await reader.room()
            if not done:
                reader.put_delta(chunk, again=True)

    def end_soon(self) -> None:
        self.ending = True
        for reader in self.readers:
            reader.stop_waiting()

    def close(self) -> None:
        self.closed = True
        for reader in self.readers:
            reader.close()
