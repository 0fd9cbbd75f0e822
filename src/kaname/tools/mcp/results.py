"""What a server gave back, as a result: text, structured data, pictures, sounds, resources."""

from __future__ import annotations

from typing import Any

from ...core.messages import Media, ToolResult


def to_result(given: Any) -> ToolResult:
    """Structured data goes before its own text; what is neither text nor data is handed on as media, or named."""
    texts, media = [], []
    for block in given.content:
        text, picture = _read(block)
        texts += [text] if text else []
        media += [picture] if picture is not None else []
    said = "\n".join(texts)
    if given.is_error:
        return ToolResult(error=said or "the tool failed without a word")
    data = given.structured_content
    if isinstance(data, dict) and set(data) == {"result"}:  # how a server wraps what is no object
        data = data["result"]
    return ToolResult(said if data is None else data, media=tuple(media))


def _read(block: Any) -> tuple[str, Media | None]:
    match block.type:
        case "text":
            return block.text, None
        case "image" | "audio":
            return f"[{block.mime_type}]", Media(block.mime_type, block.data)
        case "resource_link":
            return f"[{block.name}: {block.uri}]", None
        case "resource":
            return contents(block.resource)
    return f"[{block.type}]", None


def contents(resource: Any) -> tuple[str, Media | None]:
    text = getattr(resource, "text", None)
    if text is not None:
        return text, None
    kind = resource.mime_type or "application/octet-stream"
    return f"[{resource.uri}: {kind}]", Media(kind, resource.blob, name=str(resource.uri))
