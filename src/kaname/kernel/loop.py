"""The loop. Decide (pure), perform (policies, effects), record (journal, state, reader)."""

from __future__ import annotations

import asyncio

from ..core.errors import AgentError, Halt, JournalError, Suspend, UnexpectedError
from ..core.events import Stopped
from ..core.state import State
from ..core.steps import Finish, Step, Stop
from .boundary import Border
from .perform import perform
from .scope import Scope


async def drive(scope: Scope) -> State:
    """Go on until there is nothing to do, whatever happened before: starting, resuming and forking are the same."""
    task = asyncio.current_task()
    while not scope.state.finished:
        if scope.stopping or (task is not None and task.cancelling()):  # somebody's code may have swallowed the cancellation
            raise asyncio.CancelledError
        await advance(scope)
    return scope.state


async def advance(scope: Scope) -> None:
    """One step. A signal or a failure inside it becomes a fact, and the work done so far stays."""
    try:
        with Border(passing=(AgentError, Halt)) as border:
            try:
                await perform(decide(scope), scope)
            except Suspend as question:
                await scope.park(question)
        if bug := border.failure:
            raise UnexpectedError(f"{bug} (at {bug.place})") from bug.error
    except Halt as end:
        await scope.record(Stopped(end.stop))
    except JournalError:  # what cannot be recorded cannot be turned into a fact
        raise
    except AgentError as failure:
        scope.failure = failure
        await scope.record(Stopped(Stop("failed", failure.public, type(failure).__name__, failure.said)))


def decide(scope: Scope) -> Step:
    """Ask the strategy, then let the stop rules judge the step that it proposes."""
    agent, state = scope.agent, scope.state
    step = agent.strategy.next(state)
    if isinstance(step, Finish):
        return step
    for rule in scope.stops(agent):
        stop = rule(state, step)
        if isinstance(stop, Stop):
            if (limit := state.concluding) is not None and stop.kind == limit.kind:  # the one call that goes beyond it
                continue
            return agent.strategy.conclude(state, stop) if hasattr(agent.strategy, "conclude") else Finish(stop)
        if stop is not None:
            raise UnexpectedError(f"the stop rule {rule!r} returned {stop!r}; expected a Stop, or None to go on")
    return step
