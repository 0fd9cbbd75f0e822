"""Media that a model does not accept are replaced by their names, and the model is told so."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.messages import Media, Message, ModelRequest, Part, Text, ToolResult
from ..core.record import replace


def as_takeable(media: Media, taken: Sequence[str]) -> Media | Text:
    """Return the medium if its type begins with one of these, else a text that names it."""
    named = f"{media.mime} {media.name}" if media.name else media.mime
    if not media.data and not media.url:
        return Text(f"[{named}: its content is no longer stored]")
    if media.url or media.mime.startswith(tuple(taken)):
        return media
    return Text(f"[{named}: not shown, for this model takes none]")


def seen_by(request: ModelRequest, taken: Sequence[str]) -> ModelRequest:
    """Return the request without the media that the model does not take. Their names stay in the text."""
    if not any(_media_of(part) for message in request.messages for part in message.parts):
        return request
    return replace(request, messages=tuple([_seen(message, taken) for message in request.messages]))


def _media_of(part: Part) -> tuple[Media, ...]:
    return (part,) if type(part) is Media else part.media if type(part) is ToolResult else ()


def _seen(message: Message, taken: Sequence[str]) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        if type(part) is Media:
            told = as_takeable(part, taken)
            parts.append(told if isinstance(told, Media) else Text(f"\n{told.text}\n"))
        elif type(part) is ToolResult and part.media:  # its text says what they are
            parts.append(replace(part, media=tuple([one for one in part.media if isinstance(as_takeable(one, taken), Media)])))
        else:
            parts.append(part)
    return Message(message.role, tuple(parts))
