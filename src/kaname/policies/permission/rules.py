"""The rules of a `Permit`, and the decision over a request: denied unless a rule allows it and no rule denies it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...core.errors import ConfigError, nearest
from ...core.notices import notice
from ...core.record import field, record, replace
from ..money.budget import Verdict
from .conditions import Answer, all_of, any_fits, any_of, holds, read_conditions

USE, HAND_OVER, READ = "use", "hand_over", "read"
Patterns = str | Sequence[str]


@record
class PermitRule:
    """A permission rule: who is allowed what. Each part is a pattern with `*`, or a list of them.

    Args:
        name: The name of the rule, for refusals (default: its number in the list, such as "#2").
        effect: "allow" (default), or "deny". A rule that denies wins over all that allow.
        user: The users. `*` stands for every user with an id.
        role: The roles, of which the user must have one.
        agent: The agents that make the call.
        path: The agents that had the work one after the other, such as `desk/billing`.
        tool: The tools that can be used.
        handoff: The agents to which work can be transferred or delegated.
        data: The ids of the data that can be read.
        action: The actions on the data (default "read").
        where: Conditions on arguments of the tool, by their names. All must hold.
    """

    name: str = ""
    effect: str = "allow"
    user: Patterns | None = None
    role: Patterns | None = None
    agent: Patterns | None = None
    path: Patterns | None = None
    tool: Patterns | None = None
    handoff: Patterns | None = None
    data: Patterns | None = None
    action: Patterns = READ
    where: Mapping[str, Any] = field(factory=dict)


@record
class PermitRequest:
    """A request that rules decide over. What is unknown is empty or None.

    Args:
        action: "use" of a tool, "hand_over" to an agent, or an action on data such as "read".
        resource: The tool, the agent, or the id of the data.
    """

    user: str
    roles: frozenset[str] | None
    agent: str
    path: tuple[str, ...] | None
    action: str
    resource: str | None
    args: Mapping[str, Any] | None = None

    @property
    def who(self) -> str:
        """Return the user and the agent, as a message names them."""
        parts = [f"{kind} {name!r}" for kind, name in (("user", self.user), ("agent", self.agent)) if name]
        return ", ".join(parts) or "a caller without a name"


_PARTS = ("user", "role", "agent", "path", "tool", "handoff", "data", "action")
_KEYS = ("name", "effect", *_PARTS, "where")


def read_rule(given: Any, number: int) -> PermitRule:
    """Check a rule and return it with tuples of patterns and conditions. Raises `ConfigError`."""
    label = f"rule {number}"
    fields = _fields_of(given, label)
    parts = {key: _read_patterns(fields[key], f"{label}: {key}") for key in _PARTS if key in fields}
    where, effect, name = fields.get("where", {}), fields.get("effect", "allow"), fields.get("name") or f"#{number}"
    if effect not in ("allow", "deny") or not isinstance(name, str) or not isinstance(where, Mapping):
        raise ConfigError.of(
            "permit.form",
            '{label}: effect must be "allow" or "deny", name a text, and where a mapping of arguments to conditions',
            label=label,
        )
    parts.setdefault("action", (READ,))
    made = PermitRule(name=name, effect=effect, **parts)  # type: ignore[arg-type]
    if not (made.tool or made.handoff or made.data) or (where and (made.handoff or made.data or not made.tool)):
        raise ConfigError.of(
            "permit.about",
            "{label} must name a tool, a handoff or data; conditions (where) are for rules that only name tools",
            label=label,
        )
    return replace(made, where={key: read_conditions(one, f"{label}: where {key}") for key, one in where.items()})


def _fields_of(given: Any, label: str) -> Mapping[str, Any]:
    """Return the fields of a rule. Raises `ConfigError` for one that rules do not have."""
    if isinstance(given, PermitRule):
        return {key: value for key in _KEYS if (value := getattr(given, key)) is not None}
    if not isinstance(given, Mapping):
        raise ConfigError.of(
            "permit.rule", "{label} must be a PermitRule or a mapping, not {given!r:.100}", label=label, given=given
        )
    for key in given:
        if key not in _KEYS:
            unknown = notice("permit.no_key", "{label} has an unknown key {key!r}", label=label, key=key)
            raise ConfigError(unknown + nearest(str(key), _KEYS))
    return given


def _read_patterns(given: Any, where: str) -> tuple[str, ...]:
    """Return the patterns. None at all would not restrict the rule, so an empty list is refused."""
    listed = (given,) if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(one, str) and one for one in listed):
        raise ConfigError.of(
            "permit.patterns", "{where} must be a text or a list of texts, not {given!r:.100}", where=where, given=given
        )
    return tuple(listed)


class PermitRules:
    """Rules in their order. The order makes no difference: a rule that denies wins."""

    def __init__(self, given: Iterable[Any]) -> None:
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise ConfigError.of("permit.list", "rules must be a list, not {given!r:.100}", given=given)
        self.rules = tuple([read_rule(one, number) for number, one in enumerate(given, 1)])
        if not self.rules:
            raise ConfigError.of("permit.empty", "a Permit needs at least one rule")
        self.uses_path = any(rule.path for rule in self.rules)
        self.text = repr(self.rules)

    def denied_tools(self) -> set[str]:
        """Return the tools that rules deny by their names. A wrong name in such a rule would deny nothing."""
        denying = [rule for rule in self.rules if rule.effect == "deny"]
        return {name for rule in denying for name in rule.tool or () if "*" not in name}

    def judge(self, request: PermitRequest) -> Verdict:
        """Decide over a request, with the reason."""
        allowing: PermitRule | None = None
        refused = ""
        for rule in self.rules:
            concerns = all_of(_concerns(rule, request))
            if concerns is False:
                continue
            unmet = [one for one in _answers(rule, request) if one[1] is not True]
            answer = all_of([concerns, *[answer for _, answer in unmet]])
            if rule.effect == "deny":
                if answer is not False:
                    return Verdict(False, _denial(rule, clear=answer is True))
            elif answer is True:
                allowing = allowing or rule
            elif concerns is True and not refused:
                refused = _unmet(rule, unmet[0][0])
        if allowing is not None:
            return Verdict(True, notice("permit.allowed", "the rule {rule!r} allows it", rule=allowing.name))
        return Verdict(False, refused or no_rule(request))


def no_rule(request: PermitRequest) -> str:
    """Say that no rule allows a request."""
    return notice(
        "permit.no_rule",
        "not permitted: no rule allows {action} {resource!r:.200} for {who}",
        action=request.action,
        resource=request.resource or "*",
        who=request.who,
    )


def _concerns(rule: PermitRule, request: PermitRequest) -> Iterator[Answer]:
    """Answer whether the rule is about the resource and the caller of the request, part by part."""
    patterns = {USE: rule.tool, HAND_OVER: rule.handoff}.get(request.action, rule.data)
    yield any_fits(request.resource, patterns) if patterns else False
    if request.action not in (USE, HAND_OVER):
        yield any_fits(request.action, rule.action)
    if rule.user:
        yield _is_named(request.user, rule.user)
    if rule.role:
        yield None if request.roles is None else any_of([any_fits(role, rule.role) for role in request.roles if role])
    if rule.agent:
        yield _is_named(request.agent, rule.agent)
    if rule.path:
        clear = request.path is not None and not any("/" in name for name in request.path)
        yield _is_named("/".join(request.path or ()) if clear else None, rule.path)


def _is_named(name: str | None, patterns: Patterns) -> Answer:
    """Return True if a known name fits. An unknown name fits no pattern, not even `*`."""
    return any_fits(name, patterns) if name else None


def _answers(rule: PermitRule, request: PermitRequest) -> list[tuple[str, Answer]]:
    """Return for each condition of a rule its argument, and whether it holds. A missing argument decides nothing."""
    args = request.args if isinstance(request.args, Mapping) else {}
    return [
        (name, holds(condition, args[name]) if name in args else None)
        for name, conditions in rule.where.items()
        for condition in conditions
    ]


def _unmet(rule: PermitRule, argument: str) -> str:
    return notice(
        "permit.condition_unmet",
        "not permitted: the condition of the rule {rule!r} on {argument} is not met",
        rule=rule.name,
        argument=argument,
    )


def _denial(rule: PermitRule, *, clear: bool) -> str:
    if clear:
        return notice("permit.denied", "not permitted: the rule {rule!r} denies it", rule=rule.name)
    return notice("permit.unclear", "not permitted: it is not clear whether the rule {rule!r} denies it", rule=rule.name)
