"""Media that come into a run: their type is checked, pictures are made small enough, and blind models get a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import AgentError
from ..core.messages import Media, Message, Part
from ..core.record import replace
from ..kernel.bases import ModelBase, optional
from .sources import content_of, open_source

_SIDE, _MOST = 2_000, 3_700_000  # what all providers take: pixels a side, and bytes before base64
_LONGEST, _LONGEST_TEXT = 900.0, 20_000  # seconds of a sound that is written down without being asked for; characters
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff")


async def admit_message(message: Message, models: Sequence[Any]) -> Message:
    """Return the message with its media checked and prepared for these models."""
    parts: list[Part] = [await admit_media(part, models) if type(part) is Media else part for part in message.parts]
    return Message(message.role, tuple(parts))


async def admit_media(media: Media, models: Sequence[Any]) -> Media:
    """Check a medium and prepare it for these models.

    Raises:
        ConfigError: Its content contradicts its name or type, or it is too large.
    """
    unseen = any(not takes(model, media.mime) for model in models)
    if not media.data and (not media.url or not unseen):
        return media
    media = await open_source(media)
    if media.mime in _PICTURES:
        media = await _fit(media)
    if not media.text and any(not takes(model, media.mime) for model in models):
        media = replace(media, text=await text_of(media))
    return media


def takes(model: Any, mime: str) -> bool:
    """Return True if the model accepts such media, or if that is unknown."""
    taken = optional(model, ModelBase, "takes")
    return taken is None or mime.startswith(tuple(taken))


async def _fit(media: Media) -> Media:
    """Make a picture as small as providers want it. Without Pillow, or if it cannot be decoded, it stays as it is."""
    content = content_of(media)
    if len(content) <= _MOST and not _is_long(media.mime, content) and media.mime not in ("image/bmp", "image/tiff"):
        return media
    from .local import fit

    try:
        return await fit(media, _SIDE, _MOST)
    except AgentError:
        return media


def _is_long(mime: str, content: bytes) -> bool:
    """Return True if the head of the picture states a side that is too long. What is not known here is decoded."""
    if mime == "image/png":
        return max(int.from_bytes(content[16:20]), int.from_bytes(content[20:24])) > _SIDE
    if mime == "image/gif":
        return max(int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")) > _SIDE
    return len(content) > 400_000  # a smaller JPEG or WebP seldom has so many pixels


async def text_of(media: Media) -> str:
    """Return the best text for a model that cannot see or hear: text in a picture, a transcript, the text of a document."""
    from . import local

    family = media.mime.partition("/")[0]
    try:
        if media.mime in _PICTURES:
            text = (await local.read(media)).text or "(no text was found in the picture)"
        elif family == "audio":
            text = (await local.transcribe(media, "", _LONGEST)).text or "(nobody speaks in it)"
        elif family == "video":
            from .senses import Senses

            text = (await Senses(longest=_LONGEST).summarize(media)).text
        elif family == "text":
            text = content_of(media).decode("utf-8", "replace")
        elif media.mime == "application/pdf":
            text = await local.pdf(media)
        else:
            text = ""
    except AgentError as problem:
        return f"(its text could not be read: {problem.public})"
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "\n(shortened)"
