"""`Grants`: the approvals of a journal that hold for later runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable


class Grant(NamedTuple):
    """An approval that holds for later calls.

    `where`: the conditions on the arguments, by name; without any, all calls of the tool are meant. `until`: when it ends, in
    seconds since 1970, 0 for never. `by`: the person who gave it. `at`: when. `revoked`: when it was revoked, 0 if it was not.
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

    def is_valid(self, now: float) -> bool:
        return not self.revoked and (not self.until or now < self.until)


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
