"""The tools of an agent, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from contextvars import ContextVar
from inspect import getattr_static
from typing import Any

from ..core.errors import ConfigError, DuplicateToolError, Signal, ToolNotFoundError
from ..core.messages import ToolCall, ToolResult
from ..kernel.alarms import Late, within
from ..kernel.bases import NO_OPTIONS, ToolOptions, options_of
from ..kernel.boundary import Failure, attempt, log_failure
from ..kernel.ports import Action, Tool, ToolContext
from ..kernel.results import timeout_result
from .definition import DefinedTool, TextTool, from_object
from .function import FunctionTool
from .to_json import to_result

_FAULTS = (Exception, SystemExit, BaseExceptionGroup)
calling: ContextVar[ToolContext | None] = ContextVar("calling", default=None)  # the run's, while it calls `execute`


def as_action(tool: Any) -> Action:
    """Whatever a user calls a tool, as the kernel runs it."""
    if isinstance(tool, FunctionTool | DefinedTool | TextTool) or _is_action(tool):
        return tool  # type: ignore[no-any-return]
    if isinstance(tool, Mapping):
        return DefinedTool(tool)
    if _is_object_tool(tool):
        return from_object(tool)
    if callable(tool) and not isinstance(tool, type):
        return FunctionTool(tool, decorated=False)
    raise ConfigError.of(
        "tool.wrong_kind",
        "{tool!r} is not a tool: expected a function, a definition dict, an object with name, description and "
        "execute(…), or an object with name, description, parameters, effect, prepare(…) and act(…)",
        tool=tool,
    )


def _is_object_tool(tool: Any) -> bool:
    """Without asking it: a description may be worked out, and take its time."""
    if isinstance(tool, type) or not hasattr(tool, "name") or not callable(getattr(tool, "execute", tool)):
        return False
    return getattr_static(tool, "description", None) is not None or hasattr(tool, "description")


def _is_action(tool: Any) -> bool:
    if not all(hasattr(tool, name) for name in ("name", "parameters", "effect", "prepare", "act")):
        return False
    for name in () if hasattr(tool, "options") else ToolOptions.__match_args__:
        if getattr(tool, name, None) not in (None, getattr(NO_OPTIONS, name)):
            raise ConfigError.of(
                "tool.options",
                "tool {tool}: a tool with prepare(…) and act(…) declares {name!r} in its options: "
                "options = ToolOptions({name}=…), from kaname.kernel.bases",
                tool=tool.name,
                name=name,
            )
    return True


class ToolRegistry(Mapping[str, Action]):
    """A mapping of the registered tools by name, in their order.

    Args:
        tools: Functions, `Tool` objects, or definitions to register.

    Raises:
        DuplicateToolError: Two tools have the same name.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any] | Mapping[str, Any] | Any] = ()) -> None:
        self._tools: dict[str, Action] = {}
        self._served: frozenset[str] = frozenset()
        self.arrangement: Any = None  # of an agent: which of its tools the model looks up
        for tool in tools:
            self.register(tool)

    def register(self, tool: Any) -> None:
        action = as_action(tool)
        if action.name in self:
            raise DuplicateToolError.of(
                "tool.duplicate",
                "there is already a tool named {name!r}; give one of them another name with @tool(name=…)",
                name=action.name,
            )
        self._tools[action.name] = action
        self._arrange()

    def exchange(self, names: Iterable[str], tools: Iterable[Any]) -> None:
        """Put these tools in the place of those: at once, for somebody may be looking."""
        gone = set(names)
        kept = {name: action for name, action in self._tools.items() if name not in gone}
        added = {action.name: action for action in map(as_action, tools)}
        self._tools, self._served = {**kept, **added}, (self._served - gone) | added.keys()
        self._arrange()

    @property
    def exchanged(self) -> frozenset[str]:
        """The tools of servers, which come and go, and what is there because of them."""
        return self._served | self.arrangement.added.keys() if self._served and self.arrangement else self._served

    @property
    def hidden(self) -> frozenset[str]:
        """The names of the tools that the model looks up, instead of being told of them with every request."""
        return self.arrangement.hidden if self.arrangement else frozenset()

    @property
    def namespaces(self) -> Mapping[str, str]:
        """The groups in which the model's provider looks tools up, by the name of the tool."""
        return self.arrangement.namespaces if self.arrangement else {}

    def look_up(self, arrangement: Any) -> None:
        """Let the model look tools up, if there are many. See `ToolSearch`."""
        self.arrangement = arrangement
        self._arrange()

    def _arrange(self) -> None:
        if self.arrangement is not None:
            before = self.arrangement.added
            self._tools = {name: tool for name, tool in self._tools.items() if before.get(name) is not tool}
            self.arrangement.arrange(dict(self), self._served, self)
            self._tools |= self.arrangement.added

    def get(self, name: str, *default: Any) -> Any:
        """The tool, or `ToolNotFoundError` with the nearest name; with a default, as a mapping's `get`."""
        if name not in self._tools and not default:
            raise ToolNotFoundError(name, self._tools)
        return self._tools.get(name, *default)

    def has(self, name: str) -> bool:
        return name in self

    def list_tools(self) -> list[str]:
        return sorted(self)

    def parse_arguments(self, name: str, arguments: str | Mapping[str, Any]) -> Any:
        """Return the arguments as the tool receives them: parsed, repaired where there is one reading, checked, typed.

        Args:
            name: The tool's name. Raises `ToolNotFoundError`.
            arguments: The text that the model wrote, or an object. Raises `BadArguments` if it does not fit.
        """
        action: Action = self.get(name)
        return action.prepare(ToolCall("", action.name, arguments))

    async def execute(self, name: str, arguments: Any, session_id: str = "", agent_name: str = "") -> ToolResult:
        """Run a tool and return its `ToolResult`. An exception of the tool, or its timeout, is the result's `error`.

        Args:
            name: The tool's name. Raises `ToolNotFoundError`.
            arguments: What `parse_arguments` returned. A text is parsed first.
            session_id: Which session the tool is told that it works for, in `ToolContext.session`. A run sets it itself.
            agent_name: The same for `ToolContext.agent`.
        """
        action: Action = self.get(name)
        parsed = self.parse_arguments(name, arguments) if isinstance(arguments, str) else arguments
        context, limit = calling.get(), None
        if context is None:  # by a program; in a run the policies keep the time limit
            context, limit = ToolContext("", session_id, "", agent_name, "", "", 1), options_of(action).timeout
        try:
            work = attempt(action.act, parsed, context, passing=(Signal,), caught=_FAULTS)
            result = await (work if limit is None else within(limit, work))
        except Late:
            return timeout_result(limit, in_doubt=action.effect != "pure")
        if isinstance(result, Failure):
            log_failure(name, result)
            return ToolResult(error=str(result))
        return to_result(result)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> Action:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def values(self) -> ValuesView[Action]:
        return self._tools.values()

    def __len__(self) -> int:
        return len(self._tools)
