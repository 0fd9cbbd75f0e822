"""Marks in the journal's SQLite file: times by name. Their table is created with the first."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from .thread import SqliteThread

_TABLE = "CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID"
_ENTER = "INSERT INTO marks VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
_RAISE = "INSERT INTO marks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET time = max(time, excluded.time)"


class SqliteMarks:
    def __init__(self, writer: SqliteThread, reader: SqliteThread) -> None:
        self._writer, self._reader = writer, reader

    async def all(self) -> dict[str, float]:
        def work(connection: sqlite3.Connection) -> dict[str, float]:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'marks'").fetchone()
            return dict(connection.execute("SELECT name, time FROM marks")) if known else {}

        return dict(await self._reader.transact(work))

    async def enter(self, values: Mapping[str, float]) -> None:
        await self._write(_ENTER, list(values.items()))

    async def raise_to(self, values: Mapping[str, float]) -> None:
        await self._write(_RAISE, list(values.items()))

    async def remove(self, names: Sequence[str]) -> None:
        await self._write("DELETE FROM marks WHERE name = ?", [(name,) for name in names])

    async def _write(self, statement: str, rows: list[Any]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_TABLE)
            connection.executemany(statement, rows)

        await self._writer.submit(work)
