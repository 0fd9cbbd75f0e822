"""What a model is asked while it follows a plan: the question, what is known, and one step. Never a growing conversation."""

from __future__ import annotations

from ....core.codec import dump
from ....core.messages import Message, ModelRequest, Text
from ....core.record import replace
from ..choice_prompt import how_to_choose, in_words
from ..choice_schema import reckons
from ..findings import as_facts
from ..offer import Turn
from .plan import Plan, how_to_plan
from .progress import Next, Progress

_PLAN = "Write the plan."
_CALL = "Now write only the call of {tools} that finds{named}: {find}"
_NAMED = " the name of"  # what is looked up next is asked for by a name
_REST = "Write one step for what is still to be found, with the names that are known now, or answer."
_ANSWER = "Give the answer to the question from what is known."


def for_plan(request: ModelRequest, turn: Turn) -> tuple[Message, ...]:
    return _asked(request, turn, [_PLAN])


def for_step(request: ModelRequest, turn: Turn, plan: Plan, progress: Progress, wanted: Next) -> tuple[Message, ...]:
    """The step with what is known, and the question where the step needs it. A failed call is shown only to be corrected.

    A look-up is first asked for without the question: a small model makes conditions of all that stands there.
    """
    lines = [_known(plan, progress)] if progress.known else []
    if wanted.failed is not None:
        failed = wanted.failed
        lines.append(f"{failed.call.name} failed with {dump(failed.call.args)}: {failed.result.error}")
    names = " or ".join([tool.name for tool in wanted.tools])
    sums = {tool.name for tool in request.tools if reckons(tool)}
    step, later = plan[wanted.step], plan[wanted.step + 1 :]
    named = _NAMED if step.tool not in sums and any(one.tool not in sums for one in later) else ""
    lines.append(_CALL.format(tools=names, named=named, find=step.find))
    alone = step.tool not in sums and all(one.call.name == step.tool for one in progress.of_step(wanted.step))
    return _asked(request, turn, lines, question=not (alone and [tool.name for tool in wanted.tools] == [step.tool]))


def for_rest(request: ModelRequest, turn: Turn, plan: Plan, progress: Progress) -> tuple[Message, ...]:
    return _asked(request, turn, [_known(plan, progress), _REST])


def for_more(request: ModelRequest, turn: Turn, plan: Plan, progress: Progress, missing: str) -> tuple[Message, ...]:
    """Ask for one more call after an answer that was not taken. The answer is not shown: it would be copied."""
    return _asked(request, turn, [_known(plan, progress), missing])


def for_answer(request: ModelRequest, turn: Turn, plan: Plan, progress: Progress) -> tuple[Message, ...]:
    return _asked(request, turn, [_known(plan, progress), _ANSWER])


def _known(plan: Plan, progress: Progress) -> str:
    """What was found, each once: a passage that answers two steps is not shown twice."""
    facts: dict[str, str] = {}
    for one in progress.known:
        planned = one.step < len(plan) and one.call.name == plan[one.step].tool  # another tool may have found something else
        label = plan[one.step].find if planned else f"{one.call.name} found"
        facts.setdefault(as_facts(one.result), label)
    return "Known so far:\n" + "\n".join([f"- {label}: {fact}" for fact, label in facts.items()])


def _asked(request: ModelRequest, turn: Turn, lines: list[str], *, question: bool = True) -> tuple[Message, ...]:
    """The conversation up to the question, and these lines after it. The beginning is the same for all, and stays cached."""
    how = [how_to_choose(request), how_to_plan(turn.question)]
    out = in_words(replace(request, messages=request.messages[: turn.since]), turn, how)
    asked = (Text("Question: "), *out[-1].parts, Text("\n\n")) if question else ()
    out[-1] = replace(out[-1], parts=(*asked, Text("\n\n".join(lines))))
    return tuple(out)
