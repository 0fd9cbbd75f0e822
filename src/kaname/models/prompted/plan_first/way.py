"""Choose the next request by the plan of the turn: a call for its open step, or the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core.calls import same_call
from ....core.messages import Message, ModelReply, ModelRequest, Provided, ToolCall, Usage
from ....core.record import record, replace
from ..choice_schema import answer_name
from ..offer import Offer, TurnSoFar, all_pure
from .plan import Plan, mark, plan_schema, read_plan, read_step, recorded_plans, step_schema
from .progress import PlanProgress, Try, is_half_found, next_of, progress_of
from .prompt import for_answer, for_more, for_plan, for_rest, for_step

_FEWEST = 2  # look-ups between which there is something to plan


@record
class Way:
    """A request to the model: the messages, the offer, and the mark for its reply."""

    messages: tuple[Message, ...]
    offer: Offer
    mark: Provided


class PlanFirst:
    """The plan of one turn. `fresh`: it was made just now, so the reply has to record it."""

    def __init__(self, request: ModelRequest, turn: TurnSoFar, plan: Plan, *, fresh: bool) -> None:
        self._request, self._turn = request, turn
        self._plan, self._fresh = plan, fresh
        self._progress = progress_of(turn, request)
        self._step = 0

    def way(self) -> Way | None:
        """Return the request for the next step, or for the answer when all is done; None if the plan is of no more use."""
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
        """Return the request for one more call, after an answer that was not accepted."""
        return for_more(self._request, self._turn, self._plan, self._progress, missing)

    def again(self, call: ToolCall) -> Way | None:
        """Continue after a repeated call: its earlier result counts for this step, and it is not shown as failed."""
        for earlier in reversed(self._progress.tries):
            if same_call(earlier.call, call):
                repeated = Try(self._step, earlier.call, earlier.result, earlier.helped, again=True)
                self._progress = PlanProgress(self._step, (*self._progress.tries, repeated))
                return self.way()
        return None


async def plan_for(ask: Any, request: ModelRequest, turn: TurnSoFar, emit: Any) -> tuple[PlanFirst | None, Usage]:
    """Return the plan of this turn, from the record or from the model; None if there is nothing to plan.

    If another tool than the planned one found something, and no look-up follows, one step is added: what is missing, in the
    names known by then. Otherwise a small model would search for the words of the question and find nothing again.
    """
    if request.last or len(turn.pure) < _FEWEST:
        return None, Usage()
    answer, plans = answer_name(request.tools), recorded_plans(request, turn.since)
    if not plans and turn.calls:  # begun without one
        return None, Usage()
    if not plans:
        text, usage = await _write_hidden(ask, request, for_plan(request, turn), plan_schema(request.tools, answer), emit)
        return PlanFirst(request, turn, read_plan(text, request.tools), fresh=True), usage
    plan, progress = plans[-1], progress_of(turn, request)
    if len(plans) > 1 or not is_half_found(plan, progress, request.tools):
        return PlanFirst(request, turn, plan, fresh=False), Usage()
    asked = for_rest(request, turn, plan, progress)
    text, usage = await _write_hidden(ask, request, asked, step_schema(plan[progress.step].tool, answer), emit)
    longer = read_step(text, plan, progress.step)
    return PlanFirst(request, turn, longer, fresh=longer != plan), usage


async def _write_hidden(
    ask: Any, request: ModelRequest, messages: tuple[Message, ...], schema: Mapping[str, Any], emit: Any
) -> tuple[str, Usage]:
    """Return what the model writes in this form. It is not shown."""

    async def hide(text: str, kind: str = "text", call_id: str = "") -> None:
        if kind != "text":
            await emit(text, kind)

    said: ModelReply = await ask(replace(request, messages=messages, tools=(), schema=schema), hide)
    return said.message.text, said.usage
