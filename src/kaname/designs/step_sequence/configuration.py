"""Limits of a step sequence, and who runs its tools."""

from __future__ import annotations

from ...core.errors import ConfigError
from ...core.record import record, replace
from ...kernel.ports import Recipe
from ...run.recipe import judged_by
from ...strategies.react import React
from ...strategies.stop import Rule, count, max_steps, no_repeats, per_tool
from ...strategies.termination import AskedOnce, TerminationPolicy, check_termination
from .hand_out import hand_out_tools


@record
class AgentConfiguration:
    """Limits of a step sequence. With `auto_execute_tools=False` the caller runs the tools and passes results to `submit`."""

    max_steps: int = 10
    auto_execute_tools: bool = True
    max_duplicate_tool_calls: int = 2
    max_tool_calls_per_tool: int | None = 5

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_duplicate_tool_calls", "max_tool_calls_per_tool"):
            count(getattr(self, name), name)

    @property
    def limits(self) -> tuple[Rule, ...]:
        """The limits as stop rules."""
        repeats, uses = no_repeats(self.max_duplicate_tool_calls), per_tool(self.max_tool_calls_per_tool)
        return max_steps(self.max_steps), repeats, uses

    def applied_to(self, recipe: Recipe, *, kept: frozenset[str] = frozenset()) -> Recipe:
        """Return the recipe with these limits in the place of its own; those of the kinds in `kept` stay as they are."""
        own = [rule for rule in self.limits if rule.bound.kind not in kept]
        kinds = {rule.bound.kind for rule in own}
        kinds |= {rule.bound.kind for rule in recipe.stops if isinstance(rule, Rule) and rule.bound.is_default} & kept
        others = [rule for rule in recipe.stops if not (isinstance(rule, Rule) and rule.bound.kind in kinds)]
        made = recipe.with_changes(stops=(*own, *others))
        return made if self.auto_execute_tools else hand_out_tools(made)


def as_sequence(recipe: Recipe, configuration: AgentConfiguration | None, policy: TerminationPolicy | None = None) -> Recipe:
    """Return the recipe with that configuration, which replaces the agent's limits. Without one the sequence has its default
    limits, except where the agent has limits that the user wrote.

    A sequence ends at its limits: nobody has asked for a step beyond them."""
    if configuration is not None and not isinstance(configuration, AgentConfiguration):
        raise ConfigError.of(
            "sequence.configuration",
            "configuration must be an AgentConfiguration, not {configuration!r}",
            configuration=configuration,
        )
    strategy = recipe.strategy
    if policy is not None:
        if not isinstance(strategy, React):
            raise ConfigError.of(
                "sequence.policy",
                "a termination policy works only with the ReAct strategy, not with {strategy}: leave it out",
                strategy=type(strategy).__name__,
            )
        check_termination(policy)
        strategy = replace(strategy, termination=policy)
    usual = AgentConfiguration()
    kept = judged_by(strategy)  # a limit of the policy goes before a default that nobody wrote
    kept |= {rule.bound.kind for rule in recipe.stops if isinstance(rule, Rule) and not rule.bound.is_default}
    if configuration is not None:
        unwritten = {(rule.bound.kind, rule.bound.most) for rule in usual.limits}
        kept -= {rule.bound.kind for rule in configuration.limits if (rule.bound.kind, rule.bound.most) not in unwritten}
    made = (configuration or usual).applied_to(recipe, kept=kept)
    if isinstance(strategy, React):
        strategy = replace(strategy, concludes=False, termination=AskedOnce(strategy.termination))
    return made.with_changes(strategy=strategy)
