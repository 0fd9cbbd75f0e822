"""Names of servers' tools: unique, valid for every provider, and stable during the life of the agent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

_LONGEST = 64  # what every provider takes: letters, digits, _ and -, at most so many
Key = tuple[str, str]
"""The names of a server and of its tool. The server is empty for kaname's own tools."""


class Names:
    """The names that were assigned. A name is never reassigned, so that an approval by name always means the same tool."""

    def __init__(self) -> None:
        self._given: dict[Key, str] = {}

    def give(self, wanted: Sequence[Key], own: Collection[str]) -> dict[Key, str]:
        """Assign a name to each tool. The agent's own tools, `own`, keep theirs.

        If several new tools have the same name, all of them get their server's name as a prefix. If the name is already
        taken, the new tool gets the prefix."""
        kept = {key: name for key, name in self._given.items() if name not in own}
        taken = {*own, *self._given.values()}
        fresh = [key for key in dict.fromkeys(wanted) if key not in kept]
        count = Counter([_safe_name(tool) for _, tool in fresh])
        for key in fresh:
            server, tool = key
            plain = _safe_name(tool)
            if not plain.strip("_-"):
                name = _add_number(f"{_server(server)}_tool", taken)
            elif plain not in taken and count[plain] == 1:
                name = plain
            else:
                name = _free(_add_prefix(_server(server), plain), taken)
            taken.add(name)
            kept[key] = name
        self._given |= kept
        return {key: kept[key] for key in dict.fromkeys(wanted)}

    def give_own(self, tool: str, own: Collection[str]) -> str:
        """Assign a name to a tool of kaname's: its own name, or with the prefix `mcp_` if that is taken."""
        key = ("", tool)
        if self._given.get(key, "") in ("", *own):
            taken = {*own, *[name for other, name in self._given.items() if other != key]}
            self._given[key] = tool if tool not in taken else _free(f"mcp_{tool}", taken)
        return self._given[key]


def is_name_lost(tool: str) -> bool:
    """Return True if the safe name omits parts of the tool's name, so that the description must contain it."""
    return not tool.isascii() or not _safe_name(tool).strip("_-")


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_LONGEST]


def _server(name: str) -> str:
    return _safe_name(name) if _safe_name(name).strip("_-") else "mcp"


def _add_prefix(server: str, tool: str) -> str:
    room = max(8, _LONGEST - 2 - len(tool))
    return f"{server[:room]}__{tool}"[:_LONGEST]


def _free(name: str, taken: Collection[str]) -> str:
    return name if name not in taken else _add_number(name, taken, 2)


def _add_number(name: str, taken: Collection[str], number: int = 1) -> str:
    while (made := f"{name[: _LONGEST - 6]}_{number}") in taken:
        number += 1
    return made
