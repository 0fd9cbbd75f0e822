"""Write the conversation for a model without tools: calls as its own text, results as user messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...core.messages import NOTE, Message, ModelRequest, Part, Text, ToolResult, assistant
from ...core.record import replace


def as_text(
    request: ModelRequest, how: Iterable[str], written: Callable[[Message], str], heard: Callable[[ToolResult], str]
) -> list[Message]:
    """Return the messages. `how` follows the instructions; `written` and `heard` turn a reply and a result into text.

    Two user messages in a row become one: some servers require alternating turns.
    """
    instructions = [message.text for message in request.messages if message.role == "system" and message.text]
    system = "\n\n".join([*instructions, *how])
    out = [Message("system", (Text(system),))] if system else []
    for message in request.messages:
        after_user = bool(out) and out[-1].role == "user"
        if message.role == "assistant":
            if words := written(message):  # an empty message is refused by some servers
                out.append(assistant(words))
        elif message.role == "tool":
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            said = Text("\n".join([heard(part) for part in results]))
            _tell(out, (said, *[media for part in results for media in part.media]), "\n" if after_user else "")
        elif message.role == "user":
            _tell(out, message.parts, "\n\n" if after_user and message.text.startswith(NOTE) else "")
    return out


def _tell(out: list[Message], parts: tuple[Part, ...], gap: str) -> None:
    if gap:
        out[-1] = replace(out[-1], parts=(*out[-1].parts, Text(gap), *parts))
    else:
        out.append(Message("user", parts))
