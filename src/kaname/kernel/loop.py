"""The loop: decide (pure), perform (policies, effects), record (journal, state, readers)."""

from __future__ import annotations

import asyncio

from ..core.errors import AgentError, Halt, Suspend, UnexpectedError
from ..core.events import Stopped
from ..core.state import State
from ..core.steps import CallModel, CallTools, Finish, Step, Stop
from .bases import conclude
from .boundary import failure_of
from .perform import perform
from .scope import Scope


async def drive(scope: Scope) -> State:
    """Advance the run until there is nothing to do. Starting, resuming and forking all use this."""
    task = asyncio.current_task()
    while not scope.state.finished:
        if (scope.stopping and scope.is_to_end) or (task is not None and task.cancelling()):  # which a tool may have swallowed
            raise asyncio.CancelledError
        await advance(scope)
    return scope.state


async def advance(scope: Scope) -> None:
    """Perform one step. A signal or a failure inside it becomes a fact, and the work done so far stays."""
    try:
        try:
            try:
                await perform(CallTools((), as_completed=True) if scope.stopping else decide(scope), scope)
            except Suspend as question:
                await scope.park(question)
        except BaseException as error:
            if bug := failure_of(error, passing=(AgentError, Halt)):
                raise UnexpectedError(f"{bug} (at {bug.place})") from error
            raise
    except Halt as end:
        await scope.record(Stopped(end.stop))
    except AgentError as failure:
        await scope.fail(failure)


def decide(scope: Scope) -> Step:
    """Ask the strategy for a step, then let the stop rules judge it."""
    agent, state = scope.agent, scope.state
    step = agent.strategy.next(state)
    if isinstance(step, Finish):
        return step
    for rule in scope.stops_of(agent):
        if (stop := rule(state, step)) is None:
            continue
        if not isinstance(stop, Stop):
            raise UnexpectedError(f"the stop rule {rule!r} returned {stop!r}; expected a Stop, or None to go on")
        if (limit := state.concluding) is None or stop.kind != limit.kind or not isinstance(step, CallModel):  # else the last
            return conclude(agent.strategy, state, stop)
    return step
