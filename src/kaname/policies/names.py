"""Names of tools in policies: a name that is no tool's guards nothing, and must not go unnoticed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import ConfigError, nearest
from ..core.language import say


def known_tools(who: str, names: Iterable[str], tools: Mapping[str, Any]) -> None:
    """All of these names are tools' names, or a `ConfigError` tells the likely one."""
    for name in sorted(names):
        if name not in tools:
            told = say(f"{who}: there is no tool named {name!r}", f"{who}: {name!r} というツールはありません")
            raise ConfigError(told + nearest(name, tools))
