"""What policies have to know of the others: which tools there are, and who stands further out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigError, nearest
from ..core.language import say
from ..core.messages import ToolCall
from ..kernel.ports import Policy

if TYPE_CHECKING:
    from ..kernel.scope import Scope


def known_tools(who: str, names: Iterable[str], tools: Mapping[str, Any]) -> None:
    """All of these names are tools' names, or a `ConfigError` tells the likely one: a wrong name would guard nothing."""
    for name in sorted(names):
        if name not in tools:
            told = say(f"{who}: there is no tool named {name!r}", f"{who}: {name!r} というツールはありません")
            raise ConfigError(told + nearest(name, tools))


def objector(call: ToolCall, asking: Policy, scope: Scope) -> str:
    """Which policy does not let through a call that the model has not made; nothing if all do. Those further in will see it,
    and are asked only if they have something to say."""
    further_in = False
    for policy in scope.agent.policies:
        if policy is asking:
            further_in = True
        elif not (further_in and type(policy).lets is Policy.lets) and not policy.lets(call, scope):
            return type(policy).__name__
    return ""
