"""`find_tools` and `use_tool`: look tools up, and call them by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import BadArguments, ToolNotFoundError
from ...core.events import Effect
from ...core.messages import ToolCall, ToolResult
from ...kernel.bases import ActionBase, ToolOptions
from ...kernel.ports import Action, ToolContext
from ..arguments.prepare import read_arguments
from .rank import ToolRanking

LOADED = "loaded_tools"  # the fact that names the tools whose descriptions the model has, in the order in which it got them
_OTHER_NAMES = ("arguments", "params", "parameters", "input")  # how models call `args`
_BEST, _NAMED = 12, 40  # tools that one search returns, and names that are listed if it finds nothing


class FindTools(ActionBase):
    """The tool `find_tools(query)`: returns the best matches with their parameters, and records which they were."""

    effect: Effect = "pure"
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "what is to be done, in a few words, or names of tools"}},
        "required": ["query"],
    }

    def __init__(self, tools: Sequence[Action], name: str, use: str, *, served: bool) -> None:
        labels = None if served else {"result": "trusted"}  # a server writes the descriptions of its tools
        self.options = ToolOptions(labels=labels, loads_tools=True)
        self._tools = {tool.name: tool for tool in tools}
        self._ranking: ToolRanking | None = None
        self.name = name
        self.description = (
            f"Find tools and how to call them: there are {len(tools)} more tools than those listed here. "
            f"Then call one of those found with {use}."
        )

    def prepare(self, call: ToolCall) -> str:
        query = read_arguments(call).get("query")
        if not isinstance(query, str) or not query.strip():
            raise BadArguments(f'{self.name} needs {{"query": "a few words"}}')
        return query

    async def act(self, prepared: str, context: ToolContext) -> ToolResult:
        names = await asyncio.to_thread(self._find, prepared)
        if not names:
            every = sorted(self._tools)
            more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
            return ToolResult(f"nothing fits {prepared!r}. Try other words. There are: {', '.join(every[:_NAMED])}{more}")
        await self._note(names, context)
        found = [self._tools[name] for name in names]
        return ToolResult([{"name": one.name, "description": one.description, "args": one.parameters} for one in found])

    def _find(self, query: str) -> list[str]:
        if self._ranking is None:
            self._ranking = ToolRanking(list(self._tools.values()))
        return self._ranking.best(query, _BEST)

    async def _note(self, names: list[str], context: ToolContext) -> None:
        """Record the tools that the model can call now. The list only grows, and keeps its order."""
        if (view := context.view) is None:
            return
        loaded: list[str] = view.scratch.setdefault(LOADED, [*view.state.custom.get(LOADED, ())])
        added = [name for name in names if name not in loaded]
        if added:
            loaded += added  # at once: another search may run at the same time
            await view.note(LOADED, [*loaded], shown=False)


class UseTool(ActionBase):
    """The tool `use_tool(name, args)`. `unfold` turns its calls into calls of the named tool before anything else handles them.

    Arguments under another name than `args`, or next to `name`, are accepted if they can mean only one thing. `act` is only
    reached by calls that name an unknown tool, and returns an error."""

    description = "Call a tool that was found, with its arguments."
    effect: Effect = "pure"
    options = ToolOptions(labels={"result": "trusted"}, loads_tools=True)
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "args": {"type": "object"}},
        "required": ["name", "args"],
    }

    def __init__(self, tools: Mapping[str, Any], name: str) -> None:
        self._tools, self.name = tools, name

    def unfold(self, call: ToolCall) -> ToolCall | None:
        try:
            return self._read_call(call)
        except BadArguments:
            return None

    def _read_call(self, call: ToolCall) -> ToolCall | None:
        """Return the call of the named tool, or None if there is no such tool. Raises `BadArguments`."""
        given = read_arguments(call)
        name = given.pop("name", None)
        if not isinstance(name, str) or name == self.name or name not in self._tools:
            return None
        if given.keys() <= {"args"}:
            args = given.get("args")
            return ToolCall(call.id, name, {} if args is None else args)
        alone = [value for key, value in given.items() if len(given) == 1 and key in _OTHER_NAMES and value is not None]
        fitting = [args for args in (*alone, given) if self._fits(ToolCall(call.id, name, args))]
        if len(fitting) == 1:
            return ToolCall(call.id, name, fitting[0])
        wrong = ", ".join([repr(key) for key in given if key != "args"])
        form = f'{{"name": "{name}", "args": {{…}}}}'
        raise BadArguments(f"{self.name} does not accept {wrong}. Pass the arguments of {name} as `args`: {form}")

    def _fits(self, call: ToolCall) -> bool:
        try:
            self._tools[call.name].prepare(call)
        except BadArguments:
            return False
        return True

    def prepare(self, call: ToolCall) -> str:
        self._read_call(call)
        return str(read_arguments(call).get("name"))

    async def act(self, prepared: str, context: ToolContext) -> ToolResult:
        return ToolResult(error=str(ToolNotFoundError(prepared, [name for name in self._tools if name != self.name])))
