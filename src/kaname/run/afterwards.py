"""Work after a run is over, in the background: parts of a context that have `ended(scope)` learn from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from logging import getLogger
from typing import Any
from weakref import WeakKeyDictionary

from ..kernel.bases import ContextBase
from ..kernel.boundary import Failure, attempt
from ..kernel.chain import overrides
from ..kernel.load import agents_of_turn
from ..kernel.ports import Recipe
from ..kernel.scope import Scope
from ..kernel.threads import off_loop, runs_on_loop


class Afterwards:
    """Tasks that outlive their runs. A program that ends before them loses nothing: who learns finds what is left to learn."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_by_one: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def begin(self, scope: Scope) -> None:
        context = [*scope.root.context, *[part for one in self._members_at_work(scope) for part in one.context]]
        parts = list({id(part): part for part in context if overrides(part, "ended", ContextBase)}.values())
        if parts and scope.state.stop is not None and scope.state.parent is None:
            task = asyncio.create_task(self._tell(parts, scope))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _members_at_work(self, scope: Scope) -> list[Recipe]:
        """Return the members of the team that had this turn of the conversation, by a transfer."""
        return [scope.team[name] for name in agents_of_turn(scope.state) if name in scope.team] if scope.team else []

    async def _tell(self, parts: Sequence[Any], scope: Scope) -> None:
        async with self._one_by_one.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            for part in parts:
                outcome = await attempt(part.ended, scope, passing=())
                if isinstance(outcome, Failure):
                    getLogger("kaname").warning("%s after run %s: %s", type(part).__name__, scope.run_id, outcome)

    async def end(self, context: Sequence[Any] = ()) -> None:
        """Wait for those of this event loop, then close the files that parts of the context have open."""
        here = asyncio.get_running_loop()
        while mine := [task for task in self._tasks if task.get_loop() is here]:
            await asyncio.wait(mine)
        for part in context:
            if overrides(part, "close", ContextBase):
                await (part.close() if runs_on_loop(part.close) else off_loop(part.close))
