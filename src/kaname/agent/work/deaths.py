"""Judge a run that was interrupted: how often its process has died, and whether the run may be the cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.durations import backoff
from ...core.events import Custom, Event, Opened, Resumed, ToolStarted, Warned
from ...run.request import QUEUED

DEATHS = 10  # crashes without progress of the run in between, after which it is set aside
SUSPECT = 2  # crashes after which a run may be their cause: it is resumed alone, so that other runs are not blamed
_LONGEST = 15.0  # seconds of the longest pause before it is resumed again
SERVED = "served"  # in the origin of a run: a server or a worker can resume it


def pause_left(died: int, since: float) -> float:
    """Return the seconds that are left of the pause after the last crash. A clock that was set back does not prolong it."""
    pause = backoff(died - 1, 2.0, _LONGEST)
    return pause - since if 0 <= since < pause else 0.0


def deaths(facts: Sequence[Event]) -> int:
    """Count the crashes in a row that interrupted this run, without a reply, a result or a question of the run in between.

    A process that was shut down in order has released the run, and does not count.
    """
    count = 0
    for fact in reversed(facts):
        if isinstance(fact.body, Resumed):
            count += fact.body.died
        elif not isinstance(fact.body, ToolStarted | Warned):  # a tool that crashes the process is started again each time
            break
    return count


def is_served(facts: Sequence[Event]) -> bool:
    """Return True if a server or a worker has started the run, or its answers were queued. Other runs are left to scripts."""
    first: Any = facts[0].body
    origin = first.recipe.get("origin") if isinstance(first, Opened) else None
    if isinstance(origin, dict) and SERVED in origin:
        return True
    return any(isinstance(fact.body, Custom) and fact.body.name == QUEUED for fact in facts)
