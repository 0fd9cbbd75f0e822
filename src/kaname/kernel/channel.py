"""Channel from a run to its readers. Any number can read, and no reader delays the run.

The run writes each chunk once, into a ring; a reader has a place in it. A reader that the run has overtaken loses deltas and
learns how many; it reads facts again from the journal. A reader that needs every delta can ask the run to wait for it: for
deltas only, since facts are never lost, and only after the run has begun. With many readers, deltas are joined and all readers
are woken together, so that reading takes at most a twentieth of the time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from time import time
from typing import Self
from weakref import WeakSet

from ..core.chunks import Chunk, chunks_of, delta_chunk
from ..core.errors import InvalidState
from ..core.events import Delta, Event

SIZE = 512  # of the ring
LATE = 256  # so far behind, a reader is waited for, if it wants that or is only waiting for its turn
_EVERY = 128  # deltas: so often a model that never pauses lets others in
_FEW = 16  # readers get each delta at once
_LONGEST_REST = 0.5  # seconds
_LOOK = 0.1  # seconds after which the run looks whether a reader it waits for is still there

Reread = Callable[[int], AsyncIterator[Event]]
Entry = Chunk | tuple[int, list[Chunk]]  # a delta; or a fact's number, and its chunks


class Reader(AsyncIterator[Chunk]):
    """A reader of a run. It numbers the chunks of its stream without gaps.

    Args:
        reread: `reread(after)` reads the facts after a number from the journal.
        after: The last fact that the reader has seen. Without it, reading begins with what is new.
        waits: The run waits for this reader before it overwrites a delta that the reader has not read.
        said: The part of a reply that was shown before the reader came. It is delivered after those facts.
    """

    def __init__(self, channel: Channel, reread: Reread, after: int | None, waits: bool, said: Sequence[Chunk] = ()) -> None:
        self.waits, self.place = waits, channel.end
        self._channel, self._reread = channel, reread
        self._last = channel.last_fact if after is None else after
        self._behind = after is not None  # what comes next is in the journal,
        self._upto = channel.last_fact  # up to this fact, or to the first that this channel shows
        self._chunks: deque[Chunk] = deque()  # of facts, before anything else
        self._said = said
        self._facts = channel.facts  # of the entries before its place
        self._seq = 0
        self._asked_at = -1
        self._closed = self._getting = False
        self._waiting: asyncio.Future[None] | None = None

    async def get(self) -> Chunk | None:
        """Return the next chunk, or `None` when the run has ended and everything was read."""
        if self._getting:
            raise InvalidState.of(
                "stream.two_readers", "only one task can read a stream at a time; use run.subscribe() for another reader"
            )
        self._getting = True
        try:
            while (chunk := self.take()) is None:
                if self._closed or (self._channel.closed and not self._behind):
                    return None
                await (self._catch_up() if self._behind else self._news())
            return chunk
        finally:
            self._getting = False

    def take(self) -> Chunk | None:
        """Return the next chunk if there is one now, else `None`."""
        channel = self._channel
        while not self._chunks:
            place = self.place
            if place == channel.end or self._behind or self._closed:
                return None
            if place < channel.end - SIZE:
                self._fall_behind()
                return None
            entry = channel.ring[place % SIZE]
            if channel.alone:  # no other reader
                channel.ring[place % SIZE] = None
            self.place = place + 1
            if self.waits:
                channel.make_room()
            if type(entry) is Chunk:
                return self._number(entry)
            self._take_fact(*entry)  # type: ignore[misc]
        return self._number(self._chunks.popleft())

    def close(self) -> None:
        """Stop reading. The run no longer waits for this reader."""
        self._closed, self.waits = True, False
        self._chunks.clear()
        self._channel.forget(self)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def aclose(self) -> None:
        self.close()

    def reads(self) -> bool:
        """Return True if the reader has read anything since the last call of this method."""
        before, self._asked_at = self._asked_at, self.place
        return before != self.place

    def misses_deltas(self) -> bool:
        """Return True if there are entries that the reader has not read and cannot read again from the journal."""
        channel = self._channel
        return channel.end - channel.facts > self.place - self._facts

    def _take_fact(self, number: int, chunks: list[Chunk]) -> None:
        self._facts += 1
        if self._last is None or number > self._last or not number:  # else it was in the journal before it was shown
            self._chunks.extend(chunks)
            self._last = number

    def _fall_behind(self) -> None:
        """Continue half a ring back after being overtaken; the facts before that place come from the journal."""
        channel, place = self._channel, self._channel.end - LATE
        numbers = [entry[0] for entry in channel.entries_from(place) if type(entry) is tuple]
        self._behind, self._upto = True, numbers[0] - 1 if numbers else channel.last_fact
        facts = channel.facts - len(numbers)
        skipped = (place - facts) - (self.place - self._facts)
        self.place, self._facts = place, facts
        if skipped:
            self._chunks.append(Chunk(time(), "", "status", {"status": "skipped", "deltas": skipped}))

    async def _catch_up(self) -> None:
        """Read the missing facts from the journal, some at a time."""
        channel = self._channel
        upto = self._upto if self._upto is not None or channel.last_fact is None else channel.first_fact - 1
        last = channel.first_fact - 1 if self._last is None else self._last
        if upto is None or last < upto:
            async for event in self._reread(max(0, last)):
                if upto is not None and event.seq > upto:
                    break
                self._chunks.extend(chunks_of(event))
                self._last = event.seq
                if len(self._chunks) >= SIZE:
                    return
        self._behind = False
        self._chunks.extend(self._said)
        self._said = ()
        if self.waits:
            channel.make_room()

    def _news(self) -> asyncio.Future[None]:
        """Return a future that is done when there is something new to read, or nothing more."""
        sleeping, before = self._channel.sleeping, self._waiting
        if before is not None:
            sleeping.discard(before)  # the wait for it was cancelled
        waiting = self._waiting = asyncio.get_running_loop().create_future()
        sleeping.add(waiting)
        return waiting

    def _number(self, chunk: Chunk) -> Chunk:
        self._seq = number = self._seq + 1
        if chunk.seq:  # it is another reader's too
            mine = Chunk(chunk.stamp, chunk.agent, chunk.type, chunk.data, number)
            mine.encoded = chunk.encoded = [] if chunk.encoded is None else chunk.encoded
            return mine
        chunk.seq = number
        return chunk

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.get()
        if chunk is None:
            raise StopAsyncIteration
        return chunk


class Channel:
    """The run's side of all its readers. It holds weak references: a reader without other references is dropped."""

    def __init__(self) -> None:
        self.ring: list[Entry | None] = []  # none before the first reader
        self.end = self.facts = 0  # entries in all, and how many of them are facts
        self.first_fact = 0
        self.last_fact: int | None = None
        self.begun = False  # until then the run waits for no reader: the caller may only read once it has begun
        self.ending = False  # the run is ending, and waits for no reader any more
        self.leaves_resumable: Callable[[], bool] = lambda: False  # as in its scope, and before there is one
        self.closed = False
        self.sleeping: set[asyncio.Future[None]] = set()  # readers that have read everything
        self.alone = True  # there was never more than one reader
        self._above: Channel | None = None  # of the run whose call has opened this one
        self._run_id = ""  # of this run, as its readers above know it
        self._said: list[str] = []  # of the reply that is being written
        self._thought: list[str] = []
        self._many = False
        self._joined: list[str] = []  # the text of deltas of one kind, for many readers
        self._kind = ("", "", "")
        self._since_pause = 0  # deltas, where many read
        self._readers: WeakSet[Reader] | None = None
        self._patient: WeakSet[Reader] | None = None  # those among them for whom it waits
        self._room: asyncio.Future[None] | None = None  # the run waits for it
        self._waking: asyncio.TimerHandle | None = None
        self._woken_at = 0  # the entry that was the next when many were woken last
        self._news = False  # since then
        self._rest_until = 0.0

    def reader(self, reread: Reread, after: int | None = None, *, waits: bool = False, whole: bool = False) -> Reader:
        """Return a new reader. `whole`: if it comes in the middle of a reply, it receives the beginning of the reply first."""
        if self._readers is None:
            self._readers, self.ring = WeakSet(), [None] * SIZE
        else:
            self.alone = False
        if self._joined:
            self._write_joined()  # it was said before this one came
        reader = Reader(self, reread, after, waits and not self.ending, self._so_far() if whole else ())
        self._readers.add(reader)
        self._many = self._many or len(self._readers) > _FEW
        if reader.waits:
            self._patient = WeakSet() if self._patient is None else self._patient
            self._patient.add(reader)
        return reader

    @property
    def current_text(self) -> str:
        """Return the text of the reply that is being written, as far as it was shown."""
        return "".join(self._said)

    def _so_far(self) -> list[Chunk]:
        held = (("thinking", "".join(self._thought)), ("delta", "".join(self._said)))
        return [Chunk(time(), "", kind, {"content": text}) for kind, text in held if text]

    def relay_to(self, above: Channel | None, run_id: str) -> None:
        """Show everything to the readers of a parent run too, with the id of this one. The run waits for them as well."""
        self._above, self._run_id = above, run_id

    def forget(self, reader: Reader) -> None:
        for readers in (self._readers, self._patient):
            if readers is not None:
                readers.discard(reader)
        self.make_room()

    def entries_from(self, place: int) -> list[Entry | None]:
        """Return the entries from that place on."""
        return [self.ring[one % SIZE] for one in range(place, self.end)]

    def event(self, event: Event) -> bool:
        """Show a fact, without waiting: facts are shown in the order in which they became true.

        Return True if it is time for a `pause` for the readers above, who cannot read the facts again.
        """
        if self.last_fact is None:
            self.first_fact = event.seq
        self.last_fact = event.seq
        if self._said or self._thought:
            self._said, self._thought = [], []
        if not self.ring and not self.is_read:
            return False
        chunks = chunks_of(event)
        if self.ring:
            self._write((event.seq, chunks))
            self.facts += 1
        return self._above is not None and self._relay(chunks)

    def delta(self, text: str, kind: str, call_id: str, agent: str) -> bool:
        """Show a delta. Return True if it is time for a `pause`."""
        if kind == "text":
            self._said.append(text)
        elif kind == "thinking":
            self._thought.append(text)
        elif kind == "restarted":
            self._said, self._thought = [], []
            return self.show(delta_chunk(time(), agent, Delta("", kind)))  # type: ignore[arg-type]
        if not self.ring and not self.is_read:
            return False
        relayed = False
        if self._above is not None:
            relayed = self._relay([delta_chunk(time(), agent, Delta(text, kind, call_id))])  # type: ignore[arg-type]
        if not self.ring:
            return relayed
        if self._many:
            if self._joined and self._kind != (kind, call_id, agent):
                self._write_joined()
            self._joined.append(text)
            self._kind = kind, call_id, agent
            self._wake()
            self._since_pause += 1
            return relayed or self._since_pause >= _EVERY or self._is_held_up
        if kind == "text":
            self._write(Chunk(time(), agent, "delta", {"content": text}))
        else:
            self._write(delta_chunk(time(), agent, Delta(text, kind, call_id)))  # type: ignore[arg-type]
        return relayed or not self.end % _EVERY or (self._patient is not None and self._is_held_up)

    def show(self, chunk: Chunk) -> bool:
        """Show a chunk that is not a fact of this run. Return True if it is time for a `pause`."""
        relayed = self._relay([chunk])
        if not self.ring:
            return relayed
        self._write(chunk)
        return relayed or not self.end % _EVERY or self._is_held_up

    def _relay(self, chunks: Sequence[Chunk]) -> bool:
        """Show chunks above as the readers there see them: with the id of this run, and without the numbers of its facts.

        Return True if it is time for a `pause`.
        """
        above, pause = self._above, False
        if above is None or not above.is_read:
            return False
        for chunk in chunks:
            data = {key: value for key, value in chunk.data.items() if key != "fact"}
            pause = above.show(Chunk(chunk.stamp, chunk.agent, chunk.type, {"run_id": self._run_id, **data})) or pause
        return pause

    def _write_joined(self) -> None:
        (kind, call_id, agent), text, self._joined = self._kind, "".join(self._joined), []
        self._write(delta_chunk(time(), agent, Delta(text, kind, call_id)))  # type: ignore[arg-type]

    def _write(self, entry: Entry) -> None:
        if self._joined:
            self._write_joined()
        self.ring[self.end % SIZE] = entry
        self.end += 1
        if self.sleeping:
            self._wake()

    @property
    def is_read(self) -> bool:
        """Return True if anybody may have seen what was shown. A reader that comes later may see it too."""
        return bool(self.ring) or (self._above is not None and self._above.is_read)

    @property
    def is_full(self) -> bool:
        """Return True if a reader is so late that the run has to wait for it."""
        return self._is_held_up or (self._above is not None and not self.ending and self._above.is_full)

    @property
    def _is_held_up(self) -> bool:
        """Return True if a reader of this run is so late."""
        if self._patient is None or not self.begun or self.ending:
            return False
        return any(reader.waits and self._is_late(reader) and reader.misses_deltas() for reader in self._patient)

    def _is_late(self, reader: Reader) -> bool:
        return self.end - reader.place > LATE

    async def pause(self) -> None:
        """Let other tasks run.

        Readers that are only waiting for their turn get it; a reader that is busy elsewhere is not waited for.
        """
        self._since_pause = 0
        if self._many and self.end - self._woken_at > _EVERY:
            self._wake_all()
        await asyncio.sleep(0)
        late = [reader for reader in self._readers or () if self._is_late(reader)]
        while late and len(late) <= _FEW:
            late = [reader for reader in late if reader.reads() and self._is_late(reader)]
            await asyncio.sleep(0)
        await self._wait_for_own_room()
        if self._above is not None and not self.ending:
            await self._above.pause()

    async def wait_for_room(self) -> None:
        """Wait until no reader that the run waits for is late."""
        await self._wait_for_own_room()
        if self._above is not None and not self.ending:
            await self._above.wait_for_room()

    async def _wait_for_own_room(self) -> None:
        while self._is_held_up:
            self._room = self._room or asyncio.get_running_loop().create_future()
            await asyncio.wait([self._room], timeout=_LOOK)

    def make_room(self) -> None:
        """Wake the run if it no longer has to wait for a reader."""
        if self._room is not None and not self._is_held_up:
            self._room.set_result(None)
            self._room = None

    def _wake(self) -> None:
        self._news = True
        if not self._many:
            self._wake_all()
        elif self._waking is None:
            self._waking = asyncio.get_running_loop().call_at(self._rest_until, self._wake_many)

    def _wake_many(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._joined:
            self._write_joined()
        self._wake_all()
        loop.call_soon(self._rest, began)  # after all of them

    def _rest(self, began: float) -> None:
        now = asyncio.get_running_loop().time()
        self._rest_until, self._waking = now + min(19 * (now - began), _LONGEST_REST), None
        self._many = len(self._readers or ()) > _FEW
        if self._news:  # it came while they were being woken
            self._wake()

    def _wake_all(self) -> None:
        self._news, self._woken_at = False, self.end
        sleeping, self.sleeping = self.sleeping, set()
        for waiting in sleeping:
            if not waiting.done():
                waiting.set_result(None)

    def end_soon(self) -> None:
        self.ending = True
        self.make_room()

    def close(self) -> None:
        if self._joined:
            self._write_joined()
        self.closed = self.ending = True
        self._wake_all()
