"""A journal that dies at the n-th write, as if the process had been killed there, and can be revived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import JournalError
from ...core.events import Event

DEAD, KILLED = "the process is dead", "the process was killed at this fact"  # only the generator reads them


class Died(JournalError):
    """The process was killed here."""


class MortalJournal:
    """Wraps a journal. After `die_after(n)` the n-th append raises `Died`, and so does every later use until `revive()`.

    Args:
        inner: The journal that keeps the facts.
    """

    def __init__(self, inner: Any) -> None:
        self.inner, self.dead, self._left, self._written = inner, False, -1, False
        self._leases: dict[str, int] = {}

    def die_after(self, writes: int, *, written: bool) -> None:
        """Die at that append, counted from now: after it was written, or just before."""
        self._left, self._written = writes, written

    async def revive(self) -> None:
        """Start again, as a new process on the same files does. The leases of the dead one are free."""
        self.dead, self._left = False, -1
        leases, self._leases = self._leases, {}  # tasks of the dead process may still be about to end
        for run_id, epoch in leases.items():
            await self.inner.release(run_id, epoch)

    async def claim(self, run_id: str, **how: Any) -> Any:
        lease = await self.inner.claim(run_id, **how)
        self._leases[run_id] = lease.epoch
        return lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def append(self, events: Sequence[Event], epoch: int, *, keep: bool = False) -> None:
        if self.dead:
            raise Died(DEAD)
        dies = self._left == 0
        self._left -= 1
        if not dies or self._written:
            await self.inner.append(events, epoch, keep=keep)
        if dies:
            self.dead = True
            raise Died(KILLED)

    async def release(self, run_id: str, epoch: int) -> None:
        if not self.dead:
            self._leases.pop(run_id, None)
            await self.inner.release(run_id, epoch)
