"""Media: those that a model does not accept are replaced by their names; and those that a model makes."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..core.messages import Media, Message, ModelRequest, Part, Text, ToolResult
from ..core.record import replace
from ..kernel.ports import Emit


def as_takeable(media: Media, taken: Sequence[str]) -> Media | Text:
    """Return the medium if its type begins with one of these, else a text that names it."""
    named = f"{media.mime} {media.name}" if media.name else media.mime
    if not media.data and not media.url:
        return Text(f"[{named}: its content is no longer stored]")
    if media.url or media.mime.startswith(tuple(taken)):
        return media
    return Text(f"[{named}: not shown, for this model takes none]")


def written_in(media: Media) -> str:
    """Return the content of a text file or an SVG as a model reads it, "" for other media."""
    if not media.data or not (media.mime.startswith("text/") or media.mime in _WRITTEN):
        return ""
    named = media.name or media.mime
    return f"\n[{named}:]\n{b64decode(media.data).decode('utf-8', 'replace')}\n[end of {named}]\n"


def seen_by(request: ModelRequest, taken: Sequence[str]) -> ModelRequest:
    """Return the request without the media that the model does not take. Their names stay in the text."""
    if not any(_media_of(part) for message in request.messages for part in message.parts):
        return request
    return replace(request, messages=tuple([_see_media(message, taken) for message in request.messages]))


def _media_of(part: Part) -> tuple[Media, ...]:
    return (part,) if type(part) is Media else part.media if type(part) is ToolResult else ()


def _see_media(message: Message, taken: Sequence[str]) -> Message:
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


_WRITTEN = ("image/svg+xml", "application/json", "application/xml", "application/yaml")
_SOUNDS = {b"RIFF": "wav", b"ID3": "mpeg", b"\xff\xfb": "mpeg", b"\xff\xf3": "mpeg", b"fLaC": "flac", b"OggS": "ogg"}


class Brought:
    """The pictures and the sound of a reply of chat completions, from its pieces."""

    def __init__(self) -> None:
        self._pictures: list[Media] = []
        self._sound: list[bytes] = []

    async def take(self, name: str, value: Any, emit: Emit, text: list[str]) -> None:
        """Take a piece. The words of a sound are the text of the reply."""
        if name == "images":
            for one in value if isinstance(value, list) else ():
                address = one.get("image_url") if isinstance(one, Mapping) else None
                self._pictures += _picture(address.get("url") if isinstance(address, Mapping) else address)
        elif isinstance(value, Mapping):
            if isinstance(said := value.get("transcript"), str) and said:
                text.append(said)
                await emit(said)
            if isinstance(data := value.get("data"), str):
                with suppress(ValueError):
                    self._sound.append(b64decode(data))

    def parts(self) -> list[Part]:
        sound = b"".join(self._sound)
        kind = next((kind for start, kind in _SOUNDS.items() if sound.startswith(start)), "pcm")
        return [*self._pictures, *([Media(f"audio/{kind}", b64encode(sound).decode())] if sound else [])]


def _picture(address: Any) -> list[Media]:
    if not isinstance(address, str) or not address:
        return []
    if not address.startswith("data:"):
        return [Media("image/*", url=address)]
    mime, _, data = address[5:].partition(";base64,")
    return [Media(mime, data)]
