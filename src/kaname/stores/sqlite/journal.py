"""The default journal: one SQLite file, WAL, synchronous commits, one writer thread that groups them."""

from __future__ import annotations

import asyncio
import sqlite3
import weakref
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...core.encryption.keys import files_of, use_key
from ...core.errors import JournalError, RunBusy, RunExists, RunNotFound, SessionBusy
from ...core.events import Event, Stopped
from ...core.runs import RunInfo, index
from ...kernel.ports import Change, Lease, Lineage, Turn
from ...kernel.stores import Stores
from ..digests import SqlDigests
from ..grants import SqlGrants
from ..inbox import SqlInbox
from ..journal import SqlJournal
from ..ledger import SqlLedger
from ..marks import SqlMarks
from ..news import News
from ..refusals import busy_text
from ..removal import delete_run, prune_runs
from ..rows import CARD, fact_row, row_sum
from . import reading
from .copies import copy, note_copy
from .database import SqliteDatabase
from .errors import explain
from .file import JournalFile, tidy
from .media import media_of
from .queue import SqliteQueue
from .reading import SELECT_CARD, card_of
from .thread import SqliteThread, Work, data_version, shut_down
from .writing import CHANGE, GO_ON, NEXT, OPEN, SqliteHold, card_values, rarely_changing

_PAGE = 500


class SqliteJournal(SqlJournal[SqliteHold]):
    """A journal in one SQLite file. Several processes can use the same file.

    Args:
        path: The file. It is created if it does not exist.
        patience: Seconds to wait while another process writes (default 30).
        max_bytes: The maximum size of the file, and of the one with its media. By default they are unlimited.
        key_file: A file with the key to encrypt the journal with (default: `KANAME_KEY_FILE`, or no encryption).
    """

    def __init__(
        self,
        path: str | Path,
        *,
        patience: float = 30.0,
        max_bytes: int | None = None,
        key_file: str | Path | None = None,
    ) -> None:
        self.path = Path(path).expanduser().resolve()  # one file, one name: its owners are found by it
        if key_file is not None:
            use_key(key_file, places=files_of(self.path))
        self.closed = False
        self._held: dict[str, SqliteHold] = {}
        self.media = media_of(self.path)
        self.media.max_bytes = max_bytes
        self._place = place = JournalFile(self.path, patience, max_bytes, self._held)
        self._writer = SqliteThread(
            place.open_to_write, place.check_to_write, self.path, writes=True, name="kaname-journal-writer", patience=patience
        )
        self._reader = SqliteThread(place.open_to_read, place.check, self.path, writes=False, name="kaname-journal-reader")
        look = partial(data_version, self._reader)
        self._news, self._patient_news = News(look), News(look, seconds=0.25)
        held = self._held
        self._database = SqliteDatabase(self._writer, self._reader, place, self._patient_news, lambda: len(held) <= 1)
        self.stores = Stores(
            str(self.path),
            SqlLedger(self.database),
            SqlInbox(self.database),
            SqlGrants(self.database),
            SqliteQueue(self.database, place),
            SqlMarks(self.database),
            SqliteHealth(self._writer, self._reader, self.path),
            SqlDigests(self.database),
        )
        self._finalizer = weakref.finalize(self, shut_down, place, self._held, self._writer, self._reader)

    @property
    def database(self) -> SqliteDatabase:
        """Return the database, for work on its tables (`stores/sql.py`)."""
        return self._database

    async def claim(self, run_id: str, *, takeover: bool = False, turn: Turn | None = None) -> Lease:
        """Claim a run. A new run is claimed in this process only; its first facts enter it in the file."""
        taken: list[SqliteHold] = []
        self._place.checked = 0.0  # look again whether the file is there

        def take(epoch: int, card: RunInfo, before: str = "") -> None:
            taken[:] = [SqliteHold(epoch, card, turn, before)]
            self._held[run_id] = taken[0]  # here, in the writer's thread, before the next claim is looked at

        def work(connection: sqlite3.Connection) -> None:
            if taken:  # tried before, and rolled back
                self._drop(run_id, taken[0].epoch)
            row = connection.execute("SELECT epoch, owner FROM runs WHERE run = ?", (run_id,)).fetchone()
            if (holder := self._place.executor(run_id, self._me() if row is None else row[1])) and not takeover:
                raise RunBusy(busy_text(run_id, holder))
            if row is None:
                hold = self._held.get(run_id)  # taken over from a task of this process that has not written anything
                return take(1 if hold is None else hold.epoch + 1, RunInfo(run_id))
            connection.execute("UPDATE runs SET epoch = ?, owner = ? WHERE run = ?", (row[0] + 1, self._me(), run_id))
            connection.execute("DELETE FROM stops WHERE run = ?", (run_id,))  # it was for the one before
            card = connection.execute(f"{SELECT_CARD} WHERE run = ?", (run_id,)).fetchone()
            before = "overtaken" if holder else "died" if row[1] not in (None, self._me()) else ""
            take(row[0] + 1, known := card_of(card, self.path), before)
            if self._place.keys is not None:
                taken[0].seal = self._place.seal(known.user, known.title, card[CARD.index("title")])
            return None

        try:
            await self._writer.transact(work, alone=not self._held)
        except JournalError:
            for hold in taken:
                self._drop(run_id, hold.epoch)
            if taken and not self.closed:  # should it have been committed all the same, nobody would ever release it
                self._release_soon(run_id, taken)
            raise
        except asyncio.CancelledError:  # it is carried out all the same, and right after it this
            self._release_soon(run_id, taken)
            raise
        return Lease(taken[0].epoch, taken[0].card.seq, taken[0].before)

    def _me(self) -> str:
        """Return the name of this process in the file. The writer's thread registers it before it does any work."""
        assert self._place.owner is not None
        return self._place.owner.name

    async def append(self, events: Sequence[Event], epoch: int, *, keep: bool = False) -> None:
        run, hold = events[0].run_id, self._hold_of(events, epoch)
        work = self._entry(hold, events, ends := type(events[-1].body) is Stopped and not keep)
        try:
            await self._writer.transact(work, alone=len(self._held) == 1, failed=hold.fail)
        except JournalError as problem:  # the file is right, the card is not: the run must be claimed again
            raise (hold.failure or problem) from problem.__cause__
        self._news.tell()
        if ends:
            self._drop(run, epoch)

    def _entry(self, hold: SqliteHold, events: Sequence[Event], ends: bool) -> Work:
        """Return the work that writes the facts and updates the index card."""
        card, epoch, run, before = hold.card, hold.epoch, events[0].run_id, hold.card.seq
        rows = [fact_row(event) for event in events]  # all of them can be written, before the card changes
        index(card, events)
        card.created, card.updated = float(card.created), float(card.updated)  # as the columns give them back
        card.input, card.output = int(card.input), int(card.output)
        values, key, constant = card_values(card), (run, epoch, before), rarely_changing(card)
        if before == 0:
            hold.constant = constant
            return partial(self._begin, hold, values, ends, rows)
        goes_on, hold.constant = constant == hold.constant and not ends, constant
        short = (card.updated, card.seq, card.input, card.output, card.cost)

        def work(connection: sqlite3.Connection) -> None:
            stored = values if hold.seal is None else hold.seal.card(values)
            total = row_sum(*stored, hold.card.place)  # not before: the first facts may have been on their way
            given = (*short, total, *key) if goes_on else (*stored, total, ends, *key)
            if connection.execute(GO_ON if goes_on else CHANGE, given).rowcount != 1:
                raise reading.refusal(connection, *key)
            hold.write(connection, rows, self.path)

        return work

    def _begin(
        self, hold: SqliteHold, card: tuple[Any, ...], ends: bool, rows: list[Any], connection: sqlite3.Connection
    ) -> None:
        """Write the first facts of a run."""
        run, base = card[0], card[CARD.index("base")]
        found = connection.execute("SELECT owner FROM runs WHERE run = ?", (run,)).fetchone()
        if found is not None:  # another process was first
            raise RunBusy(busy_text(run, f"process {found[0].split('-')[0]}")) if found[0] else RunExists(run)
        if base and connection.execute("SELECT 1 FROM runs WHERE run = ?", (base,)).fetchone() is None:
            raise RunNotFound(base)  # deleted meanwhile
        last, status, owner, seq = reading.last_of(connection, hold.turn)
        late = hold.turn is not None and hold.turn.after not in (0, seq)
        if last and (last != base or late or (status == "running" and self._place.executor(last, owner))):
            raise SessionBusy(last)
        (hold.card.place,) = (place,) = connection.execute(NEXT).fetchone()
        if self._place.keys is not None:  # in this transaction: the user's erasure comes either before it or after it
            hold.seal = self._place.seal(hold.card.user)
        stored = card if hold.seal is None else hold.seal.card(card)
        total, owner = row_sum(*stored, place), None if ends else self._me()
        connection.execute(OPEN, (*stored, place, place, total, hold.epoch, owner))
        hold.write(connection, rows, self.path)

    async def release(self, run_id: str, epoch: int) -> None:
        """Release the run. If the disk cannot write now, it is released as soon as it can."""
        self._drop(run_id, epoch)
        if not self.closed:
            await self._writer.submit(lambda connection: self._release(run_id, epoch, connection), insisting=True)
        elif not self._held:
            self._place.release_owner()

    def _release(self, run_id: str, epoch: int, connection: sqlite3.Connection) -> None:
        values = (run_id, epoch, self._me())  # the owner too: of a run that was never entered, another process may be the first
        connection.execute("UPDATE runs SET owner = NULL WHERE run = ? AND epoch = ? AND owner = ?", values)

    def _release_soon(self, run_id: str, taken: list[SqliteHold]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            for hold in taken:
                self._drop(run_id, hold.epoch)
                self._release(run_id, hold.epoch, connection)

        self._writer.submit(work, insisting=True)

    async def read(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        while True:
            found, last, _ = await self._next_page(run_id, after)
            while found:  # what has been given is held no longer
                after = found[0].seq
                yield found.popleft()
            if last:
                return

    async def _next_page(self, run_id: str, after: int) -> tuple[deque[Event], bool, bool]:
        turn = partial(reading.page, run_id=run_id, after=after, most=_PAGE, path=self.path)
        found, last, over = await self._reader.transact(turn)
        return deque(found), last, over

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        if not await self.runs(run_id=run_id, limit=1):
            raise RunNotFound(run_id)
        while True:
            version = await self._news.version()
            found, _, over = await self._next_page(run_id, after)
            if not found and not over:
                await self._news.wait(version)
            while found:
                after = found[0].seq
                yield found.popleft()
            if over:
                return

    async def changes(self, after: int = 0, *, wait: bool = True) -> AsyncIterator[Change]:
        def work(connection: sqlite3.Connection) -> tuple[list[Change], int]:
            return reading.changes(connection, after, _PAGE, self.path)

        while True:
            version = await self._news.version()
            found, upto = await self._reader.transact(work)
            for change in found:
                yield change
            if upto > after:
                after = upto
            elif wait:
                await self._news.wait(version)
            else:
                return

    async def ask_to_stop(self, run_id: str, reason: str) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            row = connection.execute("SELECT epoch, owner FROM runs WHERE run = ?", (run_id,)).fetchone()
            if row is None:
                raise RunNotFound(run_id)
            executed = bool(self._place.executor(run_id, row[1]))
            if executed:
                connection.execute("INSERT OR REPLACE INTO stops VALUES (?, ?)", (run_id, reason))
            return executed

        return bool(await self._writer.submit(work))

    async def asked_to_stop(self, run_id: str) -> str:
        query = "SELECT reason FROM stops WHERE run = ?"
        while True:
            version = await self._patient_news.version()
            row = await self._reader.transact(lambda connection: connection.execute(query, (run_id,)).fetchone())
            if row is not None:
                return str(row[0])
            await self._patient_news.wait(version)

    async def lineage(self, run_id: str, upto: int | None = None, *, fold: int = 0) -> Lineage:
        walk = partial(reading.lineage, run_id=run_id, upto=upto, fold=fold, path=self.path)
        return await self._reader.transact(walk)  # type: ignore[no-any-return]

    async def keep_snapshot(self, run_id: str, seq: int, fold: int, state: str) -> None:
        """Store one snapshot per session: the last run's snapshot covers all runs before it."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM snapshots WHERE run IN (SELECT other.run FROM runs AS mine JOIN runs AS other "
                "ON other.session = mine.session AND other.session <> '' WHERE mine.run = ? "
                "AND other.agent = mine.agent AND other.user = mine.user)",
                (run_id,),
            )
            user = connection.execute("SELECT user FROM runs WHERE run = ?", (run_id,)).fetchone()
            values = (run_id, fold, seq, self.database.seal(user[0] if user else "", state, run_id, run_id))
            connection.execute(
                "INSERT OR REPLACE INTO snapshots (run, fold, seq, state, sum) SELECT ?, ?, ?, ?, ? "
                "WHERE EXISTS (SELECT 1 FROM runs WHERE run = ?)",
                (*values, row_sum(*values), run_id),
            )

        await self._writer.transact(work)

    async def delete(self, run_id: str, *, cascade: bool = False) -> None:
        """Delete a run with its children. Its text is overwritten, also in the write-ahead log unless that is being read."""
        await self.media.clear(await delete_run(self.database, run_id, cascade))
        await self.tidy()

    async def prune(self, cards: Sequence[RunInfo], *, trial: set[str] | None = None) -> list[str]:
        found = await prune_runs(self.database, cards, trial)
        await self.media.clear(found if trial is None else ())
        return found

    async def tidy(self, *, whole: bool = False) -> tuple[int, int]:
        """Return the space of deleted runs to the disk, some megabytes at a time. `whole`: all, while writers wait."""
        try:
            await self._reader.transact(self.media.sweep)
            return await asyncio.to_thread(tidy, self.path, whole=whole)
        except sqlite3.Error as problem:
            raise explain(problem, self.path) from problem

    async def backup(self, path: str | Path) -> None:
        """Copy the whole journal, as it is at one moment, to a new file. Runs continue. Erasing a user reaches it, too."""
        target = await asyncio.to_thread(lambda: Path(path).expanduser().resolve())
        await self._writer.submit(lambda connection: note_copy(connection, target))
        await self._reader.transact(lambda connection: copy(connection, self.path, target))
        await asyncio.to_thread(self.media.copy, target)

    async def close(self) -> None:
        """Finish the queued work and release the file. A closed journal cannot be used again."""
        self.closed = True
        self._finalizer.detach()
        await asyncio.to_thread(shut_down, self._place, self._held, self._writer, self._reader, wait=True)
        self.media.close()


class SqliteHealth:
    """Checks of a journal's file."""

    def __init__(self, writer: SqliteThread, reader: SqliteThread, path: Path) -> None:
        self._writer, self._reader, self._path = writer, reader, path

    async def probe(self) -> None:
        """Write some pages and remove them. Raises `JournalError` if the file cannot be written now."""
        await self._writer.submit(_probe)

    async def verify(self, most: int = 0) -> list[str]:
        """Read the file and return a description of everything that is damaged. `most`: see `Health`."""
        return list(await self._reader.transact(partial(reading.verify, path=self._path, most=most)))


def _probe(connection: sqlite3.Connection) -> None:
    """Write some pages and remove them. Committing this shows whether the file can be written and can grow."""
    name = " probe"  # not the name of a run
    connection.execute("INSERT OR REPLACE INTO stops VALUES (?, ?)", (name, "x" * 32_768))  # room for a run's first facts
    connection.execute("DELETE FROM stops WHERE run = ?", (name,))
