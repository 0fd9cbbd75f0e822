"""Tool search: if there are too many tools to list, the model searches for those it needs and uses them by name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ...core.errors import BadArguments, ToolNotFoundError
from ...core.events import Effect
from ...core.messages import ToolCall, ToolResult
from ...kernel.bases import ActionBase
from ...kernel.ports import ToolContext
from ..arguments.prepare import read_arguments

MOST_SHOWN = 60
_BEST, _NAMED = 8, 40
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")


class FindTools(ActionBase):
    """The tool `find_tools(query)`: returns the best matches with their parameters."""

    effect: Effect = "pure"
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
        scored = [(-_score(wanted, tool.name, tool.description), name) for name, tool in self._tools.items()]
        found = [self._tools[name] for score, name in sorted(scored)[:_BEST] if score]
        if found:
            return ToolResult([{"name": t.name, "description": t.description, "args": t.parameters} for t in found])
        names = sorted(self._tools)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return ToolResult(f"nothing fits {prepared!r}. Try other words. There are: {', '.join(names[:_NAMED])}{more}")


class UseTool(ActionBase):
    """The tool `use_tool(name, args)`. `unfold` turns its calls into calls of the named tool before anything else handles them.

    `act` is only reached by calls that name an unknown tool, and returns an error."""

    description = "Use a tool that was found."
    effect: Effect = "pure"
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
    """Split a text into words, including the parts of camelCase. Scripts without spaces are split into pairs of letters."""
    whole = _WORD.findall(_fold(text))
    parts = [*whole, *_WORD.findall(_fold(_HUMP.sub(" ", text)))]
    found = {word for word in parts if len(word) > 1 or ord(word) > 0x2E80}
    for word in whole:
        letters = [char for char in word if ord(char) > 0x2E80]
        found |= {a + b for a, b in pairwise(letters)} | set(letters if len(letters) < 2 else ())
    return found


def _fold(text: str) -> str:
    """Return the text without case and accents."""
    return "".join([char for char in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(char)])


def matching_words(task: str, name: str, description: str) -> int:
    """Return how well a tool fits a task, by their words. 0 if they have none in common."""
    return _score(_words(task), name, description)


def _score(wanted: set[str], name: str, description: str) -> int:
    """Score a tool. A word of its name counts three times as much; the beginning of a word counts too (`files`, `file`)."""
    named, told = _words(name), _words(description)
    return sum(3 * _near(word, named) + _near(word, told) for word in wanted)


def _near(word: str, among: set[str]) -> int:
    if word in among:
        return 2
    if len(word) == 1:  # one letter that is a word of its own, as in Chinese
        return int(any(word in other for other in among))
    return int(any(other.startswith(word[:4]) for other in among) if len(word) > 3 else 0)
