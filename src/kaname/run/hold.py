"""The hold on a run: claimed here, and released here, however the work on it ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from logging import getLogger

from ..core.errors import JournalLocked, JournalUnreachable
from ..core.notices import notice
from ..kernel.ports import Journal, Lease, Turn
from ..kernel.scope import Scope


class HeldRun:
    """A run that this process has claimed. `scope`: what is recorded through the claim, as soon as it is known."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.scope: Scope | None = None

    @property
    def has_ended(self) -> bool:
        """Return True if a stop was recorded through this claim, which ended it."""
        scope = self.scope
        return scope is not None and scope.state.stop is not None and scope.state.seq > self.lease.seq and not scope.keeps_lease


@asynccontextmanager
async def hold_run(
    journal: Journal, run_id: str, *, takeover: bool = False, turn: Turn | None = None
) -> AsyncIterator[HeldRun]:
    """Claim a run. It is released when the block is left in any way, unless a recorded stop has ended the claim."""
    hold = HeldRun(await journal.claim(run_id, takeover=takeover, turn=turn))
    try:
        yield hold
    finally:
        if not hold.has_ended:
            await _release(journal, run_id, hold, sys.exception())


async def _release(journal: Journal, run_id: str, hold: HeldRun, problem: BaseException | None) -> None:
    """Let others resume the run; not before the threads of its tools have ended, or both would do the same work."""
    release, scope = partial(journal.release, run_id, hold.lease.epoch), hold.scope
    if scope is not None and scope.is_at_work and scope.threads.when_idle(lambda: asyncio.run(release())):
        told = notice("run.at_work", "a tool of run {run} is still running; the run is released after it", run=run_id)
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


def _read_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
