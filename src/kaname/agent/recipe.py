"""Make an agent's recipe of what it was given, and describe it for the record of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from ..core.codec import digest
from ..core.errors import ConfigError, InvalidState
from ..core.notices import notice
from ..core.record import replace
from ..core.state import State
from ..core.tracing import within
from ..kernel.bases import ActionBase, ContextBase, SinkBase, StrategyBase, optional
from ..kernel.chain import join_policies
from ..kernel.ports import ContextPart, Model, Policy, Recipe, Strategy
from ..kernel.scope import Scope
from ..models.registry import resolve
from ..policies.budget.meter import Meter
from ..policies.retry import Retry
from ..policies.timeout import Deadline, Timeout
from ..strategies.output import Output
from ..strategies.react import React
from ..strategies.stop import with_defaults
from ..strategies.termination import DuplicateDetectionPolicy, check_termination
from ..tools.registry import ToolRegistry
from .input import as_mapping


def recipe_of(
    name: str,
    model: Model | None,
    tools: ToolRegistry,
    strategy: Strategy | None,
    output: Output | None,
    policies: Sequence[Policy],
    stops: Any,
    instructions: str,
    context: Sequence[ContextPart],
    settings: Mapping[str, Any],
) -> Recipe:
    """Build a Recipe and add the defaults: stop rules, Deadline, Retry, Timeout, Meter."""
    strategy = _with_output(strategy, output)
    rules = with_defaults(stops, without=judged_by(strategy))
    around = join_policies(
        (), (*_default("outermost", Deadline()), *policies, *_default("innermost", Retry(), Timeout(), Meter()))
    )
    return Recipe(name, strategy, model, tools, around, rules, instructions, tuple(context), dict(settings))


def changed_recipe(
    recipe: Recipe, model: Model | str | None, settings: Mapping[str, Any] | None, instructions: str | None = None
) -> Recipe:
    """Return the recipe with what a single run changes of it."""
    changes: dict[str, Any] = {} if model is None else {"model": resolve(model)}
    changes |= {} if instructions is None else {"instructions": instructions}
    if settings:
        changes["settings"] = {**recipe.settings, **as_mapping("settings", settings, "{'temperature': 0}")}
    return recipe.with_changes(**changes) if changes else recipe


def _default(place: Literal["outermost", "innermost"], *policies: Policy) -> tuple[Policy, ...]:
    for policy in policies:
        policy.default_place = place
    return policies


def check_parts(
    instructions: Any, policies: Sequence[Any], sinks: Sequence[Any], strategy: Any, context: Sequence[Any]
) -> None:
    if not isinstance(instructions, str):
        raise ConfigError(
            notice("agent.instructions", "instructions must be a string, not {instructions!r}", instructions=instructions)
        )
    for policy in policies:
        if not isinstance(policy, Policy):
            raise ConfigError(
                notice("agent.no_policy", "{policy!r} is not a policy: derive its class from kaname.Policy", policy=policy)
            )
    for sink in sinks:
        if not callable(sink):
            raise ConfigError(notice("agent.no_sink", "{sink!r} is not a sink: pass a function that takes an event", sink=sink))
    if strategy is not None and not hasattr(strategy, "next"):
        raise ConfigError(
            notice("agent.no_strategy", "{strategy!r} is not a strategy: it has no method next(state)", strategy=strategy)
        )
    if isinstance(strategy, React):
        check_termination(strategy.termination)
    for part in context:
        if not callable(part):
            raise ConfigError(
                notice("agent.no_context", "{part!r} is not a context part: pass an async function (messages, view)", part=part)
            )
    if len([part for part in context if optional(part, ContextBase, "order") < 0]) > 1:
        names = [type(part).__name__ for part in context]
        raise ConfigError(
            notice(
                "context.two_cuts",
                "use only one context part that shortens the conversation (Window or Compact), not {context}",
                context=names,
            )
        )


def tools_of_context(context: Sequence[Any]) -> list[Any]:
    """The tools that parts of the context bring along, such as the one to look into what was summed up."""
    return [tool for part in context for tool in optional(part, ContextBase, "tools")]


def judged_by(strategy: Strategy) -> frozenset[str]:
    """The kinds of limit that the strategy's own termination policy keeps: the defaults must not be tighter."""
    own = isinstance(strategy, React) and isinstance(strategy.termination, DuplicateDetectionPolicy)
    return frozenset({"duplicate", "tool_limit"}) if own else frozenset()


def _with_output(strategy: Strategy | None, output: Output | None) -> Strategy:
    if strategy is None:
        return React(output)
    wants = output is not None and isinstance(strategy, React) and strategy.output is None
    return replace(strategy, output=output) if wants else strategy


def describe(recipe: Recipe) -> Mapping[str, Any]:
    """Return a description of the agent for the first fact of its runs, so that a replay can say what has changed since."""
    tools = {tool.name: digest([tool.description, tool.parameters]) for tool in recipe.tools.values()}
    model = "" if recipe.model is None else getattr(recipe.model, "name", type(recipe.model).__name__)
    described: dict[str, Any] = {
        "instructions": recipe.instructions,
        "model": model,
        "tools": tools,
        "settings": digest(recipe.settings),
        "strategy": strategy_kind(recipe.strategy),
    }
    if isinstance(recipe.tools, ToolRegistry) and recipe.tools.exchanged:
        served = {name: [*optional(recipe.tools[name], ActionBase, "served_by")] for name in sorted(recipe.tools.exchanged)}
        described["served"] = served  # a replay does without the servers
    graph = optional(recipe.strategy, StrategyBase, "drawn")
    return described if graph is None else {**described, "graph": graph}


def strategy_kind(strategy: Strategy) -> str:
    """Return what tells strategies apart in a record: their `kind`, or the name of their class."""
    return str(optional(strategy, StrategyBase, "kind"))


def check_strategy(run_id: str, state: State, recipe: Recipe) -> None:
    """Refuse to continue a run with another strategy: it would read the facts as something that they are not.

    A plan that a plain agent continues would end with the plan as its answer, and nothing done.
    """
    kind = strategy_kind(recipe.strategy)
    if state.strategy and state.strategy != kind:
        told = notice(
            "run.other_strategy",
            "run {run_id} was started with the strategy {then!r}, but this agent uses {now!r}. Resume a plan "
            "with AgentOrchestrator or `kaname runs resume`, and a workflow with its Workflow.",
            run_id=run_id,
            then=state.strategy,
            now=kind,
        )
        raise InvalidState(told)


def traced_by(scope: Scope) -> AbstractContextManager[None]:
    """Pass the trace on to what the run calls, if a sink makes a trace."""
    traces = any(optional(sink, SinkBase, "traces") for sink in scope.sinks)
    return within(scope.run_id, scope.state.trace) if traces else nullcontext()
