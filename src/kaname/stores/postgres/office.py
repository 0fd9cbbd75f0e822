"""What one process has of a journal: the thread, its connections, its heartbeat, and the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from logging import getLogger
from typing import Any, TypeVar

from ...core.durations import backoff
from ...core.errors import JournalError
from ...core.notices import notice
from ..journal import RunHold
from .address import Address
from .arrivals import Arrivals
from .connections import Connection, Connections, Statement
from .owner import Heartbeat
from .schema import Sql, prepare_database
from .thread import PostgresThread
from .writer import Append, Settlement, Writer

T = TypeVar("T")
_LONGEST_PAUSE = 8.0  # seconds between two tries
_SYNC = "SELECT setting, source FROM pg_settings WHERE name = 'synchronous_commit'"


class Office:
    """Everything that lives as long as this process uses the journal. A forked child makes its own."""

    def __init__(self, address: Address, held: dict[str, RunHold]) -> None:
        self.address, self.sql, self._held = address, Sql(address.schema), held
        self._connections = Connections(address)
        self.thread = PostgresThread(address.shown, self._connections.drop)
        self.arrivals = Arrivals(self._connections, self.sql)
        self.heartbeat = Heartbeat(self._connections, self.arrivals, self.sql)
        self.me = self.heartbeat.name
        self._writer = Writer(self._connections, self.thread, self.sql, self.me, self._ready, self.arrivals.note, self.is_held)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._insisting: set[asyncio.Task[None]] = set()
        self.thread.start()

    def is_held(self, run_id: str) -> bool:
        """Return True if this process executes the run, and can still write it."""
        hold = self._held.get(run_id)
        return hold is not None and hold.failure is None

    def check_version(self) -> None:
        """Raise `JournalTooNew` if the journal was migrated to a version that this process does not know: it must not write."""
        if self.heartbeat.failure is not None:
            raise self.heartbeat.failure.with_traceback(None)

    @property
    def statements(self) -> int:
        """Return the number of statements that have written facts."""
        return self._writer.statements

    async def ask(self, work: Callable[[], Awaitable[T]], *, gives_up: bool = False) -> T:
        """Run the work in the thread, after the database is ready."""

        async def go() -> T:
            await self._ready()
            return await work()

        return await self.thread.submit(go, gives_up=gives_up)

    async def read(self, work: Statement[T]) -> T:
        return await self.ask(lambda: self._connections.read(work))

    async def read_here(self, work: Statement[T]) -> T:
        """Do the work as `read` does, from inside the thread."""
        return await self._connections.read(work)

    async def insist(self, work: Statement[Any]) -> None:
        """Do the work from inside the thread. If the server is away, do it in the background as soon as it is back."""
        try:
            await self._connections.read(work)
        except JournalError:
            self.insist_later(work)

    def insist_later(self, work: Statement[Any]) -> None:
        """Do the work in the background, from inside the thread, as soon as the server is back."""
        task = asyncio.create_task(self._retry(work))
        self._insisting.add(task)
        task.add_done_callback(self._insisting.discard)

    async def _retry(self, work: Statement[Any]) -> None:
        """Try until it succeeds. A server may also refuse it for a while, such as a replica before it is promoted."""
        for failures in count(1):
            await asyncio.sleep(backoff(failures, 1.0, _LONGEST_PAUSE))
            with suppress(JournalError):
                await self._connections.read(work)
                return

    def held_runs(self) -> list[str]:
        return [run for run in tuple(self._held) if self.is_held(run)]

    async def begin(self, *, works: bool = False) -> None:
        """Enter this process among those that execute runs. `works`: it takes them from the queue."""
        await self.ask(lambda: self.heartbeat.begin(works=works))

    async def begin_here(self) -> None:
        await self.heartbeat.begin()

    async def wait(self, key: str, seen: int) -> None:
        """Wait for facts of a run after number `seen`, or of all runs after that place."""
        await self.ask(lambda: self.heartbeat.wait(key, seen), gives_up=True)

    async def tell_of_work(self) -> None:
        """Tell the workers that a run was queued."""
        await self.ask(self.arrivals.tell_of_work)

    async def beat(self) -> None:
        await self.ask(self.heartbeat.beat)

    def put(self, one: Append | Settlement) -> None:
        self._writer.put(one)

    async def _ready(self) -> None:
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await self._connections.read(self._prepare)
                self._is_open = True

    async def _prepare(self, connection: Connection) -> None:
        await prepare_database(connection, self.sql, self.address.shown)
        setting, source = await connection.fetchrow(_SYNC)
        if setting == "off" and source != "client":  # else a crash of the server would lose facts that were acknowledged
            if self._connections.is_pooled:
                message = notice(
                    "journal.pg_not_synchronous",
                    "the server of the journal {where} acknowledges facts before they are on its disk (synchronous_commit "
                    "is off), and a crash of the server can lose the last ones. Set it to on for this user: ALTER ROLE",
                    where=self.address.shown,
                )
                getLogger("kaname").warning("%s", message)
            else:
                self._connections.settings = "SET synchronous_commit = on"

    async def close(self) -> None:
        """Write what is queued, leave, and end the thread."""

        async def leave() -> None:
            await self._writer.finish()
            await self.heartbeat.end()
            await self._connections.close()

        await self.thread.submit(leave)
        self.thread.closed = True
        await self.thread.stop()
