"""Approvals that hold for later runs: in memory, and in a database."""

from __future__ import annotations

import time

from ..kernel.stores import Grant
from .sql import Database, Steps

_COLUMNS = 'id, agent, "user", tool, conditions, until, by, at, revoked'
_PUT = f"INSERT INTO kaname.grants ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING"
_REVOKE = "UPDATE kaname.grants SET revoked = $2 WHERE id = $1 AND revoked IN (0, $2) RETURNING id"


class MemoryGrants:
    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    async def put(self, grant: Grant) -> None:
        self._grants.setdefault(grant.id, grant)

    async def find(self, agent: str, user: str, tool: str) -> list[Grant]:
        return [one for one in self._grants.values() if (one.agent, one.user, one.tool) == (agent, user, tool)]

    async def all(self) -> list[Grant]:
        return list(reversed(self._grants.values()))

    async def revoke(self, grant_id: str) -> bool:
        grant = self._grants.get(grant_id)
        if grant is None or grant.revoked:
            return False
        self._grants[grant_id] = grant._replace(revoked=time.time())
        return True


class SqlGrants:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, grant: Grant) -> None:
        def work() -> Steps[None]:
            conditions = self._database.seal(grant.user, grant.packed, grant.id)
            times = (float(grant.until), grant.by, float(grant.at), float(grant.revoked))
            yield _PUT, *grant[:4], conditions, *times

        await self._database.write(work)

    async def find(self, agent: str, user: str, tool: str) -> list[Grant]:
        return await self._select('WHERE agent = $1 AND "user" = $2 AND tool = $3 ORDER BY number', agent, user, tool)

    async def all(self) -> list[Grant]:
        return await self._select("ORDER BY number DESC")

    async def _select(self, which: str, *values: str) -> list[Grant]:
        def work() -> Steps[list[Grant]]:
            rows = yield f"SELECT {_COLUMNS} FROM kaname.grants {which}", *values
            opened = [(row, self._database.open(row[4], row[0])) for row in rows]
            return [Grant.unpack(row, conditions) for row, conditions in opened if conditions]

        return await self._database.read(work)

    async def revoke(self, grant_id: str) -> bool:
        now = time.time()  # the same if it is sent again

        def work() -> Steps[bool]:
            return bool((yield _REVOKE, grant_id, now))

        return await self._database.write(work)
