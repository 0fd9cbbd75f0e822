"""`Equals`: tools that do the same, of which the one runs that did best in past runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.errors import BadArguments, ConfigError
from ...core.events import Event, ToolStarted
from ...core.messages import ToolCall, ToolResult
from ...core.record import replace
from ...kernel.bases import PolicyInfo, options_of
from ...kernel.ports import Action, Policy, ToolHandler
from ..names import known_tools
from .figures import ToolFigures, choose, past_figures

if TYPE_CHECKING:
    from ...kernel.view import RunView

_FRESH = 300.0  # seconds for which figures are used before they are read again
_SAFE = ("pure", "idempotent")


class _Chosen(Policy):
    """In a replay, runs the tools that `Equals` chose by the figures of other runs."""

    place = "choice"

    def __init__(self, facts: Sequence[Event]) -> None:
        started = [fact.body.call for fact in facts if isinstance(fact.body, ToolStarted)]
        self._names = {call.id: call.name for call in reversed(started)}

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        return await next(replace(call, name=self._names.get(call.id, call.name)))


class Equals(Policy):
    """Declare tools that do the same: `Equals("search_a", "search_b")`. When the model calls one, the best one runs.

    The last 50 runs in the journal decide, with at least five calls of each tool: first the part of calls that succeeded, then
    the cost, then the time. If too little is known, or the difference is small, the tool that the model named runs. The choice
    does not depend on chance. A warning in the record gives the reason, once a turn.

    The tools must be declared `effect="pure"` or `"idempotent"`. Another tool runs only if it takes the arguments and no policy
    objects.

    Args:
        names: The names of the tools, at least two.
    """

    place = "choice"
    about = PolicyInfo(replayed=False, repeat=_Chosen)

    def __init__(self, *names: str) -> None:
        if len(set(names)) < 2 or not all(isinstance(name, str) and name for name in names):
            raise ConfigError.of(
                "equals.names", "Equals takes the names of at least two tools, not {names!r}", names=list(names)
            )
        self.names = tuple(dict.fromkeys(names))
        self._figures: dict[str, ToolFigures] = {}
        self._read: float | None = None

    def check(self, tools: Mapping[str, Action]) -> None:
        known_tools("Equals", self.names, tools)
        for name in self.names:
            if not _is_safe(tools[name]):
                raise ConfigError.of(
                    "equals.effect",
                    'Equals: {name} must be declared effect="pure" or "idempotent", because another tool can run in its place',
                    name=name,
                )

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        if call.name not in self.names or call.id in view.state.started:  # a call that has begun stays with its tool
            return await next(call)
        if self._read is None or not 0 <= view.now() - self._read < _FRESH:
            self._read = view.now()
            self._figures = await past_figures(view.journal, self.names)
        others = [name for name in self.names if name != call.name and await self._can_run(replace(call, name=name), view)]
        best, reason = self._choose(call, others, view)
        if best != call.name and not any(used == best for _, used in view.state.stand_ins):
            await view.warn("choice", reason)
        return await next(call if best == call.name else replace(call, name=best))

    def _choose(self, call: ToolCall, others: Sequence[str], view: RunView) -> tuple[str, str]:
        return choose(call.name, others, self._figures)

    async def _can_run(self, other: ToolCall, view: RunView) -> bool:
        tools = view.tools(other)
        if other.name not in tools or not _is_safe(tools[other.name]):
            return False
        try:
            return await view.allows(view.as_received(view.as_sent(other)))
        except BadArguments:
            return False


def _is_safe(tool: Action) -> bool:
    return tool.effect in _SAFE and options_of(tool).declared
