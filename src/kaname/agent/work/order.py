"""The order of a queued run: its input, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...core.codec import decode_body, encode_body
from ...core.errors import JournalError
from ...core.events import Received
from ...core.messages import Message
from ...core.notices import notice
from ...journals.queue import QueuedRun
from ..opening.request import RunRequest


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
        told = notice(
            "queue.order", "the order of run {run_id} cannot be read: {problem!r}", run_id=item.run_id, problem=problem
        )
        raise JournalError(told) from problem
    messages = tuple([fact.message for fact in facts if isinstance(fact, Received)])
    return RunRequest(item.run_id, messages, "either", item.session, item.user, **options)
