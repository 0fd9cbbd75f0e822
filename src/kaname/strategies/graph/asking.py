"""The prompts that ask a model for a plan and for a verdict: in full, or in a simple form that small models manage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.notices import notice
from ...core.record import field, record
from ...core.state import State
from ...core.steps import CallModel, Finish, Step, Stop
from ...core.values import read_json

_TEXT = {"type": "string"}
_PLAN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "description": {**_TEXT, "description": "what the plan does, in a sentence"},
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {**_TEXT, "description": "a short name of its own: letters, digits and _"},
                    "tool_name": {**_TEXT, "description": "one of the tools"},
                    "arguments": {"type": "object", "description": "its arguments; ${name} stands for what that step gave"},
                    "depends_on": {"type": "array", "items": _TEXT, "description": "steps that have to be done before"},
                    "expected_outcome": {"description": "what should come of it: words, or a JSON Schema of the result"},
                    "timeout": {"type": "number", "description": "seconds"},
                },
                "required": ["name", "tool_name", "arguments"],
            },
        },
    },
    "required": ["description", "steps"],
}
_VERDICT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "is_successful": {"type": "boolean", "description": "the task is done"},
        "should_retry": {"type": "boolean", "description": "another plan could do it"},
        "feedback": {**_TEXT, "description": "what the next plan has to do otherwise"},
        "reason": {**_TEXT, "description": "why it cannot be done, if it cannot"},
        "answer": {**_TEXT, "description": "the answer for the user, from the results"},
    },
    "required": ["is_successful", "should_retry", "feedback", "reason", "answer"],
}
_PLANNING = """You plan how a task is done with tools. Answer with the plan alone, as JSON:
{"description": "…", "steps": [{"name": "short_name", "tool_name": "…", "arguments": {…}, "depends_on": ["…"],
"expected_outcome": "…"}]}
In arguments, "${name}" is what the step of that name gave, "${name.key}" a part of it. Steps that do not wait for each
other run at the same time. Use only these tools, and no more steps than the task needs:
{tools}"""
_JUDGING = """You judge whether a task is done, by what its steps gave. Answer with JSON alone:
{"is_successful": true or false, "should_retry": true if another plan could do it, "feedback": "what to do otherwise",
"reason": "why it cannot be done", "answer": "the answer for the user, from the results alone"}"""
_SIMPLE_PLANNING = """List the tool calls that the task needs, in order, as few as possible, as JSON:
{"steps": [{"tool": "…", "args": {…}}]}
"${step1}" stands for what the first call gave, "${step2}" for the second: a later call uses it in place of a number that is
not known yet. For example, "What do 3 tickets cost?" with the tools price_list and calculator:
{"steps": [{"tool": "price_list", "args": {"item": "ticket"}}, {"tool": "calculator", "args": {"expression": "3 * ${step1}"}}]}
The tools:
{tools}"""
_SIMPLE_JUDGING = """Answer the task from what the steps gave, in one sentence, as JSON:
{"answer": "…", "is_successful": true if the results hold the answer, else false, "feedback": "what is missing, if anything"}"""
_SIMPLE_VERDICT: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": _TEXT, "is_successful": {"type": "boolean"}, "feedback": _TEXT},
    "required": ["answer", "is_successful", "feedback"],
}

_MOST_SIMPLE = 5  # steps: a small model that does not know when to end ends there


@record
class Form:
    """`planning`, `judging`: the instructions; `{tools}` in the first stands for their list. `plan`, `verdict`: the schemas.

    `again`: said after what went wrong; `done`: after what the steps gave.
    """

    planning: str = _PLANNING
    plan: Mapping[str, Any] = _PLAN
    judging: str = _JUDGING
    verdict: Mapping[str, Any] = _VERDICT
    again: str = "Write another plan. What is done need not be done again."
    done: str = "Is the task done?"


def simple_form(step: Mapping[str, Any]) -> Form:
    """`step`: the schema of one call. Steps have no names and no dependencies of their own: both follow from their order."""
    shared = {key: value for key, value in step.items() if key == "$defs"}
    item = {key: value for key, value in step.items() if key != "$defs"}
    steps = {"type": "array", "items": item, "minItems": 1, "maxItems": _MOST_SIMPLE}
    plan = {"type": "object", "properties": {"steps": steps}, "required": ["steps"], **shared}
    return Form(
        _SIMPLE_PLANNING,
        plan,
        _SIMPLE_JUDGING,
        _SIMPLE_VERDICT,
        "Write the list again, and change the call that failed.",
        "Answer the task from these results.",
    )


@record
class EvaluationResult:
    """A verdict on a plan that was carried out.

    Attributes:
        should_retry: Make another plan, with `feedback`. It comes before `is_successful`.
        is_successful: The task is done. If neither is set, the task is cancelled with `reason`.
        answer: The answer for the user; without one, what the steps gave.
    """

    should_retry: bool = False
    is_successful: bool = False
    feedback: str = ""
    reason: str = ""
    answer: str = ""


def read_verdict(text: str) -> EvaluationResult | None:
    """`None`: it cannot be read."""
    try:
        held = read_json(text)
    except ValueError:
        return None
    if not isinstance(held, Mapping) or not isinstance(held.get("is_successful"), bool):
        return None
    words = {name: str(held.get(name) or "") for name in ("feedback", "reason", "answer")}
    done = held["is_successful"]  # a model that says both means this
    return EvaluationResult(not done and held.get("should_retry", True) is True, done, **words)


def ask_for_verdict(form: Form, note: str, replies: list[str]) -> EvaluationResult | CallModel:
    """Return the model's verdict on a task, or the call that asks for it. An unreadable verdict is asked for once more."""
    for said in (note, f"{note}\nThe last answer could not be read: answer with the JSON object alone."):
        if not replies:
            return CallModel(tools=False, schema=form.verdict, note=said, instructions=form.judging, shown=False)
        if (verdict := read_verdict(replies.pop(0))) is not None:
            return verdict
    return EvaluationResult(
        should_retry=True, feedback=notice("plan.unjudged", "the evaluation did not say whether the task was done")
    )


@record
class Judging:
    """Ask the model for its verdict on a task, and nothing else: the strategy of a judge that a monitor calls."""

    form: Form = field(factory=Form)

    def next(self, state: State) -> Step:
        said = ask_for_verdict(self.form, "", [one.reply.message.text for one in state.replies])
        return said if isinstance(said, CallModel) else Finish(Stop("completed"), as_json(said))


@record
class Writing:
    """Ask the model once, and return what it writes: the strategy of a planner that asks for a plan."""

    schema: Mapping[str, Any] | None = None

    def next(self, state: State) -> Step:
        said = [one.reply.message.text for one in state.replies]
        return Finish(Stop("completed"), said[0]) if said else CallModel(tools=False, schema=self.schema, shown=False)


def as_json(verdict: EvaluationResult) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in EvaluationResult.__match_args__}
