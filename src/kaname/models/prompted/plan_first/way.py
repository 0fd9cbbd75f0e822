"""Choose the next request by the plan of the turn: a call for its open step, or the answer.

The prompts hold the question, the known facts and one step. They never grow into a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core.calls import same_call
from ....core.codec import dump
from ....core.messages import Message, ModelReply, ModelRequest, Provided, Text, ToolCall, Usage
from ....core.record import record, replace
from ..choice_prompt import how_to_choose, messages_in_words
from ..choice_schema import answer_name, reckons
from ..findings import as_facts
from ..offer import Offer, TurnSoFar, all_pure
from .plan import (
    Next,
    Plan,
    PlanProgress,
    Try,
    how_to_plan,
    is_half_found,
    mark,
    next_of,
    plan_schema,
    progress_of,
    read_plan,
    read_step,
    recorded_plans,
    step_schema,
)

_PLAN = "Write the plan."
_CALL = "Now write only the call of {tools} that finds{named}: {find}"
_NAMED = " the name of"  # what is looked up next is asked for by a name
_REST = "Write one step for what is still to be found, with the names that are known now, or answer."
_ANSWER = "Give the answer to the question from what is known."


def for_plan(request: ModelRequest, turn: TurnSoFar) -> tuple[Message, ...]:
    return _build_messages(request, turn, [_PLAN])


def for_step(request: ModelRequest, turn: TurnSoFar, plan: Plan, progress: PlanProgress, wanted: Next) -> tuple[Message, ...]:
    """Ask for the call of a step, with the known facts. A failed call is shown only to be corrected.

    The first request for a look-up leaves the question out, because a small model turns everything in it into conditions.
    """
    lines = [_known_facts(plan, progress)] if progress.known_tries else []
    if wanted.failed is not None:
        failed = wanted.failed
        lines.append(f"{failed.call.name} failed with {dump(failed.call.args)}: {failed.result.error}")
    names = " or ".join([tool.name for tool in wanted.tools])
    sums = {tool.name for tool in request.tools if reckons(tool)}
    step, later = plan[wanted.step], plan[wanted.step + 1 :]
    named = _NAMED if step.tool not in sums and any(one.tool not in sums for one in later) else ""
    lines.append(_CALL.format(tools=names, named=named, find=step.find))
    alone = step.tool not in sums and all(one.call.name == step.tool for one in progress.of_step(wanted.step))
    return _build_messages(request, turn, lines, question=not (alone and [tool.name for tool in wanted.tools] == [step.tool]))


def for_rest(request: ModelRequest, turn: TurnSoFar, plan: Plan, progress: PlanProgress) -> tuple[Message, ...]:
    return _build_messages(request, turn, [_known_facts(plan, progress), _REST])


def for_more(request: ModelRequest, turn: TurnSoFar, plan: Plan, progress: PlanProgress, missing: str) -> tuple[Message, ...]:
    """Ask for one more call after an answer that was not accepted. The answer is not shown, because it would be copied."""
    return _build_messages(request, turn, [_known_facts(plan, progress), missing])


def for_answer(request: ModelRequest, turn: TurnSoFar, plan: Plan, progress: PlanProgress) -> tuple[Message, ...]:
    return _build_messages(request, turn, [_known_facts(plan, progress), _ANSWER])


def _known_facts(plan: Plan, progress: PlanProgress) -> str:
    """Return the findings, each once: a passage that answers two steps is not repeated."""
    facts: dict[str, str] = {}
    for one in progress.known_tries:
        planned = one.step < len(plan) and one.call.name == plan[one.step].tool  # another tool may have found something else
        label = plan[one.step].find if planned else f"{one.call.name} found"
        facts.setdefault(as_facts(one.result), label)
    return "Known so far:\n" + "\n".join([f"- {label}: {fact}" for fact, label in facts.items()])


def _build_messages(request: ModelRequest, turn: TurnSoFar, lines: list[str], *, question: bool = True) -> tuple[Message, ...]:
    """Return the conversation up to the question, with these lines after it.

    The beginning is always the same and stays cached.
    """
    how = [how_to_choose(request), how_to_plan(turn.question)]
    out = messages_in_words(replace(request, messages=request.messages[: turn.since]), turn, how)
    asked = (Text("Question: "), *out[-1].parts, Text("\n\n")) if question else ()
    out[-1] = replace(out[-1], parts=(*asked, Text("\n\n".join(lines))))
    return tuple(out)


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
    """Return the model's reply in this form, and its usage. The text of the reply is not streamed."""

    async def hide(text: str, kind: str = "text", call_id: str = "") -> None:
        if kind != "text":
            await emit(text, kind)

    said: ModelReply = await ask(replace(request, messages=messages, tools=(), schema=schema), hide)
    return said.message.text, said.usage
