"""What the journals in a database share: what a claim says, lists, and the checks before facts are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Generic, TypeVar

from ..core.errors import JournalError, RunSuperseded
from ..core.events import Event
from ..core.runs import RunInfo, SessionInfo, Tally
from ..kernel.ports import Turn
from .lists import count_runs, list_runs, list_sessions
from .refusals import gap_text, superseded_text
from .sql import Database


class RunHold:
    """A run that is executed through a journal: the epoch of its claim, and its index card as it is in the database.

    `before`: what became of the one that had it: "died", "overtaken", or "" if it was released. `failure`: why nothing more can
    be written before it is claimed anew. `constant`: the values of the card that change rarely. `term`: the time in which this
    process was alive when it last had the run for certain (see `postgres/owner.py`).
    """

    __slots__ = ("before", "card", "constant", "epoch", "failure", "term", "turn")

    def __init__(self, epoch: int, card: RunInfo, turn: Turn | None = None, before: str = "") -> None:
        self.epoch, self.card, self.turn, self.before = epoch, card, turn, before
        self.constant: object = None
        self.term: object = None
        self.failure: JournalError | None = None

    def fail(self, problem: JournalError) -> None:
        self.failure = self.failure or problem


HoldT = TypeVar("HoldT", bound=RunHold)


class SqlJournal(ABC, Generic[HoldT]):
    """A journal in a database. `_held`: the runs that this process executes."""

    _held: dict[str, HoldT]

    @property
    @abstractmethod
    def database(self) -> Database: ...

    def _hold_of(self, events: Sequence[Event], epoch: int) -> HoldT:
        """Return the hold of the run that these facts continue. Raises `JournalError` if they cannot be written."""
        run = events[0].run_id
        hold = self._held.get(run)
        if hold is None or hold.epoch != epoch:
            raise RunSuperseded(superseded_text(run))
        if hold.failure is not None:
            raise hold.failure.with_traceback(None)
        if events[0].seq != hold.card.seq + 1:
            raise JournalError(gap_text(run, hold.card.seq, events[0].seq))
        return hold

    def _drop(self, run_id: str, epoch: int) -> None:
        if run_id in self._held and self._held[run_id].epoch == epoch:
            del self._held[run_id]

    async def runs(
        self,
        *,
        run_id: str = "",
        session: str = "",
        status: str = "",
        agent: str = "",
        user: str | None = None,
        parent: str = "",
        starting: str = "",
        since: float = 0.0,
        until: float = 0.0,
        before: int = 0,
        limit: int = 100,
    ) -> list[RunInfo]:
        wanted = {"run": run_id, "session": session, "agent": agent, "user": user, "parent": parent, "status": status}
        page = partial(list_runs, self.database, {**wanted, "starting": starting}, since=float(since), until=float(until))
        return await self.database.read(partial(page, before=before, limit=int(limit)))

    async def sessions(
        self, *, session: str = "", agent: str = "", user: str | None = None, before: int = 0, limit: int = 100
    ) -> list[SessionInfo]:
        wanted = {"session": session, "agent": agent, "user": user}
        return await self.database.read(partial(list_sessions, self.database, wanted, before, int(limit)), whole=True)

    async def count(
        self, *, session: str = "", agent: str = "", user: str | None = None, since: float = 0.0, shift: float = 0.0
    ) -> list[Tally]:
        wanted = {"session": session, "agent": agent, "user": user}
        return await self.database.read(partial(count_runs, self.database, wanted, float(since), float(shift)))
