"""Rules for tools: which, how often, with which arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ....core.durations import is_whole
from ....core.errors import ConfigError, nearest
from ....core.messages import ToolCall
from ....core.notices import notice
from ....core.record import field, record
from ....core.values import plain_text
from ....kernel.boundary import Border
from ....kernel.threads import runs_on_loop
from .patterns import Pattern

if TYPE_CHECKING:
    from ....kernel.view import RunView

Wanted = str | Callable[[Any], bool]


@record
class ToolRule:
    """A rule for one tool.

    Args:
        tool: The name of the tool, or "*" for all tools without a rule of their own.
        allowed: False to refuse all calls of the tool.
        max_calls: The maximum number of starts in a turn. Each retry, and each call in place of another tool, counts.
        arguments: For each argument, a pattern that must match the whole value, or a function that returns True for an allowed
            value.
    """

    tool: str
    allowed: bool = True
    max_calls: int | None = None
    arguments: Mapping[str, Wanted] = field(factory=dict)


def refusal(call: ToolCall, rules: Iterable[ToolRule], view: RunView) -> str:
    """Why this call may not be made, as the model reads it; nothing if it may."""
    named = {rule.tool: rule for rule in rules}
    rule = named.get(call.name) or named.get("*")
    if rule is None:
        return ""
    if not rule.allowed:
        return notice("rule.not_allowed", "{name} is not allowed here", name=call.name)
    if rule.max_calls is not None and not view.may_start(call, rule.max_calls):
        return notice(
            "rule.max_calls",
            "the limit of calls to {name} is reached ({max_calls}); continue without it",
            name=call.name,
            max_calls=rule.max_calls,
        )
    for name, value in _values(call, rule, view).items():
        if not fits(value, rule.arguments[name]):
            wanted = rule.arguments[name]
            told = f" ({wanted})" if isinstance(wanted, str) else ""
            return notice(
                "rule.argument_refused",
                "{name} cannot be called with this {name2}{told}",
                name=call.name,
                name2=name,
                told=told,
            )
    return ""


def _values(call: ToolCall, rule: ToolRule, view: RunView) -> dict[str, Any]:
    """What the tool would get for the arguments that the rule names, however they were sent, defaults among them."""
    args = call.args if isinstance(call.args, Mapping) else {}
    return {name: args[name] for name in rule.arguments if name in args}


def fits(value: Any, wanted: Wanted) -> bool:
    """A function that fails does not allow it, nor does one that would have to be waited for."""
    if callable(wanted):
        with Border():
            said = wanted(value)
            if isawaitable(said):
                getattr(said, "close", bool)()
                return False
            return bool(said)
        return False
    return _whole(wanted).search(_as_text(value)) is not None


def _as_text(value: Any) -> str:
    """A value as it would be written: what a tool gets need not be JSON."""
    value = getattr(value, "value", value) if isinstance(value, Enum) else value
    try:
        return plain_text(value)
    except (TypeError, ValueError):
        return str(value)


@cache
def _whole(wanted: str) -> Pattern:
    return Pattern(wanted, whole=True)


def check_rules(rules: Iterable[Any]) -> tuple[ToolRule, ...]:
    """Check that these are rules with usable patterns. Raises `ConfigError`."""
    made = tuple(rules)
    for rule in made:
        if not isinstance(rule, ToolRule):
            raise ConfigError.of("rule.kind", "tools must be a list of ToolRule(…), not {rule!r}", rule=rule)
        most = rule.max_calls
        if most is not None and not is_whole(most, 0):
            raise ConfigError.of(
                "rule.calls_kind",
                "ToolRule({tool!r}): max_calls must be an integer of at least 0, not {most!r}",
                tool=rule.tool,
                most=most,
            )
        if not isinstance(rule.arguments, Mapping):
            raise ConfigError.of(
                "rule.arguments_kind",
                "ToolRule({tool!r}): arguments must be a mapping of names to patterns, not {arguments!r}",
                tool=rule.tool,
                arguments=rule.arguments,
            )
        for name, wanted in rule.arguments.items():
            _check_argument(f"{rule.tool}.{name}", wanted)
    twice = [name for name, count in Counter([rule.tool for rule in made]).items() if count > 1]
    if twice:
        raise ConfigError.of("rule.twice", "there are two rules for {tool!r}: combine them into one", tool=twice[0])
    return made


def _check_argument(where: str, wanted: Any) -> None:
    if callable(wanted) and runs_on_loop(wanted):
        raise ConfigError.of("rule.async_", "{where}: the function of a rule must not be async", where=where)
    if isinstance(wanted, str):
        _whole(wanted)
    elif not callable(wanted):
        raise ConfigError.of(
            "rule.argument_kind", "{where} must be a pattern or a function, not {wanted!r}", where=where, wanted=wanted
        )


def check_names(rules: Iterable[ToolRule], tools: Mapping[str, Any]) -> None:
    """A rule about an argument that the tool does not have guards nothing."""
    for rule in rules:
        tool = tools.get(rule.tool, None) if rule.tool != "*" else None
        known = (tool.parameters.get("properties") or {}) if tool is not None else None
        for name in rule.arguments:
            if known and name not in known:
                missing = notice("rule.no_argument", "{tool} has no argument {name!r}", tool=rule.tool, name=name)
                raise ConfigError(missing + nearest(name, known))
