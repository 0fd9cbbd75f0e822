"""Facts in memory: for tests, and for runs that need not outlive the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ..core.errors import JournalError, RunBusy, RunNotFound, RunSuperseded
from ..core.events import Event, Opened, Stopped
from ..core.record import field, mutable, replace
from ..core.runs import RunInfo, index
from ..kernel.ports import Lease
from .wording import busy, gap, has_dependants, superseded


@mutable
class _Record:
    card: RunInfo
    events: list[Event] = field(factory=list)
    epoch: int = 0
    held: bool = False


class MemoryJournal:
    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    async def claim(self, run: str, *, takeover: bool = False) -> Lease:
        record = self._records.get(run)
        if record is None:
            record = self._records[run] = _Record(RunInfo(run))
        if record.held and not takeover:
            raise RunBusy(busy(run, "this process"))
        record.epoch, record.held = record.epoch + 1, True
        return Lease(record.epoch, record.card.seq)

    async def append(self, events: Sequence[Event], epoch: int) -> None:
        run = events[0].run
        record = self._records.get(run)
        if record is None:
            raise RunNotFound(run)
        if record.epoch != epoch or not record.held:
            raise RunSuperseded(superseded(run))
        if events[0].seq != record.card.seq + 1:
            raise JournalError(gap(run, record.card.seq, events[0].seq))
        opened = events[0].body
        if isinstance(opened, Opened) and opened.base is not None and opened.base[0] not in self._records:
            raise RunNotFound(opened.base[0])  # deleted meanwhile
        for event in events:
            record.events.append(event)
            index(record.card, event)
        record.held = not isinstance(events[-1].body, Stopped)

    async def release(self, run: str, epoch: int) -> None:
        record = self._records.get(run)
        if record is not None and record.epoch == epoch:
            record.held = False

    async def read(self, run: str, after: int = 0) -> AsyncIterator[Event]:
        record = self._records.get(run)
        for event in record.events[after:] if record else ():
            yield event

    async def runs(
        self, *, run: str = "", session: str = "", status: str = "", agent: str = "", limit: int = 100
    ) -> list[RunInfo]:
        wanted = [("run", run), ("session", session), ("status", status), ("agent", agent)]
        cards = [
            record.card
            for record in self._records.values()
            if record.card.seq and all(not value or getattr(record.card, name) == value for name, value in wanted)
        ]
        cards.sort(key=lambda card: (card.created, card.run), reverse=True)
        return [replace(card) for card in cards[:limit]]

    async def delete(self, run: str, *, cascade: bool = False) -> None:
        if run not in self._records:
            raise RunNotFound(run)
        if self._records[run].held:
            raise RunBusy(busy(run, "this process"))
        dependants = [other for other, record in self._records.items() if record.card.base == run]
        if dependants and not cascade:
            raise JournalError(has_dependants(run, dependants))
        for other in dependants:
            await self.delete(other, cascade=True)
        del self._records[run]

    async def close(self) -> None:
        """Nothing to close."""
