"""Estimate the tokens of texts and messages. The bound that limits on money need is in `policies/money/estimate.py`."""

from __future__ import annotations

from .messages import Media, Message, Provided, Text, Thinking, ToolCall, ToolResult
from .values import plain_text

_MEDIUM = 1_000  # tokens of a picture or another medium, roughly
_AROUND = 4  # tokens of a message itself


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: four Latin letters, or one letter of any other script, are one token."""
    return (quarter_tokens(text) + 3) // 4


def quarter_tokens(text: str) -> int:
    """Return the estimate in quarters of a token. Those of pieces add up to those of the text."""
    return 4 * len(text) - 3 * (len(text) if text.isascii() else len(text.encode("latin-1", "ignore")))


def tokens_of(message: Message) -> int:
    """Estimate the tokens of a message, a little too high."""
    count = _AROUND
    for part in message.parts:
        match part:
            case Text(text=text) | Thinking(text=text):
                count += estimate_tokens(text)
            case ToolCall(name=name, args=args):
                count += estimate_tokens(name) + estimate_tokens(plain_text(args))
            case ToolResult():
                count += estimate_tokens(part.error or (plain_text(part.output) if part.shown is None else part.shown))
            case Media():
                count += _MEDIUM
            case Provided(data=data):
                count += estimate_tokens(plain_text(data))
    return count
