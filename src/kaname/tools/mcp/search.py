"""Tool search: beyond a limit the model looks for the tools that it needs, and uses them by name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ...core.errors import BadArguments, ToolNotFoundError
from ...core.events import Effect
from ...core.messages import ToolCall, ToolResult
from ...kernel.ports import Repair, ToolContext
from ..arguments.prepare import read_arguments

MOST_SHOWN = 60
_BEST, _NAMED = 8, 40
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")


class FindTools:
    """`find_tools(query)`: the best matches, with what they need to be called."""

    effect: Effect = "pure"
    timeout: float | None = None
    undo: Repair | None = None
    reconcile: Repair | None = None
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "a few words that say what is to be done"}},
        "required": ["query"],
    }

    def __init__(self, tools: Mapping[str, Any], name: str = "find_tools", use: str = "use_tool") -> None:
        self._tools, self.name = tools, name
        self.description = f"Find tools: there are {len(tools)}, too many to list. Use one of them with {use}."

    def prepare(self, call: ToolCall) -> str:
        query = read_arguments(call).get("query")
        if not isinstance(query, str) or not query.strip():
            raise BadArguments(f'{self.name} needs {{"query": "a few words"}}')
        return query

    async def act(self, prepared: str, context: ToolContext) -> ToolResult:
        wanted = _words(prepared)
        scored = [(-_score(wanted, tool), name) for name, tool in self._tools.items()]
        found = [self._tools[name] for score, name in sorted(scored)[:_BEST] if score]
        if found:
            return ToolResult([{"name": t.name, "description": t.description, "args": t.parameters} for t in found])
        names = sorted(self._tools)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ToolResult(f"nothing fits {prepared!r}. Try other words. There are: {', '.join(names[:_NAMED])}{more}")


class UseTool:
    """`use_tool(name, args)` stands for a call of that tool, and becomes one before anybody sees it.

    What is left to run here are names that nobody has.
    """

    description = "Use a tool that was found."
    effect: Effect = "pure"
    timeout: float | None = None
    undo: Repair | None = None
    reconcile: Repair | None = None
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "args": {"type": "object"}},
        "required": ["name", "args"],
    }

    def __init__(self, tools: Mapping[str, Any], name: str = "use_tool") -> None:
        self._tools, self.name = tools, name

    def unfold(self, call: ToolCall) -> ToolCall | None:
        try:
            given = read_arguments(call)
        except BadArguments:
            return None
        name, args = given.get("name"), given.get("args")
        if not isinstance(name, str) or name == self.name or name not in self._tools:
            return None
        return ToolCall(call.id, name, {} if args is None else args)

    def prepare(self, call: ToolCall) -> str:
        return str(read_arguments(call).get("name"))

    async def act(self, prepared: str, context: ToolContext) -> ToolResult:
        return ToolResult(error=str(ToolNotFoundError(prepared, [name for name in self._tools if name != self.name])))


def _words(text: str) -> set[str]:
    """Words of any script, the parts of camelCase too; and for languages that do not divide words, pairs of letters."""
    whole = _WORD.findall(_folded(text))
    parts = [*whole, *_WORD.findall(_folded(_HUMP.sub(" ", text)))]
    found = {word for word in parts if len(word) > 1 or ord(word) > 0x2E80}
    for word in whole:
        letters = [char for char in word if ord(char) > 0x2E80]
        found |= {a + b for a, b in pairwise(letters)} | set(letters if len(letters) < 2 else ())
    return found


def _folded(text: str) -> str:
    """Without case, and without the accents that people leave out."""
    return "".join([char for char in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(char)])


def _score(wanted: set[str], tool: Any) -> int:
    """A word of the name counts three times; a beginning of a word counts too (`files`, `file`)."""
    name, told = _words(tool.name), _words(tool.description)
    return sum(3 * _near(word, name) + _near(word, told) for word in wanted)


def _near(word: str, among: set[str]) -> int:
    if word in among:
        return 2
    if len(word) == 1:  # one letter that is a word of its own, as in Chinese
        return int(any(word in other for other in among))
    return int(any(other.startswith(word[:4]) for other in among) if len(word) > 3 else 0)
