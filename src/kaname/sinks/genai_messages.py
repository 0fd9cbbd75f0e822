"""Write messages in the form of OpenTelemetry's GenAI conventions: a role, and parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..core.messages import Media, Message, ModelReply, Text, Thinking, ToolCall, ToolResult, assistant, system
from ..core.openai_shape import result_text
from ..core.values import plain_text

MOST = 100_000  # bytes of messages that one span carries: viewers and receivers refuse much larger ones
_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_call"}


def input_messages(messages: Sequence[Message]) -> tuple[str, int]:
    """Return the messages that a model received, and the number of messages left out because of their size.

    The first message stays (it is the question, or a summary), and so do the latest.
    """
    encoded = [message.encode_as("genai", _encode) for message in messages]
    kept, size = len(encoded), 0
    while kept > 1 and (size := size + len(encoded[kept - 1])) <= MOST:
        kept -= 1
    left_out = max(0, kept - 1)
    return _list([*encoded[:1], *encoded[kept:]]), left_out


def output_message(reply: ModelReply) -> str:
    """Return a model's reply, with the reason why it ended."""
    reason = _REASONS.get(reply.stop_reason or "", "error" if reply.problem else "stop")
    return _list([_dump({"role": "assistant", "parts": _parts(reply.message), "finish_reason": reason})])


def final_answer(output: Any) -> str:
    """Return the answer of a run."""
    message = assistant(plain_text(output))
    return _list([_dump({"role": "assistant", "parts": _parts(message), "finish_reason": "stop"})])


def instructions(text: str) -> str:
    """Return the instructions, which are separate from the messages."""
    return json.dumps(_parts(system(text)), ensure_ascii=False)


def _encode(message: Message) -> bytes:
    return _dump({"role": message.role, "parts": _parts(message)})


def _parts(message: Message) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text(text):
                parts.append({"type": "text", "content": text})
            case Thinking(text):
                parts.append({"type": "reasoning", "content": text})
            case ToolCall(call_id, name, args):
                parts.append({"type": "tool_call", "id": call_id, "name": name, "arguments": args})
            case ToolResult():
                parts.append({"type": "tool_call_response", "id": part.call_id, "response": result_text(part)})
            case Media(mime, url=url) if url:
                parts.append({"type": "uri", "mime_type": mime, "modality": mime.partition("/")[0], "uri": url})
            case Media(mime, data):  # a trace is no place for the bytes of a file
                parts.append({"type": "text", "content": f"[{part.name or mime}: {len(data) * 3 // 4:,} bytes]"})
    return parts


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=plain_text).encode("utf-8", "replace")


def _list(encoded: Sequence[bytes]) -> str:
    return f"[{b', '.join(encoded).decode()}]"
