"""Convert messages to and from the OpenAI shape: for `agent.messages` and for messages that a caller passes."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from typing import Any

from .errors import ConfigError
from .messages import Media, Message, Part, Text, Thinking, ToolCall, ToolResult
from .reading.lenient_json import strict_json
from .values import plain_text


def to_openai(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        result = next(part for part in message.parts if isinstance(part, ToolResult))
        return {"role": "tool", "tool_call_id": result.call_id, "name": result.name, "content": result_text(result)}
    media = [part for part in message.parts if isinstance(part, Media)]
    content: Any = message.text
    if media:
        content = [{"type": "text", "text": message.text}] if message.text else []
        content += [{"type": "image_url", "image_url": {"url": m.url or f"data:{m.mime};base64,{m.data}"}} for m in media]
    shape: dict[str, Any] = {"role": message.role, "content": content}
    if calls := message.calls:
        shape["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
            for call in calls
        ]
    return shape


def from_openai(shape: Mapping[str, Any]) -> Message:
    role = shape.get("role")
    if role == "tool":
        result = ToolResult(shape.get("content"), call_id=shape.get("tool_call_id", ""), name=shape.get("name", ""))
        return Message("tool", (result,))
    if role not in ("system", "user", "assistant"):
        raise ConfigError.of(
            "message.role", "the role of a message must be system, user, assistant or tool, not {role!r}", role=role
        )
    parts = [*_content(shape.get("content"))]
    for call in shape.get("tool_calls") or ():
        function = call["function"]
        parts.append(ToolCall(call["id"], function["name"], _parse_arguments(function.get("arguments", "{}"))))
    return Message(role, tuple(parts))


def result_text(result: ToolResult) -> str:
    """Return the text of a result that the model reads: the error, the shortened form, or the whole output."""
    if result.error is not None:
        return f"Error: {result.error}" if result.output is None else f"Error: {result.error}\n{plain_text(result.output)}"
    return result.shown if result.shown is not None else plain_text(result.output)


def _arguments(call: ToolCall) -> str:
    return call.args if isinstance(call.args, str) else json.dumps(call.args, ensure_ascii=False)


def _parse_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        value = strict_json(arguments or "{}")
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _content(content: Any) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts: list[Part] = []
    for item in content:
        match item:
            case Media():
                parts.append(item)
            case {"type": "text", "text": str(text)}:
                parts.append(Text(text))
            case {"type": "thinking", "text": str(text)}:
                parts.append(Thinking(text))
            case {"type": "image_url", "image_url": {"url": str(url)}} if url.startswith("data:"):
                mime, _, data = url[5:].partition(";base64,")
                parts.append(Media(mime, data=data))
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                parts.append(Media("image/*", url=url))
            case {"type": "file", "file": {"file_data": str(url), **about}} if url.startswith("data:"):
                mime, _, data = url[5:].partition(";base64,")
                parts.append(Media(mime, data=data, name=str(about.get("filename") or "")))
            case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(form)}}:
                parts.append(Media("audio/mpeg" if form == "mp3" else f"audio/{form}", data=data))
            case _:
                raise ConfigError.of("message.part", "this part of a message is not supported: {item}", item=reprlib.repr(item))
    return parts
