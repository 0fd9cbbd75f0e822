"""Pictures, sounds and files in the text of a fact or a snapshot: a journal in a database stores them once, by their SHA-256.

The text that is stored holds only the hash. `detach_media` takes the content out, `attach_media` puts it back.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from ..core.errors import JournalError

MARK, STORED = '"type":"media"', '"stored":"'  # a text without them needs no look
LARGEST = 64_000_000  # bytes of one medium
_TEXT = r'(?:[^"\\]|\\.)*'
_WRITTEN = re.compile(rf'("type":"media","mime":"({_TEXT})",)"data":"([A-Za-z0-9+/=]{{1024,}})"(?=(?:,"name":"({_TEXT})")?)')
_HELD = re.compile(rf'("type":"media","mime":"{_TEXT}",)"stored":"([0-9a-f]{{64}})"')


class Medium(NamedTuple):
    hash: str
    content: bytes
    mime: str
    name: str


class StoredMedium(NamedTuple):
    """A medium of a run: its SHA-256, media type, name and size in bytes."""

    hash: str
    mime: str
    name: str
    size: int


def detach_media(text: str) -> tuple[str, list[Medium]]:
    """Return the text with hashes in the places of its media, and the media. Raises `JournalError` if one is too large."""
    found: list[Medium] = []

    def take(match: re.Match[str]) -> str:
        head, mime, data, name = match.groups()
        try:
            content = b64decode(data, validate=True)
        except NotBase64:
            return match[0]
        if b64encode(content).decode() != data:  # another spelling, which could not be given back
            return match[0]
        if len(content) > LARGEST:
            raise JournalError.of(
                "journal.medium_too_large",
                "a medium of {size:,} bytes cannot be stored; the limit is {limit:,}",
                size=len(content),
                limit=LARGEST,
            )
        hash = sha256(content).hexdigest()
        found.append(Medium(hash, content, _unquote(mime), _unquote(name or "")))
        return f'{head}"stored":"{hash}"'

    return _WRITTEN.sub(take, text), found


def attach_media(text: str, read: Callable[[str], bytes | None]) -> str:
    """Return the text with media in the places of their hashes. One that `read` does not find becomes empty."""

    def give(match: re.Match[str]) -> str:
        content = read(match[2])
        return f'{match[1]}"data":"{"" if content is None else b64encode(content).decode()}"'

    return _HELD.sub(give, text)


def hashes_in(text: str) -> list[str]:
    """Return the hashes of the media that belong into a text."""
    return [match[2] for match in _HELD.finditer(text)] if STORED in text else []


def _unquote(text: str) -> str:
    return str(json.loads(f'"{text}"'))
