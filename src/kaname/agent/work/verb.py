"""The verbs `submit` and `submit_answers` of an agent. What they do is imported with the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...kernel.ports import Journal, Recipe
from ..input import Input
from ..opening.opener import Opener


class Submits:
    """The verbs `submit` and `submit_answers` of an agent."""

    name: str
    journal: Journal
    recipe: Recipe
    _opener: Callable[[Recipe], Opener]

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
        queue: str = "default",
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
        from .submit import submit_run

        how = {"priority": priority, "at": at, "key": key, "queue": queue}
        return await submit_run(self.journal, self.name, user_input, session_id, user_id, run_id, delay, **how)

    async def submit_answers(
        self, run_id: str, answers: Mapping[str, Any], *, by: str = "", priority: int = 0, queue: str = "default"
    ) -> None:
        """Record the answers to the questions of a waiting run, and queue the run for a worker.

        When this returns, the answers are in the journal. Raises `InvalidState` if they are not accepted.
        """
        from .submit import submit_answers

        await submit_answers(self._opener(self.recipe), run_id, answers, by, priority, queue)
