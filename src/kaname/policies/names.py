"""Names of the tools and of the policies further out, for policies that depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError, nearest
from ..core.messages import ToolCall
from ..core.notices import notice
from ..kernel.boundary import Border
from ..kernel.chain import overrides
from ..kernel.ports import Policy

if TYPE_CHECKING:
    from ..kernel.view import RunView


def known_tools(who: str, names: Iterable[str], tools: Mapping[str, Any]) -> None:
    """All of these names are tools' names, or a `ConfigError` tells the likely one: a wrong name would guard nothing."""
    for name in sorted(names):
        if name not in tools:
            told = notice("policy.no_tool", "{who}: there is no tool named {name!r}", who=who, name=name)
            raise ConfigError(told + nearest(name, tools))


def objector(call: ToolCall, asking: Policy, view: RunView, *, by_a_person: bool = False) -> str:
    """Which policy does not let through a call that the model has not made; nothing if all do.

    Those further in will see it, and are asked only if they have something to say; all are, where a person wants the call."""
    further_in = by_a_person
    for policy in view.policies(call):
        if policy is asking:
            further_in = True
        elif not (further_in and not overrides(policy, "allows_substitute")) and not _allows(policy, call, view):
            name = type(policy).__name__
            return notice("fallback.objector", "{name} does not allow it", name=name)
    return ""


def _allows(policy: Policy, call: ToolCall, view: RunView) -> bool:
    """One that fails does not, nor does one that would have to be waited for."""
    with Border():
        said: Any = policy.allows_substitute(call, view)
        if isawaitable(said):
            getattr(said, "close", bool)()
            return False
        return bool(said)
    return False
