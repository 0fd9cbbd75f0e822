"""Names of servers' tools: unique, valid for every provider, stable as long as the agent lives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

_LONGEST = 64  # what every provider takes: letters, digits, _ and -, at most so many
Key = tuple[str, str]
"""A server's name and its tool's; the tools that we make ourselves have no server."""


class Names:
    """A name that was given is never given to another: what is approved or forbidden by its name stays that tool."""

    def __init__(self) -> None:
        self._given: dict[Key, str] = {}

    def give(self, wanted: Sequence[Key], own: Collection[str]) -> dict[Key, str]:
        """`own`: the agent's own tools, which keep their names. Of two that come together and are called the same, both get
        their server in front; one that comes later, alone."""
        kept = {key: name for key, name in self._given.items() if name not in own}
        taken = {*own, *self._given.values()}
        fresh = [key for key in dict.fromkeys(wanted) if key not in kept]
        count = Counter([_safe_name(tool) for _, tool in fresh])
        for key in fresh:
            server, tool = key
            plain = _safe_name(tool)
            if not plain.strip("_-"):
                name = _numbered(f"{_server(server)}_tool", taken)
            elif plain not in taken and count[plain] == 1:
                name = plain
            else:
                name = _free(_prefixed(_server(server), plain), taken)
            taken.add(name)
            kept[key] = name
        self._given |= kept
        return {key: kept[key] for key in dict.fromkeys(wanted)}

    def spare(self, tool: str, own: Collection[str]) -> str:
        """For a tool of ours: its name, or `mcp_` and its name where that is somebody's."""
        key = ("", tool)
        if self._given.get(key, "") in ("", *own):
            taken = {*own, *[name for other, name in self._given.items() if other != key]}
            self._given[key] = tool if tool not in taken else _free(f"mcp_{tool}", taken)
        return self._given[key]


def says_little(tool: str) -> bool:
    """Whether some of its name is lost, so that the description has to tell it."""
    return not tool.isascii() or not _safe_name(tool).strip("_-")


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_LONGEST]


def _server(name: str) -> str:
    return _safe_name(name) if _safe_name(name).strip("_-") else "mcp"


def _prefixed(server: str, tool: str) -> str:
    room = max(8, _LONGEST - 2 - len(tool))
    return f"{server[:room]}__{tool}"[:_LONGEST]


def _free(name: str, taken: Collection[str]) -> str:
    return name if name not in taken else _numbered(name, taken, 2)


def _numbered(name: str, taken: Collection[str], number: int = 1) -> str:
    while (made := f"{name[: _LONGEST - 6]}_{number}") in taken:
        number += 1
    return made
