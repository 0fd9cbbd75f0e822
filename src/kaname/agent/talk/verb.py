"""`agent.say(run_id, …)`: say something to a run while it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kernel.ports import Journal, Policy, Recipe
from ..ids import check_ids


class Talkable:
    """What an agent needs to talk to its runs."""

    journal: Journal
    recipe: Recipe

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
        check_ids(run_id=run_id, by=by)
        return await self._tell(self.journal, self.recipe.policies, run_id, message, by=by, urgent=urgent)

    async def _tell(self, journal: Journal, policies: Sequence[Policy], run_id: str, message: Any, **how: Any) -> bool:
        from .say import say

        return await say(journal, policies, run_id, message, **how)
