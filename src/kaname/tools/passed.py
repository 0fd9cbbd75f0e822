"""A registry that was passed to an agent: its tools as they are now, called through the methods that it overrides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, ValuesView
from inspect import Parameter, isawaitable, signature
from typing import Any, cast

from ..core.errors import AgentError, BadArguments, Signal, ToolNotFoundError
from ..core.messages import ToolCall, ToolResult
from ..kernel.arguments import shown_arguments
from ..kernel.boundary import Border
from ..kernel.chain import overrides
from ..kernel.ports import Action, ToolContext
from .registry import ToolRegistry, as_action, calling
from .to_json import to_json, to_result

_LOOKS = ("get", "has", "list_tools")
_ROUTES = ("parse_arguments", "execute")


class PassedRegistry(ToolRegistry):
    """The tools of an agent: those of the registry that was passed in, and the agent's own beside them.

    A registry is a `ToolRegistry` or another object with `get`, `has` and `list_tools`. The agent's own tools (of its team, its
    tool servers, its memory) are not put into it: other agents may use it too.
    """

    def __init__(self, passed: Any, own: Iterable[Any] = ()) -> None:
        self.passed = passed
        self._made: dict[str, tuple[Any, Action]] = {}  # by name: what the registry has, and what is run for it
        super().__init__(own)

    def get(self, name: str, *default: Any) -> Any:
        try:
            return self._tools[name] if name in self._tools else self._made_of(self.passed.get(name), name)
        except (AgentError, LookupError):
            if default:
                return default[0]
        raise ToolNotFoundError(name, self)

    def __contains__(self, name: object) -> bool:
        return name in self._tools or (isinstance(name, str) and self.passed.has(name))

    def __getitem__(self, name: str) -> Action:
        """Return a tool to list it; a run that looks a tool up calls `get`."""
        if name in self._tools:
            return self._tools[name]
        return self._made_of(self.passed[name] if isinstance(self.passed, ToolRegistry) else self.passed.get(name), name)

    def _made_of(self, found: Any, name: str) -> Action:
        if found is None:
            raise ToolNotFoundError(name, self)
        if name not in self._made or self._made[name][0] is not found:
            self._made[name] = (found, _as_routed(found, self.passed))
        return self._made[name][1]

    def values(self) -> ValuesView[Action]:
        return ValuesView(self)

    def __iter__(self) -> Iterator[str]:
        own = not isinstance(self.passed, ToolRegistry) or overrides(self.passed, "list_tools", ToolRegistry)
        return iter([*(self.passed.list_tools() if own else self.passed), *self._tools])

    def __len__(self) -> int:
        return sum([1 for _ in iter(self)])


def is_registry(given: Any) -> bool:
    return isinstance(given, ToolRegistry) or all(callable(getattr(given, name, None)) for name in _LOOKS)


def _as_routed(tool: Any, registry: object) -> Action:
    """Return a tool as a run calls it: through `parse_arguments` and `execute` of its registry, if they are the user's own."""
    action = as_action(tool)
    if not isinstance(registry, ToolRegistry):
        return action
    routed = any(overrides(registry, method, ToolRegistry) for method in _ROUTES)
    return cast(Action, RoutedTool(registry, action)) if routed else action


class RoutedTool:
    """A tool of a registry with a `parse_arguments` or an `execute` of its own: a run calls those."""

    def __init__(self, registry: ToolRegistry, action: Action) -> None:
        self._registry, self._action = registry, action
        self._told = _context_parameters(registry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._action, name)

    def prepare(self, call: ToolCall) -> Any:
        with Border(passing=(AgentError, BadArguments, Signal)) as border:
            return self._registry.parse_arguments(call.name, self._arguments_text(call))
        raise BadArguments(f"the arguments of {call.name} do not fit: {border.failure}")

    def _arguments_text(self, call: ToolCall) -> Any:
        """Return the arguments as a `parse_arguments` of the user's own expects them: as the text that the model wrote."""
        parsed = isinstance(call.args, str) or not overrides(self._registry, "parse_arguments", ToolRegistry)
        return call.args if parsed else json.dumps(call.args, ensure_ascii=False)

    def shown(self, prepared: Any) -> Mapping[str, Any]:
        seen = prepared if isinstance(prepared, Mapping) else shown_arguments(self._action, prepared).args
        return {name: to_json(value, whole=True) for name, value in seen.items()}

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        known: dict[str, Any] = {"session_id": context.session, "agent_name": context.agent, "context": context}
        token = calling.set(context)
        try:
            given: Any = self._registry.execute(
                self._action.name, prepared, **{name: known[name] for name in known if name in self._told}
            )
            return to_result(await given if isawaitable(given) else given)
        finally:
            calling.reset(token)


def _context_parameters(registry: ToolRegistry) -> frozenset[str]:
    """Return the names of the parameters through which `execute` can get information about the run."""
    taken = signature(registry.execute).parameters
    every = {"session_id", "agent_name"} if any(one.kind is Parameter.VAR_KEYWORD for one in taken.values()) else set()
    return frozenset({*taken, *every})
