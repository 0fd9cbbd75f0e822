"""Media that come into a run: their type is checked, pictures are made small enough, and blind models get a text.

The text becomes a part of the message or of the tool's result, so that guardrails, privacy rules and limits apply to it.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.util import find_spec
from typing import Any

from ..core.errors import AgentError, ConfigError
from ..core.messages import Media, Message, Part, Text
from ..core.reading.as_read import file_source, file_text
from ..core.reading.media_types import LARGEST_FILE
from ..kernel.bases import model_info
from .process.client import SenseError
from .sources import open_source

_SIDE, _MOST = 2_000, 3_700_000  # what all providers take: pixels a side, and bytes before base64
_LONGEST, _LONGEST_TEXT = 900.0, 20_000  # seconds of a sound that is written down without being asked for; characters
_KEPT = 64
_read: dict[bytes, str] = {}
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff")
_SENSES = {"image": "see pictures", "audio": "hear sound", "video": "see videos"}


async def admit_message(message: Message, model: Any, user: str) -> Message:
    """Return the message with its media checked and prepared for the model. Users take turns at that.

    Raises:
        ConfigError: The content of a medium contradicts its name or type, or it is too large.
    """
    parts: list[Part] = []
    for part, following in zip(message.parts, (*message.parts[1:], None), strict=True):
        if type(part) is not Media:
            parts.append(part)
            continue
        media = await _admit(part, model, user)
        parts.append(media)
        explained = isinstance(following, Text) and following.source == file_source(part)  # when it was queued
        if media.data and not takes(model, media.mime) and not explained:
            parts.append(Text(await explain(media, user), file_source(media)))
    return Message(message.role, tuple(parts))


async def _admit(media: Media, model: Any, user: str) -> Media:
    if media.url and not media.data and takes(model, media.mime):
        return media
    media = await open_source(media, most=LARGEST_FILE)
    return await _fit(media, user) if media.mime in _PICTURES else media


def takes(model: Any, mime: str) -> bool:
    """Return True if the model accepts such media, or if that is unknown."""
    taken = None if model is None else model_info(model).takes
    return taken is None or mime.startswith(tuple(taken))


async def explain(media: Media, user: str = "") -> str:
    """Return the text that replaces the medium for a model that cannot see or hear it."""
    named = media.name or media.mime
    cannot = _SENSES.get(media.mime.partition("/")[0], "read such files")
    return f"\n[You cannot {cannot}. A program has read {named}:]\n{await text_of(media, user)}\n[end of {named}]\n"


async def _fit(media: Media, user: str) -> Media:
    """Make a picture as small as providers want it, or refuse it. Without Pillow, it stays as it is."""
    content = media.content
    if len(content) <= _MOST and not _is_long(media.mime, content) and media.mime not in ("image/bmp", "image/tiff"):
        return media
    from .local import fit

    if find_spec("PIL") is None or find_spec("av") is None:
        return media
    try:
        return await fit(media, _SIDE, _MOST, user)
    except SenseError as problem:
        raise ConfigError.of(
            "media.not_fitted", "{name} cannot be scaled down: {why}", name=media.name or media.mime, why=problem
        ) from problem


def _is_long(mime: str, content: bytes) -> bool:
    """Return True if the head of the picture states a side that is too long. What is not known here is decoded."""
    if mime == "image/png":
        return max(int.from_bytes(content[16:20]), int.from_bytes(content[20:24])) > _SIDE
    if mime == "image/gif":
        return max(int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")) > _SIDE
    return len(content) > 400_000  # a smaller JPEG or WebP seldom has so many pixels


async def text_of(media: Media, user: str = "") -> str:
    """Return the best text for a model that cannot see or hear. The last ones are kept: a client may send a file again."""
    key = sha256(f"{media.mime} {media.data}".encode()).digest()  # who has the content can read it: no user is needed
    if key in _read:
        return _read[key]
    try:
        text = await _text_of(media, user)
    except AgentError as problem:
        return f"(it could not be read: {problem.public})"
    if len(_read) >= _KEPT:
        _read.pop(next(iter(_read)))
    _read[key] = text
    return text


async def _text_of(media: Media, user: str) -> str:
    """Read the text in a picture, write down a sound, or take the text of a document."""
    from . import local

    family = media.mime.partition("/")[0]
    if media.mime in _PICTURES:
        text = (await local.read(media, user)).told or "(no text was found in the picture)"
    elif family == "audio":
        text = (await local.transcribe(media, "", _LONGEST, user=user)).text or "(nobody speaks in it)"
    elif family == "video":
        from .senses import Senses

        text = (await Senses(longest=_LONGEST).summarize(media)).text
    elif family == "text" or media.mime == "image/svg+xml":
        text = file_text(media) or ""
    else:
        text = await local.pdf(media, user) if media.mime == "application/pdf" else "(there is no reader for such files)"
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "\n(shortened)"
