"""Approvals that hold for later runs, of a journal in memory."""

from __future__ import annotations

import time

from ..kernel.approvals.port import Grant


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
