"""Settlements: the end of a reservation in the ledger, written together with facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .connections import Connection
from .schema import Sql

# Sent again because its answer was lost, it counts only if the reservation is still there: else it was counted before.
_SETTLE = """
WITH gone AS (DELETE FROM kaname.reservations WHERE holder = $1 RETURNING 1)
INSERT INTO kaname.accounts SELECT name, amount FROM unnest($2::text[], $3::float8[]) AS g(name, amount)
WHERE NOT $4 OR EXISTS (SELECT 1 FROM gone)
ON CONFLICT (name) DO UPDATE SET spent = accounts.spent + EXCLUDED.spent
"""


class Settlement(NamedTuple):
    """The end of a reservation, and what was spent by account."""

    holder: str
    spent: Mapping[str, float]


async def settle(connection: Connection, sql: Sql, one: Settlement, again: bool) -> None:
    names = sorted(one.spent)
    await connection.execute(sql(_SETTLE), one.holder, names, [float(one.spent[name]) for name in names], again)
