"""Ledger in the journal's SQLite file. Its tables are created when an account is first used.

Reservations have no index by their holders: there are only as many as open calls, and every step would have to write to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...kernel.ports import Balance, Divide
from .file import JournalFile
from .thread import SqliteThread

T = TypeVar("T")
_TABLES = """
    CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, spent REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS reservations (
        name TEXT NOT NULL, holder TEXT NOT NULL, amount REAL NOT NULL, owner TEXT NOT NULL, PRIMARY KEY (name, holder)
    ) WITHOUT ROWID;
"""
_BALANCES = """
    SELECT column1, ifnull((SELECT spent FROM accounts WHERE name = column1), 0.0),
        ifnull((SELECT sum(amount) FROM reservations WHERE name = column1), 0.0)
    FROM (VALUES {})
"""
_LIST = """
    SELECT name, ifnull(spent, 0.0), ifnull((SELECT sum(amount) FROM reservations AS held WHERE held.name = every.name), 0.0)
    FROM (SELECT name FROM accounts UNION SELECT name FROM reservations) AS every LEFT JOIN accounts USING (name)
    WHERE substr(name, 1, length(:starting)) = :starting ORDER BY name
"""
_ADD = "INSERT INTO accounts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET spent = spent + excluded.spent"


class SqliteLedger:
    """`is_alone`: returns True if no other run of this process writes to the journal."""

    def __init__(
        self, writer: SqliteThread, reader: SqliteThread, place: JournalFile, is_alone: Callable[[], bool] = lambda: True
    ) -> None:
        self._writer, self._reader, self._place, self._is_alone = writer, reader, place, is_alone

    async def reserve(self, holder: str, names: Sequence[str], divide: Divide) -> tuple[list[Balance], bool]:
        def work(connection: sqlite3.Connection) -> tuple[list[Balance], bool]:
            found = _balances(connection, names)
            amounts = divide(found)
            if amounts is None and self._free_dead(connection, names):
                found = _balances(connection, names)
                amounts = divide(found)
            if amounts is None:
                return found, False
            assert self._place.owner is not None
            rows = [(name, holder, amount, self._place.owner.name) for name, amount in zip(names, amounts, strict=True)]
            connection.executemany("INSERT OR REPLACE INTO reservations VALUES (?, ?, ?, ?)", rows)
            return found, True

        done: tuple[list[Balance], bool] = await self._writer.transact(work, alone=self._is_alone())
        return done

    def settle(self, holder: str, spent: Mapping[str, float]) -> None:
        """Settle a call. It is written with the next fact, or before it, and retried if the disk cannot write now."""

        def work(connection: sqlite3.Connection) -> None:
            _with_tables(connection, lambda: connection.execute("DELETE FROM reservations WHERE holder = ?", (holder,)))
            connection.executemany(_ADD, list(spent.items()))

        self._writer.submit(work, insisting=True, joins=True)

    async def balances(self, starting: str = "") -> list[Balance]:
        def work(connection: sqlite3.Connection) -> list[Any]:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'reservations'").fetchone()
            return connection.execute(_LIST, {"starting": starting}).fetchall() if known else []

        return [Balance(*row) for row in await self._reader.transact(work)]

    def _free_dead(self, connection: sqlite3.Connection, names: Sequence[str]) -> bool:
        """Free what processes have reserved that are dead now. Return True if there was something."""
        marks = ", ".join("?" * len(names))
        owners = connection.execute(f"SELECT DISTINCT owner FROM reservations WHERE name IN ({marks})", [*names]).fetchall()
        me = "" if self._place.owner is None else self._place.owner.name
        dead = [(owner,) for (owner,) in owners if owner != me and not self._place.is_alive(owner)]
        connection.executemany("DELETE FROM reservations WHERE owner = ?", dead)
        return bool(dead)


def _with_tables(connection: sqlite3.Connection, work: Callable[[], T]) -> T:
    """Do the work. If the tables are missing, create them first."""
    try:
        return work()
    except sqlite3.OperationalError as problem:
        if not str(problem).startswith("no such table"):
            raise
    for statement in _TABLES.split(";")[:-1]:  # `executescript` would commit the transaction
        connection.execute(statement)
    return work()


def _balances(connection: sqlite3.Connection, names: Sequence[str]) -> list[Balance]:
    if not names:
        return []
    query = _BALANCES.format(", ".join(["(?)"] * len(names)))
    return [Balance(*row) for row in _with_tables(connection, lambda: connection.execute(query, names).fetchall())]
