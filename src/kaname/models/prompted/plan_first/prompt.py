"""Prompts for a model that follows a plan: the question, the known facts, and one step.

They never grow into a conversation.
"""

from __future__ import annotations

from ....core.codec import dump
from ....core.messages import Message, ModelRequest, Text
from ....core.record import replace
from ..choice_prompt import how_to_choose, messages_in_words
from ..choice_schema import reckons
from ..findings import as_facts
from ..offer import TurnSoFar
from .plan import Plan, how_to_plan
from .progress import Next, PlanProgress

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
