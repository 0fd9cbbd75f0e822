"""The journal of several machines: a PostgreSQL database that many processes write to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary, finalize

from ...core.errors import JournalError, JournalUnreachable, RunBusy, RunNotFound, RunSuperseded
from ...core.events import Event, Opened, Stopped
from ...core.notices import notice
from ...core.runs import RunInfo, as_column, index
from ...kernel.ports import Change, Lease, Lineage, Turn
from ...kernel.stores import Stores
from ..digests import SqlDigests
from ..grants import SqlGrants
from ..inbox import SqlInbox
from ..journal import RunHold, SqlJournal
from ..ledger import SqlLedger
from ..marks import SqlMarks
from ..media import MARK, detach_media
from ..refusals import busy_text, superseded_text
from ..removal import delete_run, prune_runs
from ..rows import fact_row, row_sum
from ..sql import Steps
from . import media, reading
from .address import parse_address
from .arrivals import EVERYTHING
from .connections import Connection
from .database import CARD_COLUMNS, PostgresDatabase
from .office import Office
from .owner import alive, clock, describe_owner
from .procrastinate import ProcrastinateQueue
from .queue import PostgresQueue
from .writer import Append, card_values

_rarely_changing = attrgetter("agent", "session", "user", "status", "title", "created", "base", "questions")
_PAGE = 500
_CLAIM = """
WITH old AS (
    SELECT r.run, r.owner, r.claim, r.epoch, r.before, {alive} AS lives FROM kaname.runs AS r WHERE run = $1 FOR UPDATE),
taken AS (
    UPDATE kaname.runs AS r SET epoch = r.epoch + 1, owner = $2, claim = $3,
        before = CASE WHEN old.owner IS NULL OR old.owner = $2 AND $4 THEN '' WHEN old.owner = $2 OR old.lives THEN 'overtaken'
            ELSE 'died' END
    FROM old WHERE r.run = old.run AND old.claim <> $3
        AND ($5 OR old.owner IS NULL OR CASE WHEN old.owner = $2 THEN $4 ELSE NOT old.lives END)
    RETURNING r.epoch, r.before
), quiet AS (DELETE FROM kaname.stops WHERE run IN (SELECT $1 FROM taken))
SELECT old.owner, old.claim = $3, coalesce(taken.epoch, old.epoch), coalesce(taken.before, old.before), taken.epoch IS NOT NULL
FROM old LEFT JOIN taken ON true
"""
_SELECT_CARD = f"SELECT {CARD_COLUMNS} FROM kaname.runs AS r WHERE r.run = $1"
_EPOCH = "SELECT epoch FROM kaname.runs WHERE run = $1"
_RELEASE = "UPDATE kaname.runs SET owner = NULL WHERE run = $1 AND epoch = $2 AND owner = $3"
_RELEASE_UNHEARD = "UPDATE kaname.runs SET owner = NULL WHERE run = $1 AND claim = $2 AND owner = $3"
_ASK_TO_STOP = "INSERT INTO kaname.stops VALUES ($1, $2) ON CONFLICT (run) DO UPDATE SET reason = EXCLUDED.reason"
_OLD_SNAPSHOTS = """
DELETE FROM kaname.snapshots WHERE run <> $1 AND run IN (SELECT other.run FROM kaname.runs AS mine JOIN kaname.runs AS other
    ON other.session = mine.session AND other.session <> '' AND other.agent = mine.agent AND other."user" = mine."user"
    WHERE mine.run = $1)
"""
_KEEP_SNAPSHOT = """
INSERT INTO kaname.snapshots (run, fold, seq, state, sum) SELECT $1, $2, $3, $4, $5
WHERE EXISTS (SELECT 1 FROM kaname.runs WHERE run = $1)
ON CONFLICT (run) DO UPDATE SET fold = EXCLUDED.fold, seq = EXCLUDED.seq, state = EXCLUDED.state, sum = EXCLUDED.sum
"""


class PostgresJournal(SqlJournal[RunHold]):
    """A journal in a PostgreSQL database (13 or later). Processes on several machines can use it at the same time.

    Args:
        url: The address of the database, `postgresql://user:password@host/database`. Options of kaname in its query:
            `schema` (default: kaname), `ttl`: seconds after which a process that is silent counts as dead (default: 10),
            `patience`: seconds to wait for a server that restarts (default: 30), `connections`: connections to read with
            (default: 4), `pooler`: `transaction` behind PgBouncer in transaction mode (by default it is detected), `queue`:
            `procrastinate` to queue runs in the tables of Procrastinate, without limits per key.
    """

    def __init__(self, url: str) -> None:
        self._address = parse_address(url)
        self.path = url  # to find it again; it may have a password, so show `place` instead
        self.place = self._address.shown
        self.closed = False
        self._held: dict[str, RunHold] = {}
        self._own: Office | None = None
        self._inherited: list[Office] = []  # of the process from which this one was forked: never touched, never freed
        self._claiming: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._database = PostgresDatabase(self._office)
        queue = ProcrastinateQueue if self._address.queue == "procrastinate" else PostgresQueue
        self.stores = Stores(
            url,
            SqlLedger(self.database),
            SqlInbox(self.database),
            SqlGrants(self.database),
            queue(self._office),
            SqlMarks(self.database),
            PostgresHealth(self._office, self.place),
            SqlDigests(self.database),
        )

    def _office(self) -> Office:
        """Return the connections and the writer of this process; create them on first use, and again after a fork."""
        if self.closed and (self._own is None or self._own.thread.closed):
            raise JournalError.of("journal.closed", "the journal {path} is closed", path=self.place)
        if self._own is not None and not self._own.thread.is_here:
            self._inherited.append(self._own)
            self._own, self._held, self._claiming = None, {}, WeakValueDictionary()
        if self._own is None:
            self._own = Office(self._address, self._held)
            finalize(self, self._own.thread.stop_soon)
        return self._own

    @property
    def database(self) -> PostgresDatabase:
        """Return the database, for work on its tables (`stores/sql.py`)."""
        return self._database

    async def claim(self, run_id: str, *, takeover: bool = False, turn: Turn | None = None) -> Lease:
        """Claim a run. A new run is claimed in this process only; its first facts enter it in the database."""
        office, taken = self._office(), list[RunHold]()
        office.check_version()
        left = asyncio.Event()  # only its flag is used: the caller does not wait any more

        async def work() -> None:
            await self._claim(office, run_id, takeover, turn, taken)
            if left.is_set():
                await self._release_claimed(office, run_id, taken)

        try:
            await office.ask(work)
        except asyncio.CancelledError:  # it is carried out all the same, and right after it this
            left.set()
            office.thread.submit(partial(self._release_claimed, office, run_id, taken))
            raise
        hold = taken[0]
        return Lease(hold.epoch, hold.card.seq, hold.before, partial(self._confirm, office, run_id, hold))

    def _confirm(self, office: Office, run_id: str, hold: RunHold) -> Awaitable[None] | None:
        """Return None if no other process can have claimed the run for our silence; else ask the database (see `Lease`)."""
        term = office.heartbeat.term
        return None if hold.term is term and clock() < term.until else self._ask_for_run(run_id, hold)

    async def _ask_for_run(self, run_id: str, hold: RunHold) -> None:
        """Raise `RunSuperseded` if another process has claimed the run. Return in a time in which none can."""
        office = self._office()
        while hold.term is not (term := office.heartbeat.term) or clock() >= term.until:
            if clock() >= term.until:
                await office.beat()
                term = office.heartbeat.term
            found = await office.read(lambda connection: connection.fetchrow(office.sql(_EPOCH), run_id))
            if found is None:
                raise RunNotFound(run_id)
            if found[0] != hold.epoch:
                raise RunSuperseded(superseded_text(run_id))
            hold.term = term

    async def _claim(self, office: Office, run_id: str, takeover: bool, turn: Turn | None, taken: list[RunHold]) -> None:
        lock = self._claiming.get(run_id)
        if lock is None:
            lock = self._claiming[run_id] = asyncio.Lock()
        async with lock:
            await office.begin_here()
            term = office.heartbeat.term
            is_free = not office.is_held(run_id)
            claim = office.sql(_CLAIM.format(alive=alive("r.owner", self._address.ttl)))
            token = uuid4().hex

            async def work(connection: Connection) -> tuple[Any, Any]:
                row = await connection.fetchrow(claim, run_id, office.me, token, is_free, takeover)
                return row, None if row is None else await connection.fetchrow(office.sql(_SELECT_CARD), run_id)

            try:
                row, card = await office.read_here(work)
            except JournalUnreachable:  # if it was committed and only its answer is lost, nobody would ever release it
                office.insist_later(partial(self._release_unheard, office, run_id, token))
                raise
            if row is None or card is None:
                if not is_free and not takeover:
                    raise RunBusy(busy_text(run_id, notice("journal.this_process", "this process")))
                hold = self._held.get(run_id)  # taken over from a task of this process that has not written anything
                taken.append(RunHold(1 if hold is None else hold.epoch + 1, RunInfo(run_id), turn))
            else:
                owner, is_mine, epoch, before, is_taken = row
                if not is_mine and not is_taken:
                    here = owner == office.me
                    told = notice("journal.this_process", "this process") if here else describe_owner(owner)
                    raise RunBusy(busy_text(run_id, told))
                taken.append(RunHold(epoch, RunInfo(*card), turn, before))
                taken[0].constant = _rarely_changing(taken[0].card)
            taken[0].term, self._held[run_id] = term, taken[0]

    async def _release_unheard(self, office: Office, run_id: str, token: str, connection: Connection) -> None:
        await connection.execute(office.sql(_RELEASE_UNHEARD), run_id, token, office.me)

    async def _release_claimed(self, office: Office, run_id: str, taken: list[RunHold]) -> None:
        while taken:
            hold = taken.pop()
            self._drop(run_id, hold.epoch)
            await office.insist(partial(self._release, office, run_id, hold.epoch))

    async def append(self, events: Sequence[Event], epoch: int, *, keep: bool = False) -> None:
        run, hold = events[0].run_id, self._hold_of(events, epoch)
        office = self._office()
        office.check_version()
        ends = type(events[-1].body) is Stopped and not keep
        append, term = _make_append(hold, events, ends), office.heartbeat.term
        office.put(append)
        try:
            await append.future
        except JournalError as problem:  # the database is right, the card is not: the run must be claimed again
            raise (hold.failure or problem) from problem.__cause__
        hold.term = term
        if ends:
            self._drop(run, epoch)

    async def release(self, run_id: str, epoch: int) -> None:
        """Release the run. If the server is away, it is released as soon as it is back."""
        self._drop(run_id, epoch)
        office = self._own
        if office is None or not office.thread.is_here or office.thread.closed:
            return
        await office.ask(partial(office.insist, partial(self._release, office, run_id, epoch)))
        if self.closed and not self._held:
            await office.close()

    async def _release(self, office: Office, run_id: str, epoch: int, connection: Connection) -> None:
        await connection.execute(office.sql(_RELEASE), run_id, epoch, office.me)

    async def read(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        while True:
            found, last, _ = await self._next_page(run_id, after)
            for event in found:
                after = event.seq
                yield event
            if last:
                return

    async def _next_page(self, run_id: str, after: int) -> tuple[list[Event], bool, bool]:
        office = self._office()
        return await office.read(
            partial(reading.page, sql=office.sql, run_id=run_id, after=after, most=_PAGE, where=self.place)
        )

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        if not await self.runs(run_id=run_id, limit=1):
            raise RunNotFound(run_id)
        while True:
            found, _, over = await self._next_page(run_id, after)
            for event in found:
                after = event.seq
                yield event
            if over:
                return
            if not found:
                await self._office().wait(run_id, after)

    async def changes(self, after: int = 0, *, wait: bool = True) -> AsyncIterator[Change]:
        """Yield the facts of all runs. A long transaction in the same server delays those that were written after it began."""
        while True:
            office = self._office()
            found = await office.read(partial(reading.changes, sql=office.sql, after=after, most=_PAGE, where=self.place))
            for change in found:
                after = change.place
                yield change
            if not found:
                if not wait:
                    return
                await office.wait(EVERYTHING, after)

    async def ask_to_stop(self, run_id: str, reason: str) -> bool:
        office = self._office()

        def work() -> Steps[bool]:
            rows = yield "SELECT kaname.executes(r) FROM kaname.runs AS r WHERE r.run = $1", run_id
            if not rows:
                raise RunNotFound(run_id)
            if rows[0][0]:
                yield _ASK_TO_STOP, run_id, as_column(reason)
            return bool(rows[0][0])

        executed = await self.database.read(work)
        if executed:
            await office.ask(partial(office.arrivals.tell_to_stop, run_id))
        return executed

    async def asked_to_stop(self, run_id: str) -> str:
        office = self._office()
        return await office.ask(partial(office.arrivals.wait_for_stop, run_id), gives_up=True)

    async def lineage(self, run_id: str, upto: int | None = None, *, fold: int = 0) -> Lineage:
        office = self._office()
        return await office.read(
            partial(reading.lineage, sql=office.sql, run_id=run_id, upto=upto, fold=fold, where=self.place)
        )

    async def keep_snapshot(self, run_id: str, seq: int, fold: int, state: str) -> None:
        """Store one snapshot per session: the last run's snapshot covers all runs before it."""
        office = self._office()
        text, found = detach_media(state) if MARK in state else (state, [])
        total = row_sum(run_id, fold, seq, text)

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(office.sql(_OLD_SNAPSHOTS), run_id)
                kept = await connection.execute(office.sql(_KEEP_SNAPSHOT), run_id, fold, seq, text, total)
                if found and kept.endswith(" 1"):
                    await media.store(connection, office.sql, [(run_id, one) for one in found])

        await office.read(work)

    async def delete(self, run_id: str, *, cascade: bool = False) -> None:
        """Delete a run with its children."""
        await delete_run(self.database, run_id, cascade)

    async def prune(self, cards: Sequence[RunInfo], *, trial: set[str] | None = None) -> list[str]:
        return await prune_runs(self.database, cards, trial)

    async def tidy(self, *, whole: bool = False) -> tuple[int, int]:
        """Return zeros: PostgreSQL reuses the space of deleted runs by itself (autovacuum)."""
        return 0, 0

    async def close(self) -> None:
        """Write what is queued, and leave the database. While a run is held, this process stays its owner."""
        self.closed = True
        office = self._own
        if office is not None and office.thread.is_here and not office.thread.closed and not self._held:
            await office.close()


def _make_append(hold: RunHold, events: Sequence[Event], ends: bool) -> Append:
    """Return the facts as they are written, and update the index card."""
    card, prior = hold.card, hold.card.seq
    rows = [fact_row(event) for event in events]  # all of them can be written, before the card changes
    index(card, events)
    card.title = card.title.replace("\0", "")
    card.created, card.updated = float(card.created), float(card.updated)
    card.input, card.output = int(card.input), int(card.output)
    constant = _rarely_changing(card)
    goes_on, hold.constant = constant == hold.constant and not ends, constant
    opened = events[0].body
    base_seq = opened.base[1] if isinstance(opened, Opened) and opened.base is not None else 0
    return Append(hold, prior, rows, card_values(card), goes_on, ends, base_seq)


class PostgresHealth:
    """Checks of a journal in a database."""

    def __init__(self, office: Callable[[], Office], place: str) -> None:
        self._office, self._place = office, place

    async def probe(self) -> None:
        """Write the heartbeat of this process. Raises `JournalError` if the database cannot be written now."""
        await self._office().beat()

    async def verify(self, most: int = 0) -> list[str]:
        """Read the whole journal and return a description of everything that is damaged. `most`: see `Health`."""
        office = self._office()
        return await office.read(partial(reading.verify, sql=office.sql, where=self._place, most=most))
