"""A message as a model reads it: attached text files, results and thoughts are text too."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from contextlib import suppress

from ..messages import FILE, Media, Message, Part, Text, Thinking, ToolCall, ToolResult, first_source
from ..openai_shape import result_text
from ..record import replace
from ..values import plain_text

_BINARY = ("image/", "audio/", "video/", "application/pdf")
_MARKUP = "image/svg+xml"


def file_source(media: Media) -> str:
    """Return the `source` of the text in a file."""
    return f"{FILE}{media.name or media.mime}"


def file_text(media: Media) -> str | None:
    """Return the text of an attached text file; None for another file, or one that is given by its address."""
    if not media.data or (media.mime.startswith(_BINARY) and media.mime != _MARKUP):
        return None
    try:
        content = b64decode(media.data)
    except (NotBase64, ValueError):
        return None
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    is_text = media.mime.startswith("text/") or media.mime == _MARKUP
    if b"\0" in content and not is_text:
        return None
    for encoding in ("utf-8-sig", "cp932") if is_text else ("utf-8-sig",):
        with suppress(UnicodeDecodeError):
            return content.decode(encoding)
    return content.decode("utf-8", "replace") if is_text else None


def with_file_text(media: Media, text: str) -> Media:
    """Return a text file with another content."""
    return replace(media, data=b64encode(text.encode("utf-8", "surrogatepass")).decode())


def as_read(message: Message) -> Message:
    """Return the message with a `Text` for every part that a model reads as text. Calls and other files stay as they are."""
    if all(type(part) in (Text, ToolCall) for part in message.parts):
        return message
    try:
        return message._read  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        made = Message(message.role, tuple([_as_text(part) for part in message.parts]))
        object.__setattr__(message, "_read", made)
        return made


def read_text(message: Message) -> str:
    """Return everything that a model reads of the message, with the arguments of calls."""
    shown = as_read(message)
    if shown is message and not message.calls:
        return message.text
    following = [part.source if type(part) is Text else "" for part in (*message.parts[1:], Text(""))]
    twice = [type(part) is Media and file_source(part) == after for part, after in zip(message.parts, following, strict=True)]
    texts = [part.text for part, skip in zip(shown.parts, twice, strict=True) if type(part) is Text and not skip]
    return "\n".join(["".join(texts), *[plain_text(call.args) for call in message.calls]])


def put_back(message: Message, read: Message) -> Message:
    """Return the message with what became of `as_read(message)`. The parts keep their kind and their origin.

    If its parts are others than before, its texts stand for the whole message, with the first source of the message.
    """
    shown = as_read(message)
    if [type(part) for part in read.parts] == [type(part) for part in shown.parts]:
        pairs = zip(message.parts, shown.parts, read.parts, strict=True)
        return Message(message.role, tuple([_put_back(part, before, now) for part, before, now in pairs]))
    if results := [part for part in message.parts if type(part) is ToolResult]:
        return Message(message.role, tuple([replace(one, output=read.text, error=None, shown=None) for one in results]))
    source = first_source(shown.parts)
    kept = [replace(part, source=part.source or source) if type(part) is Text else part for part in read.parts]
    return Message(message.role, (*kept, *(() if read.calls else message.calls)))


def _as_text(part: Part) -> Part:
    match part:
        case ToolResult():
            return Text(result_text(part), part.source)
        case Thinking(text):
            return Text(text)
        case Media() if (content := file_text(part)) is not None:
            return Text(content, file_source(part))
    return part


def _put_back(part: Part, before: Part, now: Part) -> Part:
    if type(before) is not Text or type(now) is not Text:
        return now
    if now.text == before.text:
        return part
    match part:
        case ToolResult():
            return replace(part, output=now.text, error=None, shown=None)
        case Thinking():
            return Thinking(now.text)  # the signature was for another text
        case Media():
            return with_file_text(part, now.text)
    return replace(before, text=now.text)
