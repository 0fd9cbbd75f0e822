"""`AgentOrchestrator`: plans, carries out, evaluates and plans again, until the task is done or cancelled with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ...core.errors import AgentError, ConfigError
from ...core.messages import ToolSpec
from ...core.notices import notice
from ...core.record import field, record, replace
from ...core.state import State
from ...core.steps import Step, Stop
from ...kernel.load import load
from ...kernel.ports import Action, Journal, Policy, Recipe
from ...models.prompted.choice_schema import choice_schema
from ...strategies.graph.asking import EvaluationResult, Form, simple_form
from ...strategies.graph.plan import ExecutionPlan
from ...strategies.orchestrate import Attempt, Judge, Orchestrate, Phase, partial_output, phase_of
from ...strategies.stop import Rule, max_steps, no_repeats
from ...tools.arguments.schema import problems as unfit
from ...tools.registry import ToolRegistry
from ..actions import ASK, AskPerson
from ..agent import Agent
from ..child import Parent
from ..run import Run
from ..workflow.misuse import misuse
from ..workflow.workflow import Workflow

_REFERENCE = {"type": "string", "pattern": r"^\$\{step[0-9]{1,2}\}$"}


@record
class ExecutionResult:
    """What came of the steps of one plan, by their names: `status`, `output`, `error`; of a whole task, what came of it in the
    end, why it was cancelled, and its `context`."""

    plan: ExecutionPlan | None
    steps: Mapping[str, Mapping[str, Any]]
    problem: str = ""
    output: Any = None
    is_successful: bool = False
    reason: str = ""
    context: AgentContext | None = None


@record
class AgentContext:
    """How far a task is, by the facts: nothing is kept anywhere else, so a killed process goes on where it was."""

    user_input: str
    current_plan: ExecutionPlan | None = None
    execution_history: tuple[ExecutionResult, ...] = ()
    feedback_history: tuple[str, ...] = ()
    is_completed: bool = False
    is_cancelled: bool = False
    cancellation_reason: str = ""
    output: Any = None
    run_id: str = ""
    usage: Any = None
    progress: float = 0.0  # of the current plan: 0 to 1
    phase: Phase = "planning"
    questions: Mapping[str, str] = field(factory=dict)  # what it waits for, by the key to answer with


@record
class TaskPlanner:
    """Who plans: a model, and how it is told to. `approve`: a person sees every plan before it is carried out.

    `form`: "full", or "simple" for small models: calls in their order, without names; by itself, what suits the model.
    `instructions`: your own words, with `{tools}` where their list stands.
    """

    model: Any
    tools: Iterable[Any] = ()
    instructions: str = ""
    max_revisions: int = 3
    approve: bool = False
    form: Literal["full", "simple"] | None = None

    async def generate_plan(self, context: AgentContext) -> ExecutionPlan:
        """A plan that fits the tools, for what the context asks; nothing is carried out."""
        made = AgentOrchestrator(replace(self, approve=False), ExecutionMonitor(judge=False), "memory")
        made.strategy = replace(made.strategy, only_plan=True)
        told = "\n".join([context.user_input, *context.feedback_history])
        plan = (await made.context((await made.run(told)).run_id)).current_plan
        if plan is None:
            raise ConfigError(notice("plan.none", "the model wrote no plan that can be carried out"))
        return plan


@record
class ExecutionMonitor:
    """Who evaluates: rules first (what failed, and those given here), then the model, if `judge`."""

    rules: tuple[Judge, ...] = ()
    judge: bool = True

    def evaluate_result(self, result: ExecutionResult, context: AgentContext) -> EvaluationResult | None:
        """What the rules say; `None` if it is for the model to say."""
        failed = [f"{name}: {one['error']}" for name, one in result.steps.items() if one["status"] == "failed"]
        if result.problem or failed:
            return EvaluationResult(False, True, result.problem or "; ".join(failed))
        said = [rule(result.plan, result.steps) for rule in (as_expected, *self.rules) if result.plan is not None]
        return next((one for one in said if one is not None), None if self.judge else EvaluationResult(True))


def as_expected(plan: ExecutionPlan, steps: Mapping[str, Mapping[str, Any]]) -> EvaluationResult | None:
    """The first rule: what a step gave has the form that the plan expects."""
    wrong = [
        text
        for step in plan.steps
        if isinstance(step.expected_outcome, Mapping) and steps[step.name]["status"] == "done"
        for text in unfit(steps[step.name]["output"], step.expected_outcome, step.name)
    ]
    return EvaluationResult(False, True, "not as expected: " + "; ".join(wrong)) if wrong else None


class AgentOrchestrator:
    """`state_manager`: where runs are recorded, a journal or a path. The rest is as for an `Agent`."""

    def __init__(
        self,
        planner: TaskPlanner,
        monitor: ExecutionMonitor | None = None,
        state_manager: Journal | str | Path | None = None,
        *,
        name: str = "orchestrator",
        policies: Iterable[Policy] = (),
        stops: Any = None,
        sinks: Iterable[Any] = (),
    ) -> None:
        if planner.max_revisions < 0:
            raise ConfigError(
                notice(
                    "plan.max_revisions",
                    "max_revisions is a whole number from 0, not {max_revisions}",
                    max_revisions=planner.max_revisions,
                )
            )
        if planner.form not in (None, "full", "simple"):
            raise ConfigError(notice("plan.form", "form is 'full' or 'simple', not {form!r}", form=planner.form))
        self.planner, self.monitor, self._name = planner, monitor or ExecutionMonitor(), name
        self._journal, self._policies, self._stops, self._sinks = state_manager, tuple(policies), stops, tuple(sinks)
        self.tools = ToolRegistry([*planner.tools, AskPerson(ASK)])

    @classmethod
    def around(cls, agent: Agent[Any], *, approve: bool = False, max_revisions: int = 3) -> AgentOrchestrator:
        """With an agent's model, tools, tool servers, policies, limits and journal."""
        planner = TaskPlanner(agent.recipe.model, approve=approve, max_revisions=max_revisions)
        own = [one for one in agent.recipe.policies if not one.default_place]
        written = [rule for rule in agent.recipe.stops if not getattr(rule, "is_default", False)]
        limits = [rule for rule in written if getattr(rule, "kind", "") in ("budget", "deadline")]
        made = cls(planner, None, agent.journal, name=agent.name, policies=own, stops=limits, sinks=agent.sinks)
        if ASK not in agent.tools:
            agent.tools.register(AskPerson(ASK))
        made.tools, made.agent.origin = agent.tools, agent.origin
        made.agent.servers = agent.servers
        return made

    @cached_property
    def strategy(self) -> Orchestrate:
        return Orchestrate(
            self.tools,
            lambda use: [text for _, text in misuse(use, self.tools)],
            ASK,
            self.planner.max_revisions,
            self.monitor.judge,
            self.planner.approve,
            (as_expected, *self.monitor.rules),
            self._form,
            self._limits,
        )

    def _limits(self) -> dict[str, float]:
        rules = [rule for rule in self.agent.recipe.stops if isinstance(rule, Rule) and rule.kind in ("deadline", "budget")]
        return {rule.kind: rule.limit for rule in rules if rule.limit is not None}

    def _form(self) -> Form:
        """A model that is held to a schema when it calls tools gets the simple form, and is held to a schema there too."""
        small = getattr(self.agent.recipe.model, "tool_mode", "") in ("constrained", "text")
        form = Form()
        if (self.planner.form or ("simple" if small else "full")) == "simple":
            form = simple_form(choice_schema(tuple([_with_references(tool) for tool in self.strategy.listed()]), ""))
        return replace(form, planning=self.planner.instructions) if self.planner.instructions else form

    @cached_property
    def agent(self) -> Agent[Any]:
        made: Agent[Any] = Agent(
            self.planner.model,
            name=self._name,
            strategy=self.strategy,
            policies=self._policies,
            stops=[max_steps(None), no_repeats(None), *([] if self._stops is None else [self._stops])],
            journal=self._journal,
            sinks=self._sinks,
        )
        made.tools = self.tools
        made.recipe = made.recipe.altered(tools=self.tools)  # one registry: a tool that is registered later is planned with
        return made

    @property
    def name(self) -> str:
        return self._name

    @property
    def recipe(self) -> Recipe:
        return self.agent.recipe

    def altered(self, **changes: Any) -> AgentOrchestrator:
        """Return one that differs only in its planner: `approve`, `max_revisions`, `model`, …"""
        planner, given = replace(self.planner, **changes), {"policies": self._policies, "stops": self._stops}
        made = AgentOrchestrator(planner, self.monitor, self.agent.journal, name=self._name, sinks=self._sinks, **given)
        made.tools = self.tools
        made.agent.origin, made.agent.servers = self.agent.origin, self.agent.servers
        made.agent.recipe = made.agent.recipe.altered(stops=self.agent.recipe.stops)
        return made

    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Any, answers: Mapping[str, Any], parent: Parent
    ) -> Run[Any]:
        """Plan and run a task inside a tool call: what `ToolContext.run_child` does."""
        return self.agent.run_on(journal, recipe, run_id, given, answers, parent)

    def run(self, user_input: str, **options: Any) -> Run[Any]:
        """`await` the result, or `async for` the chunks."""
        return self.agent.run(user_input, **options)

    def resume(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> Run[Any]:
        return self.agent.resume(run_id, answers, **options)

    async def stop(self, run_id: str, reason: str = "") -> bool:
        """Stop a run, wherever it is executed, also one that waits for an answer. Return False if it was over already."""
        return await self.agent.stop(run_id, reason)

    async def execute_task(self, user_input: str, **options: Any) -> ExecutionResult:
        """Do it to its end: completed, or cancelled with a reason; or waiting, if a person has to be asked first."""
        return await self._ended(self.run(user_input, **options))

    async def resume_task(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> ExecutionResult:
        """Go on with one that waited, or whose process died."""
        return await self._ended(self.resume(run_id, answers, **options))

    async def _ended(self, run: Run[Any]) -> ExecutionResult:
        try:
            state = (await run).state
        except AgentError:  # a model that fails ends the run with that reason, and what there is by then is kept
            state = await load(self.agent.journal, run.run_id)
        context = context_of(state, run.run_id, *self.strategy.course(state))
        last = context.execution_history[-1] if context.execution_history else ExecutionResult(None, {})
        return replace(
            last,
            output=context.output,
            is_successful=context.is_completed,
            reason=context.cancellation_reason
            or "; ".join([f"it waits for an answer: {one}" for one in context.questions.values()]),
            context=context,
        )

    async def context(self, run_id: str) -> AgentContext:
        """How far a task is, here or in another process."""
        state = await load(self.agent.journal, run_id)
        return context_of(state, run_id, *self.strategy.course(state))


def agent_behind(made: object) -> Agent[Any] | None:
    """Return the agent that runs it: an agent itself, the one of a workflow or an orchestrator; None for anything else."""
    if isinstance(made, Workflow | AgentOrchestrator):
        return made.agent
    return made if isinstance(made, Agent) else None


def _with_references(tool: Action) -> ToolSpec:
    """What another step gave may stand for any argument, not only for a text."""
    properties = tool.parameters.get("properties") or {}
    taken = {name: one if one.get("type") == "string" else {"anyOf": [one, _REFERENCE]} for name, one in properties.items()}
    return ToolSpec(tool.name, tool.description, {**tool.parameters, "properties": taken})


def context_of(state: State, run_id: str, attempts: list[Attempt], step: Step) -> AgentContext:
    history = [ExecutionResult(one.plan, one.progress.told() if one.progress else {}, one.problem) for one in attempts]
    feedback = [one.problem or (one.verdict.feedback if one.verdict else "") for one in attempts]
    plans = [one for one in attempts if one.progress is not None]
    stop = state.stop or Stop("running")
    given = [message.text for message in state.turn if message.role == "user"]
    done = plans[-1].progress if plans else None
    return AgentContext(
        given[0] if given else "",
        plans[-1].plan if plans else None,
        tuple(history),
        tuple([one for one in feedback if one]),
        stop.kind == "completed",
        stop.kind not in ("completed", "running"),
        stop.detail if stop.kind not in ("completed", "running") else "",
        state.output if state.output is not None else partial_output(attempts),
        run_id,
        state.usage,
        0.0 if done is None else done.settled / max(1, len(done.nodes)),
        phase_of(attempts, step, state),
        {key: asked.prompt for key, asked in state.questions.items()},
    )
