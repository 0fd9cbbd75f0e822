"""`quarantine`: let a model without tools read what a tool returns, and pass on only a typed answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError
from ..core.messages import ToolCall, ToolResult
from ..core.notices import notice
from ..core.people.labels import read_labels
from ..core.record import replace
from ..core.values import plain_text
from ..kernel.bases import ActionBase, ToolOptions, optional, options_of, strategy_info
from ..kernel.ports import Action, ToolContext
from .registry import as_action

_CLEAN = ("integer", "number", "boolean", "null")


def quarantine(tool: Any, reader: Any, *, name: str = "", description: str = "") -> QuarantinedTool:
    """Return a tool that gives the result of another tool to a reader, and returns the reader's answer.

    The reader is an agent without tools and with an output type. Whatever the text tells it to do, it can only answer. If its
    output holds nothing but numbers, truth values and choices, the answer counts as trusted; a text does not.

    Args:
        tool: The tool that reads, such as `read_page`.
        reader: The agent that reads what it returns: `Agent(model, output=Literal["invoice", "other"], instructions="…")`.
        name: The name of the new tool. By default it is that of the tool.
        description: What the model is told about it.

    Raises:
        ConfigError: The reader has tools, or no output type.

    Example:
        quarantine(read_page, Agent("openai", output=bool, instructions="Does the page offer a refund?"))
    """
    return QuarantinedTool(as_action(tool), reader, name, description)


class QuarantinedTool(ActionBase):
    """A tool whose result only another agent reads."""

    def __init__(self, tool: Action, reader: Any, name: str, description: str) -> None:
        recipe = getattr(reader, "recipe", None)
        output = None if recipe is None else strategy_info(recipe.strategy).output
        if recipe is None or output is None or recipe.tools or recipe.team or getattr(reader, "servers", None) is not None:
            raise ConfigError.of(
                "quarantine.reader",
                "the reader of quarantine({name}) must be an Agent with an output type, without tools, servers or a team",
                name=tool.name,
            )
        self.name = name or tool.name
        self.description = description or f"{tool.description} (returns only: {recipe.instructions or self.name})"
        self.parameters, self.effect, self._tool, self._reader = tool.parameters, tool.effect, tool, reader
        own = options_of(tool)
        labels = replace(read_labels(own.labels, tool.name), result="trusted" if is_clean(output.schema) else "untrusted")
        self.options = ToolOptions(own.timeout, own.undo, own.reconcile, labels=labels, price=own.price)

    @property
    def identity(self) -> Any:
        return (self._tool, self._reader.recipe.instructions, [self._reader])

    def prepare(self, call: ToolCall) -> Any:
        return self._tool.prepare(replace(call, name=self._tool.name))

    def shown(self, prepared: Any) -> Mapping[str, Any] | None:
        shown: Mapping[str, Any] | None = optional(self._tool, ActionBase, "shown")(prepared)
        return shown

    async def act(self, prepared: Any, context: ToolContext) -> ToolResult:
        read = await self._tool.act(prepared, context)
        if read.is_error:
            return ToolResult(error=read.error, untrusted=True, retryable=read.retryable, usage=read.usage)
        answer = await context.run_child(self._reader, plain_text(read.output), name="reader")
        if not answer.completed:
            why = notice("quarantine.no_answer", "the text was read, but there is no answer: {why}", why=answer.stop.kind)
            return ToolResult(error=why, untrusted=True, usage=read.usage)
        return ToolResult(answer.recorded, usage=read.usage)


def is_clean(schema: Any, definitions: Mapping[str, Any] | None = None) -> bool:
    """Return True if values of a JSON Schema are numbers, truth values and choices only: no text that somebody wrote."""
    if not isinstance(schema, Mapping):
        return False
    known = definitions if definitions is not None else schema.get("$defs") or {}
    if "enum" in schema or "const" in schema:
        return True
    if (ref := schema.get("$ref")) is not None:
        name, rest = str(ref).rpartition("/")[2], dict(known)
        return name in known and is_clean(rest.pop(name), rest)  # without it: a schema that refers to itself has no end
    if "anyOf" in schema or "oneOf" in schema:
        return all(is_clean(one, known) for one in schema.get("anyOf", schema.get("oneOf")))
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "object" in kinds:
        return _is_clean_object(schema, known)
    if "array" in kinds:
        return is_clean(schema.get("items"), known)
    return all(kind in _CLEAN for kind in kinds)


def _is_clean_object(schema: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    fields = schema.get("properties") or {}
    is_closed = bool(fields) and schema.get("additionalProperties") in (None, False)
    return is_closed and all(is_clean(one, known) for one in fields.values())
