"""Tools that are not functions: definition dicts in the OpenAI shape, objects with `execute` or `__call__`, kaname's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

from ..core.durations import dollars, seconds
from ..core.errors import BadArguments, ConfigError, nearest
from ..core.events import Effect
from ..core.messages import ToolCall, ToolResult
from ..core.record import replace
from ..core.values import plain_text
from ..kernel.bases import ActionBase, ToolOptions
from ..kernel.chain import can_call
from ..kernel.ports import Repair, Tool, ToolContext
from ..kernel.results import result_from_caller
from .arguments.prepare import fitting_arguments, read_arguments
from .function import DEFAULT_TIMEOUT, FunctionTool, as_repair, check_effect, context_parameters, labels_of, run_function

_OURS = ("effect", "timeout", "execute", "undo", "reconcile", "labels", "price")
_THEIRS = (  # OpenAI's, Anthropic's and MCP's
    *("type", "function", "name", "description", "parameters", "strict", "input_schema", "cache_control", "inputSchema"),
    *("outputSchema", "output_schema", "annotations", "title", "icons", "_meta"),
)


class Doing(ActionBase):
    """An action that takes the arguments of its schema, such as a task of a workflow or work for a team."""

    description = ""
    effect: Effect = "idempotent"  # tried again, it finds what there is
    options = ToolOptions(labels={"role": "own"}, listed=False)  # what it runs is judged itself
    parameters: Mapping[str, Any] = {"type": "object"}

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, call: ToolCall) -> dict[str, Any]:
        return fitting_arguments(call, self.name, self.parameters)


class DefinedTool(Doing):
    """`{"type": "function", "function": {"name", "description", "parameters"}}`, with `execute` for what it does.

    Beside it `effect`, `timeout`, `undo`, `reconcile` and `price`, as of a function. Without `execute` the caller runs it: the
    run waits, and the answer to its question is the tool's result.
    """

    def __init__(self, definition: Mapping[str, Any]) -> None:
        inner = definition.get("function", definition)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ConfigError.of(
                "tool.definition",
                "a tool definition needs a name: "
                '{{"type": "function", "function": {{"name": …, "parameters": …}}}}; got {definition!r}',
                definition=definition,
            )
        self.name: str = inner["name"]
        for key in {*definition, *inner} - {*_OURS, *_THEIRS}:
            text = f"the definition of {self.name!r} has an unknown key {key!r}"
            raise ConfigError(text + nearest(str(key), [*_OURS, *_THEIRS]))
        self.description: str = inner.get("description") or self.name
        schema = inner.get("parameters") or inner.get("input_schema") or inner.get("inputSchema")
        self.parameters: Mapping[str, Any] = schema or {"type": "object", "properties": {}}
        self.effect = check_effect(self.name, definition.get("effect", "irreversible"))
        self._execute: Callable[..., Any] | None = definition.get("execute")
        self.options = _options_from(definition, self.name, lambda function: as_repair(function, function))
        if self._execute is None:
            self.effect = "idempotent"  # nothing runs here: asking again is harmless

    @property
    def identity(self) -> Any:
        return self._execute or ""

    @property
    def takes_context(self) -> bool:  # type: ignore[override]
        return self._execute is not None and bool(context_parameters(self._execute))

    async def act(self, prepared: dict[str, Any], context: ToolContext) -> ToolResult:
        if self._execute is None:
            return result_from_caller(ToolCall(context.call_id, self.name, prepared), "", context.state.answers)
        wanted = dict.fromkeys(context_parameters(self._execute), context)
        return await run_function(self._execute, {**prepared, **wanted}, context)


def _options_from(declared: Mapping[str, Any], name: str, repair: Callable[[Callable[..., Any]], Repair]) -> ToolOptions:
    """Return the options that a definition or an object declares under their names."""
    timeout, labels = declared.get("timeout", DEFAULT_TIMEOUT), declared.get("labels")
    undo, reconcile = [None if (one := declared.get(key)) is None else repair(one) for key in ("undo", "reconcile")]
    return ToolOptions(
        None if timeout is None else seconds(timeout),
        undo,
        reconcile,
        labels=None if labels is None else labels_of(labels, name),
        price=dollars(declared.get("price") or 0.0),
        listed=declared.get("listed", True),
    )


def from_object(tool: Any) -> DefinedTool | FunctionTool[..., Any] | TextTool:
    """Return an object with `name`, `description` and `execute` (or `__call__`) as what is run for it.

    `parameters` (a JSON Schema or a pydantic class) says what the model sends, else the signature of the method does. A method
    of one text is called with the text. It can have the attributes `effect`, `timeout`, `undo`, `reconcile`, `labels`, `price`
    and `listed`, as `@tool` has, and the method `unfold` of `ActionBase`.
    """
    made = _made_from(tool)
    if hasattr(tool, "listed"):
        made.options = replace(made.options, listed=tool.listed)
    if hasattr(tool, "unfold"):
        made.unfold = tool.unfold  # type: ignore[method-assign]
    return made


def _made_from(tool: Any) -> DefinedTool | FunctionTool[..., Any] | TextTool:
    if not isinstance(tool.name, str) or not tool.name:
        raise ConfigError.of(
            "tool.no_name",
            "the name of the tool {tool!r} must be a string that is not empty, not {name!r}",
            tool=tool,
            name=tool.name,
        )
    own: Any = getattr(tool, "parameters", None)
    method = getattr(tool, "execute", tool)
    schema = own.model_json_schema() if hasattr(own, "model_json_schema") else own
    named = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    if method is not tool and len(named) < 2 and _takes_text(method):
        return TextTool(tool, schema if named else None)
    if schema is None:
        return FunctionTool(method, name=tool.name, description=tool.description, **_declarations(tool))
    if not isinstance(schema, Mapping) or not can_call(method, **dict.fromkeys(named)):
        raise ConfigError.of(
            "tool.parameters",
            "tool {name}: `parameters` must be a JSON Schema or a pydantic class whose properties {method} "
            "accepts by name, not {given!r:.200}. Leave it out to use the signature.",
            name=tool.name,
            method=getattr(method, "__name__", "__call__"),
            given=own,
        )
    run = method if schema is own else partial(_call_validated, own, method)
    about = {"name": tool.name, "description": tool.description, "parameters": schema, "execute": run}
    return DefinedTool(about | _declarations(tool))


def _declarations(tool: Any) -> dict[str, Any]:
    """Return the attributes with which a tool declares its effect."""
    return {
        key: getattr(tool, key) for key in ("effect", "timeout", "undo", "reconcile", "labels", "price") if hasattr(tool, key)
    }


def _takes_text(method: Callable[..., Any]) -> bool:
    """Return whether a method is called with one text: `execute(input_text)`, whatever the parameter is called."""
    given = list(signature(method).parameters.values())
    texts = (Parameter.empty, Any, str, "Any", "str")
    if not given or given[0].kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD) or given[0].annotation not in texts:
        return False
    passed = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    others = [one for one in given[1:] if one.kind not in passed and one.name not in context_parameters(method)]
    return all(one.annotation is Parameter.empty and one.default is not Parameter.empty for one in others)


def _call_validated(model: Any, method: Callable[..., Any], **args: Any) -> Any:
    """Call a method with the arguments as a pydantic class makes them: typed, and with its defaults."""
    return method(**dict(model.model_validate(args)))


def _text_repair(function: Callable[..., Any]) -> Repair:
    """Adapt the `undo` or `reconcile` function of a tool that takes one text. Its first parameter gets the text."""
    named, repair = next(iter(signature(function).parameters)), as_repair(function, function)
    return lambda prepared, context: repair({named: prepared}, context)


class TextTool(ActionBase):
    """A class with `name`, `description` and `async execute(input_text)`: the model sends it one text.

    `parameters`, where it has them, name and describe that text; else the parameter of `execute` names it."""

    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The tool's whole input, as text."}},
        "required": ["input"],
    }

    def __init__(self, tool: Tool, parameters: Mapping[str, Any] | None = None) -> None:
        self.name = tool.name
        text = next(iter(signature(tool.execute).parameters))
        named = {"type": "object", "properties": {text: {"type": "string"}}, "required": [text]}
        self.parameters = parameters or (TextTool.parameters if text == "input_text" else named)
        self.effect = check_effect(self.name, getattr(tool, "effect", "irreversible"))
        options = _options_from(_declarations(tool), self.name, _text_repair)
        self.options = replace(options, declared=hasattr(tool, "effect"))  # if not, the worst is assumed after a crash
        self._tool = tool

    def __getattr__(self, name: str) -> Any:
        """Reach the attributes of the tool itself, but for those that mean something to the kernel."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._tool, name)

    @property
    def identity(self) -> Any:
        return self._tool.execute

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
        wanted = dict.fromkeys(context_parameters(self._tool.execute), context)
        return await run_function(partial(self._tool.execute, prepared), wanted, None)

    async def execute(self, input_text: str) -> ToolResult:
        return await run_function(partial(self._tool.execute, input_text), {}, None)
