"""Attach to a run that was started elsewhere: in this process with its deltas, in another one by its facts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from ..core.chunks import Chunk, chunks_of
from ..core.errors import RunNotFound
from ..core.runs import UNDER_WAY
from ..kernel.ports import Journal
from .run import Work, find_live


async def attached(journal: Journal, run_id: str, after: int) -> AsyncIterator[Chunk]:
    """The chunks of the facts after that number, then of those to come, until the run is over; numbered from 1.

    With its deltas while this process executes it, without them while another does. A run that waits for an answer is
    waited for.
    """
    seq = 0
    while True:
        work = find_live(journal, run_id)
        if work is None and await _is_over(journal, run_id, after):
            return
        stretch = _from_journal(journal, run_id, after) if work is None else _live(work, after)
        async with aclosing(stretch):
            async for chunk in stretch:
                seq, after = seq + 1, chunk.data.get("fact", after)
                yield Chunk(chunk.stamp, chunk.agent, chunk.type, chunk.data, seq)


async def _is_over(journal: Journal, run_id: str, after: int) -> bool:
    cards = await journal.runs(run_id=run_id, limit=1)
    if not cards:
        raise RunNotFound(run_id)
    return cards[0].status not in UNDER_WAY and cards[0].seq <= after


async def _live(work: Work, after: int) -> AsyncGenerator[Chunk, None]:
    async for chunk in work.reader(after):
        yield chunk


async def _from_journal(journal: Journal, run_id: str, after: int) -> AsyncGenerator[Chunk, None]:
    """Until it is over, or is taken up in this process."""
    async with aclosing(journal.follow(run_id, after)) as events:  # type: ignore[type-var]
        async for event in events:
            for chunk in chunks_of(event):
                yield chunk
            if find_live(journal, run_id) is not None:
                return
