"""The verbs `submit`, `submit_answers`, `schedule` and `say` of an agent. What they do is imported with the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...kernel.ports import Journal, Recipe
from ...run.input import Input, as_turn
from ...run.opener import Opener

if TYPE_CHECKING:
    from .schedule import Missed, Schedule


class Submits:
    """The verbs `submit`, `submit_answers`, `schedule` and `say` of an agent."""

    name: str
    journal: Journal
    recipe: Recipe
    schedules: Mapping[str, Schedule] = {}
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
        return await submit_run(self.journal, self.recipe, user_input, session_id, user_id, run_id, delay, **how)

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
        from ...run.say import say

        return await say(journal, recipe, run_id, message, **how)

    def schedule(
        self,
        name: str,
        user_input: Input,
        *,
        cron: str = "",
        tz: str = "UTC",
        every: float | str | None = None,
        at: Any = None,
        missed: Missed = "one",
        session_id: str = "",
        user_id: str = "",
        priority: int = 0,
        key: str = "",
        queue: str = "default",
    ) -> None:
        """Queue a run at certain times, as long as a worker or a server with this agent works.

        Several workers can have the same schedule: the run of each time is executed once.

            agent.schedule("report", "Write the daily report", cron="0 9 * * 1-5", tz="Asia/Tokyo")

        Args:
            name: The name of the schedule. Ids of its runs begin with it and the name of the agent.
            user_input: The input, as for `run`.
            cron: A cron expression with five fields: minute, hour, day, month, day of the week.
            tz: The time zone of `cron` and `at` (default: UTC).
            every: An interval such as "15m", up to "400d", counted from 1970-01-01 00:00 UTC, so that all machines agree.
            at: One time: a `datetime`, a text such as "2026-12-01T09:00", or seconds since 1970.
            missed: What to do after a time at which no worker was alive: "skip" it, run "one" for all missed times (default),
                or run "all" of them, up to 100.
            session_id, user_id, priority, key, queue: As for `submit`.

        Raises:
            ConfigError: If a value is wrong.
        """
        from .schedule import make_schedule

        as_turn(user_input)
        how = {"session_id": session_id, "user_id": user_id, "priority": priority, "key": key, "queue": queue}
        made = make_schedule(self.name, name, user_input, cron, tz, every, at, missed, **how)
        self.schedules = {**self.schedules, name: made}
