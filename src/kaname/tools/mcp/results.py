"""Convert an MCP result to a `ToolResult`: text, structured data, pictures, sounds and resources."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ...core.messages import Media, ToolResult
from ...core.people.labels import LABELS_KEY
from ..arguments.schema import problems

_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]{60,}")
_SHORTEST = 200  # characters of a bare text that can be a medium
_BEGINNINGS = {  # of base64, by which a medium is known where nothing else says what it is
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
    "JVBERi0": "application/pdf",
    "SUQz": "audio/mpeg",
    "UEsDB": "application/zip",
}
_DATA_ADDRESS = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/=]{60,})")


def to_result(given: Any, schema: Mapping[str, Any] | None = None) -> ToolResult:
    """Convert structured data, and the text too if it differs from the data. Other content becomes media, or is named.

    `schema`: the server's schema of the data. Data that does not match it is returned with a note, because the call has
    been made already."""
    texts, names, media = list[str](), list[str](), list[Media]()
    for block in given.content:
        text, picture = _read(block)
        (texts if picture is None else names).append(text)
        media += [picture] if picture is not None else []
    texts = [text for text in texts if text]
    said = "\n".join([*[_without_media(text, media) for text in texts], *names])
    if given.is_error:
        return ToolResult(error=said or "the tool failed without a word", untrusted=_is_untrusted(given))
    data = given.structured_content
    notes = _notes_on(data, schema) if schema else []
    if isinstance(data, dict) and set(data) == {"result"} and _is_wrapped(given, schema):
        data = data["result"]
    output = _merge_output(texts, said, data, media)
    if notes:
        output = {"result": output, "note": "the call was made; " + "; ".join(notes[:3])}
    return ToolResult(output, media=tuple(media), untrusted=_is_untrusted(given))


def _is_untrusted(given: Any) -> bool:
    """Return True if the server says that other people can write what it returned."""
    labels = (given.meta or {}).get(LABELS_KEY)
    return isinstance(labels, Mapping) and labels.get("result") != "trusted"


def _merge_output(texts: list[str], said: str, data: Any, media: list[Media]) -> Any:
    """Return the data, or the text if the data is only the text, or both if they differ. Media are replaced by their type."""
    if data is None or (isinstance(data, dict) and [*data.values()] == ["\n".join(texts)]):
        return said
    shown = _without_media(data, media)
    alone = _is_same(texts, data) or set(texts) <= set(_leaves(data))
    return shown if alone else {"text": "\n".join([_without_media(text, media) for text in texts]), "data": shown}


def _leaves(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            yield from _leaves(one)


def _text_without_media(text: str, media: list[Media]) -> str:
    for one in media:
        if one.data and one.data in text:
            text = text.replace(one.data, f"[{one.mime}]")
    mime = next((mime for beginning, mime in _BEGINNINGS.items() if text.startswith(beginning)), "")
    if mime and len(text) > _SHORTEST and _BASE64.fullmatch(text):
        return _collect(mime, text, media)
    return _DATA_ADDRESS.sub(lambda address: _collect(address[1], address[2], media), text)


def _notes_on(data: Any, schema: Mapping[str, Any]) -> list[str]:
    if data is None:
        return ["its schema promises data, and none came"]
    return [f"its data does not fit its schema: {one}" for one in problems(data, schema, "data")]


def _without_media(value: Any, media: list[Media]) -> Any:
    """Replace base64 media by `[mime]` and append them to `media`."""
    if isinstance(value, str):
        return _text_without_media(value, media)
    if isinstance(value, list):
        return [_without_media(one, media) for one in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("mimeType") or value.get("mime_type")
    return {
        name: _collect(kind, one, media)
        if isinstance(kind, str) and name in ("data", "blob") and isinstance(one, str) and _BASE64.fullmatch(one)
        else _without_media(one, media)
        for name, one in value.items()
    }


def _collect(kind: str, data: str, media: list[Media]) -> str:
    if data not in [one.data for one in media]:
        media.append(Media(kind, data))
    return f"[{kind}]"


def _is_wrapped(given: Any, schema: Mapping[str, Any] | None) -> bool:
    """Return True if FastMCP wrapped a value that is not an object into `{"result": …}`."""
    told = (given.meta or {}).get("fastmcp")
    return bool((isinstance(told, dict) and told.get("wrap_result")) or (schema or {}).get("x-fastmcp-wrap-result"))


def _is_same(texts: list[str], data: Any) -> bool:
    """Return True if the text only repeats the data, as one JSON text or one for each item."""
    if not texts or texts == [data] or texts == data:
        return True
    try:
        values = [json.loads(text) for text in texts]
    except ValueError:
        return False
    return data in (values[0] if len(values) == 1 else values, {"result": values[0]}) or values == data


def _read(block: Any) -> tuple[str, Media | None]:
    match block.type:
        case "text":
            return block.text, None
        case "image" | "audio":
            return f"[{block.mime_type}]", Media(block.mime_type, block.data)
        case "resource_link":
            told = f" ({block.description})" if getattr(block, "description", None) else ""
            return f"[{block.name}: {block.uri}{told}]", None
        case "resource":
            text, media = contents(block.resource)
            return (f"[{block.resource.uri}]\n{text}" if media is None else text), media
    return f"[{block.type}]", None


def contents(resource: Any) -> tuple[str, Media | None]:
    text = getattr(resource, "text", None)
    if text is not None:
        return text, None
    kind = resource.mime_type or "application/octet-stream"
    if kind.startswith("text/") or kind.partition(";")[0].endswith(("json", "xml", "yaml")):
        with suppress(ValueError):
            return b64decode(resource.blob, validate=True).decode(), None
    return f"[{resource.uri}: {kind}]", Media(kind, resource.blob, name=str(resource.uri))
