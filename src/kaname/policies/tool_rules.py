"""Rules for tools: which, how often, with which arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from ..core.errors import BadArguments, ConfigError, nearest
from ..core.language import say
from ..core.messages import ToolCall
from ..core.record import field, record
from ..core.values import plain_text, read_json
from ..kernel.boundary import Border
from .patterns import Pattern
from .scan import Scan

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
    for name, value in _values(call, rule, scope).items():
        if not fits(value, rule.arguments[name]):
            wanted = rule.arguments[name]
            told = f" ({wanted})" if isinstance(wanted, str) else ""
            return say(
                f"{call.name} may not be called with this {name}{told}", f"{call.name} の {name} にこの値は使えません{told}"
            )
    return ""


def _values(call: ToolCall, rule: ToolRule, scope: Scope) -> dict[str, Any]:
    """What the tool would get for the arguments that the rule names, however they were sent, defaults among them."""
    tool = scope.agent.tools.get(call.name, None)
    if tool is None or not rule.arguments:
        return {}
    try:
        prepared = tool.prepare(call)
    except BadArguments:
        return {}  # it will not be run
    named = tool.parameters.get("properties") or {}
    if isinstance(prepared, str):  # a tool of one text takes it under any name
        return {name: prepared for name in rule.arguments if name in named}
    sent = _sent(call.args)
    found = {}
    for name in rule.arguments:
        if name in sent:
            found[name] = sent[name]
        elif isinstance(named.get(name), Mapping) and "default" in named[name]:
            found[name] = named[name]["default"]
    return found


def _sent(args: Any) -> Mapping[str, Any]:
    if isinstance(args, str):
        try:
            args = read_json(args)
        except ValueError:
            return {}
    return args if isinstance(args, Mapping) else {}


def _number(call: ToolCall, scope: Scope) -> int:
    """The how-many-eth call of its tool in this turn it is."""
    calls = [one.id for replied in scope.state.replies for one in replied.reply.message.calls if one.name == call.name]
    return calls.index(call.id) + 1 if call.id in calls else len(calls) + 1


_compiled: dict[str, Pattern] = {}


def fits(value: Any, wanted: Wanted) -> bool:
    """A function that fails does not allow it."""
    if callable(wanted):
        with Border():
            return bool(wanted(value))
        return False
    scan = Scan([_whole(wanted)])
    return (scan.feed(plain_text(value)) or scan.end()) is not None


def _whole(wanted: str) -> Pattern:
    """The pattern for the whole value; flags stay at the beginning."""
    if wanted not in _compiled:
        flags = re.match(r"(?:\(\?[aimsux]+\))*", wanted)
        head = flags[0] if flags else ""
        _compiled[wanted] = Pattern(rf"{head}\A(?:{wanted[len(head) :]})\Z")
    return _compiled[wanted]


def check_rules(rules: Iterable[Any]) -> tuple[ToolRule, ...]:
    """Before anything runs: are these rules, and can their patterns be used?"""
    made = tuple(rules)
    for rule in made:
        if not isinstance(rule, ToolRule):
            raise ConfigError(f"tools takes ToolRule(…), not {rule!r}")
        for name, wanted in rule.arguments.items():
            if iscoroutinefunction(wanted):
                raise ConfigError(f"{rule.tool}.{name}: a rule's function is not async")
            if isinstance(wanted, str):
                _whole(wanted)
    return made


def check_names(rules: Iterable[ToolRule], tools: Mapping[str, Any]) -> None:
    """A rule about an argument that the tool does not have guards nothing."""
    for rule in rules:
        tool = tools.get(rule.tool, None) if rule.tool != "*" else None
        known = (tool.parameters.get("properties") or {}) if tool is not None else None
        for name in rule.arguments:
            if known and name not in known:
                missing = say(f"{rule.tool} has no argument {name!r}", f"{rule.tool} に引数 {name!r} はありません")
                raise ConfigError(missing + nearest(name, known))
