"""Names of tools that policies depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.notices import notice


def known_tools(who: str, names: Iterable[str], tools: Mapping[str, Any]) -> None:
    """All of these names are tools' names, or a `ConfigError` tells the likely one: a wrong name would guard nothing."""
    for name in sorted(names):
        if name not in tools:
            message = notice("policy.no_tool", "{who}: there is no tool named {name!r}", who=who, name=name)
            raise ConfigError(message + nearest(name, tools))
