"""Progress of a plan, from the calls made for its steps, and what can be chosen next."""

from __future__ import annotations

from ....core.messages import ModelRequest, ToolCall, ToolResult, ToolSpec
from ....core.record import record
from ..choice_schema import digits_only, reckons
from ..findings import is_nought
from ..offer import TurnSoFar, useless
from .plan import Plan, step_of

_RETRIES = 1  # of a call that failed, with its error in sight


@record
class Try:
    """A call that was made for a step, and its result."""

    step: int
    call: ToolCall
    result: ToolResult
    helped: bool
    again: bool = False  # it was proposed once more, and not run


@record
class PlanProgress:
    """The progress of a plan. `step`: the open step; the length of the plan if all are done."""

    step: int
    tries: tuple[Try, ...]  # of the whole turn

    def of_step(self, step: int) -> list[Try]:
        return [one for one in self.tries if one.step == step]

    @property
    def known_tries(self) -> list[Try]:
        return [one for one in self.tries if one.helped and not one.again]


@record
class Next:
    """The next request: a call of one of these tools for the open step. `failed`: the call to correct, if it is shown."""

    step: int
    tools: tuple[ToolSpec, ...]
    failed: Try | None = None


def progress_of(turn: TurnSoFar, request: ModelRequest) -> PlanProgress:
    """Return the progress, from the marks of the calls. A step is closed when a call of a later step was made."""
    step_by_call = {call.id: step_of(message) for message in request.messages[turn.since :] for call in message.calls}
    sums = {tool.name for tool in request.tools if reckons(tool)}
    tries, last = [], 0
    for call, result in turn.calls:
        marked = step_by_call.get(call.id)
        last = last if marked is None else marked
        if result is not None:
            helped = not useless(result, turn.pure) and (call.name in sums or not is_nought(result))
            tries.append(Try(last, call, result, helped))
    return PlanProgress(last, tuple(tries))


def next_of(plan: Plan, progress: PlanProgress, tools: tuple[ToolSpec, ...]) -> Next | None:
    """Return the next call to ask for; None if the plan is done, or no look-up is left to try for its open step."""
    pure = tuple([tool for tool in tools if tool.effect == "pure"])
    step = progress.step
    while step < len(plan):
        tries = progress.of_step(step)
        if offered := _for_step(plan[step].tool, tries, pure):
            found, failed = offered
            found = tuple([digits_only(tool) if progress.known_tries and reckons(tool) else tool for tool in found])
            return Next(step, found, failed)
        step += 1
    return None


def is_half_found(plan: Plan, progress: PlanProgress, tools: tuple[ToolSpec, ...]) -> bool:
    """Return True if the planned tool found nothing, another tool helped, and no look-up follows.

    With what is known now the planned tool may find the rest.
    """
    step, tries = progress.step, progress.of_step(progress.step)
    if step >= len(plan) or not tries or not tries[-1].helped:
        return False
    sums = {tool.name for tool in tools if reckons(tool)}
    failed = {one.call.name for one in tries if not one.helped} - {tries[-1].call.name}
    return plan[step].tool in failed and all(one.tool in sums for one in plan[step + 1 :])


def _for_step(planned: str, tries: list[Try], pure: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], Try | None] | None:
    """Return the tools for a step: the planned one, its failed call again, then untried look-ups, then the planned one anew.

    Tools that only calculate are not look-ups.
    """
    own = tuple([tool for tool in pure if tool.name == planned])
    used = {one.call.name for one in tries} | {planned}
    others = tuple([tool for tool in pure if tool.name not in used and not reckons(tool)])
    by_plan = [one for one in tries if one.call.name == planned]
    if not own:
        return (others, None) if others and not any(one.helped for one in tries) else None
    if not tries:
        return own, None
    latest = tries[-1]
    if any(one.helped for one in tries):
        return None
    if latest.call.name == planned and latest.result.is_error and len(by_plan) <= _RETRIES:
        return own, latest
    if others:
        return others, None
    return (own, None) if latest.call.name != planned else None
