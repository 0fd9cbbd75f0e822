"""Journal in memory, for tests and for runs that need not outlive the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from weakref import WeakValueDictionary

from ..core.errors import JournalError, RunBusy, RunNeeded, RunNotFound, RunSuperseded, SessionBusy
from ..core.events import Event, Interjected, ModelReplied, Opened, Stopped, ToolFinished, ToolStarted
from ..core.record import field, mutable, replace
from ..core.runs import SHARED, UNDER_WAY, RunInfo, SessionInfo, Tally, index
from ..kernel.load import walk
from ..kernel.ports import Change, Lease, Lineage, Turn
from ..kernel.stores import Stores
from .digests import MemoryDigests
from .grants import MemoryGrants
from .inbox import Addressee, MemoryInbox
from .ledger import MemoryLedger
from .news import News
from .refusals import busy_text, dependants_text, gap_text, superseded_text


@mutable
class _MemoryRun:
    card: RunInfo
    events: list[Event] = field(factory=list)
    epoch: int = 0
    held: bool = False
    moved: int = 0  # the place of the last change of its card, apart from its numbers
    turn: Turn | None = None

    @property
    def status(self) -> str:
        return "interrupted" if self.card.status == "running" and not self.held else self.card.status

    def is_within(self, since: float, until: float, before: float) -> bool:
        """Return True if a fact of the run was recorded, the last one in that time, and if it was opened before that place."""
        return self.card.seq > 0 and since <= self.card.updated < until and self.card.place < before

    def has(self, values: Mapping[str, str]) -> bool:
        """Return True if the card has all these values."""
        return all(getattr(self.card, name) == value for name, value in values.items())


_COUNTED = {ModelReplied, ToolStarted, ToolFinished}  # they change nothing but the numbers of a card
_constant = attrgetter("agent", "session", "user", "status", "title", "created", "base", "questions")


def _thread(card: RunInfo) -> tuple[str, ...] | None:
    """Return the conversation that a run belongs to, or None."""
    if not card.session or card.parent:
        return None
    return (card.session,) if card.session.startswith(SHARED) else (card.session, card.agent, card.user)


def _session(place: int, cards: list[RunInfo]) -> SessionInfo:
    costs = [card.cost for card in cards if card.cost is not None]
    cost = sum(costs) if len(costs) == len(cards) else None
    ids, updated = tuple([card.run_id for card in cards]), max([card.updated for card in cards])
    return SessionInfo(place, cards[0], cards[-1], ids, updated, cost)


class MemoryJournal:
    """A journal in memory. Its facts are lost when the process ends."""

    def __init__(self) -> None:
        self._records: dict[str, _MemoryRun] = {}
        self._moves: list[tuple[str, int, int]] = []
        self._stops: dict[str, str] = {}
        self._asking: WeakValueDictionary[str, News] = WeakValueDictionary()  # runs that wait for a stop: each wakes alone
        self._news = News()
        self._inbox = MemoryInbox(self._addressee)
        self._digests = MemoryDigests(self._count_facts)
        self.stores = Stores(ledger=MemoryLedger(), inbox=self._inbox, grants=MemoryGrants(), digests=self._digests)

    async def claim(self, run_id: str, *, takeover: bool = False, turn: Turn | None = None) -> Lease:
        record = self._records.get(run_id)
        if record is None:
            record = self._records[run_id] = _MemoryRun(RunInfo(run_id))
        if record.held and not takeover:
            raise RunBusy(busy_text(run_id, "this process"))
        before = "overtaken" if record.held else ""
        record.epoch, record.held, record.turn = record.epoch + 1, True, turn
        self._stops.pop(run_id, None)
        return Lease(record.epoch, record.card.seq, before)

    async def append(self, events: Sequence[Event], epoch: int, *, keep: bool = False) -> None:
        run = events[0].run_id
        record = self._records.get(run)
        if record is None:
            raise RunNotFound(run)
        if record.epoch != epoch or not record.held:
            raise RunSuperseded(superseded_text(run))
        if events[0].seq != record.card.seq + 1:
            raise JournalError(gap_text(run, record.card.seq, events[0].seq))
        if not record.card.place:
            self._open(record, events[0].body)
        card, kinds = record.card, {type(event.body) for event in events}
        before = None if kinds <= _COUNTED else _constant(card)
        record.events += events
        index(card, events)
        if before is not None and (_constant(card) != before or Stopped in kinds):
            record.moved = len(self._moves) + 1
        record.held = keep or not isinstance(events[-1].body, Stopped)
        self._moves.append((run, events[0].seq, events[-1].seq))
        if Interjected in kinds:
            self._inbox.remove(events)
        self._news.tell()

    def _open(self, record: _MemoryRun, opened: object) -> None:
        """Give a run its place. Raises `RunNotFound` if its base was deleted meanwhile, and `SessionBusy`."""
        if isinstance(opened, Opened) and opened.base is not None and opened.base[0] not in self._records:
            raise RunNotFound(opened.base[0])
        if record.turn is not None and (other := self._other(record.turn, opened)):
            raise SessionBusy(other)
        record.card.place = len(self._moves) + 1

    def _other(self, turn: Turn, opened: object) -> str:
        """Return a run of the session that is executing, or that was opened after the one from which this one continues."""
        base = opened.base[0] if isinstance(opened, Opened) and opened.base is not None else ""
        found = [one for one in self._records.values() if one.card.place and one.card.session == turn.session]
        found = [one for one in found if turn.agent in ("", one.card.agent) and turn.user in (None, one.card.user)]
        last = max(found, key=lambda one: one.card.place, default=None)
        if last is None:
            return ""
        late = turn.after not in (0, last.card.seq)
        return last.card.run_id if last.card.run_id != base or late or last.status == "running" else ""

    def _addressee(self, run_id: str) -> Addressee:
        if run_id not in self._records:
            raise RunNotFound(run_id)
        card = self._records[run_id].card
        runs = [one.card for one in self._records.values() if one.card.seq and _thread(one.card) == _thread(card) is not None]
        return Addressee(run_id, card.status, _thread(card), max(runs, key=lambda one: one.place, default=card).run_id)

    async def release(self, run_id: str, epoch: int) -> None:
        record = self._records.get(run_id)
        if record is not None and record.epoch == epoch:
            record.held = False
            if not record.events:
                del self._records[run_id]

    async def read(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        record = self._records.get(run_id)
        for event in record.events[after:] if record else ():
            yield event

    async def lineage(self, run_id: str, upto: int | None = None, *, fold: int = 0) -> Lineage:
        return await walk(self, run_id, upto)

    async def keep_snapshot(self, run_id: str, seq: int, fold: int, state: str) -> None:
        """Do nothing: the facts are in memory already."""

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        while True:
            version = await self._news.version()
            record = self._records.get(run_id)
            if record is None:
                raise RunNotFound(run_id)
            for event in record.events[after:]:
                after = event.seq
                yield event
            if after == record.card.seq and record.card.status not in UNDER_WAY:
                return
            await self._news.wait(version)

    async def changes(self, after: int = 0, *, wait: bool = True) -> AsyncIterator[Change]:
        while True:
            version = await self._news.version()
            for place, (run, first, last) in enumerate(self._moves[after:], after + 1):
                after = place
                for event in self._records[run].events[first - 1 : last] if run in self._records else ():
                    yield Change(place, event)
            if not wait:
                return
            await self._news.wait(version)

    async def ask_to_stop(self, run_id: str, reason: str) -> bool:
        record = self._records.get(run_id)
        if record is None:
            raise RunNotFound(run_id)
        if record.held:
            self._stops[run_id] = reason
            if (asking := self._asking.get(run_id)) is not None:
                asking.tell()
        return record.held

    async def asked_to_stop(self, run_id: str) -> str:
        asking = self._asking.setdefault(run_id, News())
        while True:
            version = await asking.version()
            if run_id in self._stops:
                return self._stops.pop(run_id)
            await asking.wait(version)

    async def runs(
        self,
        *,
        run_id: str = "",
        session: str = "",
        status: str = "",
        agent: str = "",
        user: str | None = None,
        parent: str = "",
        starting: str = "",
        since: float = 0.0,
        until: float = 0.0,
        before: int = 0,
        limit: int = 100,
    ) -> list[RunInfo]:
        wanted = {name: value for name, value in (("session", session), ("agent", agent), ("parent", parent)) if value}
        wanted |= {} if user is None else {"user": user}
        looked_at = [self._records[run_id]] if run_id in self._records else [] if run_id else self._records.values()
        found = [
            record
            for record in looked_at
            if record.card.run_id.startswith(starting)
            and record.is_within(since, until or inf, before or inf)
            and status in ("", record.status)
            and record.has(wanted)
        ]
        found.sort(key=lambda record: record.card.place, reverse=True)
        return [replace(record.card, status=record.status) for record in found[:limit]]

    async def sessions(
        self, *, session: str = "", agent: str = "", user: str | None = None, before: int = 0, limit: int = 100
    ) -> list[SessionInfo]:
        threads: dict[tuple[str, ...], list[_MemoryRun]] = {}
        for one in sorted(self._records.values(), key=lambda record: record.card.place):
            if (thread := _thread(one.card)) is not None and one.card.seq and session in ("", one.card.session):
                threads.setdefault(thread, []).append(one)
        found: list[SessionInfo] = []
        for held in threads.values():
            fitting = [one.moved for one in held if agent in ("", one.card.agent) and user in (None, one.card.user)]
            if fitting and max(fitting) < (before or inf):
                found.append(_session(max(fitting), [replace(one.card, status=one.status) for one in held]))
        return sorted(found, key=lambda one: -one.place)[:limit]

    async def count(
        self, *, session: str = "", agent: str = "", user: str | None = None, since: float = 0.0, shift: float = 0.0
    ) -> list[Tally]:
        cards = await self.runs(session=session, agent=agent, user=user, limit=len(self._records))
        outer = [card for card in cards if not card.parent and card.created >= since]
        return [
            Tally(
                one.status, int((one.created - shift) // 86_400), 1, one.input + one.output, one.cost or 0.0, one.cost is None
            )
            for one in outer
        ]

    async def delete(self, run_id: str, *, cascade: bool = False) -> None:
        children: dict[str, list[str]] = {}
        for other, record in self._records.items():
            children.setdefault(record.card.base, []).append(other)
        doomed = [run_id]
        for one in doomed:
            if one not in self._records:
                raise RunNotFound(one)
            if self._records[one].held:
                raise RunBusy(busy_text(one, "this process"))
            dependants = children.get(one, [])
            if dependants and not cascade:
                raise RunNeeded(dependants_text(one, dependants))
            doomed += [*dependants, *[other for other, record in self._records.items() if record.card.parent == one]]
        for one in doomed:
            self._remove(one)

    def _remove(self, run_id: str) -> None:
        del self._records[run_id]
        self._inbox.forget(run_id)
        self._digests.forget(run_id)

    def _count_facts(self, run_id: str) -> int:
        return self._records[run_id].card.seq if run_id in self._records else 0

    async def prune(self, cards: Sequence[RunInfo], *, trial: set[str] | None = None) -> list[str]:
        found: list[str] = []
        gone = set() if trial is None else trial
        for card in cards:
            doomed = self._unneeded(card, gone)
            found += doomed
            gone.update(doomed)
        for one in found if trial is None else ():
            self._remove(one)
        return found

    def _unneeded(self, card: RunInfo, gone: set[str]) -> list[str]:
        """Return a run with its children if it is as its card says and no other run needs one of them; else an empty list."""
        doomed = [card.run_id]
        for one in doomed:
            record = self._records.get(one)
            if record is None or one in gone or record.held:
                return []
            if one == card.run_id and (record.card.seq != card.seq or record.status in UNDER_WAY):
                return []
            if any(run not in gone and run not in doomed for run, other in self._records.items() if other.card.base == one):
                return []
            doomed += [run for run, other in self._records.items() if other.card.parent == one and run not in gone]
        return doomed

    async def tidy(self, *, whole: bool = False) -> tuple[int, int]:
        """Return zeros: there is no file."""
        return 0, 0

    async def close(self) -> None:
        """Do nothing."""
