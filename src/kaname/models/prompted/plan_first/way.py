"""Choose the next thing to ask for by the plan of the turn: a call for its open step, or the answer."""

from __future__ import annotations

from typing import Any

from ....core.messages import Message, ModelReply, ModelRequest, Provided, ToolCall, Usage
from ....core.record import record, replace
from ....core.values import identity
from ..choice_schema import answer_name
from ..offer import Offer, Turn, all_pure
from .plan import Plan, mark, plan_schema, read_plan, recorded_plan
from .progress import Progress, Try, next_of, progress_of
from .prompt import for_answer, for_plan, for_step

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
        known = self._progress.known
        if not plan or not known or known[-1].step + 1 < len(plan) or not all_pure(request.tools):
            return None
        asked = for_answer(request, self._turn, plan, self._progress)
        return Way(asked, Offer((), answer=True, name=name), self.mark(len(plan)))

    def mark(self, step: int | None = None) -> Provided:
        return mark(len(self._plan) if step is None else step, self._plan if self._fresh else None)

    def again(self, call: ToolCall) -> Way | None:
        """Go on after a call that was made before: what it gave counts for this step, and it is not shown as failed."""
        for earlier in reversed(self._progress.tries):
            if earlier.call.name == call.name and identity(earlier.call.args) == identity(call.args):
                repeated = Try(self._step, earlier.call, earlier.result, earlier.helped, again=True)
                self._progress = Progress(self._step, (*self._progress.tries, repeated))
                return self.way()
        return None


async def plan_for(ask: Any, request: ModelRequest, turn: Turn, emit: Any) -> tuple[PlanFirst | None, Usage]:
    """The plan of this turn: from the record, or asked for now. None where there is nothing to plan."""
    if request.last or len(turn.pure) < _FEWEST:
        return None, Usage()
    plan = recorded_plan(request, turn.since)
    if plan is not None:
        return PlanFirst(request, turn, plan, fresh=False), Usage()
    if turn.calls:  # begun without one
        return None, Usage()

    async def hide(text: str, kind: str = "text", call_id: str = "") -> None:
        if kind != "text":
            await emit(text, kind)

    schema = plan_schema(request.tools, answer_name(request.tools))
    said: ModelReply = await ask(replace(request, messages=for_plan(request, turn), tools=(), schema=schema), hide)
    return PlanFirst(request, turn, read_plan(said.message.text, request.tools), fresh=True), said.usage
