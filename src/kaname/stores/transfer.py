"""Copy a journal to another place, fact by fact in the order in which they were appended, and compare the two."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

from ..core.errors import JournalError, RunBusy
from ..core.events import Event, Opened
from ..core.runs import RunInfo
from ..kernel.ports import Journal, Lease
from ..kernel.stores import PAUSED
from .rows import fact_row

_AT_ONCE = 200  # appends on their way
_PAGE = 500
_NOTICED = 10  # times the pace of a target, after which it has noticed that a process died
_PAUSE = 0.1  # seconds
_COMPARED = [name for name in RunInfo.__match_args__ if name not in ("place", "title")]


class Transferred(NamedTuple):
    """The result of a copy. `checksum` is that of all facts, equal on both sides. `queued`: entries of the queue, which
    are not copied."""

    runs: int
    facts: int
    checksum: int
    queued: int = 0


async def copy_journal(source: Journal, target: Journal, progress: Callable[[int], None] = lambda facts: None) -> Transferred:
    """Copy all runs, accounts, messages, approvals and marks of schedules, then read both journals and compare them.

    Facts that are there already are left alone.
    Raises `JournalError` if a process executes a run of the source, or if the target has other facts of a run.
    """
    if running := await source.runs(status="running", limit=1):
        raise JournalError.of(
            "journal.copy_running",
            "run {run_id} is being executed. Stop the programs that use the journal, then copy it.",
            run_id=running[0].run_id,
        )
    await _Transfer(source, target, progress).copy_facts()
    await _copy_accounts(source, target)
    await _copy_people(source, target)
    queued = await _copy_marks(source, target)
    return (await compare(source, target))._replace(queued=queued)


class _Transfer:
    def __init__(self, source: Journal, target: Journal, progress: Callable[[int], None]) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._open: dict[str, tuple[int, int, int]] = {}  # epoch in the target, facts in it, facts of the source
        self._writing: list[asyncio.Task[None]] = []
        self._copied = 0

    async def copy_facts(self) -> None:
        try:
            batch: list[Event] = []
            place = 0
            async for change in self._source.changes(wait=False):
                if change.place != place and batch:
                    await self._write(batch)
                    batch = []
                place = change.place
                batch.append(change.event)
            if batch:
                await self._write(batch)
            await self._finish()
        finally:
            for run_id, (epoch, _, _) in self._open.items():
                await self._target.release(run_id, epoch)

    async def _write(self, events: list[Event]) -> None:
        for run_id, group in groupby(events, lambda event: event.run_id):
            facts = list(group)
            opened = facts[0].body
            if run_id not in self._open:
                if isinstance(opened, Opened) and opened.base is not None:
                    await self._finish()  # the run from which it continues must be there
                (card,) = await self._source.runs(run_id=run_id, limit=1)
                lease = await self._claim(run_id)
                self._open[run_id] = (lease.epoch, lease.seq, card.seq)
            epoch, known, last = self._open[run_id]
            if new := [event for event in facts if event.seq > known]:
                self._writing.append(asyncio.create_task(self._target.append(new, epoch, keep=True)))
            self._copied += len(facts)
            if facts[-1].seq >= last or len(self._writing) >= _AT_ONCE:
                await self._finish()
            if facts[-1].seq >= last:
                del self._open[run_id]
                await self._target.release(run_id, epoch)

    async def _claim(self, run_id: str) -> Lease:
        """Claim a run of the target. A copy that was killed holds it until a server has noticed that it is gone."""
        queue = self._target.stores.queue
        until = time.monotonic() + (_NOTICED * queue.pace + _PAUSE if queue is not None else 0.0)
        while True:
            try:
                return await self._target.claim(run_id)
            except RunBusy:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(_PAUSE)

    async def _finish(self) -> None:
        writing, self._writing = self._writing, []
        await asyncio.gather(*writing)
        self._progress(self._copied)


async def _copy_accounts(source: Journal, target: Journal) -> None:
    ours, theirs = source.stores.ledger, target.stores.ledger
    if ours is None or theirs is None:
        return
    there = {one.name: one.spent for one in await theirs.balances()}
    missing = {one.name: one.spent - there.get(one.name, 0.0) for one in await ours.balances()}
    if missing := {name: amount for name, amount in missing.items() if amount > 0}:
        theirs.settle("copy", missing)
        while {one.name for one in await theirs.balances() if one.spent}.isdisjoint(missing):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _copy_people(source: Journal, target: Journal) -> None:
    """Copy the messages that wait for runs, and the approvals that hold for later ones."""
    ours, theirs = source.stores, target.stores
    if ours.inbox is not None and theirs.inbox is not None:
        async for card in _cards(source):
            for said in await ours.inbox.letters(card.run_id):
                await theirs.inbox.put(card.run_id, said)
    if ours.grants is not None and theirs.grants is not None:
        for grant in reversed(await ours.grants.all()):
            await theirs.grants.put(grant)


async def _copy_marks(source: Journal, target: Journal) -> int:
    """Copy up to where schedules were handled, so that none is due twice. Return the number of queued runs."""
    ours, theirs = source.stores, target.stores
    if ours.marks is not None and theirs.marks is not None and (marks := await ours.marks.all()):
        await theirs.marks.raise_to(marks)
        paused = {name: time for name, time in (await theirs.marks.all()).items() if name.endswith(PAUSED)}
        resumed = [name for name, time in paused.items() if name not in marks and _last_mark(marks, name) >= time]
        await theirs.marks.remove(resumed)
    return sum((await ours.queue.count()).values()) if ours.queue is not None else 0


def _last_mark(marks: Mapping[str, float], paused: str) -> float:
    """Return up to when the schedule with that mark of a pause was handled; 0 if it is not known."""
    key = paused.removesuffix(PAUSED) + ": "
    return max([time for name, time in marks.items() if name.startswith(key)], default=0.0)


async def compare(source: Journal, target: Journal) -> Transferred:
    """Read all facts of both journals and compare their checksums, and those of the lists. Raises `JournalError`."""
    runs = facts = total = 0
    async for card in _cards(source):
        there = await target.runs(run_id=card.run_id, limit=1)
        sums = [[fact_row(event)[-1] async for event in one.read(card.run_id)] for one in (source, target)]
        same_card = bool(there) and all(getattr(card, name) == getattr(there[0], name) for name in _COMPARED)
        if sums[0] != sums[1] or not same_card:
            raise JournalError.of("journal.copy_differs", "run {run_id} differs in the two journals", run_id=card.run_id)
        runs, facts = runs + 1, facts + len(sums[0])
        total ^= crc32(f"{card.run_id} {sums[0]}".encode())
    return Transferred(runs, facts, total)


async def _cards(journal: Journal) -> AsyncIterator[RunInfo]:
    before = 0
    while cards := await journal.runs(before=before, limit=_PAGE):
        for card in cards:
            yield card
        before = cards[-1].place
