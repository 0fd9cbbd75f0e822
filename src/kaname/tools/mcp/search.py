"""Many tools do not fill the prompt: beyond a limit the model looks for the ones that it needs, and uses them by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ...core.errors import BadArguments, ToolNotFoundError
from ...core.events import Effect
from ...core.messages import ToolCall, ToolResult
from ...kernel.ports import Repair, ToolContext
from ..arguments import read_arguments

MOST_SHOWN = 60
_BEST = 8


class FindTools:
    """`find_tools(query)`: the best matches, with what they need to be called."""

    name = "find_tools"
    effect: Effect = "pure"
    timeout: float | None = None
    undo: Repair | None = None
    reconcile: Repair | None = None
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "a few words that say what is to be done"}},
        "required": ["query"],
    }

    def __init__(self, tools: Mapping[str, Any]) -> None:
        self._tools = tools
        self.description = f"Find tools: there are {len(tools)}, too many to list. Use one of them with use_tool."

    def prepare(self, call: ToolCall) -> str:
        query = read_arguments(call).get("query")
        if not isinstance(query, str) or not query.strip():
            raise BadArguments('find_tools needs {"query": "a few words"}')
        return query

    async def act(self, prepared: str, context: ToolContext) -> ToolResult:
        wanted = _words(prepared)
        scored = sorted([(-_score(wanted, tool), name) for name, tool in self._tools.items() if _score(wanted, tool)])
        found = [self._tools[name] for _, name in scored[:_BEST]]
        return ToolResult([{"name": t.name, "description": t.description, "args": t.parameters} for t in found])


class UseTool:
    """`use_tool(name, args)`: any of the tools that are not listed. Arguments are checked as if it were."""

    name = "use_tool"
    description = "Use a tool that find_tools has found."
    effect: Effect = "irreversible"
    timeout: float | None = None
    undo: Repair | None = None
    reconcile: Repair | None = None
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "args": {"type": "object"}},
        "required": ["name", "args"],
    }

    def __init__(self, tools: Mapping[str, Any]) -> None:
        self._tools = tools

    def prepare(self, call: ToolCall) -> tuple[Any, Any]:
        given = read_arguments(call)
        name, args = str(given.get("name")), given.get("args", {})
        if name not in self._tools:
            raise BadArguments(str(ToolNotFoundError(name, self._tools)))
        tool = self._tools[name]
        return tool, tool.prepare(ToolCall(call.id, name, args))

    async def act(self, prepared: tuple[Any, Any], context: ToolContext) -> ToolResult:
        tool, args = prepared
        result: ToolResult = await tool.act(args, context)
        return result


def _words(text: str) -> set[str]:
    """Words, and for languages that write none, pairs of letters."""
    text = text.lower()
    letters = [char for char in text if ord(char) > 0x3000]
    return set(re.findall(r"[a-z0-9]{2,}", text)) | {a + b for a, b in pairwise(letters)}


def _score(wanted: set[str], tool: Any) -> int:
    """A word of the name counts three times; a beginning of a word counts too (`files`, `file`)."""
    name, told = _words(tool.name.replace("_", " ").replace("-", " ")), _words(tool.description)
    return sum(3 * _near(word, name) + _near(word, told) for word in wanted)


def _near(word: str, among: set[str]) -> int:
    return 2 if word in among else int(any(other.startswith(word[:4]) for other in among) if len(word) > 3 else 0)
