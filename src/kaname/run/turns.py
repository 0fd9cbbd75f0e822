"""Turns of a session: each run waits for the one before it, and starts from the state that it left."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from ..core.durations import backoff
from ..core.runs import RunInfo
from ..core.state import State, copy_of
from ..kernel.load import load
from ..kernel.ports import Journal


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
