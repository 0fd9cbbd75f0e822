"""The verb `submit` of an agent: queue a run for a worker, on this machine or another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ...core.durations import seconds
from ...core.errors import ConfigError
from ...core.notices import notice
from ...journals.queue import DEFAULT_QUEUE, HasQueue, QueuedRun, RunQueue
from ...kernel.ports import Journal
from ..ids import check_ids
from ..input import Input, as_mapping, as_turn
from ..opening.request import new_run_id
from .order import encode_order


def queue_of(journal: Journal) -> RunQueue:
    """Return the queue of a journal. Raises `ConfigError` if it has none, as a journal in memory."""
    if not isinstance(journal, HasQueue):
        told = notice(
            "queue.none", "runs are queued in the journal, and this one is lost with the process: use a file or a database"
        )
        raise ConfigError(told)
    return journal.queue


class Submits:
    """The verbs `submit` and `submit_answers` of an agent."""

    name: str
    journal: Journal

    async def submit(
        self,
        user_input: Input,
        *,
        session_id: str = "",
        user_id: str = "",
        run_id: str | None = None,
        priority: int = 0,
        delay: float | str = 0.0,
        at: float = 0.0,
        key: str = "",
        queue: str = DEFAULT_QUEUE,
    ) -> str:
        """Queue a run for a worker (`kaname worker`, or `kaname serve` on this journal), and return its id.

        When this returns, the run is in the database of the journal. With the same `run_id` it is queued once.

        Args:
            user_input: The input, as for `run`.
            session_id: The conversation. Its runs are executed one after the other, over all machines.
            user_id: The user.
            run_id: The id of the run. By default it is a new one.
            priority: Runs with a higher priority are started first (default: 0).
            delay: Start it not before this time has passed, in seconds or as text such as "5m".
            at: Start it not before this time, in seconds since 1970.
            key: A user, tenant or provider. Workers with a limit per key execute only so many of its runs at a time.
            queue: The queue, for workers with `--queues`.

        Raises:
            ConfigError: If the journal is in memory.
        """
        check_ids(session_id=session_id, user_id=user_id, run_id=run_id)
        when = max(at, time.time() + seconds(delay) if delay else 0.0)
        order = encode_order(as_turn(user_input))
        item = QueuedRun(run_id or new_run_id(), self.name, order, session_id, user_id, queue, key, priority, when)
        await queue_of(self.journal).put([item])
        return item.run_id

    async def submit_answers(
        self, run_id: str, answers: Mapping[str, Any], *, by: str = "", priority: int = 0, queue: str = DEFAULT_QUEUE
    ) -> None:
        """Queue a waiting run with the answers to its questions. They are checked when a worker resumes it."""
        check_ids(run_id=run_id, by=by)
        given = as_mapping("answers", answers, "{key: 'yes'}, by the keys of result.questions")
        order = encode_order(answers=given, by=by)
        await queue_of(self.journal).put([QueuedRun(run_id, self.name, order, queue=queue, priority=priority)])
