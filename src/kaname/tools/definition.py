"""Tools that are not functions: definition dicts in the OpenAI shape, and classes with `execute(input_text)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..core.durations import seconds
from ..core.errors import BadArguments, ConfigError, Suspend, nearest
from ..core.messages import ToolCall, ToolResult
from ..core.notices import notice
from ..core.people.visible import visible_json
from ..core.values import plain_text
from ..kernel.ports import Repair, Tool, ToolContext
from .arguments.prepare import fitting_arguments, read_arguments
from .function import DEFAULT_TIMEOUT, as_repair, check_effect, context_parameters, run_function
from .to_json import to_result

_OURS = ("effect", "timeout", "execute", "undo", "reconcile")
_THEIRS = (  # OpenAI's, Anthropic's and MCP's
    *("type", "function", "name", "description", "parameters", "strict", "input_schema", "cache_control", "inputSchema"),
    *("outputSchema", "output_schema", "annotations", "title", "icons", "_meta"),
)


class DefinedTool:
    """`{"type": "function", "function": {"name", "description", "parameters"}}`, with `execute` for what it does.

    Beside it `effect`, `timeout`, `undo` and `reconcile`, as of a function. Without `execute` the caller runs it: the run
    waits, and the answer to its question is the tool's result.
    """

    def __init__(self, definition: Mapping[str, Any]) -> None:
        inner = definition.get("function", definition)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ConfigError(
                notice(
                    "tool.definition",
                    "a tool definition needs a name: "
                    '{{"type": "function", "function": {{"name": …, "parameters": …}}}}; got {definition!r}',
                    definition=definition,
                )
            )
        self.name: str = inner["name"]
        for key in {*definition, *inner} - {*_OURS, *_THEIRS}:
            told = f"the definition of {self.name!r} has an unknown key {key!r}"
            raise ConfigError(told + nearest(str(key), [*_OURS, *_THEIRS]))
        self.description: str = inner.get("description") or self.name
        schema = inner.get("parameters") or inner.get("input_schema") or inner.get("inputSchema")
        self.parameters: Mapping[str, Any] = schema or {"type": "object", "properties": {}}
        self.effect = check_effect(self.name, definition.get("effect", "irreversible"))
        self.timeout = _timeout(definition.get("timeout", DEFAULT_TIMEOUT))
        self._execute: Callable[..., Any] | None = definition.get("execute")
        undo, reconcile = definition.get("undo"), definition.get("reconcile")
        self.undo: Repair | None = None if undo is None else as_repair(undo, undo)
        self.reconcile: Repair | None = None if reconcile is None else as_repair(reconcile, reconcile)
        if self._execute is None:
            self.effect = "idempotent"  # nothing runs here: asking again is harmless

    def prepare(self, call: ToolCall) -> dict[str, Any]:
        return fitting_arguments(call, self.name, self.parameters)

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        if self._execute is None:
            return _from_caller(self.name, prepared, context)
        wanted = dict.fromkeys(context_parameters(self._execute), context)
        return await run_function(self._execute, {**prepared, **wanted}, context)


def _from_caller(name: str, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
    key = f"result:{context.call_id}"
    answers = context.scope.state.answers
    if key not in answers:
        asked = notice("external.run", "Run {name}({args}) and answer with its result.", name=name, args=visible_json(prepared))
        raise Suspend(key, asked, about=ToolCall(context.call_id, name, prepared))
    return to_result(answers[key])


def _timeout(given: float | str | None) -> float | None:
    return None if given is None else seconds(given)


class TextTool:
    """A class with `name`, `description` and `async execute(input_text)`: the model sends it one text.

    `parameters`, where it has them, name and describe that text."""

    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The tool's whole input, as text."}},
        "required": ["input"],
    }
    undo: Repair | None = None
    reconcile: Repair | None = None

    def __init__(self, tool: Tool) -> None:
        if not isinstance(tool.name, str) or not tool.name:
            raise ConfigError(notice("tool.no_name", "the tool {tool!r} needs a name, not {name!r}", tool=tool, name=tool.name))
        self.name = tool.name
        own = getattr(tool, "parameters", None)
        named = own.get("properties") if isinstance(own, Mapping) else None
        self.parameters = own if own is not None and isinstance(named, Mapping) and len(named) == 1 else TextTool.parameters
        self.declared = hasattr(tool, "effect")  # where nothing is said, the worst is assumed after a crash
        self.effect = check_effect(self.name, getattr(tool, "effect", "irreversible"))
        self.timeout = _timeout(getattr(tool, "timeout", DEFAULT_TIMEOUT))
        self._tool = tool

    @property
    def description(self) -> str:
        """When it is asked for: it may have to be worked out."""
        return self._tool.description

    def prepare(self, call: ToolCall) -> str:
        """One text in, however the model wrapped it: as `input`, as the only other argument, or as the bare text."""
        if isinstance(call.args, str) and not call.args.lstrip().startswith("{"):
            return call.args
        args = read_arguments(call)
        named = next((name for name in (*self.parameters["properties"], "input") if name in args), None)
        values = list(args.values()) if named is None else [args[named]]
        if len(values) != 1:
            (wanted,) = self.parameters["properties"]
            raise BadArguments(f'the arguments of {self.name} do not fit: send one text as {{"{wanted}": "…"}}')
        return plain_text(values[0])

    async def act(self, prepared: str, context: ToolContext) -> ToolResult:
        return await self.execute(prepared)

    async def execute(self, input_text: str) -> ToolResult:
        return await run_function(partial(self._tool.execute, input_text), {}, None)
