"""Media that a model does not accept: they are replaced by their text, or by their name, and the model is told so."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.messages import Media, Message, ModelRequest, Part, Text, ToolResult
from ..core.openai_shape import result_text
from ..core.record import replace

_SENSES = {"image": "see pictures", "audio": "hear sound", "video": "see videos"}


def as_takeable(media: Media, taken: Sequence[str]) -> Media | Text:
    """Return the medium if its type begins with one of these, else a text that says what it is and what it says."""
    if media.mime.startswith(tuple(taken)) and (media.data or media.url):
        return media
    if media.url and not media.text:
        return media
    named = f"{media.mime} {media.name}" if media.name else media.mime
    if not media.data and not media.url and not media.text:
        return Text(f"[{named}: its content is no longer stored]")
    cannot = _SENSES.get(media.mime.partition("/")[0], "read such files")
    if not media.text:
        return Text(f"[{named}: not shown, because you cannot {cannot}]")
    return Text(f"[{named}. You cannot {cannot}: this text was read from it by a program]\n{media.text}\n[end of {named}]")


def seen_by(request: ModelRequest, taken: Sequence[str]) -> ModelRequest:
    """Return the request with the media that the model does not take replaced by text."""
    if not any(_media_of(part) for message in request.messages for part in message.parts):
        return request
    return replace(request, messages=tuple([_seen(message, taken) for message in request.messages]))


def _media_of(part: Part) -> tuple[Media, ...]:
    return (part,) if type(part) is Media else part.media if type(part) is ToolResult else ()


def _seen(message: Message, taken: Sequence[str]) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        if type(part) is Media:
            parts.append(as_takeable(part, taken))
        elif type(part) is ToolResult and part.media:
            told = [as_takeable(one, taken) for one in part.media]
            words = [one.text for one in told if isinstance(one, Text)]
            shown = "\n".join([result_text(replace(part, error=None)), *words]) if words else part.shown
            parts.append(replace(part, shown=shown, media=tuple([one for one in told if isinstance(one, Media)])))
        else:
            parts.append(part)
    return Message(message.role, tuple(parts))
