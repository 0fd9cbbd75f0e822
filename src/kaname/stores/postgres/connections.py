"""Connections to the server: opened when they are needed, and opened again when the server went away.

Everything here runs in the event loop of the journal's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from ...core.durations import backoff
from ...core.errors import AgentError
from ...kernel.boundary import Border
from .address import Address
from .errors import explain, is_temporary

T = TypeVar("T")
Connection = Any
Statement = Callable[[Connection], Awaitable[T]]
_FIRST_PATIENCE = 5.0  # seconds for a server that this process has never reached: its address may be wrong
_CONNECTING, _ANSWERING = 10.0, 60.0  # seconds
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Wire:
    """One connection, used by one task at a time. `prepare` is called with each new connection."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], prepare: Statement[None] | None = None) -> None:
        self._connect, self._prepare = connect, prepare
        self._connection: Connection | None = None
        self._using = asyncio.Lock()

    async def do(self, work: Statement[T]) -> T:
        """Do the work. A connection that broke meanwhile is dropped, and the next work gets a new one."""
        async with self._using:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
                if self._prepare is not None:
                    await self._prepare(self._connection)
            try:
                return await work(self._connection)
            except BaseException as problem:
                if not isinstance(problem, AgentError) and (is_temporary(problem) or not isinstance(problem, Exception)):
                    self.drop()
                raise

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with Border():
                await connection.close(timeout=2)


class Connections:
    """The connections of one journal: two with a purpose (`writer`, `keeper`) and a few to read with."""

    def __init__(self, address: Address) -> None:
        self.address, self.is_pooled, self.settings = address, address.pooler == "transaction", ""
        self._looked = bool(address.pooler)
        self._was_there = False
        self._wires = [Wire(self._connect) for _ in range(address.connections)]
        self._free = list(self._wires)
        self._room = asyncio.Semaphore(address.connections)
        self.writer, self.keeper = Wire(self._connect), Wire(self._connect, self._prepare_keeper)
        self.on_keeper: Statement[None] | None = None

    async def read(self, work: Statement[T]) -> T:
        """Do the work on any free connection. It is repeated if the server went away meanwhile."""
        return await self.patiently(lambda: self._read(work))

    async def _read(self, work: Statement[T]) -> T:
        async with self._room:
            wire = self._free.pop()
            try:
                return await wire.do(work)
            finally:
                self._free.append(wire)

    async def patiently(self, work: Callable[[], Awaitable[T]], *, writes: bool = False) -> T:
        """Do the work, again and again while the server is away, for as long as `patience` says."""
        since, failures = time.monotonic(), 0
        while True:
            with Border(passing=(AgentError,)) as border:
                done = await work()
                self._was_there = True
                return done
            assert border.failure is not None
            problem = border.failure.error
            patience = self.address.patience if self._was_there else min(self.address.patience, _FIRST_PATIENCE)
            if not is_temporary(problem) or time.monotonic() - since > patience:
                raise explain(problem, self.address.shown, writes=writes) from problem
            failures += 1
            await asyncio.sleep(backoff(failures, _SHORTEST_PAUSE, _LONGEST_PAUSE))

    async def _prepare_keeper(self, connection: Connection) -> None:
        if self.on_keeper is not None:
            await self.on_keeper(connection)

    async def _connect(self) -> Connection:
        if not self._looked:
            await self._look_for_pooler()
        connection = await self._open(cache=0 if self.is_pooled else 100)
        if self.settings:
            await connection.execute(self.settings)
        return connection

    async def _look_for_pooler(self) -> None:
        """Find out whether a pooler stands between: then the server's process is another than the one that answered."""
        connection = await self._open(cache=0)
        try:
            self.is_pooled = await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid()
            self._looked = True
        finally:
            connection.terminate()

    async def _open(self, *, cache: int) -> Connection:
        import asyncpg

        return await asyncpg.connect(
            self.address.url,
            timeout=_CONNECTING,
            command_timeout=_ANSWERING,
            statement_cache_size=cache,
            server_settings={"application_name": "kaname"},
        )

    def drop(self) -> None:
        """Cut all connections, without a word to the server."""
        for wire in (self.writer, self.keeper, *self._wires):
            wire.drop()

    async def close(self) -> None:
        for wire in (self.writer, self.keeper, *self._wires):
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await wire.close()
