"""Rules for tools: which, how often, with which arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError
from ..core.language import say
from ..core.messages import ToolCall
from ..core.record import field, record
from ..core.values import plain_text, read_json
from .patterns import Pattern, Scan

if TYPE_CHECKING:
    from ..kernel.scope import Scope

Wanted = str | Callable[[Any], bool]


@record
class ToolRule:
    """For one tool, or for all with `"*"`. The first rule that names a tool counts for it.

    `arguments`: by name, a pattern that the whole value has to fit, or a function that says whether it may be. `max_calls`: in
    a turn. `allowed=False`: not at all.
    """

    tool: str
    allowed: bool = True
    max_calls: int | None = None
    arguments: Mapping[str, Wanted] = field(factory=dict)


def refusal(call: ToolCall, rules: Iterable[ToolRule], scope: Scope) -> str:
    """Why this call may not be made, as the model reads it; nothing if it may."""
    rule = next((rule for rule in rules if rule.tool in (call.name, "*")), None)
    if rule is None:
        return ""
    if not rule.allowed:
        return say(f"{call.name} may not be used here", f"ここでは {call.name} を使えません")
    if rule.max_calls is not None and _number(call, scope) > rule.max_calls:
        return say(
            f"{call.name} may be called {rule.max_calls} times; go on without it",
            f"{call.name} は {rule.max_calls} 回までです。使わずに続けてください",
        )
    if not rule.arguments:
        return ""
    args = _arguments(call)
    for name, wanted in rule.arguments.items():
        if name in args and not fits(args[name], wanted):
            told = f" ({wanted})" if isinstance(wanted, str) else ""
            return say(
                f"{call.name} may not be called with this {name}{told}", f"{call.name} の {name} にこの値は使えません{told}"
            )
    return ""


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    args: Any = call.args
    if isinstance(args, str):
        try:
            args = read_json(args)
        except ValueError:
            return {}  # the tool itself will refuse them
    return args if isinstance(args, Mapping) else {}


def _number(call: ToolCall, scope: Scope) -> int:
    """The how-many-eth call of its tool in this turn it is."""
    calls = [one.id for replied in scope.state.replies for one in replied.reply.message.calls if one.name == call.name]
    return calls.index(call.id) + 1 if call.id in calls else len(calls) + 1


_compiled: dict[str, Pattern] = {}


def fits(value: Any, wanted: Wanted) -> bool:
    if callable(wanted):
        return bool(wanted(value))
    if wanted not in _compiled:
        _compiled[wanted] = Pattern(rf"\A(?:{wanted})\Z")
    scan = Scan([_compiled[wanted]])
    return (scan.feed(plain_text(value)) or scan.end()) is not None


def check_rules(rules: Iterable[Any]) -> tuple[ToolRule, ...]:
    """Before anything runs: are these rules, and can their patterns be used?"""
    made = tuple(rules)
    for rule in made:
        if not isinstance(rule, ToolRule):
            raise ConfigError(f"tools takes ToolRule(…), not {rule!r}")
        for wanted in rule.arguments.values():
            if isinstance(wanted, str):
                try:
                    re.compile(wanted)
                except re.error as problem:
                    raise ConfigError(f"{rule.tool}: the pattern {wanted!r} cannot be used: {problem}") from problem
                _compiled.setdefault(wanted, Pattern(rf"\A(?:{wanted})\Z"))
    return made
