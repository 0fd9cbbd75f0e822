"""Wait for facts, messages and requests to stop, from any process: notifications where they work, and polling beneath.

A fact is not announced in the transaction that writes it, because NOTIFY takes a lock of the whole database at its commit. Each
process announces the runs that it has written to, at most twenty times a second, if other processes listen at all.
Everything here runs in the event loop of the journal's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from ...core.errors import JournalError, JournalUnreachable
from .connections import Connection, Connections
from .schema import BARRIER, Sql

EVERYTHING = ""  # the key of those who wait for a fact of any run
_POLL, _POLL_WITH_NOTICE = 0.5, 3.0  # seconds between two looks, without and with notifications
_PAUSE = 0.05  # seconds between two announcements
_MOST = 7_500  # bytes of an announcement; PostgreSQL takes 8,000
_STOP = "!"  # before the id of a run: it is asked to stop
_WORK = "+"  # a run was queued
INBOX = "\x1e"  # before the id of a run: there is a message for it
_LOOK = """
SELECT run, seq, status NOT IN ('running', 'waiting') FROM kaname.runs WHERE run = ANY($1::text[])
"""
_LAST = f"SELECT coalesce((SELECT place FROM kaname.facts WHERE place < {BARRIER} ORDER BY place DESC LIMIT 1), 0)"
_STOPS = "SELECT run, reason FROM kaname.stops WHERE run = ANY($1::text[])"
_MESSAGES = "SELECT run, max(number) FROM kaname.inbox WHERE run = ANY($1::text[]) GROUP BY run"
_ANNOUNCE = "SET LOCAL synchronous_commit = off; NOTIFY {channel}, {told}"


async def _none(connection: Connection) -> None:
    """Do nothing with the connection, except for opening it if there is none."""


class Follower:
    """A task that waits for facts of a run after `seen`, or for facts of any run after that place."""

    __slots__ = ("future", "seen")

    def __init__(self, seen: int) -> None:
        self.seen, self.future = seen, asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class Arrivals:
    def __init__(self, connections: Connections, sql: Sql) -> None:
        self._connections, self._sql = connections, sql
        self._channel = f"kaname_{sql.schema}"
        self._waiting: dict[str, set[Follower]] = {}
        self._stopping: dict[str, asyncio.Future[str]] = {}
        self._written: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._again = asyncio.Event()
        self._work = asyncio.Event()
        self._is_listening = False
        self.others_listen = False
        connections.on_keeper = self._listen

    @property
    def has_readers(self) -> bool:
        """Return True if this process wants to hear of facts that other processes write."""
        return any(not key.startswith(INBOX) for key in self._waiting)

    async def wait(self, key: str, seen: int) -> None:
        """Wait for a fact of the run after number `seen`; for EVERYTHING, for a fact after that place."""
        waiter = Follower(seen)
        self._waiting.setdefault(key, set()).add(waiter)
        self._look_soon()
        try:
            await waiter.future
        finally:
            waiters = self._waiting[key]
            waiters.discard(waiter)
            if not waiters:
                del self._waiting[key]

    async def wait_for_stop(self, run_id: str) -> str:
        """Wait until the run is asked to stop, and return the reason."""
        future = self._stopping.get(run_id)
        if future is None or future.done():
            future = self._stopping[run_id] = asyncio.get_running_loop().create_future()
        self._look_soon()
        try:
            return await asyncio.shield(future)
        finally:
            if self._stopping.get(run_id) is future:
                del self._stopping[run_id]

    async def wait_for_work(self, seconds: float) -> None:
        """Wait until a run is queued, and not longer than that."""
        if self._connections.is_pooled:
            seconds = min(seconds, _POLL)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._connections.patiently(lambda: self._connections.keeper.do(_none))  # it is there, and listens
                await self._work.wait()
        self._work.clear()

    async def tell_of_work(self) -> None:
        self._work.set()
        with suppress(JournalError):  # workers look now and then
            await self._notify(_WORK)

    def note(self, runs: Iterable[str]) -> None:
        """Wake those in this process who wait for these runs, and announce the runs to others."""
        for run in runs:
            for waiter in self._waiting.get(run, ()):
                waiter.wake()
            if self.others_listen:
                self._written.add(run)
        if EVERYTHING in self._waiting:
            self._look_soon()
        if self._written and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._announce())

    async def tell_of_message(self, run_id: str) -> None:
        for waiter in self._waiting.get(INBOX + run_id, ()):
            waiter.wake()
        with suppress(JournalError):  # it is stored, and looked for now and then
            await self._notify(INBOX + run_id)

    async def tell_to_stop(self, run_id: str) -> None:
        await self._notify(_STOP + run_id)

    async def _announce(self) -> None:
        while self._written:
            await asyncio.sleep(_PAUSE)
            told, self._written = "\n".join(self._written), set()
            with suppress(JournalError):  # they poll, too
                await self._notify(told if len(told.encode()) < _MOST else "*")

    async def _notify(self, told: str) -> None:
        quoted = "'" + told.replace("'", "''") + "'"
        if "\\" in told:
            quoted = "E" + quoted.replace("\\", "\\\\")
        statement = _ANNOUNCE.format(channel=self._channel, told=quoted)
        await self._connections.patiently(lambda: self._connections.keeper.do(lambda c: c.execute(statement)))

    async def _listen(self, connection: Connection) -> None:
        """Listen on a new connection, unless a pooler gives the next transaction another one."""
        self._is_listening = not self._connections.is_pooled
        if self._is_listening:
            await connection.add_listener(self._channel, self._hear)
            connection.add_termination_listener(lambda _: setattr(self, "_is_listening", False))

    def _hear(self, connection: Connection, process: int, channel: str, told: str) -> None:
        if told == _WORK:
            self._work.set()
            return
        if told.startswith(_STOP):
            if told[1:] in self._stopping:
                self._look_soon()
            return
        keys = set(self._waiting) if told == "*" else self._waiting.keys() & set(told.split("\n"))
        for key in keys - {EVERYTHING}:
            for waiter in self._waiting[key]:
                waiter.wake()
        if EVERYTHING in self._waiting:
            self._look_soon()

    def _look_soon(self) -> None:
        self._again.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while self._waiting or self._stopping:
            self._again.clear()
            try:
                await self._connections.patiently(lambda: self._connections.keeper.do(self._look))
            except JournalError as problem:
                self._fail(problem)
                await asyncio.sleep(_POLL)
                continue
            with suppress(TimeoutError):
                slowly = self._is_listening and EVERYTHING not in self._waiting  # a transaction may hold the last facts back
                async with asyncio.timeout(_POLL_WITH_NOTICE if slowly else _POLL):
                    await self._again.wait()

    async def _look(self, connection: Connection) -> None:
        if followed := [key for key in self._waiting if key != EVERYTHING and not key.startswith(INBOX)]:
            found = {run: (seq, over) for run, seq, over in await connection.fetch(self._sql(_LOOK), followed)}
            for run in followed:
                seq, over = found.get(run, (0, True))
                self._wake(run, float("inf") if over else seq)
        if EVERYTHING in self._waiting:
            self._wake(EVERYTHING, await connection.fetchval(self._sql(_LAST)))
        await self._look_for_words(connection)

    async def _look_for_words(self, connection: Connection) -> None:
        """Look for messages to runs, and for requests to stop them."""
        if hearing := [key[1:] for key in self._waiting if key.startswith(INBOX)]:
            for run, number in await connection.fetch(self._sql(_MESSAGES), hearing):
                self._wake(INBOX + run, number)
        if self._stopping:
            for run, reason in await connection.fetch(self._sql(_STOPS), list(self._stopping)):
                future = self._stopping.get(run)
                if future is not None and not future.done():
                    future.set_result(reason)

    def _wake(self, key: str, last: float) -> None:
        """Wake those who wait for what comes after a number below `last`."""
        for waiter in self._waiting.get(key, ()):
            if last > waiter.seen:
                waiter.wake()

    def _fail(self, problem: JournalError) -> None:
        is_away = isinstance(problem, JournalUnreachable)  # a run in a long call must still hear what it is told, afterwards
        failing = [waiters for key, waiters in self._waiting.items() if not (is_away and key.startswith(INBOX))]
        for future in [waiter.future for waiters in failing for waiter in waiters]:
            if not future.done():
                future.set_exception(problem)
        if is_away:
            return
        for stopping in self._stopping.values():
            if not stopping.done():
                stopping.set_exception(problem)
