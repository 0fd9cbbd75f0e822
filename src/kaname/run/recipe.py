"""Make an agent's recipe of what it was given, and describe it for the record of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from ..core.codec import digest
from ..core.durations import seconds
from ..core.errors import ConfigError, InvalidState
from ..core.events import Interjected, Opened, Received
from ..core.messages import hold_outside_text
from ..core.notices import notice
from ..core.people.labels import FLOW
from ..core.record import replace
from ..core.state import State
from ..core.tracing import within
from ..kernel.bases import ContextBase, SinkBase, model_info, optional, options_of, refuse_replaced, strategy_info
from ..kernel.chain import join_policies
from ..kernel.ports import ContextPart, Model, Policy, Recipe, Strategy
from ..kernel.scope import Scope
from ..models.registry import resolve, resolve_all
from ..policies.failure.retry import Retry
from ..policies.failure.timeout import Deadline, Timeout
from ..policies.money.meter import Meter
from ..strategies.output import Output
from ..strategies.react import React
from ..strategies.stop import with_defaults
from ..strategies.termination import DuplicateDetectionPolicy, check_termination
from ..tools.registry import ToolRegistry, as_action


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
    *,
    served: bool = False,
) -> Recipe:
    """Build a Recipe and add the defaults: stop rules, Deadline, Retry, Timeout, Meter, and those that suit the models and
    the tools. `served`: MCP servers will add tools."""
    check_settings(settings)
    strategy = _with_output(strategy, output)
    rules = with_defaults(stops, without=judged_by(strategy))
    written = (*policies, *[inner for policy in policies if (inner := policy.about.inner) is not None])
    defaults = _as_defaults(Deadline(), Retry(), Timeout(), Meter(), *_for_models(model, policies), *_for_tools(tools, served))
    around = join_policies((), (*written, *defaults))
    return Recipe(name, strategy, model, tools, around, rules, instructions, tuple(context), dict(settings))


def _as_defaults(*policies: Policy) -> tuple[Policy, ...]:
    for policy in policies:
        policy.about = replace(policy.about, is_default=True)
    return policies


def _for_models(model: Model | None, policies: Sequence[Policy]) -> list[Policy]:
    """Return the policies that models need: one that keeps the rate limits which their providers report, and one that watches
    their prompt caches."""
    fallback = fallback_in(policies)
    models = [] if model is None else [model] if fallback is None else fallback.all_models
    made: list[Policy] = []
    if any(model_info(one).rates is not None for one in models):
        from ..policies.pace.policy import Pace

        made.append(Pace())
    if any(model_info(one).caches_prompts for one in models):
        from ..policies.reuse.prefix import PrefixWatch

        made.append(PrefixWatch())
    if any(model_info(one).takes is not None for one in models):
        from ..senses.policy import ReadMedia, is_blind

        made += [ReadMedia()] if any(map(is_blind, models)) else []
    return made


def _for_tools(tools: ToolRegistry, served: bool) -> list[Policy]:
    """Return the policy that keeps text from outside from acting, if some tool may bring such text."""
    if not served and not _bring_text(tools):
        return []
    from ..policies.permission.flow.policy import Flow

    return [Flow()]


def _bring_text(tools: Mapping[str, Any]) -> bool:
    """Return True if some tool may return what other people have written."""
    return any(
        getattr(options.labels, "reads_others", False) or options.server[0] for options in map(options_of, tools.values())
    )


def for_run(recipe: Recipe, state: State, opening: Sequence[Any], known: dict[str, Any]) -> Recipe:
    """Return the recipe for a run: text from outside must not act, be it quoted in a message, said by another user before, or
    brought by a tool that was registered since.

    `opening`: the facts with which the run begins, if they are not in the state yet. `known`: what is known of the tools.
    """
    if "bring text" not in known:
        known["bring text"] = _bring_text(recipe.tools)
    others = bool(state.said) and any(isinstance(fact, Opened) and fact.user != state.user for fact in opening)
    if known["bring text"] or others or FLOW in state.custom:
        return with_flow(recipe)
    new = [fact.message for fact in opening if isinstance(fact, Received | Interjected)]
    said = [*state.said, *[one for one in new if one.role == "user"]]
    return with_flow(recipe) if hold_outside_text(said, (*state.messages, *new)) else recipe


def with_flow(recipe: Recipe) -> Recipe:
    """Return the recipe with the policy that keeps text from outside from acting, also if no tool brings such text."""
    if any(policy.about.flow for policy in recipe.policies):
        return recipe
    from ..policies.permission.flow.policy import Flow

    return recipe.with_changes(policies=join_policies((), (*recipe.policies, *_as_defaults(Flow()))))


def choose_models(given: Any, policies: Sequence[Policy]) -> tuple[Model | None, tuple[Policy, ...]]:
    """Return the agent's first model, and its policies with a ModelFallback for the models after it, if there are any.

    Args:
        given: A model or its name, or a list of them; a list inside the list holds equals.
        policies: The agent's policies. A ModelFallback among them adds its models to the list.
    """
    written = fallback_in(policies)
    if not isinstance(given, list | tuple) and written is None:  # nearly always
        return (None if given is None else resolve(given)), tuple(policies)
    from ..policies.failure.model_fallback import ModelFallback

    others = tuple([policy for policy in policies if policy is not written])
    if given is None:
        return None, others
    tiers = resolve_all(given)
    if written is not None and written.models:
        tiers += resolve_all(list(written.models))
    if len(tiers) == len(tiers[0]) == 1:
        return tiers[0][0], others
    return tiers[0][0], (*others, (written or ModelFallback()).around(tiers))


def with_models(recipe: Recipe, given: Any) -> Recipe:
    """Return the recipe with another model, or another list of models, in place of its own."""
    before = fallback_of(recipe)
    model, policies = choose_models(given, [policy for policy in recipe.policies if policy is not before])
    suited = _as_defaults(*_for_models(model, policies))
    return recipe.with_changes(model=model, policies=join_policies((), (*policies, *suited)))


def fallback_of(recipe: Recipe) -> Any:
    """Return the recipe's ModelFallback, or None if it has a single model."""
    return fallback_in(recipe.policies)


def fallback_in(policies: Sequence[Policy]) -> Any:
    """Return the policy that chooses between models, or None."""
    return next((policy for policy in policies if policy.about.chooses_models), None)


def all_models(recipe: Recipe) -> list[Any]:
    """Return the models that the agent may ask."""
    fallback = fallback_of(recipe)
    own = [] if recipe.model is None else [recipe.model]
    return own if fallback is None else [*own, *[one for one in fallback.all_models if one is not recipe.model]]


def changed_recipe(recipe: Recipe, model: Any, settings: Mapping[str, Any] | None, instructions: str | None = None) -> Recipe:
    """Return the recipe with what a single run changes of it."""
    recipe = recipe if model is None else with_models(recipe, model)
    changes: dict[str, Any] = {} if instructions is None else {"instructions": instructions}
    if settings:
        check_settings(settings)
        changes["settings"] = {**recipe.settings, **settings}
    return recipe.with_changes(**changes) if changes else recipe


def check_parts(
    instructions: Any, policies: Sequence[Any], sinks: Sequence[Any], strategy: Any, context: Sequence[Any]
) -> None:
    if not isinstance(instructions, str):
        raise ConfigError.of(
            "agent.instructions", "instructions must be a string, not {instructions!r}", instructions=instructions
        )
    for policy in policies:
        if not isinstance(policy, Policy):
            raise ConfigError.of(
                "agent.no_policy", "{policy!r} is not a policy: derive its class from kaname.Policy", policy=policy
            )
        refuse_replaced("policy", policy)
    for sink in sinks:
        if not callable(sink):
            raise ConfigError.of("agent.no_sink", "{sink!r} is not a sink: pass a function that takes an event", sink=sink)
        refuse_replaced("sink", sink)
    if strategy is not None and not hasattr(strategy, "next"):
        raise ConfigError.of(
            "agent.no_strategy", "{strategy!r} is not a strategy: it has no method next(state)", strategy=strategy
        )
    refuse_replaced("strategy", strategy)
    if isinstance(strategy, React):
        check_termination(strategy.termination)
    for part in context:
        if not callable(part):
            raise ConfigError.of(
                "agent.no_context", "{part!r} is not a context part: pass an async function (messages, view)", part=part
            )
    if len([part for part in context if optional(part, ContextBase, "order") < 0]) > 1:
        names = [type(part).__name__ for part in context]
        raise ConfigError.of(
            "context.two_cuts",
            "use only one context part that shortens the conversation (Window or Compact), not {context}",
            context=names,
        )


def tools_of_context(context: Sequence[Any]) -> list[Any]:
    """The tools that parts of the context bring along, such as the one to look into what was summed up.

    Of several memories, the model writes to the first."""
    made = dict[str, Any]()
    for tool in [tool for part in context for tool in optional(part, ContextBase, "tools")]:
        made.setdefault(as_action(tool).name, tool)
    return list(made.values())


def judged_by(strategy: Strategy) -> frozenset[str]:
    """The kinds of limit that the strategy's own termination policy keeps: the defaults must not be tighter."""
    own = isinstance(strategy, React) and isinstance(strategy.termination, DuplicateDetectionPolicy)
    return frozenset({"duplicate", "tool_limit"}) if own else frozenset()


def _with_output(strategy: Strategy | None, output: Output | None) -> Strategy:
    if strategy is None:
        return React(output)
    wants = output is not None and isinstance(strategy, React) and strategy.output is None
    return replace(strategy, output=output) if wants else strategy


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check the settings that kaname itself reads: `timeout` and `extra_headers`."""
    if settings.get("timeout") is not None:
        seconds(settings["timeout"])
    if not isinstance(settings.get("extra_headers") or {}, Mapping):
        given = settings["extra_headers"]
        raise ConfigError.of("agent.extra_headers", "extra_headers must be a mapping of texts, not {given!r}", given=given)


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
    if (fallback := fallback_of(recipe)) is not None and fallback.all_models[0] is recipe.model:
        described["models"] = fallback.names
    if exchanged := getattr(recipe.tools, "exchanged", ()):
        served = [recipe.tools[name] for name in sorted(exchanged)]
        known = [(one, options_of(one)) for one in served]
        told = {one.name: [*options.server, one.effect, options.labels] for one, options in known}
        described["served"] = told  # a replay does without the servers
    graph = strategy_info(recipe.strategy).graph
    return described if graph is None else {**described, "graph": graph}


def strategy_kind(strategy: Strategy) -> str:
    """Return the name of a strategy in a record: its `kind`, or the name of its class."""
    return strategy_info(strategy).kind or type(strategy).__name__


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


def other_model(state: State, recipe: Recipe) -> str:
    """Return a warning if a run is resumed with another model than it was started with."""
    now = "" if recipe.model is None else getattr(recipe.model, "name", type(recipe.model).__name__)
    if not state.model or not now or now == state.model:
        return ""
    return notice(
        "run.other_model",
        "the run was started with {then} and continues with {now}; resume(…, model=…) chooses the model",
        then=state.model,
        now=now,
    )


def pass_trace_on(scope: Scope, stack: AsyncExitStack) -> None:
    """Pass the trace on to what the run calls, until the stack ends, if a sink makes a trace."""
    if any("trace" in optional(sink, SinkBase, "wants") for sink in scope.sinks):
        stack.enter_context(within(scope.run_id, scope.state.trace))
