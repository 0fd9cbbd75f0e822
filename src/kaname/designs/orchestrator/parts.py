"""The orchestrator's parts: `TaskPlanner` plans, `ExecutionMonitor` evaluates, `StateManager` keeps the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, Literal, TypeVar

from ...agent.agent import Agent
from ...core.errors import ConfigError, Signal, UnexpectedError
from ...core.messages import ModelReply, ModelRequest, ToolSpec, Usage, assistant, user
from ...core.notices import notice
from ...core.record import defaults, mutable, replace
from ...kernel.bases import model_info
from ...kernel.boundary import attempt
from ...kernel.chain import overrides
from ...kernel.ports import Action, Emit, Journal
from ...models.prompted.choice_schema import choice_schema
from ...models.registry import resolve
from ...people.person import ASK, AskPerson
from ...strategies.graph.asking import EvaluationResult, Form, Judging, Writing, simple_form
from ...strategies.graph.plan import BadPlan, ExecutionPlan, plan_as_json, plan_from, read_plan
from ...strategies.orchestrate import MONITOR, PLANNER, Judge, Orchestrate, told_results
from ...tools.arguments.schema import problems as unfit
from ...tools.registry import ToolRegistry
from ...workflows.misuse import misuse
from .context import AgentContext, ExecutionResult

T = TypeVar("T")
_REFERENCE = {"type": "string", "pattern": r"^\$\{step[0-9]{1,2}\}$"}


@mutable
class TaskPlanner:
    """Plans with a model. Override `generate_plan` to plan otherwise; `await super().generate_plan(context)` asks the model.
    Or override only `build_planning_prompt` or `parse_plan_from_response`, which it calls.

    Args:
        model: A model, or its name.
        tools: The tools that a plan can use.
        instructions: Your own prompt, with `{tools}` in place of the list of tools.
        max_revisions: The maximum number of plans after the first (default: 3).
        approve: True if a person must approve every plan before it is carried out.
        form: "full", or "simple" for small models: calls in their order, without names. By default, the form that suits the
            model.
    """

    model: Any = None
    tools: Iterable[Any] = ()
    instructions: str = ""
    max_revisions: int = 3
    approve: bool = False
    form: Literal["full", "simple"] | None = None

    async def generate_plan(self, context: AgentContext) -> ExecutionPlan:
        """Return a plan that fits the tools, for what the context asks. Nothing is carried out.

        A plan that cannot be read or does not fit is sent back to the model, at most `max_revisions` times.

        Raises:
            ConfigError: The model wrote no such plan, or there is no model.
        """
        mine = settings_of(self, TaskPlanner)
        strategy, said, problem = _strategy(mine, context), "", ""
        own_form = overrides(self, "parse_plan_from_response", TaskPlanner)
        writing = Writing(None if own_form else strategy.form().plan)
        prompt = await await_if_async(self.build_planning_prompt(context))
        for number in range(mine.max_revisions + 1):
            again = [assistant(said), user(f"{problem}\n{strategy.form().again}")] if number else []
            said = await ask(context, require_model(mine.model), [user(prompt), *again], writing, "planner")
            read = await attempt(self._read, said, strategy, passing=(Signal,))
            if isinstance(read, ExecutionPlan):
                return read
            problem = str(read.error)
            if not isinstance(read.error, BadPlan):
                problem = notice(
                    "plan.unreadable", "the plan cannot be read ({problem}); write one JSON object", problem=str(read)
                )
        raise ConfigError.of("plan.none", "the model did not write a plan that can be run: {problem}", problem=problem)

    async def _read(self, text: str, strategy: Orchestrate) -> ExecutionPlan:
        plan = plan_from(plan_as_json(await await_if_async(self.parse_plan_from_response(text))))
        strategy.build_graph(plan)
        return plan

    def build_planning_prompt(self, context: AgentContext) -> str:
        """Return the whole prompt: how a plan is written, the tools, the task, and what went wrong with the plans so far.

        It can be overridden by a plain or an async method, and so can `parse_plan_from_response`.
        """
        told = _strategy(settings_of(self, TaskPlanner), context).planning_prompt()
        feedback = ["What was wrong with the plans so far:", *context.feedback_history] if context.feedback_history else []
        return "\n".join([told, f"The task: {context.user_input}", *feedback])

    def parse_plan_from_response(self, response: str) -> ExecutionPlan:
        """Return the plan that the model wrote. What is raised is sent back to the model, which writes another."""
        return read_plan(response)


class Prompted:
    """A client with `generate(prompt)`, which returns a text, as a model: the prompt is all that is sent."""

    def __init__(self, client: Any) -> None:
        self._client, self.name = client, type(client).__name__

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        said = await await_if_async(self._client.generate("\n\n".join([message.text for message in request.messages])))
        if not isinstance(said, str):
            raise UnexpectedError(f"{self.name}.generate returned {said!r:.100}; expected a text")
        return ModelReply(assistant(said), "end_turn", Usage(cost=None))


async def await_if_async(said: Any) -> Any:
    """Return the result of a user's method, and await it first if the method is async."""
    return await said if isawaitable(said) else said


def require_model(model: Any) -> Any:
    if model is None:
        raise ConfigError.of("plan.no_model", "TaskPlanner has no model: pass TaskPlanner(model, tools)")
    return model


async def ask(context: Any, model: Any, given: Any, strategy: Any, name: str) -> Any:
    """Return the answer of a model. Within a run, the model is asked in a child of the call, so that its answer is recorded and
    its cost counted."""
    if (inside := getattr(context, "inside", None)) is not None:
        return await inside.ask(model, given, strategy, name)
    result = await Agent(model, name=name, strategy=strategy, journal="memory").run(given)
    result.raise_for_stop()
    return result.output


def _strategy(settings: TaskPlanner, context: Any) -> Orchestrate:
    """Return the strategy of the run; outside of one, what would be one with the planner's tools."""
    if (inside := getattr(context, "inside", None)) is not None:
        return inside.strategy  # type: ignore[no-any-return]
    model = None if settings.model is None else resolve(settings.model)
    return strategy_of(settings, ToolRegistry([*settings.tools, AskPerson(ASK)]), lambda: model)


def settings_of(part: Any, kind: type[T]) -> T:
    """Return the settings of a planner or a monitor. Those that a user's own part does not have get their defaults."""
    given = {name: getattr(part, name, default) for name, default in defaults(kind).items()}
    model = given["model"]
    is_client = callable(getattr(model, "generate", None)) and not hasattr(model, "reply")
    return kind(**{**given, "model": Prompted(model) if is_client else model})


def check_settings(settings: TaskPlanner) -> None:
    if not isinstance(settings.max_revisions, int) or settings.max_revisions < 0:
        raise ConfigError.of(
            "plan.max_revisions",
            "max_revisions must be an integer of at least 0, not {max_revisions}",
            max_revisions=repr(settings.max_revisions),
        )
    if settings.form not in (None, "full", "simple"):
        raise ConfigError.of("plan.form", "form must be 'full' or 'simple', not {form!r}", form=settings.form)


def strategy_of(settings: TaskPlanner, tools: ToolRegistry, model: Callable[[], Any], **more: Any) -> Orchestrate:
    """Return the strategy that plans with these tools, whatever is registered later, for that model."""

    def form() -> Form:
        """A model that is held to a schema when it calls tools gets the simple form, and is held to a schema there too."""
        small = model_info(model()).tool_mode in ("constrained", "text")
        made = Form()
        if (settings.form or ("simple" if small else "full")) == "simple":
            made = simple_form(choice_schema(tuple([_with_references(tool) for tool in strategy.plan_tools()]), ""))
        return replace(made, planning=settings.instructions) if settings.instructions else made

    given = {"max_revisions": settings.max_revisions, "approve": settings.approve, "form": form, **more}
    strategy = Orchestrate(tools, _misuse, ASK, **given)
    return strategy


def _misuse(use: Any, tools: Mapping[str, Action]) -> list[str]:
    known = {name: tool for name, tool in tools.items() if name not in (PLANNER, MONITOR)}
    return [text for _, text in misuse(use, known)]


def _with_references(tool: Action) -> ToolSpec:
    """What another step gave may stand for any argument, not only for a text."""
    properties = tool.parameters.get("properties") or {}
    taken = {name: one if one.get("type") == "string" else {"anyOf": [one, _REFERENCE]} for name, one in properties.items()}
    return ToolSpec(tool.name, tool.description, {**tool.parameters, "properties": taken})


@mutable
class ExecutionMonitor:
    """Evaluates the result of a plan, first by rules and then with a model.

    The rules report failed steps, and outputs that are not as the plan expects. Override `evaluate_result` to decide
    otherwise; `await super().evaluate_result(result, context)` evaluates as described here.

    Args:
        rules: Further rules. Each takes the plan and the outcomes of its steps, and returns an `EvaluationResult`, or None.
        judge: False to evaluate without a model.
        model: The model that evaluates, or its name (default: the planner's model).
    """

    rules: tuple[Judge, ...] = ()
    judge: bool = True
    model: Any = None

    async def evaluate_result(self, result: ExecutionResult, context: AgentContext) -> EvaluationResult:
        """Return the verdict on a plan that was carried out: done, or to be tried again with feedback.

        Outside a run, a model is asked only if the monitor has a model of its own.
        """
        mine = settings_of(self, ExecutionMonitor)
        if issues := await await_if_async(self.validate_execution_result(result)):
            return EvaluationResult(should_retry=True, feedback=await await_if_async(self.generate_feedback(issues)))
        plan: Any = getattr(result, "plan", None)
        steps = getattr(result, "steps", {})
        for rule in mine.rules:
            if (said := rule(plan, steps)) is not None:
                return said
        inside = getattr(context, "inside", None)
        model = mine.model or (None if inside is None else inside.model)
        if not mine.judge or model is None:
            return EvaluationResult(is_successful=True)
        form = Form() if inside is None else inside.strategy.form()
        asked = f"{context.user_input}\n{told_results(plan, steps)}\n{form.done}"
        return EvaluationResult(**await ask(context, model, asked, Judging(form), "judge"))

    async def validate_execution_result(self, result: ExecutionResult) -> list[str]:
        """Return the problems: the reason that the plan was not carried out, failed steps, and outputs in another form.

        A result without steps, or with a `reason`, is wrong if it is not `is_successful`; else its steps decide.
        """
        plan, steps, reason = getattr(result, "plan", None), getattr(result, "steps", {}), getattr(result, "reason", "")
        issues = [problem] if (problem := getattr(result, "problem", "")) else []
        issues += [f"{name}: " + (one["error"] or "") for name, one in steps.items() if one["status"] == "failed"]
        if not issues and not result.is_successful and (reason or not steps):
            return [reason or notice("plan.unsuccessful", "the result is marked as unsuccessful, without a reason")]
        return issues or ([] if plan is None else _not_as_expected(plan, steps))

    def generate_feedback(self, issues: Iterable[str]) -> str:
        """Return the feedback for the next plan."""
        return "; ".join(issues)


def as_expected(plan: ExecutionPlan, steps: Mapping[str, Mapping[str, Any]]) -> EvaluationResult | None:
    """The first rule: what a step gave has the form that the plan expects."""
    wrong = _not_as_expected(plan, steps)
    return EvaluationResult(should_retry=True, feedback="; ".join(wrong)) if wrong else None


def _not_as_expected(plan: ExecutionPlan, steps: Mapping[str, Mapping[str, Any]]) -> list[str]:
    wrong = [
        text
        for step in plan.steps
        if isinstance(step.expected_outcome, Mapping) and steps.get(step.name, {}).get("status") == "done"
        for text in unfit(steps[step.name]["output"], step.expected_outcome, step.name)
    ]
    return ["not as expected: " + "; ".join(wrong)] if wrong else []


class StateManager:
    """Keeps the state of tasks in a journal, from which a killed process continues.

    Override `save` to receive the `AgentContext` whenever it changes, for example to show it elsewhere.

    Args:
        journal: A journal, or the path of one. By default the project's own.
    """

    def __init__(self, journal: Journal | str | Path | None = None) -> None:
        self.journal = journal

    async def save(self, context: AgentContext) -> None:
        """Do nothing, because the journal has the context already. Override it to keep the context elsewhere."""
