"""Stop rules: pure questions about the step that is proposed, put before it is taken. Join them with `|`.

    Agent(..., stops=max_steps(20) | cost("$1") | deadline("5m"))

A rule given here replaces the default of its kind; the other defaults stay. `max_steps(None)` switches one off.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, cast

from ..core.calls import call_key
from ..core.durations import dollars, is_whole, seconds
from ..core.errors import ConfigError
from ..core.messages import ToolCall
from ..core.notices import notice
from ..core.record import record, replace
from ..core.state import State
from ..core.steps import CallModel, CallTools, Step, Stop, StopKind
from ..kernel.bases import Bound, refuse_replaced
from ..kernel.ports import StopRule


@record
class Rule:
    """A limit of kaname's own.

    Args:
        bound: The kind of the stop, and the limit.
        judge: Takes the state, the proposed step and the limit. It returns the reason to stop, or None.
    """

    bound: Bound
    judge: Callable[[State, Step, float], str | None]

    def __call__(self, state: State, step: Step) -> Stop | None:
        most = self.bound.most
        why = None if most is None else self.judge(state, step, most)
        return None if why is None else Stop(cast(StopKind, self.bound.kind), why)

    def __or__(self, other: StopRule | Rules) -> Rules:
        return Rules((self,)) | other

    def __ror__(self, other: StopRule) -> Rules:
        return Rules((other,)) | self


@record
class Rules:
    """Several rules; the first that objects ends the run."""

    rules: tuple[StopRule, ...]

    def __or__(self, other: StopRule | Rules) -> Rules:
        return Rules((*self.rules, *_flat(other)))

    def __ror__(self, other: StopRule) -> Rules:
        return Rules((other,)) | self

    def __iter__(self) -> Iterator[StopRule]:
        return iter(self.rules)

    def __call__(self, state: State, step: Step) -> Stop | None:
        return next((stop for rule in self.rules if (stop := rule(state, step)) is not None), None)


def max_steps(limit: int | None) -> Rule:
    """Limit the steps of a turn: model calls, and tool calls that the strategy makes without the model.

    Args:
        limit: The maximum number of steps; None for no limit.
    """

    def judge(state: State, step: Step, limit: float) -> str | None:
        more = 1 if isinstance(step, CallModel) else 0
        if isinstance(step, CallTools):
            more = sum([call.id not in state.open and (call.id, call.name) not in state.spent.charged for call in step.calls])
        if not more or state.spent.steps + more <= limit:
            return None
        return notice("stop.max_steps", "the limit of {limit:g} steps was reached", steps=state.spent.steps, limit=limit)

    return Rule(Bound("max_steps", count(limit, "max_steps")), judge)


def no_repeats(limit: int | None = 2) -> Rule:
    """Limit the calls of one tool with the same arguments in a turn. Arguments are compared by value.

    Args:
        limit: The maximum number of equal calls (default: 2); None for no limit.
    """

    def judge(state: State, step: Step, limit: float) -> str | None:
        call = _first_over(state, step, limit, state.spent.by_call, call_key)
        if call is None:
            return None
        return notice(
            "stop.repeated", "{name} was called with the same arguments more than {limit:g} times", name=call.name, limit=limit
        )

    return Rule(Bound("duplicate", count(limit, "no_repeats")), judge)


def per_tool(limit: int | None = 5) -> Rule:
    """Limit the starts of each tool in a turn. Retries, and calls in place of another tool, count; cache hits do not.

    Args:
        limit: The maximum number of starts (default: 5); None for no limit.
    """

    def judge(state: State, step: Step, limit: float) -> str | None:
        call = _first_over(state, step, limit, state.spent.by_tool, lambda call: call.name)
        if call is None:
            return None
        return notice("stop.tool_limit", "{name} was called more than {limit:g} times", name=call.name, limit=limit)

    return Rule(Bound("tool_limit", count(limit, "per_tool")), judge)


def deadline(limit: float | str | None) -> Rule:
    """Limit the working time of a turn. Waiting for a person, and time in which no process runs it, do not count.

    The rule is checked between steps. When the time is over, the agent also interrupts a model or tool call in progress.

    Args:
        limit: Seconds, or a text such as "5m"; None for no limit.
    """

    def judge(state: State, step: Step, limit: float) -> str | None:
        if state.spent.seconds < limit:
            return None
        return notice("stop.deadline", "the time limit of {limit:g} s was reached", limit=limit)

    return Rule(Bound("deadline", None if limit is None else seconds(limit)), judge)


def cost(limit: float | str | None, *, unpriced: bool = False) -> Rule:
    """Limit the cost of a turn in US dollars.

    Replies are bounded to the length that the remaining money can pay. When little is left, the model is asked to answer with
    the work so far. Costs of tools, and of agents that run inside them, count.

    Args:
        limit: US dollars, or a text such as "$0.50"; None for no limit.
        unpriced: True to call models whose price is unknown. Only costs that the provider reports are then limited. By
            default, such a model is not called.
    """

    def judge(state: State, step: Step, limit: float) -> str | None:
        spent = state.spent.usage.ceiling
        if spent is None and unpriced:
            return None
        if spent is None:
            return notice(
                "stop.price_unknown",
                "a cost limit is set, but what a model or a tool has cost is not known. Set the price with Price(…), "
                "KANAME_PRICES or @tool(price=…), or remove the limit.",
            )
        if spent < limit or limit == 0 == spent:
            return None
        return notice("stop.cost", "the limit of ${limit:g} was reached (${spent:.4f} spent)", spent=spent, limit=limit)

    most = None if limit is None else dollars(limit)
    return Rule(Bound("budget", most, allows_unpriced=unpriced), judge)


def with_defaults(given: Any, *, without: frozenset[str] = frozenset()) -> tuple[StopRule, ...]:
    """The rules given, and the default of every kind that they (or `without`) do not mention."""
    rules, kinds = tuple(_flat(given)), written_kinds(given) | without
    usual = [rule for rule in (max_steps(10), no_repeats(2), deadline("30m")) if rule.bound.kind not in kinds]
    return (*[replace(rule, bound=replace(rule.bound, is_default=True)) for rule in usual], *rules)


def written_kinds(given: Any) -> frozenset[str]:
    """Return the kinds of limit that are among the given rules, also those that are switched off."""
    return frozenset([rule.bound.kind for rule in _flat(given) if isinstance(rule, Rule)])


def _flat(given: Any) -> Iterator[StopRule]:
    if given is None:
        return
    if isinstance(given, Rules | list | tuple):
        for rule in given:
            yield from _flat(rule)
    elif callable(given):
        refuse_replaced("stop rule", given)
        yield given
    else:
        raise ConfigError.of(
            "stop.rule",
            "a stop rule must be max_steps(…), another rule of kaname, or a function (state, step), not {given!r}",
            given=given,
        )


def _first_over(
    state: State, step: Step, limit: float, counts: Mapping[Any, int], key: Callable[[ToolCall], Hashable]
) -> ToolCall | None:
    """The first call of the step that would be one too many, those before it in the same step counted."""
    if not isinstance(step, CallTools):
        return None
    proposed: dict[Hashable, int] = {}
    for call in step.calls:
        same = key(call)
        before = proposed[same] if same in proposed else counts.get(same, 0)
        proposed[same] = before + ((call.id, call.name) not in state.spent.charged)
        if proposed[same] > limit:
            return call
    return None


def count(limit: int | None, name: str) -> int | None:
    """Return the limit. Raise `ConfigError` if it is not a number from 1 up, or None."""
    if limit is not None and not is_whole(limit, 1):
        raise ConfigError.of(
            "limit.no_count",
            "{name} must be an integer of at least 1, or None for no limit, not {limit!r}",
            name=name,
            limit=limit,
        )
    return limit
