"""The declared rules of an agent, as its author wrote them, in a form that a plain program can check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class ToolFacts:
    """What the author declares about a tool: its effect, its defaults, what it reads and what it hides."""

    name: str
    effect: str = "irreversible"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    acts: bool = True
    outside: bool = False  # other people can write what it returns
    price: float = 0.0
    made: str = ""


@dataclass(frozen=True)
class ApprovalRule:
    """Calls that need a yes. Without tools, every call."""

    tools: frozenset[str] = frozenset()
    by: str = ""
    expires: bool = False
    then: str = "refuse"
    when: Callable[[Mapping[str, Any]], bool] | None = None
    agent: str = ""

    def covers(self, tool: str, args: Mapping[str, Any]) -> bool:
        """Return True if a call of the tool with these arguments needs a yes under this rule."""
        if self.tools and tool not in self.tools:
            return False
        return self.when is None or bool(self.when(args))


@dataclass(frozen=True)
class Hidden:
    """A text that a rule keeps from the model and from every store.

    `how`: "pattern" (blocked, never recorded), "privacy" (masked, removed or blocked before it is recorded) or "check" (kept
    from the model; the run's own facts can hold it) or "address" (a URL that a client sent, which no provider may fetch).
    """

    text: str
    how: Literal["pattern", "privacy", "check", "address"] = "pattern"
    agent: str = ""  # the rule is this member's: it holds once the member has taken over


@dataclass
class DeclaredRules:
    """Everything that an agent's author declares, and the texts that outsiders plant."""

    tools: dict[str, ToolFacts] = field(default_factory=dict)
    approvals: list[ApprovalRule] = field(default_factory=list)
    head: str = ""  # the agent that a run begins with
    flow: str = ""  # "", "strict" or "everything": the strictest mode among the agents of the case
    foreign: dict[str, str] = field(default_factory=dict)  # values that only outsiders name → their user, if they have one
    hidden: list[Hidden] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)  # executions of a tool in one run
    shared_quotas: dict[str, int] = field(default_factory=dict)  # executions of a tool in all runs together
    limit: float | None = None  # US dollars for one run, with everything that it starts
    permit: set[str] | None = None  # the tools that a permit allows; None without a permit
    refused: Callable[[str, Mapping[str, Any]], bool] | None = None  # calls that a rule on arguments refuses
    owned: dict[str, str] = field(default_factory=dict)  # a user's private text → the user
    replies: dict[str, str] = field(default_factory=dict)  # the words of a model → the user that it belongs to
    stand_ins: dict[str, str] = field(default_factory=dict)  # a tool → the one that it can stand in for
    planned: bool = False  # a plan makes the calls: a call that has succeeded is not repeated by a revision

    def canonical(self, tool: str, args: Mapping[str, Any], *, masked: bool = True) -> tuple[Any, ...]:
        """Return a call in the form in which equal calls are equal: with defaults, and `100` the same as `100.0`."""
        facts = self.tools.get(tool, ToolFacts(tool))
        whole = {**facts.defaults, **args}
        hidden = facts.secrets if masked else frozenset()
        return (tool, *sorted((name, _as_text(value)) for name, value in whole.items() if name not in hidden))


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int | float):
        return repr(float(value))
    if isinstance(value, bytes):
        return repr(value.decode("latin-1"))
    if isinstance(value, Mapping):
        return repr(sorted((str(name), _as_text(one)) for name, one in value.items()))
    if isinstance(value, list | tuple):
        return repr([_as_text(one) for one in value])
    return repr(str(value))
