"""Approvals that hold for later runs, in the journal's SQLite file. Their table is created with the first one."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from ...kernel.approvals.port import Grant
from .file import JournalFile
from .reading import open_text
from .thread import SqliteThread

_TABLE = """
    CREATE TABLE IF NOT EXISTS grants (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, user TEXT NOT NULL, tool TEXT NOT NULL,
        conditions TEXT NOT NULL, until REAL NOT NULL, by TEXT NOT NULL, at REAL NOT NULL, revoked REAL NOT NULL
    )
"""
_COLUMNS = "id, agent, user, tool, conditions, until, by, at, revoked"


class SqliteGrants:
    def __init__(self, writer: SqliteThread, reader: SqliteThread, place: JournalFile) -> None:
        self._writer, self._reader, self._place = writer, reader, place

    async def put(self, grant: Grant) -> None:
        def work(connection: sqlite3.Connection) -> None:
            seal, where = self._place.seal(grant.user), grant.packed
            row = (*grant[:4], where if seal is None else seal.key.seal(where, grant.id), *grant[5:9])
            connection.execute(_TABLE)
            connection.execute(f"INSERT OR IGNORE INTO grants ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

        await self._writer.submit(work)

    async def find(self, agent: str, user: str, tool: str) -> list[Grant]:
        return await self._select("WHERE agent = ? AND user = ? AND tool = ? ORDER BY number", agent, user, tool)

    async def all(self) -> list[Grant]:
        return await self._select("ORDER BY number DESC")

    async def _select(self, which: str, *values: str) -> list[Grant]:
        def work(connection: sqlite3.Connection) -> list[Any]:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'grants'").fetchone() is None:
                return []
            return connection.execute(f"SELECT {_COLUMNS} FROM grants {which}", values).fetchall()

        rows = [(row, open_text(self._place.path, "", row[4], row[0])) for row in await self._reader.transact(work)]
        return [Grant.unpack(row, where) for row, where in rows if where]

    async def revoke(self, grant_id: str) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            connection.execute(_TABLE)
            done = connection.execute("UPDATE grants SET revoked = ? WHERE id = ? AND NOT revoked", (time.time(), grant_id))
            return done.rowcount == 1

        return bool(await self._writer.submit(work))
