"""Accounts of budgets: in memory, where they end with the process, and in a database, where all its processes share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..kernel.stores import Balance, Divide
from .sql import Database, Lock, Many, Steps

_BALANCES = """
SELECT name, spent, 0.0::float8 FROM kaname.accounts WHERE {0}
UNION ALL SELECT name, 0.0::float8, sum(amount) FROM kaname.reservations WHERE {0} GROUP BY name
"""
_OF, _STARTING = _BALANCES.format("name = ANY($1::text[])"), _BALANCES.format("starts_with(name, $1)")
_RESERVE = """
INSERT INTO kaname.reservations VALUES ($1, $2, $3, $4)
ON CONFLICT (name, holder) DO UPDATE SET amount = excluded.amount, owner = excluded.owner
"""
_FREE_DEAD = """
DELETE FROM kaname.reservations AS r WHERE name = ANY($1::text[]) AND owner <> $2 AND NOT kaname.alive(r.owner) RETURNING name
"""


class MemoryLedger:
    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._reserved: dict[str, dict[str, float]] = {}  # amounts by account and holder

    async def reserve(self, holder: str, names: Sequence[str], divide: Divide) -> tuple[list[Balance], bool]:
        found = [self._balance(name) for name in names]
        amounts = divide(found)
        for name, amount in zip(names, amounts or (), strict=False):
            self._reserved.setdefault(name, {})[holder] = amount
        return found, amounts is not None

    def settle(self, holder: str, spent: Mapping[str, float]) -> None:
        for reserved in self._reserved.values():
            reserved.pop(holder, None)
        self._reserved = {name: reserved for name, reserved in self._reserved.items() if reserved}
        for name, amount in spent.items():
            self._spent[name] = self._spent.get(name, 0.0) + amount

    async def balances(self, starting: str = "") -> list[Balance]:
        names = sorted({*self._spent, *self._reserved})
        return [self._balance(name) for name in names if name.startswith(starting)]

    def _balance(self, name: str) -> Balance:
        return Balance(name, self._spent.get(name, 0.0), sum(self._reserved.get(name, {}).values()))


class SqlLedger:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, holder: str, names: Sequence[str], divide: Divide) -> tuple[list[Balance], bool]:
        tried = False

        def work() -> Steps[tuple[list[Balance], bool]]:
            nonlocal tried
            again, tried = tried, True
            yield Lock(names, 1)
            if again:  # its answer may have been lost
                yield "DELETE FROM kaname.reservations WHERE holder = $1", holder
            balances = _sum((yield _OF, list(names)), names)
            amounts = divide(balances)
            if amounts is None and (yield _FREE_DEAD, list(names), self._database.me):
                balances = _sum((yield _OF, list(names)), names)
                amounts = divide(balances)
            if amounts is None:
                return balances, False
            rows = [(name, holder, float(amount), self._database.me) for name, amount in zip(names, amounts, strict=True)]
            yield Many(_RESERVE, rows)
            return balances, True

        await self._database.begin()
        return await self._database.write(work)

    def settle(self, holder: str, spent: Mapping[str, float]) -> None:
        self._database.settle(holder, spent)

    async def balances(self, starting: str = "") -> list[Balance]:
        def work() -> Steps[list[Balance]]:
            rows = yield _STARTING, starting
            return _sum(rows, sorted({row[0] for row in rows}))

        return await self._database.read(work)


def _sum(rows: Sequence[Any], names: Sequence[str]) -> list[Balance]:
    """Return the balances of these accounts. A row has what was spent from one, or what is reserved."""
    spent, reserved = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for name, paid, held in rows:
        spent[name] += paid
        reserved[name] += held
    return [Balance(name, spent[name], reserved[name]) for name in names]
