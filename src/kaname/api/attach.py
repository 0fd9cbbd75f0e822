"""Attach to a run that was started elsewhere: in this process with its deltas, in another one by its facts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from ..core.chunks import Chunk, chunks_of
from ..core.errors import RunNotFound
from ..core.runs import UNDER_WAY
from ..kernel.channel import Reader
from ..kernel.ports import Journal
from .run import find_live

_MOST = 64  # chunks of one batch


async def attached(journal: Journal, run_id: str, after: int) -> AsyncIterator[Chunk]:
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
            async with aclosing(journal.follow(run_id, after)) as events:  # type: ignore[type-var]
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
    """What one reader has to read, as many at a time as there are."""
    try:
        while (chunk := await reader.get()) is not None:
            stretch = [chunk]
            while len(stretch) < _MOST and (chunk := reader.take()) is not None:
                stretch.append(chunk)
            chunk = None
            yield stretch
    finally:
        reader.close()
