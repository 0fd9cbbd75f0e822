"""The store of a world: kaname's SQLite journal on a database in memory, with faults in front of it.

Everything above the file is kaname's own code: its statements, its writer that commits the work of several runs together, its
claims and fences. The file, its locks and its thread are simulated: work waits for its turn, the answer comes late, a commit
fails, or succeeds and its answer is lost, or the process dies right before or after it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from ...core.errors import JournalError
from ...core.events import Event, Opened
from ...kernel.ports import Lease, Turn
from ...kernel.stores import Stores
from ...stores.grants import SqlGrants
from ...stores.inbox import SqlInbox
from ...stores.ledger import SqlLedger
from ...stores.marks import SqlMarks
from ...stores.news import News
from ...stores.sql import Steps
from ...stores.sqlite.database import SqliteDatabase
from ...stores.sqlite.file import JournalFile, add_functions
from ...stores.sqlite.journal import SqliteHealth, SqliteJournal
from ...stores.sqlite.media import media_of
from ...stores.sqlite.owners import Owner
from ...stores.sqlite.queue import SqliteQueue
from ...stores.sqlite.schema import ON_DEMAND, migrate
from ...stores.sqlite.thread import SqliteThread, Work, _deliver, _Job, shut_down
from ...stores.sqlite.writing import SqliteHold
from .world import Killed, Process, World

T = TypeVar("T")
PATH = Path("/simulated/journal.db")
_RETRY = 1.0  # seconds until work that has to succeed is tried again
_NOTICED = 0.05  # seconds until another process notices a write, at most
_BATCH = 4
_UNREACHABLE = "the simulated store could not be reached"


@dataclass
class Weather:
    """How the store behaves: the probability of each fault, for one piece of work or one commit.

    Attributes:
        slow: The answer takes up to `longest` seconds.
        refused: The work is not done, and fails.
        unheard: The work is done, and its answer is lost: it fails for the caller.
        twice: The work is done, its answer is lost, and it is sent again.
        killed: The process dies right before or after the commit.
        kills_left: How many processes can die in all.
        longest: Seconds of the latest answer.
    """

    slow: float = 0.0
    refused: float = 0.0
    unheard: float = 0.0
    twice: float = 0.0
    killed: float = 0.0
    kills_left: int = 0
    longest: float = 1.0

    def clear_up(self) -> None:
        """End all faults, so that everything can come to its end."""
        self.slow = self.refused = self.unheard = self.twice = self.killed = 0.0
        self.kills_left = 0


class Connection(sqlite3.Connection):
    """The connection that all processes share. Each piece of work is done at one moment."""

    store: Store | None = None
    _writing = False

    def add_world(self) -> None:
        """Add the functions that statements use, once: with each one that is added, SQLite compiles all statements anew."""
        add_functions(self, self._executes, self._is_alive)
        self.create_function("now", 0, self._now)  # the time of a server: all processes have the same

    def _executes(self, run: str, owner: str | None) -> bool:
        return self.store is not None and self.store.executes(run, owner)

    def _is_alive(self, owner: str) -> bool:
        return self.store is not None and self.store.is_alive(owner)

    def _now(self) -> float:
        return 0.0 if self.store is None else self.store.world.now

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE":
            self._writing = True
            if self.store is not None:
                self.store.must_live()
        elif sql == "COMMIT" and self._writing:
            self._writing = False
            return self._commit_or_die()
        elif sql == "ROLLBACK":
            self._writing = False
        return super().execute(sql, parameters)

    def _commit_or_die(self) -> sqlite3.Cursor:
        store = self.store
        when = "" if store is None else store.death()
        if store is not None and when == "before":
            super().execute("ROLLBACK")
            store.die("before a commit")
        done = super().execute("COMMIT")
        if store is not None:
            store.committed()
            if when:
                store.die("after a commit")
        return done


@cache
def _connection() -> Connection:
    """Return the database, with all tables. It is used for one schedule after the other."""
    connection = sqlite3.connect(
        ":memory:", isolation_level=None, factory=Connection, cached_statements=500, check_same_thread=False
    )
    connection.add_world()
    migrate(connection, PATH)
    for scripts in ON_DEMAND.values():
        for script in scripts:
            connection.execute(script)
    return connection


@cache
def _tables() -> tuple[str, ...]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return tuple([name for (name,) in _connection().execute(query).fetchall()])


class Store:
    """The database of a world, and what is known of its processes.

    `beats`: processes prove that they live by a heartbeat, as in a database on the network; otherwise by a lock that ends with
    them. `weather` says how it behaves.
    """

    def __init__(self, world: World, weather: Weather, *, beats: bool = False) -> None:
        self.world, self.weather, self.beats = world, weather, beats
        self.connection = _connection()
        self.version = 0
        self.ttl = world.random.choice((2.0, 4.0))
        self.owners: dict[str, Process] = {}
        self.works: set[str] = set()
        self.until: dict[str, float] = {}  # until when heartbeats hold, by owner
        self.taken_for_dead: dict[str, float] = {}  # owners whose lock has got lost, and until when
        self.acknowledged: dict[str, dict[int, Event]] = {}
        # A process that acts for a run has it: none was taken for dead, or overtaken, and heartbeats arrive in time.
        self.is_certain = not beats or not (weather.slow or weather.refused)
        self.news: list[SimulatedNews] = []
        connection = self.connection
        connection.store = None
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        for table in _tables():
            connection.execute(f"DELETE FROM {table}")
        connection.execute("COMMIT")
        connection.store = self

    def is_alive(self, owner: str) -> bool:
        """Return True if that process counts as alive."""
        process = self.owners.get(owner)
        if process is None:
            return False
        if self.beats:
            return self.until.get(owner, 0.0) > self.world.now
        return process.alive and self.taken_for_dead.get(owner, 0.0) <= self.world.now

    def executes(self, run: str, owner: str | None) -> bool:
        """Return True if the owner executes the run, as the process at work sees it."""
        here = self.world.here
        place: SimulatedFile | None = None if here is None else here.belongings.get("file")
        return bool(owner and (self.is_alive(owner) if place is None else place.executor(run, owner)))

    def must_live(self) -> None:
        """Raise `Killed` if the process at work is dead: what it does reaches nothing."""
        if self.world.here is not None and not self.world.here.alive:
            raise Killed

    def death(self) -> str:
        """Return whether the process dies "before" or "after" this commit, or ""."""
        weather = self.weather
        if weather.kills_left <= 0 or self.world.here is None or not self.world.chance(weather.killed):
            return ""
        weather.kills_left -= 1
        return "before" if self.world.random.random() < 0.5 else "after"

    def die(self, why: str) -> None:
        assert self.world.here is not None
        self.world.here.kill(why)
        raise Killed

    def committed(self) -> None:
        self.version += 1
        for one in self.news:
            one.spread()

    def holder(self, run_id: str) -> tuple[str, int]:
        """Return the process that has the run, as the database says it, and the epoch of its claim."""
        row = self.connection.execute("SELECT owner, epoch FROM runs WHERE run = ?", (run_id,)).fetchone()
        return ("", 0) if row is None else (row[0] or "", row[1])

    def check_turn(self, run: str, base: str) -> None:
        """Note a broken promise if a run of a session begins while the one before it is being executed."""
        row = self.connection.execute("SELECT owner, status FROM runs WHERE run = ?", (base,)).fetchone()
        if row is not None and row[0] and row[1] == "running" and self.executes(base, row[0]):
            self.world.report("turns", f"{run} begins while {row[0]} executes {base}")

    def open(self, process: Process) -> SimulatedJournal:
        """Return the journal of a process."""
        journal: SimulatedJournal | None = process.belongings.get("journal")
        if journal is None:
            journal = process.belongings["journal"] = SimulatedJournal(self, process)
        return journal


class _Bell(SimpleQueue[bool]):
    """Signals of a simulated thread: each one makes it look for work."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    def put(self, item: bool, block: bool = True, timeout: float | None = None) -> None:
        self._ring()


class SimulatedThread(SqliteThread):
    """kaname's writer or reader. Its thread is a part of the process, and works when the world says so."""

    def __init__(self, store: Store, process: Process, place: SimulatedFile, *, writes: bool) -> None:
        opening = place.open_to_write if writes else place.open_to_read
        super().__init__(opening, place.check_to_write if writes else place.check, PATH, writes=writes, name="simulated")
        self._store, self._owner, self._busy = store, process, False
        self._unfinished: list[_Job] = []
        self._is_quick = store.world.random.random() < 0.5

    def _start(self) -> None:
        self._begin_empty()
        self._process = os.getpid()
        self._signals = _Bell(self._ring)

    def stop(self, *, wait: bool = True) -> None:
        self._closed = True
        while self._jobs:
            self._work()

    def _do_here(self, work: Work) -> _Job | None:
        return super()._do_here(work) if self._is_quick and not self._unfinished else None

    def _ring(self) -> None:
        if not self._busy:
            self._busy = True
            self._owner.later(self._pause(), self._work)

    def _pause(self) -> float:
        chance, weather = self._store.world.random, self._store.weather
        if weather.slow and chance.random() < weather.slow:
            return chance.random() * weather.longest
        return chance.random() * 0.002

    def _work(self) -> None:
        """Do some of the jobs that wait, and deliver what came of them, now or later."""
        count = 1 + int(self._store.world.random.random() * _BATCH) if self._writes else len(self._jobs)
        jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), max(1, count)))]
        self._do(self._unfinished + jobs)
        self._unfinished = [one for one in self._unfinished + jobs if one.insisting and isinstance(one.outcome, JournalError)]
        late = self._pause()
        if late < 0.002:
            self._deliver(jobs)
        else:
            self._owner.later(late, self._deliver, jobs)

    def _deliver(self, jobs: list[_Job]) -> None:
        if jobs:
            _deliver(jobs)
        self._busy = bool(self._jobs or self._unfinished)
        if self._busy:
            self._owner.later(self._pause() if self._jobs else _RETRY, self._work)

    def _do(self, jobs: list[_Job]) -> None:
        weather, world = self._store.weather, self._store.world
        if not self._writes or not jobs or not (weather.refused or weather.unheard):
            super()._do(jobs)
            return
        if self._connection is not None and world.chance(weather.refused):
            world.tell(f"{len(jobs)} pieces of work are refused by the store")
            _fail(jobs)
            return
        super()._do(jobs)
        if world.chance(weather.unheard):
            world.tell(f"{len(jobs)} pieces of work are done, and their answers lost")
            _fail([one for one in jobs if not one.insisting and not isinstance(one.outcome, JournalError)])


def _fail(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.outcome = problem = JournalError(_UNREACHABLE)
        if job.failed is not None:
            job.failed(problem)


class _Identity(Owner):
    """The identity of a simulated process."""

    def __init__(self, name: str) -> None:
        self.process, self.name, self.works = os.getpid(), name, False

    def begin_work(self) -> None:
        self.works = True

    def restore(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class SimulatedFile(JournalFile):
    """The journal's file, as one process sees it."""

    def __init__(self, store: Store, process: Process, held: Mapping[str, SqliteHold]) -> None:
        super().__init__(PATH, 0.0, None, held)
        self._store, self._process = store, process
        self.owner = _Identity(f"{process}-{process.life}")
        store.owners[self.owner.name] = process

    def open_to_write(self) -> sqlite3.Connection:
        return self._store.connection

    def open_to_read(self) -> sqlite3.Connection:
        return self._store.connection

    def check(self) -> None:
        self._store.must_live()

    def check_to_write(self) -> None:
        self._store.must_live()

    def is_alive(self, owner: str) -> bool:
        return self._store.is_alive(owner)

    def begin_work(self) -> None:
        super().begin_work()
        assert self.owner is not None
        self._store.works.add(self.owner.name)

    def workers(self) -> list[str]:
        return sorted([name for name in self._store.works if self._store.is_alive(name)])

    def release_owner(self) -> None:
        if self.owner is not None:
            self._store.owners.pop(self.owner.name, None)


class SimulatedNews(News):
    """What a process hears of the writes of all processes: a little later."""

    def __init__(self, store: Store, process: Process) -> None:
        super().__init__()
        self._store, self._process = store, process
        self._futures: list[Any] = []
        self._is_coming = False
        store.news.append(self)

    async def version(self) -> int:
        return self._store.version

    async def wait(self, version: int) -> None:
        while self._store.version == version:
            future = self._process.loop.create_future()
            self._futures.append(future)
            try:
                await future
            finally:
                with suppress(ValueError):
                    self._futures.remove(future)

    def tell(self) -> None:
        """Do nothing: the store has told."""

    def spread(self) -> None:
        if self._futures and not self._is_coming:
            self._is_coming = True
            self._process.later(self._store.world.random.random() * _NOTICED, self._arrive)

    def _arrive(self) -> None:
        self._is_coming = False
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)


class _Server:
    """The server of a database on the network, as far as a heartbeat needs it."""

    def __init__(self, store: Store, process: Process) -> None:
        self.store, self.process = store, process
        self.address = SimpleNamespace(ttl=store.ttl, shown="the simulated server")
        self.keeper, self.has_readers, self.others_listen = self, False, False

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        return await work()

    async def do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        weather, chance = self.store.weather, self.store.world
        await asyncio.sleep(chance.random.random() * (weather.longest if chance.chance(weather.slow) else 0.002))
        if chance.chance(weather.refused):
            raise JournalError(_UNREACHABLE)
        return await work(self)

    async def fetchrow(self, statement: str, owner: str, ttl: float, listens: bool, works: bool) -> tuple[int, int, bool, bool]:
        """Renew the entry of a process, by the clock of the server."""
        lived = self.store.until.get(owner, 0.0) > self.store.world.now
        self.store.until[owner] = self.store.world.now + ttl
        return 0, 0, False, lived


class SimulatedDatabase(SqliteDatabase):
    """The other tables. Work can be sent twice, as to a database on the network whose answer was lost."""

    def __init__(self, journal: SimulatedJournal, store: Store, process: Process, place: SimulatedFile, news: News) -> None:
        super().__init__(journal._writer, journal._reader, place, news, lambda: len(journal._held) <= 1)
        self._store = store

    async def write(self, work: Callable[[], Steps[T]]) -> T:
        done = await super().write(work)
        if self._store.world.chance(self._store.weather.twice):
            self._store.world.tell("an answer is lost, and the work is sent again")
            done = await super().write(work)
        return done


class SimulatedJournal(SqliteJournal):
    """kaname's SQLite journal, as one process has it open."""

    def __init__(self, store: Store, process: Process) -> None:
        self.path, self.closed, self.store, self.process = PATH, False, store, process
        self._held: dict[str, SqliteHold] = {}
        self.media = media_of(PATH)
        self._place = place = SimulatedFile(store, process, self._held)
        process.belongings["file"] = place
        self._heartbeat: Any = None
        if store.beats:
            from ...stores.postgres.owner import Heartbeat  # needs the package asyncpg

            server: Any = _Server(store, process)
            self._heartbeat = Heartbeat(server, server, cast(Any, str))
            assert place.owner is not None
            self._heartbeat.name = place.owner.name
        self._writer = SimulatedThread(store, process, place, writes=True)
        self._reader = SimulatedThread(store, process, place, writes=False)
        self._news = self._patient_news = news = SimulatedNews(store, process)
        self._database = SimulatedDatabase(self, store, process, place, news)
        self.stores = Stores(
            str(PATH),
            SqlLedger(self.database),
            SqlInbox(self.database),
            SqlGrants(self.database),
            SqliteQueue(self._database, place),
            SqlMarks(self.database),
            SqliteHealth(self._writer, self._reader, PATH),
        )
        self._finalizer = weakref.finalize(self, shut_down, place, self._held)

    async def claim(self, run_id: str, *, takeover: bool = False, turn: Turn | None = None) -> Lease:
        if self._heartbeat is not None:
            await self._heartbeat.begin()
        if takeover:
            self.store.is_certain = False
        lease = await super().claim(run_id, takeover=takeover, turn=turn)
        self.store.world.tell(f"claims {run_id} ({lease.epoch}{', ' + lease.before if lease.before else ''})")
        return lease

    async def append(self, events: Sequence[Event], epoch: int, *, keep: bool = False) -> None:
        await super().append(events, epoch, keep=keep)
        told = self.store.acknowledged.setdefault(events[0].run_id, {})
        for event in events:
            told[event.seq] = event

    def _entry(self, hold: SqliteHold, events: Sequence[Event], ends: bool) -> Work:
        """Return kaname's work, and look at what it writes: only the last claim of a run can write it."""
        work, store, run = super()._entry(hold, events, ends), self.store, events[0].run_id

        def write(connection: sqlite3.Connection) -> Any:
            done = work(connection)
            _, epoch = store.holder(run)
            if type(opened := events[0].body) is Opened and opened.session and opened.base is not None:
                store.check_turn(run, opened.base[0])
            if epoch != hold.epoch:
                store.world.report("fenced", f"{self.process} wrote to {run} with epoch {hold.epoch}, and its epoch is {epoch}")
            if store.world.trace is not None:
                names = ", ".join([f"{one.seq} {type(one.body).__name__}" for one in events])
                store.world.tell(f"writes {run}: {names}")
            return done

        return cast(Work, write)
