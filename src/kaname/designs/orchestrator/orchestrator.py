"""`AgentOrchestrator`: plans, carries out, evaluates and plans again, until the task is done or cancelled with a reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ...agent.agent import Agent
from ...core.errors import AgentError, ConfigError, JournalError
from ...core.record import replace
from ...kernel.bases import bound_of
from ...kernel.load import load
from ...kernel.ports import Journal, Policy, Recipe
from ...models.registry import resolve
from ...people.person import ASK, AskPerson
from ...run.child import Parent
from ...run.peers.unused import Refusing
from ...run.run import Run
from ...strategies.graph.asking import EvaluationResult as EvaluationResult
from ...strategies.orchestrate import MONITOR, PLANNER, Orchestrate
from ...strategies.stop import cost, max_steps, no_repeats, written_kinds
from ...tools.registry import ToolRegistry
from ...workflows.workflow import Workflow
from .context import AgentContext, ExecutionResult, context_of
from .own_parts import EvaluateResult, GeneratePlan, StepLimits, is_own_monitor, is_own_planner, saver_of
from .parts import ExecutionMonitor, TaskPlanner, as_expected, check_settings, require_model, settings_of, strategy_of

if TYPE_CHECKING:
    from ...tools.mcp.config import Servers

_STEPS = "AgentOrchestrator(tools=[…]) for what a step does, AgentOrchestrator(policies=[…]) around each step"
COST = "$10"  # what a task can spend, unless `stops` says otherwise


class AgentOrchestrator(Refusing):
    """Plans a task, carries the plan out, evaluates what came of it, and plans again with the feedback.

    It always ends: after `planner.max_revisions` revisions (3 by default), after 30 minutes of work, or when $10 are spent.

    Args:
        planner: A `TaskPlanner`, or an object of your own with `generate_plan(context)`.
        monitor: An `ExecutionMonitor`, or an object of your own with `evaluate_result(result, context)`.
        state_manager: Where runs are recorded: a journal, a path, or a `StateManager`; or an object of your own, whose
            `save(context)` is called whenever the context changes.
        tools: What plans can use, in addition to the planner's own.
        mcp_servers: Tool servers by name, in the usual form. They start with the first run or `async with`, and end with
            `close`.
        stops: Limits in the place of the defaults: `deadline("5m") | cost("$1")`.
        name, policies, sinks: As for an `Agent`. Policies hold for every step.
    """

    _unused: ClassVar[
        Mapping[str, str]
    ] = {  # what the document's loop calls in its own class, and where kaname has the place for it
        "execute_plan": _STEPS,
        "_execute_plan": _STEPS,
        "execute_step": _STEPS,
        "generate_plan": "AgentOrchestrator(planner)",
        "evaluate_result": "AgentOrchestrator(planner, monitor)",
    }

    def __init__(
        self,
        planner: Any,
        monitor: Any = None,
        state_manager: Any = None,
        *,
        tools: Iterable[Any] = (),
        mcp_servers: Servers | None = None,
        name: str = "orchestrator",
        policies: Iterable[Policy] = (),
        stops: Any = None,
        sinks: Iterable[Any] = (),
    ) -> None:
        self.planner, self.monitor = planner, ExecutionMonitor() if monitor is None else monitor
        self.state_manager = state_manager
        self._own = (is_own_planner(planner), is_own_monitor(self.monitor))
        self._settings = settings_of(planner, TaskPlanner)
        check_settings(self._settings)
        self._policies, self._stops, self._sinks = tuple(policies), stops, tuple(sinks)
        asked = [GeneratePlan(PLANNER, planner)] if self._own[0] else []
        asked += [EvaluateResult(MONITOR, self.monitor)] if self._own[1] else []  # type: ignore[list-item]
        self.agent: Agent[Any] = Agent(
            self._settings.model,
            [*self._settings.tools, *tools, AskPerson(ASK), *asked],
            name=name,
            policies=(*self._policies, StepLimits()),
            stops=[max_steps(None), no_repeats(None), *_add_cost_limit(stops)],
            journal=_journal_of(state_manager),
            sinks=(*self._sinks, *saver_of(state_manager, lambda: self.strategy)),
            mcp_servers=mcp_servers,
        )
        self._use(self.agent.tools)

    def _use(self, tools: ToolRegistry) -> None:
        """Plan with the tools of this registry, also those that are registered later."""
        own_planner, own_monitor = self._own
        monitor = settings_of(self.monitor, ExecutionMonitor)
        judges = not own_monitor and monitor.judge and self._settings.model is not None
        self.strategy: Orchestrate = strategy_of(
            self._settings,
            tools,
            lambda: self.agent.recipe.model,
            judges=judges,
            rules=() if own_monitor else (as_expected, *monitor.rules),
            limits=self._limits,
            planner=PLANNER if own_planner else "",
            monitor=MONITOR if own_monitor else "",
        )
        self.tools = self.agent.tools = tools
        self.agent.recipe = self.agent.recipe.with_changes(tools=tools, strategy=self.strategy)

    @classmethod
    def around(
        cls, agent: Agent[Any], planner: Any = None, *, approve: bool = False, max_revisions: int = 3
    ) -> AgentOrchestrator:
        """With an agent's model, tools, tool servers, policies, limits and journal. Its model plans, or the planner."""
        if planner is None:
            planner = TaskPlanner(agent.recipe.model, approve=approve, max_revisions=max_revisions)
        own = [one for one in agent.recipe.policies if not one.about.is_default]
        written = [rule for rule in agent.recipe.stops if not bound_of(rule).is_default]
        made = cls(planner, None, agent.journal, name=agent.name, policies=own, stops=written, sinks=agent.sinks)
        for name in [one for one in made.tools if one not in agent.tools]:
            agent.tools.register(made.tools[name])
        if made._settings.model is None:
            made._settings = replace(made._settings, model=agent.recipe.model)
        made._use(agent.tools)
        made.agent.origin, made.agent.servers = agent.origin, agent.servers
        return made

    def _limits(self) -> dict[str, float]:
        bounds = [bound for bound in map(bound_of, self.agent.recipe.stops) if bound.kind in ("deadline", "budget")]
        return {bound.kind: bound.most for bound in bounds if bound.most is not None}

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def recipe(self) -> Recipe:
        return self.agent.recipe

    def altered(self, **changes: Any) -> AgentOrchestrator:
        """Return one that differs only in its planner's settings: `approve`, `max_revisions`, `model`, …"""
        made = AgentOrchestrator(
            self.planner,
            self.monitor,
            self.state_manager,
            name=self.name,
            policies=self._policies,
            stops=self._stops,
            sinks=self._sinks,
        )
        made._settings = settings_of(replace(self._settings, **changes), TaskPlanner)
        check_settings(made._settings)
        made._use(self.tools)
        now, was, model = made.agent, self.agent, made._settings.model
        now.origin, now.servers, now.journal = was.origin, was.servers, was.journal
        kept = {"stops": was.recipe.stops, "context": was.recipe.context}
        now.recipe = now.recipe.with_changes(**kept, model=None if model is None else resolve(model))
        return made

    def run_on(
        self, journal: Journal, recipe: Recipe, run_id: str, given: Any, answers: Mapping[str, Any], parent: Parent
    ) -> Run[Any]:
        """Plan and run a task inside a tool call: what `ToolContext.run_child` does."""
        return self.agent.run_on(journal, recipe, run_id, given, answers, parent)

    def run(self, user_input: str, **options: Any) -> Run[Any]:
        """`await` the result, or `async for` the chunks."""
        if not self._own[0]:
            require_model(self._settings.model)
        return self.agent.run(user_input, **options)

    def resume(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> Run[Any]:
        return self.agent.resume(run_id, answers, **options)

    async def stop(self, run_id: str, reason: str = "") -> bool:
        """Stop a run, wherever it is executed, also one that waits for an answer. Return False if it was over already."""
        return await self.agent.stop(run_id, reason)

    async def execute_task(self, user_input: str, **options: Any) -> ExecutionResult:
        """Do it to its end: completed, or cancelled with a reason; or waiting, if a person has to be asked first."""
        return await self._await_result(self.run(user_input, **options))

    async def resume_task(self, run_id: str, answers: Mapping[str, Any] | None = None, **options: Any) -> ExecutionResult:
        """Go on with one that waited, or whose process died."""
        return await self._await_result(self.resume(run_id, answers, **options))

    async def close(self) -> None:
        """Close the tool servers and the model's connections."""
        await self.agent.close()

    async def __aenter__(self) -> Self:
        await self.agent.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.agent.__aexit__(*raised)

    async def _await_result(self, run: Run[Any]) -> ExecutionResult:
        try:
            state = (await run).state
        except AgentError as problem:  # a model that fails ends the run with that reason, and what there is by then is kept
            if isinstance(problem, JournalError) or problem.run_id != run.run_id:  # it did not begin: it is busy, or another's
                raise
            state = await load(self.agent.journal, run.run_id)
        return context_of(state, run.run_id, *self.strategy.course(state)).to_result()

    async def context(self, run_id: str) -> AgentContext:
        """How far a task is, here or in another process."""
        state = await load(self.agent.journal, run_id)
        return context_of(state, run_id, *self.strategy.course(state))


def _add_cost_limit(stops: Any) -> list[Any]:
    """Return the limits given, with one on money if there is none. Where the price is unknown that one does not end the run."""
    given = [] if stops is None else [stops]
    return given if "budget" in written_kinds(stops) else [cost(COST, unpriced=True), *given]


def _journal_of(manager: Any) -> Journal | str | Path | None:
    """Return the journal that a state manager means. An object that cannot be called at all is told."""
    if manager is None or isinstance(manager, str | Path) or hasattr(manager, "append"):
        return manager  # type: ignore[no-any-return]
    if type(manager).__module__ == "builtins":
        raise ConfigError.of(
            "plan.no_state_manager",
            "state_manager must be a journal, a path, or an object with save(context), not {manager!r:.100}",
            manager=manager,
        )
    if not callable(getattr(manager, "save", None)):
        name = type(manager).__name__
        warnings.warn(f"{name} has no method save(context), so nothing is called; runs are kept in the journal", stacklevel=3)
    return getattr(manager, "journal", None)


def agent_behind(made: object) -> Agent[Any] | None:
    """Return the agent that runs it: an agent itself, the one of a workflow or an orchestrator; None for anything else."""
    if isinstance(made, Workflow | AgentOrchestrator):
        return made.agent
    return made if isinstance(made, Agent) else None
