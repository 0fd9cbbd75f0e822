"""Convert an MCP result: text, structured data, pictures, sounds, resources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...core.messages import Media, ToolResult
from ..arguments.schema import problems


def to_result(given: Any, schema: Mapping[str, Any] | None = None) -> ToolResult:
    """Structured data, and the text beside it unless it is the same; what is neither is handed on as media, or named.

    `schema`: what the server said the data would be. Data that breaks it is handed on with a note: the call has been made.
    """
    texts, names, media = list[str](), list[str](), list[Media]()
    for block in given.content:
        text, picture = _read(block)
        (texts if picture is None else names).append(text)
        media += [picture] if picture is not None else []
    texts = [text for text in texts if text]
    said = "\n".join([*texts, *names])
    if given.is_error:
        return ToolResult(error=said or "the tool failed without a word")
    data = given.structured_content
    notes = (
        []
        if data is None or not schema
        else [f"its data does not fit its schema: {one}" for one in problems(data, schema, "data")]
    )
    notes += ["its schema promises data, and none came"] if schema and data is None else []
    if isinstance(data, dict) and set(data) == {"result"} and _wrapped(given, schema):
        data = data["result"]
    output = said if data is None else data if _same(texts, data) else {"text": "\n".join(texts), "data": data}
    if notes:
        output = {"result": output, "note": "the call was made; " + "; ".join(notes[:3])}
    return ToolResult(output, media=tuple(media))


def _wrapped(given: Any, schema: Mapping[str, Any] | None) -> bool:
    """How FastMCP marks what is no object, and was put into one."""
    told = (given.meta or {}).get("fastmcp")
    return bool((isinstance(told, dict) and told.get("wrap_result")) or (schema or {}).get("x-fastmcp-wrap-result"))


def _same(texts: list[str], data: Any) -> bool:
    """Whether the text is only the data once more, as one JSON text or as one for each item."""
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
    return f"[{resource.uri}: {kind}]", Media(kind, resource.blob, name=str(resource.uri))
