"""The plan of a turn: what has to be found, step by step, and with which tool. The model writes it before its first call.

It is recorded in the reply with the first call, and every later call records its step. A resumed run therefore reads its plan
from the journal and does not ask for it again. Its progress, from the calls made for its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....core.messages import Message, ModelRequest, Provided, ToolCall, ToolResult, ToolSpec
from ....core.record import record
from ....core.values import read_json
from ..choice_schema import digits_only, reckons
from ..findings import is_nought
from ..offer import TurnSoFar, useless

_PROVIDER = "plan"
_MOST_STEPS = 3
_LONGEST = 120  # characters that say what a step finds


@record
class Step:
    """A step. `find`: what it finds, in the model's words. `tool`: the tool that the model expects to find it."""

    find: str
    tool: str


Plan = tuple[Step, ...]

HOW = """Before the first call, write the plan: the fewest steps that lead to the answer, one step for each thing to look up \
or to calculate. A step says what to find and with which tool; it can use what earlier steps found.
{example}"""
_EXAMPLES = {
    "en": """Examples, with other tools:
Question: What do 12 blue umbrellas cost in total?
{"steps":[{"find":"the price of one blue umbrella","tool":"prices"},{"find":"the price of 12","tool":"sums"}]}
Question: How many people live in the capital of the country where Ann Lee was born?
{"steps":[{"find":"the country where Ann Lee was born","tool":"people"},\
{"find":"the number of people in its capital","tool":"atlas"}]}""",
    "ja": """例(別のツールの場合):
質問: 青い傘を12本借りると、料金は全部でいくらですか。
{"steps":[{"find":"青い傘1本の料金","tool":"prices"},{"find":"12本の料金","tool":"sums"}]}
質問: 山本花子が生まれた国の首都の人口は何人ですか。
{"steps":[{"find":"山本花子が生まれた国","tool":"people"},{"find":"その国の首都の人口","tool":"atlas"}]}""",
}


def how_to_plan(question: str) -> str:
    """Return the instructions for a plan, with an example in the language of the question."""
    japanese = any("\u3040" <= char <= "\u30ff" for char in question)
    return HOW.format(example=_EXAMPLES["ja" if japanese else "en"])


def plan_schema(tools: Sequence[ToolSpec], answer: str) -> dict[str, Any]:
    """Return the schema of a plan. `answer` in place of a tool means that no look-up is needed."""
    step = {
        "type": "object",
        "properties": {
            "find": {"type": "string", "maxLength": _LONGEST},
            "tool": {"enum": [*[tool.name for tool in tools], answer]},
        },
        "required": ["find", "tool"],
        "additionalProperties": False,
    }
    steps = {"type": "array", "items": step, "minItems": 1, "maxItems": _MOST_STEPS}
    return {"type": "object", "properties": {"steps": steps}, "required": ["steps"], "additionalProperties": False}


def step_schema(planned: str, answer: str) -> dict[str, Any]:
    """Return the schema for one more step with the planned tool, or `answer` if nothing is missing."""
    properties = {"find": {"type": "string", "maxLength": _LONGEST}, "tool": {"enum": [planned, answer]}}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def read_step(text: str, plan: Plan, after: int) -> Plan:
    """Return the plan with one more step after this one; unchanged if none was written, or one that exists already."""
    try:
        value = read_json(text)
    except ValueError:
        return plan
    find, tool = (value.get("find"), value.get("tool")) if isinstance(value, Mapping) else (None, None)
    new = isinstance(find, str) and find.strip() and not any(find in step.find for step in plan)
    if not new or tool != plan[after].tool:
        return plan
    return (*plan[: after + 1], Step(str(find)[:_LONGEST], plan[after].tool), *plan[after + 1 :])


def read_plan(text: str, tools: Sequence[ToolSpec]) -> Plan:
    """Return the steps up to the first that is not a look-up; empty if the plan cannot be read.

    A plan never leads to a tool with effects. Of several calculations in a row only the last stays: one expression does it
    all.
    """
    try:
        value = read_json(text)
    except ValueError:
        return ()
    listed = value.get("steps") if isinstance(value, Mapping) else None
    steps = _pure_steps(listed if isinstance(listed, list) else [], {tool.name for tool in tools if tool.effect == "pure"})
    sums = {one.name for one in tools if reckons(one)}
    following = [*[step.tool for step in steps[1:]], ""]
    return tuple([step for step, after in zip(steps, following, strict=False) if step.tool not in sums or after != step.tool])


def _pure_steps(listed: list[Any], pure: set[str]) -> list[Step]:
    steps: list[Step] = []
    for one in listed[:_MOST_STEPS]:
        find, tool = (one.get("find"), one.get("tool")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(find, str) or tool not in pure:
            break
        if not any(find in earlier.find and tool == earlier.tool for earlier in steps):  # it is found by then
            steps.append(Step(find[:_LONGEST], str(tool)))
    return steps


def mark(step: int, plan: Plan | None = None) -> Provided:
    """Return a mark for a reply: the step of its call, and in the first reply the steps of the plan."""
    steps = {} if plan is None else {"steps": [{"find": one.find, "tool": one.tool} for one in plan]}
    return Provided(_PROVIDER, {"step": step, **steps})


def step_of(message: Message) -> int | None:
    return next((int(data["step"]) for data in _marks(message) if "step" in data), None)


def recorded_plans(request: ModelRequest, since: int) -> list[Plan]:
    """Return the plan among the messages from `since` on, and the extended plan if a step was added."""
    held = [data["steps"] for message in request.messages[since:] for data in _marks(message) if "steps" in data]
    return [tuple([Step(str(one["find"]), str(one["tool"])) for one in steps]) for steps in held]


def _marks(message: Message) -> list[Mapping[str, Any]]:
    return [part.data for part in message.parts if isinstance(part, Provided) and part.provider == _PROVIDER]


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
    """Return the tools for a step: the planned one, its failed call again, then untried look-ups, then the planned one anew."""
    own = tuple([tool for tool in pure if tool.name == planned])
    others = _other_lookups({planned, *[one.call.name for one in tries]}, pure)
    helped = any(one.helped for one in tries)
    if not own:
        return (others, None) if others and not helped else None
    if not tries:
        return own, None
    if helped:
        return None
    if _is_worth_repeating(planned, tries):
        return own, tries[-1]
    if others:
        return others, None
    return (own, None) if tries[-1].call.name != planned else None


def _other_lookups(used: set[str], pure: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """Return the look-ups that were not used. Tools that only calculate are not look-ups."""
    return tuple([tool for tool in pure if tool.name not in used and not reckons(tool)])


def _is_worth_repeating(planned: str, tries: list[Try]) -> bool:
    """Return True if the planned tool was called last and failed, and not too often."""
    latest = tries[-1]
    by_plan = sum(one.call.name == planned for one in tries)
    return latest.call.name == planned and latest.result.is_error and by_plan <= _RETRIES
