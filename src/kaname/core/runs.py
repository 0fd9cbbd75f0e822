"""The index card of a run: what a list of runs shows. A small fold that every journal keeps beside the facts."""

from __future__ import annotations

from dataclasses import dataclass

from .events import Answered, Asked, Event, ModelReplied, Opened, Received, Resumed, Stopped, ToolFinished
from .messages import Usage

_TITLE = 80


@dataclass(slots=True)
class RunInfo:
    """`status` is `running` (or died while it was), `waiting`, or the kind of its stop."""

    run: str
    agent: str = ""
    session: str = ""
    user: str = ""
    status: str = "running"
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    seq: int = 0
    input: int = 0
    output: int = 0
    cost: float | None = 0.0
    base: str = ""
    questions: int = 0


def index(card: RunInfo, event: Event) -> RunInfo:
    body = event.body
    card.seq, card.updated = event.seq, event.time
    card.created = card.created or event.time
    match body:
        case Opened():
            card.agent, card.session, card.user = event.agent, body.session, body.user
            card.base = body.base[0] if body.base else ""
        case Received():
            card.title = card.title or " ".join(body.message.text.split())[:_TITLE]
            card.status, card.questions = "running", 0
        case ModelReplied():
            _charge(card, body.reply.usage)
        case ToolFinished():
            _charge(card, body.result.usage)
        case Asked():
            card.status, card.questions = "waiting", card.questions + 1
        case Answered():
            card.questions = max(0, card.questions - 1)
            card.status = "waiting" if card.questions else "running"
        case Resumed():
            card.status = "waiting" if card.questions else "running"
        case Stopped():
            card.status = body.stop.kind
        case _:
            pass
    return card


def _charge(card: RunInfo, usage: Usage) -> None:
    card.input += usage.input
    card.output += usage.output
    card.cost = None if card.cost is None or usage.cost is None else card.cost + usage.cost
