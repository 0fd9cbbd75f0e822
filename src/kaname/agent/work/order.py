"""The order of a queued run: its input and its answers, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.codec import decode_body, encode_body
from ...core.errors import JournalError
from ...core.events import Received
from ...core.messages import Message
from ...core.notices import notice
from ...journals.queue import QueuedRun
from ...kernel.results import must_be_json
from ..opening.request import RunRequest


def encode_order(messages: Sequence[Message] = (), answers: Mapping[str, Any] | None = None, by: str = "") -> str:
    """Return the order as it is queued."""
    given = {key: must_be_json(answer, f"the answer to {key!r}") for key, answer in (answers or {}).items()}
    return json.dumps({"messages": [encode_body(Received(one))[1] for one in messages], "answers": given, "by": by})


def request_for(item: QueuedRun, deps: Any = None) -> RunRequest:
    """Return the request for a queued run: begin it, or resume it if it has begun. A run that has ended stays as it is.

    Raises `JournalError` if the order cannot be read.
    """
    options: dict[str, Any] = {"deps": deps, "unfinished": True, "turns": "refuse"}
    if not item.order:
        return RunRequest(item.run_id, how="resume", **options)
    try:
        order = json.loads(item.order)
        facts = [decode_body(Received.__name__, text) for text in order["messages"]]
        answers, by = dict(order["answers"]), str(order["by"])
    except (ValueError, KeyError, TypeError) as problem:
        told = notice(
            "queue.order", "the order of run {run_id} cannot be read: {problem!r}", run_id=item.run_id, problem=problem
        )
        raise JournalError(told) from problem
    messages = tuple([fact.message for fact in facts if isinstance(fact, Received)])
    options |= {"answers": answers, "by": by}
    if not messages:
        return RunRequest(item.run_id, how="resume", **options)
    return RunRequest(item.run_id, messages, "either", item.session, item.user, **options)
