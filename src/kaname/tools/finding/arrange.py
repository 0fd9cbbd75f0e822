"""`ToolSearch`: from how many tools on the model looks them up, and which tools it sees in any case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.errors import ConfigError
from ...core.messages import DELEGATE, TRANSFER, Message, system
from ...core.notices import notice
from ...kernel.bases import options_of
from ...kernel.ports import Action
from ...kernel.view import RunView

MOST_LISTED = 30
_WORD_END, _UNUSUAL, _LONGEST_GROUP = re.compile(r"[_.:/-]|(?<=[a-z])(?=[A-Z])"), re.compile(r"[^A-Za-z0-9_-]"), 50
_LINE, _MOST = 80, 24_000  # characters of a tool's line, and of all of them
_NAMES = (("find_tools", "find_more_tools"), ("use_tool", "use_found_tool"))  # the second if the user has the first
_HEAD = "More tools, which {find} describes. Call it before you say that something cannot be done."


class ToolSearch:
    """When an agent has many tools, the model is told their names, and looks up how to call them with `find_tools`.

        Agent(model, tools=[*tools, ToolSearch(above=50, always=["search_docs"])])

    Tools of MCP servers are looked up first; your own tools too, if there are more than `above` of them. What is sent before
    the conversation never changes, so that the provider's prompt cache holds.

    Args:
        above: The number of tools above which this happens (default 30). None to send all tools with every request.
        always: Names of tools that the model always sees.
        native: Leave it to the provider's own tool search, which gets all tools with their namespaces: an MCP server, or the
            tools whose names begin with the same word. By default that is done for the models that have it (OpenAI, from
            gpt-5.4 on, through the Responses API). True for a model of another name that has it, False for `find_tools`.

    Raises:
        ConfigError: `above` is negative, or `always` is not a list of names.
    """

    def __init__(self, above: int | None = MOST_LISTED, always: Iterable[str] = (), *, native: bool | None = None) -> None:
        names = [always] if isinstance(always, str) else [*always]
        if (above is not None and above < 0) or not all(isinstance(name, str) for name in names):
            told = notice("tool_search.options", "above must be 0 or more, or None, and always a list of names of tools")
            raise ConfigError(told)
        self.above, self.always, self.native = above, frozenset(names), native


class Arrangement:
    """The tools that an agent's model does not see, and the two with which it finds and calls them.

    If the provider looks tools up by itself, none are hidden, and `namespaces` has the groups in which it does.
    """

    def __init__(self, search: ToolSearch, kept: Iterable[str], *, searches: bool = False) -> None:
        self._native = searches if search.native is None else search.native
        self.namespaces: dict[str, str] = {}
        self._above, self._kept = search.above, frozenset({*kept, *search.always, TRANSFER, DELEGATE})
        self.hidden: frozenset[str] = frozenset()
        self.added: dict[str, Action] = {}

    def arrange(self, tools: Mapping[str, Action], served: frozenset[str], every: Mapping[str, Any]) -> None:
        """Decide anew, after tools have come or gone.

        Args:
            tools: The agent's tools, without the two.
            served: The names of those that servers have.
            every: All tools that can be called, by name; it is read when a call is made.
        """
        listed = [tool for tool in tools.values() if options_of(tool).listed]
        free = [tool for tool in listed if tool.name not in self._kept]
        many_own = self._above is not None and len([tool for tool in listed if tool.name not in served]) > self._above
        hidden = [tool for tool in free if many_own or tool.name in served]
        if self._above is None or len(listed) <= self._above or not hidden:
            self.hidden, self.added, self.namespaces = frozenset(), {}, {}
            return
        if self._native:
            self.namespaces = {tool.name: _namespace(tool) for tool in hidden}
            return
        from .actions import FindTools, UseTool

        find, use = [first if first not in tools else second for first, second in _NAMES]
        foreign = any(options_of(tool).server[0] for tool in hidden)
        made: tuple[Any, Any] = FindTools(hidden, find, use, served=foreign), UseTool(every, use)
        self.hidden, self.added = frozenset([tool.name for tool in hidden]), {tool.name: tool for tool in made}


def _namespace(tool: Action) -> str:
    """Return the group of a tool: its server, or the first word of its name."""
    group = options_of(tool).server[0] or _WORD_END.split(tool.name, 1)[0]
    return f"{_UNUSUAL.sub('_', group)[:_LONGEST_GROUP]}_tools"


class SystemWords:
    """Words that are added to the system message, which stays the same object while they are the same."""

    def __init__(self) -> None:
        self._made: tuple[Message | None, str, Message] | None = None

    def add(self, messages: tuple[Message, ...], words: str) -> Sequence[Message]:
        if not words:
            return messages
        own = messages[0] if messages and messages[0].role == "system" else None
        if self._made is None or self._made[:2] != (own, words):
            self._made = (own, words, system(f"{own.text}\n\n{words}" if own is not None else words))
        return (self._made[2], *(messages if own is None else messages[1:]))


class ToolList:
    """The context part that tells the model the names of the tools that it can look up, with a line about each."""

    def __init__(self, tools: Any) -> None:
        self._tools, self._words = tools, SystemWords()
        self._made: tuple[Any, str] = (None, "")

    async def __call__(self, messages: tuple[Message, ...], view: RunView) -> Sequence[Message]:
        found = self._tools.arrangement
        if self._made[0] is not found.hidden:
            self._made = (found.hidden, _list_of(self._tools, found))
        return self._words.add(messages, self._made[1])


def _list_of(tools: Mapping[str, Action], found: Arrangement) -> str:
    hidden = [tool for tool in tools.values() if tool.name in found.hidden]
    if not hidden:
        return ""
    lines = [f"- {tool.name}: {_first_line(tool.description)}" for tool in hidden]
    if sum(map(len, lines)) > _MOST:
        lines = [", ".join([tool.name for tool in hidden])[:_MOST]]
    return "\n".join([_HEAD.format(find=next(iter(found.added))), *lines])


def _first_line(description: str) -> str:
    line = description.strip().split("\n", 1)[0]
    sentence = line.split(". ", 1)[0].split("。", 1)[0]
    return sentence if len(sentence) <= _LINE else f"{sentence[: _LINE - 1]}…"
