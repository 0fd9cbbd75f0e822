"""The summary of a run that lists show: a small fold that every journal keeps next to the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .events import (
    Answered,
    Asked,
    Compacted,
    Custom,
    Event,
    ModelReplied,
    Opened,
    Received,
    Resumed,
    Stopped,
    ToolFinished,
    withholds,
)
from .messages import NOTHING, PLACEHOLDER, Media, Message, Usage
from .people.answers import asks_person
from .record import mutable

_TITLE = 80
_CONTROL = dict.fromkeys([*range(32), *range(127, 160)])  # to nothing
TITLE = "title"  # the name of the fact that gives a run another
EVALUATION = "evaluation"  # the agent of evaluations, and the name of the facts that say which cases there are
EVALUATION_PREFIX = "eval-"  # how the ids of evaluations and of their attempts begin
IMPROVEMENT_PREFIX = "improve-"  # how the ids of proposals for better texts begin
EVALUATIONS = "evals"  # the folder next to the journal with the workspaces of attempts
LESSONS = "lessons"  # the agent of the runs that hold lessons, and how the name of the fact begins that says which were told
UPLOAD = "upload~"  # how the ids of runs begin that hold a file until a message names it; no client can choose such an id
SHARED = "shared/"  # how the name of a session of several agents or users begins
UNDER_WAY = ("running", "interrupted", "waiting")  # every other status is an end


@mutable
class RunInfo:
    """A run as lists show it.

    `status` is `running`; `interrupted`, if no process executes it and it can be resumed; `waiting`; or how the run ended.
    `questions`: the open questions to a person. A run that waits for a provider's batch has none.
    `place`: the position of its opening in the order of all changes. Pass it to `runs(before=…)` to list the runs before it.
    """

    run_id: str
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
    parent: str = ""
    place: int = 0


def is_upload(card: RunInfo) -> bool:
    """Return True for a run that only holds a file."""
    return card.run_id.startswith(UPLOAD)


def is_own_run(card: RunInfo) -> bool:
    """Return True for a run that was started for its own sake: not inside another one, by an evaluation, or to hold lessons
    or a file."""
    made = card.parent or card.agent == LESSONS or is_upload(card)
    return not made and not card.run_id.startswith((EVALUATION_PREFIX, IMPROVEMENT_PREFIX))


class SessionInfo(NamedTuple):
    """A session as lists show it.

    `place`: the position of its last change in the order of all changes. `runs`: the ids of its runs, oldest first. `cost`:
    the cost of all runs, `None` if the cost of one is unknown.
    """

    place: int
    first: RunInfo
    last: RunInfo
    runs: tuple[str, ...]
    updated: float
    cost: float | None


class Tally(NamedTuple):
    """The runs of one status that were opened on one day: their number, and the sums of their tokens and known costs.

    `day` counts days since 1970; `unpriced` counts the runs whose cost is unknown. Runs inside other runs are left out.
    """

    status: str
    day: int
    runs: int
    tokens: int
    cost: float
    unpriced: int


def index(card: RunInfo, events: Iterable[Event]) -> RunInfo:
    """Update the summary of a run with its next facts."""
    for event in events:
        card.seq, card.updated = event.seq, event.time
        if (note := _NOTES.get(type(event.body))) is not None:
            note(card, event.body, event)
    return card


def _index_opened(card: RunInfo, body: Opened, event: Event) -> None:
    card.created, card.agent, card.session, card.user = event.time, event.agent, body.session, body.user
    card.base = body.base[0] if body.base else ""
    card.parent = body.parent[0] if body.parent else ""


def as_column(text: str) -> str:
    """Return a text as every database takes it: without zeros, and with half a surrogate pair replaced."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def as_title(text: str) -> str:
    """Return a text as a title: one short line without control characters, with which encrypted titles begin."""
    return as_column(" ".join(text.split())[:_TITLE].translate(_CONTROL).strip())


def title_of(message: Message) -> str:
    """Return the title of a run that begins with a message: the words of its author, or else the names of its files."""
    files = ", ".join([part.name or part.mime for part in message.parts if type(part) is Media])
    return as_title(message.own_text) or as_title(files or message.text)


def _index_custom(card: RunInfo, body: Custom, event: Event) -> None:
    if body.name == TITLE and isinstance(body.data, str):
        card.title = as_title(body.data)
    elif withholds(body, "titles", card.title):
        card.title = PLACEHOLDER


def _index_received(card: RunInfo, body: Received, event: Event) -> None:
    if not card.title and body.message.role == "user":
        card.title = title_of(body.message)
    card.status, card.questions = "running", 0


def _index_asked(card: RunInfo, body: Asked, event: Event) -> None:
    card.status, card.questions = "waiting", card.questions + asks_person(body.key)


def _index_answered(card: RunInfo, body: Answered, event: Event) -> None:
    card.questions = max(0, card.questions - asks_person(body.key))
    card.status = "waiting" if card.questions else "running"


def _index_resumed(card: RunInfo, body: Resumed, event: Event) -> None:
    card.status = "waiting" if card.questions else "running"


def _index_stopped(card: RunInfo, body: Stopped, event: Event) -> None:
    card.status = body.stop.kind
    _charge(card, body.usage)
    if body.stop.blocks_input:
        card.title = PLACEHOLDER


def _charge(card: RunInfo, usage: Usage) -> None:
    if usage is NOTHING:
        return
    card.input += usage.input
    card.output += usage.output
    card.cost = None if card.cost is None or usage.cost is None else card.cost + usage.cost


_NOTES: dict[type, Callable[[RunInfo, Any, Event], None]] = {
    Opened: _index_opened,
    Received: _index_received,
    ModelReplied: lambda card, body, event: _charge(card, body.reply.usage),
    ToolFinished: lambda card, body, event: _charge(card, body.result.usage),
    Compacted: lambda card, body, event: _charge(card, body.usage),
    Asked: _index_asked,
    Custom: _index_custom,
    Answered: _index_answered,
    Resumed: _index_resumed,
    Stopped: _index_stopped,
}
