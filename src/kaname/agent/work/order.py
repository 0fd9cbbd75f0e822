"""The order of a queued run: its input, as JSON. Also the reason why it was set aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...core.codec import decode_body, encode_body
from ...core.errors import JournalError
from ...core.events import Received
from ...core.messages import Message
from ...core.notices import Notice, from_json, notice, to_json
from ...kernel.stores import AGAIN, QueuedRun
from ...run.request import RunRequest


def encode_order(messages: Sequence[Message]) -> str:
    """Return the order as it is queued."""
    return json.dumps([encode_body(Received(one))[1] for one in messages])


def request_for(item: QueuedRun, deps: Any = None) -> RunRequest:
    """Return the request for a queued run: begin it, or resume it if it has begun. A run that has ended stays as it is.

    Raises `JournalError` if the order cannot be read.
    """
    options: dict[str, Any] = {"deps": deps, "unfinished": True, "turns": "refuse"}
    if not item.order:
        return RunRequest(item.run_id, how="resume", **options)
    try:
        facts = [decode_body(Received.__name__, text) for text in json.loads(item.order)]
    except (ValueError, TypeError) as problem:
        raise JournalError.of(
            "queue.order", "the order of run {run_id} cannot be read: {problem!r}", run_id=item.run_id, problem=problem
        ) from problem
    messages = tuple([fact.message for fact in facts if isinstance(fact, Received)])
    return RunRequest(item.run_id, messages, "either", item.session, item.user, **options)


def encode_reason(reason: str) -> str:
    """Return the reason as it is queued: with its code, so that it can be shown in another language."""
    return json.dumps(to_json(reason), ensure_ascii=False) if isinstance(reason, Notice) else reason


def decode_reason(stored: str) -> str:
    if stored == AGAIN:
        return notice("queue.again", "retried by a person")
    return str(from_json(json.loads(stored))) if stored.startswith('{"text"') else stored
