"""What a run takes before it works: the turn of its session, with the state that the last run left, and the run itself."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from logging import getLogger
from weakref import WeakValueDictionary

from ..core.durations import backoff
from ..core.errors import JournalLocked, JournalUnreachable
from ..core.notices import notice
from ..core.runs import RunInfo
from ..core.state import State, copy_of
from ..kernel.load import load
from ..kernel.ports import Journal, Lease, Turn
from ..kernel.scope import Scope


class Recent:
    """Keep the last states of some runs, so that a long conversation is not read back whole for every turn."""

    def __init__(self, size: int = 32) -> None:
        self._states: OrderedDict[str, State] = OrderedDict()
        self._size = size

    def keep(self, run_id: str, state: State) -> None:
        self._states[run_id] = state
        while len(self._states) > self._size:
            self._states.popitem(last=False)

    async def load(self, journal: Journal, card: RunInfo) -> State:
        known = self._states.get(card.run_id)
        same = known is not None and (known.seq, known.time) == (card.seq, card.updated)
        return copy_of(known) if same and known is not None else await load(journal, card.run_id)


_turns: WeakValueDictionary[tuple[int, int, tuple[str | None, ...]], asyncio.Lock] = WeakValueDictionary()


def turn_of(journal: Journal, *session: str | None) -> asyncio.Lock:
    """Return the lock of a session (its id, agent and user). Who holds it has the turn: the others see what that run said."""
    place = (id(asyncio.get_running_loop()), id(journal), session)
    turn = _turns.get(place)
    if turn is None:
        turn = _turns[place] = asyncio.Lock()
    return turn


async def until_over(journal: Journal, run_id: str) -> None:
    """Wait until no process executes the run."""
    looks = 0
    while (cards := await journal.runs(run_id=run_id, limit=1)) and cards[0].status == "running":
        looks += 1
        await asyncio.sleep(backoff(looks, 0.02, 0.5))


class HeldRun:
    """A run that this process has claimed. `scope`: what is recorded through the claim, as soon as it is known."""

    def __init__(self, journal: Journal, run_id: str, lease: Lease) -> None:
        self.lease = lease
        self.scope: Scope | None = None
        self._journal, self._run_id = journal, run_id

    @property
    def has_ended(self) -> bool:
        """Return True if a stop was recorded through this claim, which ended it."""
        scope = self.scope
        return scope is not None and scope.state.stop is not None and scope.state.seq > self.lease.seq and not scope.keeps_lease

    async def release(self, kind: object = None, problem: BaseException | None = None, trace: object = None) -> None:
        """Let others resume the run, unless a recorded stop has ended the claim. `problem`: why it is released, if it failed.

        Not before the threads of its tools have ended, or both would do the same work.
        """
        if self.has_ended:
            return
        release, scope = partial(self._journal.release, self._run_id, self.lease.epoch), self.scope
        if scope is not None and scope.is_at_work and scope.threads.when_idle(lambda: asyncio.run(release())):
            told = notice("run.at_work", "a tool of run {run} is still running; the run is released after it", run=self._run_id)
            getLogger("kaname").warning("%s", told)
            return
        releasing = asyncio.ensure_future(release())
        releasing.add_done_callback(_read_exception)  # a journal that cannot even do this has said so already
        try:
            if not isinstance(problem, JournalLocked | JournalUnreachable):  # else releasing would only wait once more
                await asyncio.wait([releasing])
        except asyncio.CancelledError:
            if problem is None:  # else that is what the caller has to hear
                raise


async def claim_run(journal: Journal, run_id: str, *, takeover: bool = False, turn: Turn | None = None) -> HeldRun:
    """Claim a run. Who has claimed it calls `release` in the end, whatever happens."""
    return HeldRun(journal, run_id, await journal.claim(run_id, takeover=takeover, turn=turn))


def _read_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
