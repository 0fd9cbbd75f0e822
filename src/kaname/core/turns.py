"""Turns: the rule by which waiting work is handed out fairly among users, for queued runs and for readers of a server."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import NamedTuple

MOST_KEYS = 500  # keys whose turns are remembered, and that are looked at when a worker takes runs


class Candidate(NamedTuple):
    """Waiting work as `choose` sees it. `number` is its position in the order of arrival, `key` the user that it is for."""

    number: int
    name: str = ""
    key: str = ""
    priority: int = 0


class Turns:
    """Remember which keys were served, so that keys take turns even if work is handed out piece by piece.

    A key that was served goes to the end of the line as it is then: `served` holds the last number that was in the line, and a
    count. `start`: the key from which on keys are looked at, if there are more than `MOST_KEYS`.
    """

    def __init__(self) -> None:
        self.served: dict[str, tuple[int, int]] = {}
        self.start, self._count, self._last = "", 0, 0

    def note(self, keys: Iterable[str], last: int) -> None:
        """Remember that work of these keys was taken. A line that was empty may count from 1 again."""
        if last < self._last:
            self.served.clear()
        self._last = last
        for key in filter(None, keys):
            self._count += 1
            self.served.pop(key, None)
            self.served[key] = last, self._count
        for key in list(self.served)[:-MOST_KEYS]:
            del self.served[key]

    def place(self, one: Candidate) -> tuple[int, int, int]:
        """Return the sort key of the first work of its key: keys that were served longer ago come first."""
        last, turn = self.served.get(one.key, (0, 0))
        return max(one.number, last), turn, one.number


def choose(candidates: Sequence[Candidate], busy: Mapping[str, int], per_key: int, most: int, turns: Turns) -> list[Candidate]:
    """Return the work to hand out: by priority, then fairly among keys, then in the order of arrival.

    `busy`: how much work of each key is under way. A key with less of it comes first.
    """
    ranked: list[tuple[int, int, tuple[int, int, int], Candidate]] = []
    ahead = dict(busy)
    for one in sorted(candidates, key=lambda one: (-one.priority, one.number)):
        rank = ahead.get(one.key, 0) + 1 if one.key else 0
        if one.key:
            ahead[one.key] = rank
        if not one.key or not per_key or rank <= per_key:
            ranked.append((-one.priority, rank, turns.place(one), one))
    return [one for *_, one in sorted(ranked)[:most]]


class Places:
    """Places for the work of one event loop. Users take turns at them.

    Args:
        most: How many there are.
        per_key: How many of them one user can have at a time.
    """

    def __init__(self, most: int, per_key: int) -> None:
        self._most, self._per_key = most, per_key
        self._busy = Counter[str]()
        self._lines = OrderedDict[str, OrderedDict[asyncio.Future[None], None]]()  # by key, in the order of their turns

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the block."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(key, OrderedDict())[turn] = None
        try:
            self._hand_out()
            await turn
            yield
        finally:
            if turn in self._lines.get(key, ()):  # it still waits
                self._leave_line(key, turn)
            else:
                self._busy -= Counter((key,))
                self._hand_out()

    def _leave_line(self, key: str, turn: asyncio.Future[None]) -> None:
        del self._lines[key][turn]
        if not self._lines[key]:
            del self._lines[key]

    def _hand_out(self) -> None:
        """Give the free places to keys with the least work, and of these to those whose turn is first.

        Fewer keys have work than there are places. So it is enough to look at as many keys as there are places.
        """
        while self._lines and self._busy.total() < self._most:
            key = min(islice(self._lines, self._most), key=self._busy.__getitem__)
            if self._busy[key] == self._per_key:
                return
            self._busy[key] += 1
            self._lines.move_to_end(key)
            turn = next(iter(self._lines[key]))
            self._leave_line(key, turn)
            if not turn.done():  # else its task was cancelled in this moment, and gives the place back
                turn.set_result(None)
