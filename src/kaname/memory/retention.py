"""Retention: how long ended runs are kept, and deleting those whose time is over."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from logging import getLogger
from math import inf
from random import random
from typing import Any, NamedTuple, get_args

from ..core.durations import seconds
from ..core.errors import AuditError, ConfigError, JournalError, nearest
from ..core.notices import notice
from ..core.runs import LESSONS, UNDER_WAY, RunInfo
from ..core.steps import StopKind
from ..kernel.ports import Journal

STATUSES = tuple([kind for kind in get_args(StopKind) if kind not in (*UNDER_WAY, "released")])  # how runs end
_PAGE, _AT_ONCE = 500, 50  # runs: read at a time, and deleted in one transaction
_PAUSE = 0.02  # seconds for other writers after each of them
_FIRST, _EVERY = 60.0, 3600.0  # seconds
log = getLogger("kaname")
Time = str | float
FOR_EVER = "forever"


_LEAST = 3_600.0  # seconds


class Keep:
    """Times for which ended runs are kept, counted from their last fact. A run that is running or waiting is always kept.

    Args:
        runs: How long, such as "90d" or "forever" (default).
        by_status: Other times by how a run ended: `{"failed": "30d"}`.
        by_agent: Other times by the name of the agent. What such a `Keep` leaves out is as in this one.
    """

    def __init__(
        self, runs: Time | None = None, by_status: Mapping[str, Time] | None = None, by_agent: Mapping[str, Keep] | None = None
    ) -> None:
        self.runs, self.by_status, self.by_agent = runs, dict(by_status or {}), dict(by_agent or {})
        for status in self.by_status:
            if status not in STATUSES:
                message = notice("keep.status", "unknown status {status!r}", status=status)
                raise ConfigError(message + nearest(status, STATUSES))
        for given in (runs, *self.by_status.values()):
            if given is not None:
                keep_seconds(given)

    @classmethod
    def from_config(cls, given: Any, agents: Mapping[str, Any]) -> Keep:
        """Read `keep:` of the file and of its agents: a time, or times by status with `runs` for all others."""
        times = given if isinstance(given, Mapping) else {} if given is None else {"runs": given}
        by_status = {name: value for name, value in times.items() if name != "runs"}
        own = {name: cls.from_config(held, {}) for name, held in agents.items() if held is not None}
        return cls(times.get("runs"), by_status, own)

    def seconds(self, agent: str, status: str) -> float:
        """Return the seconds for which a run of this agent and status is kept. Lessons are kept until they are deleted."""
        if agent == LESSONS:
            return inf
        for one in (self.by_agent.get(agent), self):
            given = None if one is None else one.by_status.get(status, one.runs)
            if given is not None:
                return keep_seconds(given)
        return inf


def keep_seconds(given: Time) -> float:
    """Return a time to keep runs in seconds. A bare number or less than an hour is refused, because a slip would delete all."""
    if given == FOR_EVER:
        return inf
    kept = seconds(given)
    if not isinstance(given, str) or given.strip().replace(".", "", 1).isdecimal() or kept < _LEAST:
        raise ConfigError.of(
            "keep.unclear",
            '{given!r} is not a valid retention time: write at least an hour with a unit, such as "90d" or "12h", or "forever"',
            given=given,
        )
    return kept


class Pruned(NamedTuple):
    """Result of `prune`, done or only planned: the ids of the runs, with those inside them, how many runs of which agent ended
    how, the bytes given back to the disk, and the bytes still free in the file."""

    runs: tuple[str, ...]
    by_kind: Mapping[tuple[str, str], int]
    freed: int
    free: int


async def prune(journal: Journal, keep: Keep, *, agent: str = "", dry_run: bool = False, now: float | None = None) -> Pruned:
    """Delete ended runs whose retention time is over, some at a time, so that other writers never wait for long.

    A run is kept as long as a run that continues from it is kept: a later turn of its session, or a fork. Runs inside a run are
    deleted with it.

    Args:
        journal: The journal.
        keep: The retention times.
        agent: Delete only runs of this agent (default: of all agents).
        dry_run: True to delete nothing, and return what would be deleted.
        now: The present time in seconds since 1970 (default: that of the clock).
    """
    deleted: list[str] = []
    kinds: Counter[tuple[str, str]] = Counter()
    async for cards, gone in _sweep(journal, keep, agent, time.time() if now is None else now, set() if dry_run else None):
        deleted += gone
        kinds.update([(card.agent, card.status) for card in cards if card.run_id in set(gone)])
    freed = free = 0
    while deleted and not dry_run:
        more, free = await journal.tidy()
        freed += more
        if not more:
            break
        await asyncio.sleep(_PAUSE)
    return Pruned(tuple(deleted), kinds, freed, free)


async def _sweep(
    journal: Journal, keep: Keep, agent: str, now: float, trial: set[str] | None
) -> AsyncIterator[tuple[list[RunInfo], list[str]]]:
    """Go through the runs from the last to the first, so that what went on from a run is gone before it."""
    before = 0
    while cards := await journal.runs(agent=agent, until=now, before=before, limit=_PAGE):
        before = cards[-1].place
        old = [card for card in cards if not card.parent and card.status not in UNDER_WAY and _is_over(card, keep, now)]
        for start in range(0, len(old), _AT_ONCE):
            batch = old[start : start + _AT_ONCE]
            yield batch, await journal.prune(batch, trial=trial)
            await asyncio.sleep(0 if trial is not None else _PAUSE)


def _is_over(card: RunInfo, keep: Keep, now: float) -> bool:
    return now - card.updated > keep.seconds(card.agent, card.status)


async def keep_pruning(
    journal: Journal, keep: Keep, gone: Callable[..., None], before: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Prune every hour until it is cancelled. `gone` is called with the ids of the deleted runs, `before` before deleting."""
    pause = _FIRST
    while True:
        await asyncio.sleep(pause * (0.75 + random() / 2))  # several servers do not sweep at the same moment
        pause = _EVERY
        try:
            if before is not None:
                await before()
            pruned = await prune(journal, keep)
        except (AuditError, JournalError) as problem:
            log.warning("old runs could not be deleted: %s", problem)
            continue
        if pruned.runs:
            gone(*pruned.runs)
            log.info("%d runs were older than `keep` and are deleted; %d bytes freed", len(pruned.runs), pruned.freed)
