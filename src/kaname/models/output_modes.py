"""How a typed answer is asked for: by the provider's own output format, by a tool that must be called, or in words."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from ..core.codec import dump
from ..core.errors import ModelNotFound, ModelUnavailable, RequestRefused
from ..core.messages import Message, ModelReply, ModelRequest, Part, Text, ToolCall, ToolSpec
from ..core.reading.lazy_regex import lazy_regex
from ..core.record import replace
from ..core.values import AnswerSchema, OutputMode
from ..kernel.ports import Emit
from .prompted.modes import WatchedEmit, with_schema_in_words

ANSWER, GIVE = "answer", "Give the final answer."  # the tool by which an answer in a wanted form is given
_REFUSED = lazy_regex(r"schema|response_format|output_(?:config|format)|text\.format|structured", re.IGNORECASE)
Ask = Callable[[ModelRequest, Emit], Awaitable[ModelReply]]


class OutputModes:
    """The modes of one model. Those that the provider has refused for a schema are not tried for it again."""

    def __init__(self) -> None:
        self._refused: list[tuple[Any, OutputMode]] = []

    async def reply(self, ask: Ask, request: ModelRequest, emit: Emit, modes: tuple[OutputMode, ...]) -> ModelReply:
        """Ask in the mode that the schema names, else in the first of these that the provider does not refuse.

        `ask` gets a request whose schema has the mode "native"; for a provider with a tool form of its own, also "tool".
        """
        schema: Any = request.schema
        left = [mode for mode in modes if not any(one is schema and known == mode for one, known in self._refused)]
        chosen = (schema.mode,) if schema.mode else tuple(left or modes[-1:])
        shown = WatchedEmit(emit)
        for mode in chosen:
            try:
                return await ask(replace(request, schema=AnswerSchema(schema, mode)), shown)
            except (RequestRefused, ModelNotFound, ModelUnavailable) as problem:
                if shown.anything or mode == chosen[-1] or not _REFUSED.search(problem.said):
                    raise
                self._refused.append((schema, mode))
        raise AssertionError("the last mode returns or raises")


async def reply_in_mode(ask: Ask, request: ModelRequest, emit: Emit) -> ModelReply:
    """Ask a provider without a tool form of its own in the mode that the schema of the request names."""
    mode = getattr(request.schema, "mode", "")
    if mode == "prompted":
        return await ask(with_schema_in_words(request), emit)
    if mode != "tool" or request.schema is None:
        return await ask(request, emit)
    forced = {"tool_choice": {"type": "function", "function": {"name": ANSWER}}}
    tools = (ToolSpec(ANSWER, GIVE, request.schema),)
    said = await ask(replace(request, tools=tools, schema=None, settings={**request.settings, **forced}), emit)
    given = [part for part in said.message.parts if isinstance(part, ToolCall) and part.name == ANSWER]
    if not given:
        return said
    text = given[0].args if isinstance(given[0].args, str) else dump(given[0].args)
    await emit(text)
    kept: list[Part] = [part for part in said.message.parts if not isinstance(part, Text | ToolCall)]
    return replace(said, message=Message("assistant", (*kept, Text(text))), stop_reason="end_turn")
