"""Liveness: every process that executes runs of a journal renews its entry in a table, by the clock of the server.

A process whose entry has run out counts as dead, and others can claim its runs. Should it live after all, it can write nothing
more to them: each claim has a higher epoch.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress
from functools import partial
from uuid import uuid4

from ...core.errors import JournalError, JournalTooNew
from ...core.notices import notice
from .arrivals import Arrivals
from .connections import Connection, Connections
from .schema import Sql, check_version

_BEAT = """
WITH mine AS (
    INSERT INTO kaname.owners VALUES ($1, clock_timestamp() + $2::float8 * interval '1 second', $3, $4)
    ON CONFLICT (owner) DO UPDATE SET until = EXCLUDED.until, listens = EXCLUDED.listens, works = EXCLUDED.works
), gone AS (DELETE FROM kaname.owners WHERE until < clock_timestamp() - interval '1 hour' AND owner <> $1)
SELECT version, oldest, EXISTS (SELECT 1 FROM kaname.owners WHERE listens AND owner <> $1 AND until > clock_timestamp()),
    EXISTS (SELECT 1 FROM kaname.owners WHERE owner = $1 AND until > clock_timestamp())
FROM kaname.journal
"""
_LEAVING = 3.0  # seconds
_CERTAIN = 0.9  # of the time to live; clocks differ a little, and a call takes a moment to begin
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
clock = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
"""Return the seconds since some moment. They pass while the machine sleeps, too, as with a closed laptop."""
_LEAVE = "DELETE FROM kaname.owners WHERE owner = $1"


def alive(column: str, ttl: float) -> str:
    """Return the condition that the owner in that column is alive.

    After a restart of the server every process gets a `ttl` to come back: nobody could renew an entry meanwhile.
    """
    return (
        f"EXISTS (SELECT 1 FROM kaname.owners AS o WHERE o.owner = {column} AND (o.until > clock_timestamp() "
        f"OR pg_postmaster_start_time() > clock_timestamp() - interval '{ttl:g} seconds'))"
    )


def describe_owner(owner: str) -> str:
    """Return the process in words, from its name in the table."""
    process, _, host = owner.rpartition("-")[0].partition("@")
    return notice("journal.owner", "process {process} on {host}", process=process, host=host)


class Term:
    """A time in which the entry of this process surely never ran out: until `until`, by the clock of this machine.

    It is prolonged by each heartbeat that is answered in time. After one that was late, another term begins: in between, others
    may have claimed runs of this process.
    """

    __slots__ = ("until",)

    def __init__(self, until: float) -> None:
        self.until = until


class Heartbeat:
    """The entry of this process. `failure`: why this process must not write any more. `term`: until when it surely lives."""

    def __init__(self, connections: Connections, arrivals: Arrivals, sql: Sql) -> None:
        self._connections, self._arrivals, self._sql = connections, arrivals, sql
        self.name = f"{os.getpid()}@{socket.gethostname()}-{uuid4().hex[:12]}"
        self.failure: JournalError | None = None
        self.term = Term(0.0)
        self._beating: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._listens = self._is_entered = self._works = False  # as the entry says

    async def begin(self, *, works: bool = False) -> None:
        """Enter this process, and keep renewing the entry. `works`: it is a worker."""
        async with self._beginning:
            if self._beating is None or works > self._works:
                self._works = self._works or works
                await self.beat()
            if self._beating is None:
                self._beating = asyncio.create_task(self._keep_beating())

    async def beat(self) -> None:
        """Renew the entry now. Raises `JournalError` if the server cannot do it."""
        listens = self._arrivals.has_readers
        values = (self.name, self._connections.address.ttl, listens, self._works)

        async def work(connection: Connection) -> tuple[int, int, bool, bool, float]:
            sent = clock()
            version, oldest, others, lived = await connection.fetchrow(self._sql(_BEAT), *values)
            return version, oldest, others, lived, sent + self._connections.address.ttl * _CERTAIN

        version, oldest, others, lived, until = await self._connections.patiently(lambda: self._connections.keeper.do(work))
        if lived and clock() < self.term.until:
            self.term.until = until
        else:
            self.term = Term(until)
        self._arrivals.others_listen, self._listens, self._is_entered = others, listens, True
        try:
            check_version(version, oldest, self._connections.address.shown)
        except JournalTooNew as problem:
            self.failure = problem

    async def wait(self, key: str, seen: int) -> None:
        """Wait for facts (see `Arrivals.wait`). The entry says that this process listens, so that others announce theirs."""
        waiting = asyncio.create_task(self._arrivals.wait(key, seen))
        try:
            await asyncio.sleep(0)
            await self.begin()
            if not self._listens:
                await self.beat()
            await waiting
        finally:
            waiting.cancel()

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self._connections.address.ttl / 4)
            with suppress(JournalError):
                await self.beat()

    async def end(self) -> None:
        """Remove the entry: runs of this process that are still open are free at once."""
        if self._beating is not None:
            self._beating.cancel()
        if self._is_entered:
            with suppress(JournalError, TimeoutError):  # else it runs out by itself
                async with asyncio.timeout(_LEAVING):
                    await self._connections.patiently(
                        lambda: self._connections.keeper.do(lambda c: c.execute(self._sql(_LEAVE), self.name))
                    )
