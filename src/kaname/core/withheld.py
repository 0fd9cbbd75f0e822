"""What a guardrail withheld: the placeholder in its place, and how facts say that a message was blocked.

The rule is read in one place, the fold (`core.state`): a message that was blocked is the placeholder in `state.messages` from
then on, so that whatever is made of the state (the next request, a summary, a search, an export) never holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from .messages import Message, Role, Text
from .steps import Stop

NAME = "withheld:input"  # of the `Custom` fact that says which earlier messages are blocked
_HEAD = "[removed by a guardrail"
PLACEHOLDER = f"{_HEAD}]"


def placeholder(reason: str = "", role: Role = "user") -> Message:
    """Return the message that stands in the place of a blocked one."""
    return Message(role, (Text(f"{_HEAD}: {reason}]" if reason else PLACEHOLDER),))


def is_withheld(message: Message) -> bool:
    """Return True if the message is such a placeholder. Nobody said it: it is not learnt, found or summed up."""
    text = message.text
    return text.startswith((PLACEHOLDER, f"{_HEAD}: ")) and text.endswith("]") and not message.calls


def reason_of(message: Message) -> str:
    """Return why the message was blocked, where the placeholder says so."""
    return message.text[len(_HEAD) + 2 : -1]


def blocks_input(stop: Stop | None) -> bool:
    """Return True if the run ended because of what the user said. A stop that does not say what was blocked counts as one."""
    return stop is not None and stop.kind == "blocked" and stop.withheld in ("", "input")


def blocked(texts: Iterable[str], titles: Iterable[str]) -> Mapping[str, Any]:
    """Return the data of the fact that says so of earlier messages: by fingerprints, so that it does not repeat them."""
    return {"texts": [_fingerprint(text) for text in texts], "titles": [_fingerprint(title) for title in titles]}


def names(data: Any, kind: Literal["texts", "titles"], text: str) -> bool:
    """Return True if the data of such a fact names that text."""
    listed = data.get(kind) if isinstance(data, Mapping) else None
    return isinstance(listed, list) and _fingerprint(text) in listed


def _fingerprint(text: str) -> str:
    from hashlib import sha256  # slow to load, and rarely needed

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
