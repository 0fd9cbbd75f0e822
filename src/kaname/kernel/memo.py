"""What is worked out once for all runs of a recipe, and again when its tools have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

from ..core.codec import digest
from ..core.messages import Message, ToolSpec, system
from ..core.steps import CallModel

if TYPE_CHECKING:
    from .ports import Action, Recipe

_FINGERPRINTS = 64
Tools = tuple["Action", ...]


class Memo:
    """Kept beside a recipe. Tools are compared by identity: an agent's list of them changes in place."""

    __slots__ = ("_described", "_fingerprints", "_specs", "_system")

    def __init__(self) -> None:
        self._system: Message | None = None
        self._specs: tuple[Tools, tuple[ToolSpec, ...]] | None = None
        self._described: tuple[Tools, Mapping[str, Any]] | None = None
        self._fingerprints: dict[Any, tuple[Any, ...]] = {}

    def system(self, instructions: str) -> Message:
        """One and the same message, so that an adapter need encode it only once."""
        if self._system is None or self._system.text != instructions:
            self._system = system(instructions)
        return self._system

    def specs(self, tools: Mapping[str, Action]) -> tuple[ToolSpec, ...]:
        """What the model is told of the tools."""
        now = tuple(tools.values())
        if self._specs is None or not _same(self._specs[0], now):
            listed = [tool for tool in now if getattr(tool, "listed", True)]
            self._specs = now, tuple([ToolSpec(tool.name, tool.description, tool.parameters, tool.effect) for tool in listed])
        return self._specs[1]

    def description(self, tools: Mapping[str, Action]) -> Mapping[str, Any] | None:
        """What the agent is, as it was described with just these tools; `None` if it has to be described anew."""
        known = self._described
        return known[1] if known is not None and _same(known[0], tuple(tools.values())) else None

    def keep_description(self, tools: Mapping[str, Action], described: Mapping[str, Any]) -> None:
        self._described = tuple(tools.values()), described

    def fingerprint(self, recipe: Recipe, messages: Sequence[Message], tools: tuple[ToolSpec, ...], sent: CallModel) -> str:
        """Of all that was sent beside the conversation. It is the same for nearly every call of a run."""
        said = messages[0].text if messages and messages[0].role == "system" else ""
        key = (said, id(tools), id(sent.schema))
        if key not in self._fingerprints:
            if len(self._fingerprints) >= _FINGERPRINTS:
                self._fingerprints.clear()
            described: Any = [said, [[t.name, t.description, t.parameters] for t in tools], sent.schema, recipe.settings]
            self._fingerprints[key] = (digest(described), tools, sent.schema)  # kept alive, so that their ids stay theirs
        return str(self._fingerprints[key][0])


def _same(one: Tools, other: Tools) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))
