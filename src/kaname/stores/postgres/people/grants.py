"""Approvals that hold for later runs, in the journal's database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ....kernel.approvals.port import Grant
from ..office import Office

_COLUMNS = 'id, agent, "user", tool, conditions, until, by, at, revoked'
_PUT = f"INSERT INTO kaname.grants ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING"
_FIND = f'SELECT {_COLUMNS} FROM kaname.grants WHERE agent = $1 AND "user" = $2 AND tool = $3 ORDER BY number'
_ALL = f"SELECT {_COLUMNS} FROM kaname.grants ORDER BY number DESC"
_REVOKE = "UPDATE kaname.grants SET revoked = $2 WHERE id = $1 AND revoked IN (0, $2) RETURNING 1"


class PostgresGrants:
    def __init__(self, office: Callable[[], Office]) -> None:
        self._office = office

    async def put(self, grant: Grant) -> None:
        times = (float(grant.until), grant.by, float(grant.at), float(grant.revoked))
        await self._fetch(_PUT, *grant[:4], grant.packed, *times)

    async def find(self, agent: str, user: str, tool: str) -> list[Grant]:
        return [_grant(row) for row in await self._fetch(_FIND, agent, user, tool)]

    async def all(self) -> list[Grant]:
        return [_grant(row) for row in await self._fetch(_ALL)]

    async def revoke(self, grant_id: str) -> bool:
        return bool(await self._fetch(_REVOKE, grant_id, time.time()))

    async def _fetch(self, query: str, *values: Any) -> list[Any]:
        office = self._office()
        return list(await office.read(lambda connection: connection.fetch(office.sql(query), *values)))


def _grant(row: Any) -> Grant:
    return Grant.unpack(row, row[4])
