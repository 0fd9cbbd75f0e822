"""The verbs `submit`, `submit_answers` and `say` of an agent. What they do is imported with the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...kernel.ports import Journal, Recipe
from ..input import Input
from ..opening.opener import Opener


class Submits:
    """The verbs `submit`, `submit_answers` and `say` of an agent."""

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

    async def say(self, run_id: str, message: Any, *, by: str = "", urgent: bool = False) -> bool:
        """Say something to a run while it works, in any process. When this returns, the message is on disk.

        The model sees it at its next call. If the run ends before that, the next run of its session gets the message.

        Args:
            run_id: The run.
            message: A text, a list of texts and `Media`, or a message.
            by: The person who says it.
            urgent: End the model call under way, so that the model sees the message at once.

        Returns:
            False if the run had ended already.

        Raises:
            RunNotFound: If there is no such run.
            InvalidState: If the run has ended and belongs to no session.
        """
        return await self._tell(self.journal, self.recipe, run_id, message, by=by, urgent=urgent)

    async def _tell(self, journal: Journal, recipe: Recipe, run_id: str, message: Any, **how: Any) -> bool:
        from ..talk.say import say

        return await say(journal, recipe, run_id, message, **how)
