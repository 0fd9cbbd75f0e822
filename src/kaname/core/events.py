"""Events: facts are journaled and rebuild the state; a `Delta` is only shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from .messages import NOTHING, Message, ModelReply, ToolCall, ToolResult, Usage
from .record import field, record
from .steps import CallModel, Stop

Effect = Literal["pure", "idempotent", "compensable", "irreversible"]


@record
class Opened:
    """A run begins. `base` is the fact of another run that it goes on from: a fork, or a session's next run. `parent` is the
    run and the call that opened this one as a part of their work.

    `recipe` tells what the agent was then (instructions, model, tools), so that a replay can show what changed. `trace` is the
    `traceparent` of whoever asked for it.
    """

    session: str = ""
    user: str = ""
    base: tuple[str, int] | None = None
    recipe: Mapping[str, Any] = field(factory=dict)
    parent: tuple[str, str] | None = None
    trace: str = ""


@record
class Resumed:
    """The run is resumed. `renewed`: the limits start from zero, because somebody asked to go on after a stop. `died`: the
    process that executed it before ended without releasing it."""

    attempt: int
    renewed: bool = False
    died: bool = False


@record
class Received:
    """Input from outside: a new turn; before it, what was said elsewhere, by whom its role says."""

    message: Message


@record
class Noted:
    """A message that the strategy itself puts in: a nudge, a request to try again. `limit`: one is reached, and this asks for
    the last words."""

    message: Message
    limit: Stop | None = None


@record
class ModelReplied:
    """`step` is what was really asked; `request` fingerprints what was sent beside the messages."""

    reply: ModelReply
    step: CallModel
    request: str = ""


@record
class ToolStarted:
    """Intent, committed right before the effect. `key` is the idempotency key that the tool is handed."""

    call: ToolCall
    effect: Effect = "irreversible"
    key: str = ""
    attempt: int = 1


@record
class ToolFinished:
    result: ToolResult


@record
class Asked:
    key: str
    prompt: str
    options: tuple[str, ...] = ()
    call_id: str = ""
    in_doubt: bool = False  # the call was started before, and nobody knows how it ended
    about: ToolCall | None = None  # the call in question, with the arguments that its tool receives


@record
class Answered:
    """`by`: who said so, where several people may."""

    key: str
    answer: Any
    by: str = ""


@record
class HandedOff:
    to: str


@record
class Warned:
    source: str
    text: str


@record
class Custom:
    """A fact of somebody's own: a plan, what was recalled, a lesson. The last one of a name is in `state.custom[name]`, and it
    is shown as a chunk of that type, if it is for the run's readers. `data` is JSON."""

    name: str
    data: Any = None
    shown: bool = True


WITHHELD = "withheld:input"  # the name of the `Custom` fact that says which earlier messages of the user are blocked


def withheld(texts: Iterable[str], titles: Iterable[str]) -> Custom:
    """Return the fact that takes earlier messages out of the conversation, and titles made of them out of lists. It has their
    fingerprints, and does not repeat them."""
    marks = {"texts": [_fingerprint(text) for text in texts], "titles": [_fingerprint(title) for title in titles]}
    return Custom(WITHHELD, marks, shown=False)


def withholds(fact: Custom, kind: Literal["texts", "titles"], text: str) -> bool:
    """Return True if this is such a fact, and names that text."""
    listed = fact.data.get(kind) if fact.name == WITHHELD and isinstance(fact.data, Mapping) else None
    return isinstance(listed, list) and _fingerprint(text) in listed


def _fingerprint(text: str) -> str:
    from hashlib import sha256  # slow to load, and rarely needed

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@record
class Compacted:
    """The first `upto` messages are summed up: from now on `summary` stands in their place. The facts stay as they are.

    The user's question of the turn that goes on stays, even if it is among them. `usage`: what the summary cost.
    """

    upto: int
    summary: str
    usage: Usage = NOTHING


@record
class Stopped:
    """`decided`: by the strategy or a stop rule, and not by a policy, an error or somebody outside."""

    stop: Stop
    output: Any = None
    decided: bool = False


@record
class Unknown:
    """A fact that a later version wrote. It is kept as it is and changes nothing here."""

    type: str
    data: Any


@record
class Delta:
    text: str
    kind: Literal["text", "thinking", "progress"] = "text"
    call_id: str = ""


Fact = (
    Opened
    | Resumed
    | Received
    | Noted
    | ModelReplied
    | ToolStarted
    | ToolFinished
    | Asked
    | Answered
    | HandedOff
    | Warned
    | Custom
    | Compacted
    | Stopped
    | Unknown
)
Body = Fact | Delta


class Event(NamedTuple):
    """`seq` counts the facts of one run without gaps; a delta carries the number of the fact before it."""

    run_id: str
    seq: int
    time: float
    agent: str
    body: Body
