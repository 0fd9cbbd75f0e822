"""The tools of an agent, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import getattr_static
from typing import Any

from ..core.errors import ConfigError, DuplicateToolError, ToolNotFoundError
from ..core.notices import notice
from ..kernel.ports import Action, Tool
from .definition import DefinedTool, TextTool
from .function import FunctionTool


def as_action(tool: Any) -> Action:
    """Whatever a user calls a tool, as the kernel runs it."""
    if isinstance(tool, FunctionTool | DefinedTool | TextTool) or _is_action(tool):
        return tool  # type: ignore[no-any-return]
    if isinstance(tool, Mapping):
        return DefinedTool(tool)
    if _is_text_tool(tool):
        return TextTool(tool)
    if callable(tool) and not isinstance(tool, type):
        return FunctionTool(tool, decorated=False)
    raise ConfigError(
        notice(
            "tool.wrong_kind",
            "{tool!r} is not a tool: expected a function, a definition dict, or an object with name, "
            "description and async execute(input_text)",
            tool=tool,
        )
    )


def _is_text_tool(tool: Any) -> bool:
    """Without asking it: a description may be worked out, and take its time."""
    described = getattr_static(tool, "description", None) is not None or hasattr(tool, "description")
    return not isinstance(tool, type) and described and hasattr(tool, "name") and hasattr(tool, "execute")


def _is_action(tool: Any) -> bool:
    return all(hasattr(tool, name) for name in ("name", "parameters", "effect", "prepare", "act"))


class ToolRegistry(Mapping[str, Action]):
    """A mapping of the tools that were registered, in their order."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any] | Mapping[str, Any] | Any] = ()) -> None:
        self._tools: dict[str, Action] = {}
        self.exchanged: frozenset[str] = frozenset()  # the tools of servers, which come and go
        for tool in tools:
            self.register(tool)

    def register(self, tool: Any) -> None:
        action = as_action(tool)
        if action.name in self._tools:
            raise DuplicateToolError(
                notice(
                    "tool.duplicate",
                    "there is already a tool named {name!r}; give one of them another name with @tool(name=…)",
                    name=action.name,
                )
            )
        self._tools[action.name] = action

    def exchange(self, names: Iterable[str], tools: Iterable[Any]) -> None:
        """Put these tools in the place of those: at once, for somebody may be looking."""
        gone = set(names)
        kept = {name: action for name, action in self._tools.items() if name not in gone}
        added = {action.name: action for action in map(as_action, tools)}
        self._tools, self.exchanged = {**kept, **added}, (self.exchanged - gone) | added.keys()

    def get(self, name: str, *default: Any) -> Any:
        """The tool, or `ToolNotFoundError` with the nearest name; with a default, as a mapping's `get`."""
        if name not in self._tools and not default:
            raise ToolNotFoundError(name, self._tools)
        return self._tools.get(name, *default)

    def has(self, name: str) -> bool:
        return name in self._tools

    def list_tools(self) -> list[str]:
        return sorted(self._tools)

    def __getitem__(self, name: str) -> Action:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)
