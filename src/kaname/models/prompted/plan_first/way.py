"""Choose the next thing to ask for by the plan of the turn: a call for its open step, or the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core.messages import Message, ModelReply, ModelRequest, Provided, ToolCall, Usage
from ....core.record import record, replace
from ....core.values import identity
from ..choice_schema import answer_name
from ..offer import Offer, Turn, all_pure
from .plan import Plan, mark, plan_schema, read_plan, read_step, recorded_plans, step_schema
from .progress import Progress, Try, is_half_found, next_of, progress_of
from .prompt import for_answer, for_more, for_plan, for_rest, for_step

_FEWEST = 2  # look-ups between which there is something to plan


@record
class Way:
    """What the model is asked, what it may choose, and the mark that its reply gets."""

    messages: tuple[Message, ...]
    offer: Offer
    mark: Provided


class PlanFirst:
    """The plan of one turn. `fresh`: it was made just now, so the reply has to record it."""

    def __init__(self, request: ModelRequest, turn: Turn, plan: Plan, *, fresh: bool) -> None:
        self._request, self._turn = request, turn
        self._plan, self._fresh = plan, fresh
        self._progress = progress_of(turn, request)
        self._step = 0

    def way(self) -> Way | None:
        """The next step's call, or the answer when all is done. Nothing where the plan is of no more use."""
        request, plan = self._request, self._plan
        wanted = next_of(plan, self._progress, request.tools)
        name = answer_name(request.tools)
        if wanted is not None:
            self._step = wanted.step
            asked = for_step(request, self._turn, plan, self._progress, wanted)
            return Way(asked, Offer(wanted.tools, answer=False, name=name), self.mark(wanted.step))
        last = [one for one in self._progress.tries if one.step + 1 >= len(plan)]
        if not plan or not any(one.helped for one in last) or not all_pure(request.tools):
            return None
        asked = for_answer(request, self._turn, plan, self._progress)
        return Way(asked, Offer((), answer=True, name=name), self.mark(len(plan)))

    def mark(self, step: int | None = None) -> Provided:
        return mark(len(self._plan) if step is None else step, self._plan if self._fresh else None)

    def more(self, missing: str) -> tuple[Message, ...]:
        """The request for one more call, after an answer that was not taken."""
        return for_more(self._request, self._turn, self._plan, self._progress, missing)

    def again(self, call: ToolCall) -> Way | None:
        """Go on after a call that was made before: what it gave counts for this step, and it is not shown as failed."""
        for earlier in reversed(self._progress.tries):
            if earlier.call.name == call.name and identity(earlier.call.args) == identity(call.args):
                repeated = Try(self._step, earlier.call, earlier.result, earlier.helped, again=True)
                self._progress = Progress(self._step, (*self._progress.tries, repeated))
                return self.way()
        return None


async def plan_for(ask: Any, request: ModelRequest, turn: Turn, emit: Any) -> tuple[PlanFirst | None, Usage]:
    """The plan of this turn: from the record, or asked for now. None where there is nothing to plan.

    Where another tool than the planned one found something, and no look-up follows, one step is added: what is missing, in the
    names that are known by then. A small model takes the words of the question for a name otherwise, and finds nothing again.
    """
    if request.last or len(turn.pure) < _FEWEST:
        return None, Usage()
    answer, plans = answer_name(request.tools), recorded_plans(request, turn.since)
    if not plans and turn.calls:  # begun without one
        return None, Usage()
    if not plans:
        text, usage = await _written(ask, request, for_plan(request, turn), plan_schema(request.tools, answer), emit)
        return PlanFirst(request, turn, read_plan(text, request.tools), fresh=True), usage
    plan, progress = plans[-1], progress_of(turn, request)
    if len(plans) > 1 or not is_half_found(plan, progress, request.tools):
        return PlanFirst(request, turn, plan, fresh=False), Usage()
    asked = for_rest(request, turn, plan, progress)
    text, usage = await _written(ask, request, asked, step_schema(plan[progress.step].tool, answer), emit)
    longer = read_step(text, plan, progress.step)
    return PlanFirst(request, turn, longer, fresh=longer != plan), usage


async def _written(
    ask: Any, request: ModelRequest, messages: tuple[Message, ...], schema: Mapping[str, Any], emit: Any
) -> tuple[str, Usage]:
    """What the model writes in this form. It is not shown."""

    async def hide(text: str, kind: str = "text", call_id: str = "") -> None:
        if kind != "text":
            await emit(text, kind)

    said: ModelReply = await ask(replace(request, messages=messages, tools=(), schema=schema), hide)
    return said.message.text, said.usage
