"""Queue a run for a worker, on this machine or another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ...core.durations import seconds
from ...core.errors import ConfigError, RunBusy
from ...kernel.ports import Journal, Recipe
from ...kernel.stores import QueuedRun, RunQueue
from ...people.entrance import Origin, admit
from ...run.input import Input, as_mapping, as_turn
from ...run.opener import Opener
from ...run.request import RunRequest, check_ids, new_run_id
from .order import encode_order
from .schedule import check_order

_PARKING, _PAUSE = 10.0, 0.05  # seconds that a run that asks may take to be released, and between two tries


def queue_of(journal: Journal) -> RunQueue:
    """Return the queue of a journal. Raises `ConfigError` if it has none, as a journal in memory."""
    if (queue := journal.stores.queue) is not None:
        return queue
    raise ConfigError.of(
        "queue.none", "runs are queued in the journal, and this one is lost with the process: use a file or a database"
    )


async def submit_run(
    journal: Journal,
    recipe: Recipe,
    given: Input,
    session_id: str,
    user_id: str,
    run_id: str | None,
    delay: float | str,
    **how: Any,
) -> str:
    """Queue a new run (see `Agent.submit`), and return its id. The queue keeps the input as the agent's policies want it."""
    check_ids(session_id=session_id, user_id=user_id, run_id=run_id)
    check_order(**how)
    at = max(how.pop("at"), time.time() + seconds(delay) if delay else 0.0)
    queue, messages = queue_of(journal), [await admit(one, recipe, Origin(user_id)) for one in as_turn(given)]
    item = QueuedRun(run_id or new_run_id(), recipe.name, encode_order(messages), session_id, user_id, at=at, **how)
    await queue.put([item])
    return item.run_id


async def submit_answers(opener: Opener, run_id: str, answers: Mapping[str, Any], by: str, priority: int, queue: str) -> None:
    """Record answers, then queue the run (see `Agent.submit_answers`)."""
    check_ids(run_id=run_id, by=by)
    given = as_mapping("answers", answers, "{key: 'yes'}, by the keys of result.questions")
    waiting = queue_of(opener.journal)
    until = time.monotonic() + _PARKING
    while True:
        try:
            await opener.record_answers(RunRequest(run_id, how="resume", answers=given, by=by, queued=True))
            break
        except RunBusy:  # its process has asked, and is about to release it
            if time.monotonic() > until:
                raise
        await asyncio.sleep(_PAUSE)
    item = QueuedRun(run_id, opener.recipe.name, queue=queue, priority=priority)
    # Whatever happens before the next line: the answers say that the run is queued, and workers find it (`Worker._sweep`).
    await waiting.put([item])  # if it is still in the queue, its worker finds it interrupted, and tries it again
