"""Planners, monitors and state managers of the user's own: their methods are called in the run, and what they say is recorded.

A planner and a monitor are asked by a tool call of the strategy, whose result is the plan or the verdict. So a resumed process
does not ask again what was answered, and a replay decides the same. A state manager listens to the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from logging import getLogger
from typing import Any

from ...agent.agent import Agent
from ...core.errors import AgentError, ConfigError, Halt, Signal
from ...core.events import Answered, Asked, Event, ModelReplied, Opened, Stopped, ToolFinished
from ...core.messages import ToolCall, ToolResult
from ...core.notices import notice
from ...core.state import State, evolve
from ...core.steps import Stop
from ...kernel.boundary import Border, Failure, attempt
from ...kernel.chain import overrides
from ...kernel.ports import Policy, ToolContext, ToolHandler
from ...kernel.view import RunView
from ...policies.failure.timeout import run_with_timeout
from ...strategies.graph.asking import EvaluationResult, as_json
from ...strategies.graph.plan import plan_as_json
from ...strategies.orchestrate import Orchestrate
from ...tools.definition import Doing
from .context import AgentContext, context_of
from .parts import ExecutionMonitor, StateManager, TaskPlanner, await_if_async

_OF_A_PLANNER = ("generate_plan", "build_planning_prompt", "parse_plan_from_response")
_OF_A_MONITOR = ("evaluate_result", "validate_execution_result", "generate_feedback")
_CHANGES = (Opened, ModelReplied, ToolFinished, Asked, Answered, Stopped)  # facts after which the context may be another


def is_own_planner(planner: Any) -> bool:
    """Return True if `generate_plan` of this planner has to be called, and False if the built-in short way does the same."""
    if not callable(getattr(planner, "generate_plan", None)):
        raise ConfigError.of(
            "plan.no_planner", "{planner!r:.100} is not a planner: it has no method generate_plan(context)", planner=planner
        )
    if not isinstance(planner, TaskPlanner):
        return True
    return any(overrides(planner, name, TaskPlanner) for name in _OF_A_PLANNER)


def is_own_monitor(monitor: Any) -> bool:
    """Return True if `evaluate_result` of this monitor has to be called, and False if the built-in short way does the same."""
    if not callable(getattr(monitor, "evaluate_result", None)):
        raise ConfigError.of(
            "plan.no_monitor",
            "{monitor!r:.100} is not a monitor: it has no method evaluate_result(result, context)",
            monitor=monitor,
        )
    if not isinstance(monitor, ExecutionMonitor):
        return True
    return getattr(monitor, "model", None) is not None or any(
        overrides(monitor, name, ExecutionMonitor) for name in _OF_A_MONITOR
    )


class Inside:
    """What the built-in planner and monitor can call, when a subclass asks them in a run: children of that call."""

    def __init__(self, context: ToolContext) -> None:
        assert context.view is not None
        self._context, recipe, self._numbers = context, context.view.agent, count(1)
        self._policies = [one for one in recipe.policies if not one.about.is_default and not isinstance(one, StepLimits)]
        self.strategy, self.model = recipe.strategy, recipe.model

    async def ask(self, model: Any, given: Any, strategy: Any, name: str) -> Any:
        """Ask the model in a child run, and return its answer. Raises `Halt` if the child does not complete."""
        journal = self._context.journal
        agent: Agent[Any] = Agent(model, name=name, strategy=strategy, policies=self._policies, journal=journal)
        said = await self._context.run_child(agent, given, name=f"{name}{next(self._numbers)}")
        if not said.completed:
            raise Halt(said.stop)
        return said.output


class _Asks(Doing):
    """A call that asks a part of the user's own, with the context that follows from the facts so far."""

    def __init__(self, name: str, part: Any) -> None:
        super().__init__(name)
        self._part = part

    async def _ask(self, context: AgentContext, inside: ToolContext) -> Any:
        raise NotImplementedError

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        assert context.view is not None
        strategy, state = context.view.agent.strategy, context.state
        assert isinstance(strategy, Orchestrate)
        task = context_of(state, context.run_id, *strategy.course(state))
        task.inside = Inside(context)  # type: ignore[attr-defined]
        said = await attempt(self._ask, task, context, passing=(Signal,))
        if isinstance(said, Failure):  # no result is recorded: a run that is resumed asks once more
            message = notice("plan.part_failed", "{part} failed: {problem}", part=self._name, problem=str(said))
            error = said.error
            raise Halt(Stop("failed", message, type(error).__name__, error.said if isinstance(error, AgentError) else ""))
        return ToolResult(said)

    @property
    def _name(self) -> str:
        return f"{type(self._part).__name__}.{self.name.partition(':')[2]}"


class GeneratePlan(_Asks):
    """Ask a planner of the user's own for a plan."""

    async def _ask(self, context: AgentContext, inside: ToolContext) -> dict[str, Any]:
        known = len(context.feedback_history)
        made = await await_if_async(self._part.generate_plan(context))
        if context.is_completed or context.is_cancelled:
            return {"completed": context.is_completed, "reason": context.cancellation_reason}
        if made is None or isinstance(made, str | list | tuple):
            raise TypeError(f"it returned {made!r:.100}; expected an ExecutionPlan")
        added = context.feedback_history[known:]
        return {"plan": plan_as_json(made)} | ({"feedback": added} if added else {})


class EvaluateResult(_Asks):
    """Ask a monitor of the user's own for its verdict on the plan that was carried out last."""

    async def _ask(self, context: AgentContext, inside: ToolContext) -> dict[str, Any]:
        known = len(context.feedback_history)
        said = await await_if_async(self._part.evaluate_result(context.execution_history[-1], context))
        held = {name: _field(said, name) for name in EvaluationResult.__match_args__}
        if all(value is None for value in held.values()):
            raise TypeError(f"it returned {said!r:.100}; expected an EvaluationResult")
        parts = [*context.feedback_history[known:], str(held["feedback"] or "")]
        retry, done = bool(held["should_retry"]), bool(held["is_successful"])
        if context.is_completed or context.is_cancelled:  # it said so itself
            retry, done = False, not context.is_cancelled
        words = "\n".join(dict.fromkeys([one for one in parts if one]))
        reason = context.cancellation_reason or str(held["reason"] or "")
        return as_json(EvaluationResult(retry, done, words, reason, str(held["answer"] or "")))


def _field(said: Any, name: str) -> Any:
    return said.get(name) if isinstance(said, Mapping) else getattr(said, name, None)


class StepLimits(Policy):
    """Stop a step when the time is over that its plan allows it: it fails, and another plan is made."""

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        strategy = view.agent.strategy
        limit = strategy.time_of(call.id, view.state) if isinstance(strategy, Orchestrate) else None
        if limit is None:
            return await next(call)
        tool = view.tools(call).get(call.name, None)
        return await run_with_timeout(limit, next(call), "" if tool is None else tool.effect)


class Saves:
    """A sink that gives a state manager of the user's own the context, whenever a fact may have changed it."""

    def __init__(self, manager: Any, strategy: Any) -> None:
        self._manager, self._strategy = manager, strategy
        self.__qualname__ = f"{type(manager).__name__}.save"  # for the warning, if it fails
        self._states: dict[str, State] = {}

    def recall(self, facts: Sequence[Event]) -> None:
        """Take in what a run did before it was resumed here."""
        state = State()
        for fact in facts:
            evolve(state, fact)
        self._states[facts[0].run_id] = state

    async def __call__(self, event: Event) -> None:
        state = self._states.setdefault(event.run_id, State())
        evolve(state, event)
        if isinstance(event.body, _CHANGES):
            with Border() as border:
                await await_if_async(self._manager.save(context_of(state, event.run_id, *self._strategy().course(state))))
            if border.failure is not None:  # the run warns of it too, where somebody reads its chunks
                getLogger("kaname").warning("%s raised %s (run %s)", self.__qualname__, border.failure, event.run_id)
                raise border.failure.error
        if isinstance(event.body, Stopped):
            del self._states[event.run_id]


def saver_of(manager: Any, strategy: Any) -> list[Saves]:
    """Return the sink that calls `save` of a state manager; none for the built-in one, which the journal makes needless."""
    has = callable(getattr(manager, "save", None))
    return [Saves(manager, strategy)] if has and overrides(manager, "save", StateManager) else []
