"""Attach to a run that was started elsewhere, in this process with its deltas, in another one by its facts; or stop it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from time import time

from ..core.chunks import Chunk, chunks_of
from ..core.errors import RunBusy, RunNotFound, RunSuperseded
from ..core.events import Event, Opened, Stopped
from ..core.notices import notice
from ..core.runs import UNDER_WAY, RunInfo
from ..core.steps import Stop
from ..kernel.channel import Reader
from ..kernel.load import close_at_the_end, end_run
from ..kernel.ports import Journal
from ..kernel.stores import QueuedRun
from .run import find_live

_MOST = 64  # chunks of one batch
_CHILDREN = 1_000  # runs that are read at a time


async def follow_chunks(journal: Journal, run_id: str, after: int) -> AsyncIterator[Chunk]:
    """The chunks of the facts after that number, then of those to come, until the run is over; numbered from 1.

    With its deltas while this process executes it, without them while another does. A run that waits for an answer is
    waited for.
    """
    seq = 0
    async with aclosing(batches(journal, run_id, after)) as stretches:
        async for stretch in stretches:
            for chunk in stretch:
                seq += 1
                yield Chunk(chunk.stamp, chunk.agent, chunk.type, chunk.data, seq)


async def batches(journal: Journal, run_id: str, after: int, *, whole: bool = False) -> AsyncGenerator[list[Chunk], None]:
    """The same, as many at a time as there are; not numbered. `whole`: with what was said of a reply before it was read.

    A list is the caller's as soon as it is given: whoever empties it holds no text while it is not reading on.
    """
    while True:
        work = find_live(journal, run_id)
        if work is None and await _is_over(journal, run_id, after):
            return
        if work is None:
            async with close_at_the_end(journal.follow(run_id, after)) as events:
                async for event in events:
                    after, stretch = event.seq, chunks_of(event)
                    del event
                    yield stretch
                    if find_live(journal, run_id) is not None:  # it is taken up in this process
                        break
            continue
        async with aclosing(batches_of(work.reader(after, whole=whole))) as stretches:
            async for stretch in stretches:
                after = next((chunk.data["fact"] for chunk in reversed(stretch) if "fact" in chunk.data), after)
                yield stretch


async def _is_over(journal: Journal, run_id: str, after: int) -> bool:
    cards = await journal.runs(run_id=run_id, limit=1)
    if not cards:
        raise RunNotFound(run_id)
    return cards[0].status not in UNDER_WAY and cards[0].seq <= after


async def batches_of(reader: Reader) -> AsyncGenerator[list[Chunk], None]:
    """Yield the chunks of a reader, as many at a time as there are."""
    try:
        while (chunk := await reader.get()) is not None:
            stretch = [chunk]
            while len(stretch) < _MOST and (chunk := reader.take()) is not None:
                stretch.append(chunk)
            chunk = None
            yield stretch
    finally:
        reader.close()


async def stop_run(journal: Journal, run_id: str, reason: str = "") -> bool:
    """Stop a run, wherever it is; return False if it was over already. Raise `RunNotFound` if there is no such run.

    A run that is being executed is asked to stop, here or in another process. One that waits for an answer or for a worker, or
    that was interrupted, is ended in the journal together with its children. Of one that has ended, work in the background is
    stopped.
    """
    told = reason or notice("run.stopped_by_caller", "the run was stopped by the caller")
    if (work := find_live(journal, run_id)) is not None:
        work.abort(told)
        return True
    try:
        if await journal.ask_to_stop(run_id, reason):
            return True
    except RunNotFound:  # it may be waiting for a worker
        item = await queue.find(run_id) if (queue := journal.stores.queue) is not None else None
        if item is None:
            raise
        with suppress(RunBusy, RunSuperseded):  # a worker has just begun it
            if await _end_before_start(journal, item, Stop("cancelled", told)):
                return True
    cards = await journal.runs(run_id=run_id, limit=1)
    ended = not cards or cards[0].status not in UNDER_WAY
    try:
        if not ended:
            await end_run(journal, run_id, Stop("cancelled", told))
    except RunBusy:  # somebody has resumed it since
        return await journal.ask_to_stop(run_id, reason)
    before, stopped = 0, not ended
    while children := await journal.runs(parent=run_id, before=before, limit=_CHILDREN):
        before = children[-1].place
        for child in children:
            stopped = await stop_run(journal, child.run_id, told) or stopped
    return stopped


async def stop_waiting_children(journal: Journal, run_id: str, reason: str) -> None:
    """Stop the children that wait for an answer, because their parent was stopped: resumed, they ask anew."""
    while waiting := await journal.runs(parent=run_id, status="waiting", limit=_CHILDREN):
        for child in waiting:
            await stop_run(journal, child.run_id, reason)


async def queued_card(journal: Journal, run_id: str) -> RunInfo | None:
    """Return the card of a run that waits for a worker and is not in the journal yet."""
    item = await queue.find(run_id) if (queue := journal.stores.queue) is not None else None
    return None if item is None else RunInfo(run_id, item.agent, item.session, item.user, "queued")


async def _end_before_start(journal: Journal, item: QueuedRun, stop: Stop) -> bool:
    """Record that a queued run was ended before a worker began it, so that its id is not executed later.

    It does not become a part of its session. Its input is not recorded: no policy has seen it. Return False if it has begun.
    """
    lease = await journal.claim(item.run_id)
    try:
        if not lease.seq:
            opened = Event(item.run_id, 1, time(), item.agent, Opened(user=item.user))
            await journal.append([opened, opened._replace(seq=2, body=Stopped(stop))], lease.epoch)
    finally:
        await journal.release(item.run_id, lease.epoch)
    if (queue := journal.stores.queue) is not None:
        await queue.withdraw(item.run_id)
    return not lease.seq
