"""The caller runs the tools: a tool asks the caller for its result, after every policy has decided over the call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.events import Effect
from ...core.messages import ToolCall, ToolResult
from ...core.notices import notice
from ...core.record import field, mutable, replace
from ...kernel.arguments import shown_arguments
from ...kernel.bases import ActionBase, options_of
from ...kernel.ports import Action, Recipe, ToolContext
from ...kernel.results import result_from_caller
from ...tools.arguments.prepare import read_arguments


class UnknownTool(ActionBase):
    """A tool that the agent does not have. The caller may have it."""

    description = ""
    effect: Effect = "irreversible"
    parameters: Mapping[str, Any] = {"type": "object"}

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, call: ToolCall) -> dict[str, Any]:
        return read_arguments(call)

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        raise NotImplementedError  # only the caller runs it


@mutable
class Handing:
    """The calls that were handed out, by id, as they were sent or as a person has changed them.

    `by_hand`: the ids of calls that the program makes itself, with the agent's own tools.
    """

    calls: dict[str, ToolCall] = field(factory=dict)
    by_hand: set[str] = field(factory=set)


class HandedOut:
    """A tool that the caller runs. The policies see the tool itself; only its action is to ask for the result."""

    def __init__(self, tool: Action, handing: Handing) -> None:
        self.tool, self._handing = tool, handing
        self.options = replace(options_of(tool), undo=None, reconcile=None)  # what the caller did is not known here

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tool, name)

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        if context.call_id in self._handing.by_hand:
            return await self.tool.act(prepared, context)
        self._handing.calls[context.call_id] = context.state.started[context.call_id].call
        shown = ToolCall(context.call_id, self.tool.name, shown_arguments(self.tool, prepared).args)
        prompt = notice("external.result", "What is the result of {name}?", name=self.tool.name)
        return result_from_caller(shown, prompt, context.state.answers)


class HandedOutTools(Mapping[str, Any]):
    """The tools of an agent whose caller runs them. A name that is not a tool of the agent is handed out as well."""

    def __init__(self, tools: Mapping[str, Action], handing: Handing) -> None:
        self.tools, self.handing = tools, handing
        self._made: dict[str, HandedOut] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tools, name)

    def __getitem__(self, name: str) -> HandedOut:
        tool = self.tools[name]
        if name not in self._made or self._made[name].tool is not tool:
            self._made[name] = HandedOut(tool, self.handing)
        return self._made[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.tools else HandedOut(UnknownTool(name), self.handing)

    def __contains__(self, name: object) -> bool:
        return name in self.tools

    def __iter__(self) -> Iterator[str]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)


def hand_out_tools(recipe: Recipe, handing: Handing | None = None) -> Recipe:
    """Return the recipe with tools that the caller runs, those of the team among them."""
    handing = handing or Handing()
    team = {name: hand_out_tools(member, handing) for name, member in recipe.team.items()}
    return recipe.with_changes(tools=HandedOutTools(recipe.tools, handing), team=team)
