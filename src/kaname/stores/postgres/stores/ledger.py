"""Ledger in the journal's database: accounts that the runs of all machines share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....kernel.ports import Balance, Divide
from ..connections import Connection
from ..office import Office
from ..owner import alive
from ..schema import Sql
from ..settlements import Settlement

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(name, 1)) FROM unnest($1::text[]) AS name"
_BALANCES = """
SELECT n.name, coalesce(a.spent, 0), coalesce((SELECT sum(amount) FROM kaname.reservations AS r WHERE r.name = n.name), 0)
FROM unnest($1::text[]) WITH ORDINALITY AS n(name, at) LEFT JOIN kaname.accounts AS a ON a.name = n.name ORDER BY n.at
"""
_LIST = """
SELECT n.name, coalesce(a.spent, 0), coalesce((SELECT sum(amount) FROM kaname.reservations AS r WHERE r.name = n.name), 0)
FROM (SELECT name FROM kaname.accounts UNION SELECT name FROM kaname.reservations) AS n
LEFT JOIN kaname.accounts AS a ON a.name = n.name WHERE starts_with(n.name, $1) ORDER BY n.name
"""
_RESERVE = """
INSERT INTO kaname.reservations SELECT name, $2, amount, $4 FROM unnest($1::text[], $3::float8[]) AS g(name, amount)
ON CONFLICT (name, holder) DO UPDATE SET amount = EXCLUDED.amount, owner = EXCLUDED.owner
"""
_DELETE = "DELETE FROM kaname.reservations WHERE holder = $1"
_FREE_DEAD = """
DELETE FROM kaname.reservations AS r WHERE name = ANY($1::text[]) AND owner <> $2 AND NOT {alive} RETURNING 1
"""


class PostgresLedger:
    def __init__(self, office: Callable[[], Office]) -> None:
        self._office = office

    async def reserve(self, holder: str, names: Sequence[str], divide: Divide) -> tuple[list[Balance], bool]:
        office, tried = self._office(), False

        async def work(connection: Connection) -> tuple[list[Balance], bool]:
            nonlocal tried
            async with connection.transaction():
                await connection.execute(_LOCK, [f"{office.sql.schema} {name}" for name in sorted(names)])
                if tried:
                    await connection.execute(office.sql(_DELETE), holder)
                tried = True
                return await self._reserve(connection, office, holder, names, divide)

        await office.begin()
        return await office.read(work)

    async def _reserve(
        self, connection: Connection, office: Office, holder: str, names: Sequence[str], divide: Divide
    ) -> tuple[list[Balance], bool]:
        found = await _balances(connection, office.sql, names)
        amounts = divide(found)
        if amounts is None:
            free = office.sql(_FREE_DEAD.format(alive=alive("r.owner", office.address.ttl)))
            if await connection.fetch(free, list(names), office.me):
                found = await _balances(connection, office.sql, names)
                amounts = divide(found)
        if amounts is None:
            return found, False
        await connection.execute(office.sql(_RESERVE), list(names), holder, [float(one) for one in amounts], office.me)
        return found, True

    def settle(self, holder: str, spent: Mapping[str, float]) -> None:
        """Settle a call. It is written with the next facts, or before them, and retried if the server is away."""
        self._office().put(Settlement(holder, dict(spent)))

    async def balances(self, starting: str = "") -> list[Balance]:
        office = self._office()
        rows: list[Any] = await office.read(lambda connection: connection.fetch(office.sql(_LIST), starting))
        return [Balance(*row) for row in rows]


async def _balances(connection: Connection, sql: Sql, names: Sequence[str]) -> list[Balance]:
    return [Balance(*row) for row in await connection.fetch(sql(_BALANCES), list(names))]
