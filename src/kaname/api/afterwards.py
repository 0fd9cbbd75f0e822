"""What is done when a run is over, in the background: parts of a context that have `ended(scope)` learn from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from logging import getLogger
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from ..kernel.boundary import Failure, attempt
from ..kernel.scope import Scope
from ..kernel.threads import off_loop, runs_on_loop


@runtime_checkable
class Learns(Protocol):
    """A part of a context that wants to know of the end of a run."""

    async def ended(self, scope: Scope) -> None: ...


@runtime_checkable
class Closes(Protocol):
    """A part of a context that has files open. It may be used again after that."""

    def close(self) -> Any: ...


class Afterwards:
    """Tasks that outlive their runs. A program that ends before them loses nothing: who learns finds what is left to learn."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._one_by_one: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def begin(self, scope: Scope) -> None:
        context: Sequence[object] = scope.root.context
        parts = [part for part in context if isinstance(part, Learns)]
        if parts and scope.state.stop is not None and scope.state.parent is None:
            task = asyncio.create_task(self._tell(parts, scope))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, parts: Sequence[Learns], scope: Scope) -> None:
        async with self._one_by_one.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            for part in parts:
                outcome = await attempt(part.ended, scope, passing=())
                if isinstance(outcome, Failure):
                    getLogger("kaname").warning("%s after run %s: %s", type(part).__name__, scope.run_id, outcome)

    async def end(self, context: Sequence[object] = ()) -> None:
        """Wait for those of this event loop, then close the files that parts of the context have open."""
        here = asyncio.get_running_loop()
        while mine := [task for task in self._tasks if task.get_loop() is here]:
            await asyncio.wait(mine)
        for part in context:
            if isinstance(part, Closes):
                await (part.close() if runs_on_loop(part.close) else off_loop(part.close))
