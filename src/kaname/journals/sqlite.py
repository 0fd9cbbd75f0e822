"""The embedded default: one SQLite file, WAL, synchronous commits, one writer thread that groups them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import weakref
from collections.abc import AsyncIterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..core.codec import decode_body, encode_body
from ..core.errors import JournalError, RunBusy, RunNotFound, RunSuperseded
from ..core.events import Event, Stopped
from ..core.runs import RunInfo, index
from ..kernel.ports import Lease
from .owners import Owner
from .sqlite_file import connect
from .sqlite_thread import SqliteThread
from .wording import busy, gap, has_dependants, removed, superseded

_COLUMNS = list(RunInfo.__match_args__)
_SELECT_CARD = f"SELECT {', '.join(_COLUMNS)} FROM runs"
_UPDATED = [name for name in _COLUMNS if name != "run"]
_card_values = attrgetter(*_UPDATED)
_UPDATE = (
    f"UPDATE runs SET {', '.join(f'{name} = ?' for name in _UPDATED)}, owner = CASE WHEN ? THEN NULL ELSE owner END "
    "WHERE run = ? AND epoch = ? AND seq = ?"
)
_INSERT = "INSERT INTO facts (run, seq, time, agent, type, body) VALUES (?, ?, ?, ?, ?, ?)"
_RELEASE = "UPDATE runs SET owner = NULL WHERE run = ? AND epoch = ?"
_PAGE = 500


def _fetch(query: str, values: Any, connection: sqlite3.Connection) -> list[Any]:
    return connection.execute(query, values).fetchall()


class _Place:
    """Where the journal is and who writes there. The threads know this much and not the journal, so that it can be let go."""

    def __init__(self, path: Path, patience: float, max_bytes: int | None) -> None:
        self.path, self.patience, self.max_bytes = path, patience, max_bytes
        self.owner: Owner | None = None
        self._file: tuple[int, int] | None = None  # which file it was when it was opened

    def check(self) -> None:
        """A file that was removed or replaced still takes what is written, and nobody will ever read it."""
        if self._which() != self._file:
            raise JournalError(removed(str(self.path)))

    def _which(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def open_to_write(self) -> sqlite3.Connection:
        connection = connect(self.path, patience=self.patience, max_bytes=self.max_bytes)
        if self.owner is None or self.owner.process != os.getpid():
            self.owner = Owner(self.path.with_name(self.path.name + "-owners"))
        self._file = self._file or self._which()
        return connection

    def open_to_read(self) -> sqlite3.Connection:
        connection = connect(self.path, patience=self.patience)
        connection.execute("PRAGMA query_only = ON")
        self._file = self._file or self._which()
        return connection


def _let_go(place: _Place, *threads: SqliteThread, wait: bool = False) -> None:
    for thread in threads:
        thread.stop(wait=wait)
    if place.owner is not None and place.owner.process == os.getpid():
        place.owner.close()
        place.owner = None


class SqliteJournal:
    """`patience`: seconds to wait while another process writes. `max_bytes`: a quota for the file, if one is wanted."""

    def __init__(self, path: str | Path, *, patience: float = 30.0, max_bytes: int | None = None) -> None:
        self.path = Path(path).expanduser().resolve()  # one file, one name: its owners are found by it
        self.closed = False
        self._held: dict[str, tuple[int, RunInfo]] = {}  # the runs executed through this journal: epoch and index card
        self._place = place = _Place(self.path, patience, max_bytes)
        self._writer = SqliteThread(place.open_to_write, place.check, self.path, writes=True, name="kaname-journal-writer")
        self._reader = SqliteThread(place.open_to_read, place.check, self.path, writes=False, name="kaname-journal-reader")
        self._finalizer = weakref.finalize(self, _let_go, place, self._writer, self._reader)

    async def claim(self, run: str, *, takeover: bool = False) -> Lease:
        taken: list[tuple[int, RunInfo]] = []

        def take(epoch: int, card: RunInfo) -> None:
            self._held[run] = (epoch, card)  # here, in the writer's thread, before the next claim is looked at
            taken.append(self._held[run])

        def work(connection: sqlite3.Connection) -> None:
            owner = self._place.owner
            assert owner is not None
            row = connection.execute("SELECT epoch, owner FROM runs WHERE run = ?", (run,)).fetchone()
            if row is None:
                connection.execute("INSERT INTO runs (run, epoch, owner) VALUES (?, 1, ?)", (run, owner.name))
                return take(1, RunInfo(run))
            epoch, holder = row
            broken_off = holder == owner.name and run not in self._held  # here, and not given back
            if holder and not takeover and not broken_off and owner.is_alive(holder):
                raise RunBusy(busy(run, "this process" if holder == owner.name else f"process {holder.split('-')[0]}"))
            connection.execute("UPDATE runs SET epoch = ?, owner = ? WHERE run = ?", (epoch + 1, owner.name, run))
            return take(epoch + 1, RunInfo(*connection.execute(f"{_SELECT_CARD} WHERE run = ?", (run,)).fetchone()))

        try:
            await self._writer.transact(work)
        except JournalError:
            if taken and self._held.get(run) is taken[-1]:  # it was not committed
                del self._held[run]
            raise
        except asyncio.CancelledError:
            self._give_back_soon(run, taken)
            raise
        epoch, card = taken[-1]
        return Lease(epoch, card.seq)

    def _give_back_soon(self, run: str, taken: list[tuple[int, RunInfo]]) -> None:
        """Whoever claimed it is gone; the claim is carried out all the same, and right after it this."""

        def work(connection: sqlite3.Connection) -> None:
            for epoch, _ in taken:
                self._drop(run, epoch)
                connection.execute(_RELEASE, (run, epoch))

        self._writer.transact(work).add_done_callback(lambda done: done.cancelled() or done.exception())

    async def append(self, events: Sequence[Event], epoch: int) -> None:
        run = events[0].run
        held, card = self._held.get(run, (0, RunInfo(run)))
        if held != epoch:
            raise RunSuperseded(superseded(run))
        before = card.seq
        if events[0].seq != before + 1:
            raise JournalError(gap(run, before, events[0].seq))
        rows = [(e.run, e.seq, e.time, e.agent, *encode_body(e.body)) for e in events]  # type: ignore[arg-type]
        for event in events:
            index(card, event)
        ends, base = isinstance(events[-1].body, Stopped), card.base if before == 0 else ""
        values = (*_card_values(card), ends, run, epoch, before)

        def work(connection: sqlite3.Connection) -> None:
            if base and connection.execute("SELECT 1 FROM runs WHERE run = ?", (base,)).fetchone() is None:
                raise RunNotFound(base)  # deleted meanwhile
            if connection.execute(_UPDATE, values).rowcount != 1:
                raise self._refusal(connection, run, epoch, before)
            connection.executemany(_INSERT, rows)

        try:
            await self._writer.transact(work)
        except JournalError:
            self._drop(run, epoch)  # the file is right, the card is not: whoever goes on claims the run anew
            raise
        if ends:
            self._drop(run, epoch)

    def _drop(self, run: str, epoch: int) -> None:
        if run in self._held and self._held[run][0] == epoch:
            del self._held[run]

    @staticmethod
    def _refusal(connection: sqlite3.Connection, run: str, epoch: int, before: int) -> JournalError:
        row = connection.execute("SELECT epoch, seq FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            return RunNotFound(run)
        return RunSuperseded(superseded(run)) if row[0] != epoch else JournalError(gap(run, row[1], before + 1))

    async def release(self, run: str, epoch: int) -> None:
        self._drop(run, epoch)
        await self._writer.transact(lambda connection: connection.execute(_RELEASE, (run, epoch)))

    async def read(self, run: str, after: int = 0) -> AsyncIterator[Event]:
        query = "SELECT run, seq, time, agent, type, body FROM facts WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
        while True:
            page = (run, after, _PAGE)
            rows = await self._reader.transact(partial(_fetch, query, page))
            for name, seq, time, agent, kind, body in rows:
                yield Event(name, seq, time, agent, decode_body(kind, body))
            if len(rows) < _PAGE:
                return
            after = rows[-1][1]

    async def runs(
        self, *, run: str = "", session: str = "", status: str = "", agent: str = "", limit: int = 100
    ) -> list[RunInfo]:
        wanted = {"run": run, "session": session, "status": status, "agent": agent}
        conditions = ["seq > 0", *[f"{name} = :{name}" for name, value in wanted.items() if value]]
        query = f"{_SELECT_CARD} WHERE {' AND '.join(conditions)} ORDER BY created DESC, run DESC LIMIT :limit"
        rows = await self._reader.transact(partial(_fetch, query, {**wanted, "limit": limit}))
        return [RunInfo(*row) for row in rows]

    async def delete(self, run: str, *, cascade: bool = False) -> None:
        def work(connection: sqlite3.Connection) -> None:
            doomed = [run]
            for one in doomed:
                row = connection.execute("SELECT owner FROM runs WHERE run = ?", (one,)).fetchone()
                if row is None:
                    raise RunNotFound(one)
                owner = self._place.owner
                broken_off = owner is not None and row[0] == owner.name and one not in self._held
                if row[0] and not broken_off and owner is not None and owner.is_alive(row[0]):
                    raise RunBusy(busy(one, f"process {row[0].split('-')[0]}"))
                dependants = [other for (other,) in connection.execute("SELECT run FROM runs WHERE base = ?", (one,))]
                if dependants and not cascade:
                    raise JournalError(has_dependants(one, dependants))
                doomed += dependants
            for table in ("facts", "runs"):
                connection.executemany(f"DELETE FROM {table} WHERE run = ?", [(one,) for one in doomed])

        await self._writer.transact(work)

    async def close(self) -> None:
        """Finish what is queued and let go of the file. A journal that is closed cannot be used again."""
        self.closed = True
        self._finalizer.detach()
        await asyncio.to_thread(_let_go, self._place, self._writer, self._reader, wait=True)
