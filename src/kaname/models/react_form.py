"""An answer that fits a schema, of a model that is used to the ReAct protocol: JSON, perhaps under a label."""

from __future__ import annotations

from typing import Any

from ..core.messages import Message, ModelReply, ModelRequest, Text
from ..core.record import replace
from ..kernel.ports import Emit
from .react_reading import BLANK, read


async def reply_in_form(ask: Any, request: ModelRequest, emit: Emit) -> ModelReply:
    """JSON is shown as it comes. Anything else is held until all of it can be read, and shown without labels and thoughts."""
    shows: bool | None = None  # known when the first character is there

    async def show(text: str, kind: str = "text", call_id: str = "") -> None:
        nonlocal shows
        if kind == "text" and shows is None and (begun := text.lstrip(BLANK)):
            shows = begun[0] == "{"
            text = begun
        if kind != "text" or shows:
            await emit(text, kind)

    said: ModelReply = await ask(request, show)
    if shows or not said.message.text.strip():
        return said
    answer = read(said.message.text, {}).answer or said.message.text
    await emit(answer)
    kept = [part for part in said.message.parts if not isinstance(part, Text)]
    return replace(said, message=Message("assistant", (*kept, Text(answer))))
