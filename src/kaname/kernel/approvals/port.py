"""`Grants`: the approvals of a journal that hold for later runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ...core.codec import dump


class Grant(NamedTuple):
    """An approval that holds for later calls.

    `where`: the conditions on the arguments, by name; without any, all calls of the tool are meant. `until`: when it ends, in
    seconds since 1970, 0 for never. `by`: the person who gave it. `at`: when. `revoked`: when it was revoked, 0 if it was not.
    `rule`: the rule that it was given for, and what the tool is; one of an earlier version has none, and allows nothing.
    """

    id: str
    agent: str
    user: str
    tool: str
    where: Mapping[str, Any]
    until: float = 0.0
    by: str = ""
    at: float = 0.0
    revoked: float = 0.0
    rule: str = ""

    def is_valid(self, now: float) -> bool:
        return not self.revoked and (not self.until or now < self.until)

    @property
    def packed(self) -> str:
        """Return the conditions and the rule as the text that a database keeps of them."""
        return dump([self.where, self.rule])

    @classmethod
    def unpack(cls, row: Sequence[Any], packed: str) -> Grant:
        """Return the grant of a row with the columns from `id` to `revoked`, and the text that was kept of its conditions."""
        kept = json.loads(packed)
        where, rule = kept if isinstance(kept, list) else (kept, "")
        return cls._make((*row[:4], where, *row[5:9], rule))


class Grants(Protocol):
    """`put` stores a grant; one whose id is known, revoked or not, stays as it is. `find` returns those of an agent, a user and
    a tool; `all` returns all, the newest first. `revoke` returns False if there is none with that id, or it is revoked.
    """

    async def put(self, grant: Grant) -> None: ...
    async def find(self, agent: str, user: str, tool: str) -> list[Grant]: ...
    async def all(self) -> list[Grant]: ...
    async def revoke(self, grant_id: str) -> bool: ...


@runtime_checkable
class HasGrants(Protocol):
    @property
    def grants(self) -> Grants: ...
