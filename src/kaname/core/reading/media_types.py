"""Media types of files by their content: the first bytes, not the name, say what a file is."""

from __future__ import annotations

import os
import re
import stat
from mimetypes import guess_type
from pathlib import Path

from ..notices import notice


class WrongMediaType(ValueError):
    """The content of a file contradicts its name or its stated type."""


UNKNOWN = "application/octet-stream"
LARGEST_FILE = 20_000_000  # bytes of a file in a message; of all files of a request
_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"FLV\x01", "video/x-flv"),
    (b"\x00\x00\x01\xba", "video/mpeg"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x7fELF", "application/x-executable"),
    (b"MZ", "application/x-executable"),
    (b"\xcf\xfa\xed\xfe", "application/x-executable"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
)
_RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_ISO = {b"avif": "image/avif", b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heic", b"M4A ": "audio/mp4"}
_MARKUP = re.compile(rb"\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*|<!DOCTYPE[^>]*>\s*)*<(svg|html)\b", re.IGNORECASE | re.DOTALL)
_HEAD = 4096
_IN_ARCHIVES = ("application/vnd.openxmlformats", "application/vnd.oasis", "application/epub", "application/java", "font/")
# What players of sound and pictures call by several names, or what can hold either
_TIMED = ("audio", "video")


def type_of(content: bytes) -> str:
    """Return the media type of a file by its first bytes, "" if they are not known."""
    head = content[:_HEAD]
    if head[:4] == b"RIFF" and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head[4:8] == b"ftyp":
        return _ISO.get(head[8:12], "video/mp4")
    for start, kind in _STARTS:
        if head.startswith(start):
            return kind
    if len(head) > 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06:  # a frame of MPEG audio
        return "audio/mpeg"
    if (markup := _MARKUP.match(head)) is not None:
        return "image/svg+xml" if markup[1].lower() == b"svg" else "text/html"
    return ""


def checked_type(content: bytes, name: str = "", mime: str = "") -> str:
    """Return the media type of a file. Its content decides between types of one family, such as PNG and JPEG.

    Args:
        content: The content, or its first bytes.
        name: The name of the file.
        mime: The type that the caller states (default: the one that follows from the name).

    Raises:
        WrongMediaType: The content contradicts the name or the stated type.
    """
    stated = (mime or guess_type(name)[0] or "").partition(";")[0].strip().lower()
    stated = "" if stated in (UNKNOWN, "image/*") else stated
    found = type_of(content)
    if not stated or not content:
        return stated or found or (UNKNOWN if not _is_text(content) else "text/plain")
    if _agree(stated, found, content):
        family = stated.partition("/")[0]
        return found if family in ("image", *_TIMED) and found.startswith(f"{family}/") else stated
    raise contradiction(name, stated, found or ("text" if _is_text(content) else "unknown data"))


def contradiction(name: str, stated: str, found: str) -> WrongMediaType:
    """Return the error for a file whose content is another than its name or stated type says."""
    return WrongMediaType(
        notice(
            "media.contradiction",
            "{name} is not what it claims to be: it should be {stated}, but its content is {found}. It was not accepted.",
            name=name or "the file",
            stated=stated,
            found=found,
        )
    )


def _agree(stated: str, found: str, content: bytes) -> bool:
    family, real = stated.partition("/")[0], found.partition("/")[0]
    if "svg" in stated or "svg" in found:
        return (stated, found) in (("image/svg+xml", "image/svg+xml"), ("text/xml", "image/svg+xml"), ("text/html", found))
    if found in ("audio/ogg", "video/webm", "video/mp4", "audio/mp4") and family in _TIMED:  # containers of either
        return True
    if found == "application/zip":
        return stated == found or stated.startswith(_IN_ARCHIVES) or family == "application"
    if family in ("image", *_TIMED):  # a decoder is chosen by it: it must be known, or a type that is not in the table
        return real == family or (not found and not _is_text(content) and stated not in _KNOWN)
    if stated == "application/pdf":
        return found == stated
    return real in ("", "text") or (real == "application" and family != "text")


_KNOWN = frozenset({kind for _, kind in _STARTS} | set(_RIFF.values()) | set(_ISO.values()) | {"audio/x-wav", "video/mp4"})


def _is_text(content: bytes) -> bool:
    return b"\0" not in content[:_HEAD]


def read_regular(path: str | Path, most: int = 0) -> bytes:
    """Return the content of a file. `most`: read one byte more at most, so that the caller sees that it is larger.

    Raises:
        WrongMediaType: It is a pipe, a device or a folder: reading it could take for ever.
    """
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise WrongMediaType(notice("media.not_a_file", "{path} is not a file that can be read", path=path))
    with open(opened, "rb") as file:
        return file.read(most + 1 if most else -1)
