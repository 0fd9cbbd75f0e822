"""Events of a run: facts are journaled and rebuild the state; a `Delta` is only shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from .messages import NOTHING, Message, ModelReply, ToolCall, ToolResult, Usage
from .record import field, record
from .steps import CallModel, Stop

Effect = Literal["pure", "idempotent", "compensable", "irreversible"]


@record
class Opened:
    """A run begins.

    `base` is the fact of another run from which it continues: a fork, or the next run of a session. `parent` is the run and
    the call that opened this one as a part of their work. `recipe` describes the agent at that time (instructions, model,
    tools), so that a replay can show what changed. `trace` is the `traceparent` of the caller. `by` is the person who
    started it for the user; "" if the user did.
    """

    session: str = ""
    user: str = ""
    base: tuple[str, int] | None = None
    recipe: Mapping[str, Any] = field(factory=dict)
    parent: tuple[str, str] | None = None
    trace: str = ""
    by: str = ""


@record
class Resumed:
    """The run is resumed.

    `renewed`: the limits start from zero, because the run was resumed after a stop. `died`: the process that executed it
    before ended without releasing it.
    """

    attempt: int
    renewed: bool = False
    died: bool = False


@record
class Received:
    """Input from outside: a new turn, or, before it, a message from an earlier conversation; its role says whose."""

    message: Message


RESULT = "result:"  # before the id of a call: the key of the question that asks the caller for its result
BACKGROUND = "background:"  # before the id of a child run: the fact that notes it, and the message that tells of its end


@record
class Interjected:
    """A message to a run that is under way, or that came too late for the run before this one.

    It belongs to the current turn and changes no limit. `by`: the person who said it. `at`: when, in seconds since 1970; the
    event has the time when the run took it in. `urgent`: the model call under way was ended for it. `id`: what the journal's
    inbox knows it by.
    """

    message: Message
    by: str = ""
    at: float = 0.0
    urgent: bool = False
    id: str = ""


@record
class Noted:
    """A message that the strategy adds: a hint, or a request to try again.

    `limit`: the limit that was reached, if the message asks for a last answer.
    """

    message: Message
    limit: Stop | None = None


@record
class ModelReplied:
    """A model replied.

    `step` is the request as it was made; `request` is a fingerprint of everything sent except the messages.
    """

    reply: ModelReply
    step: CallModel
    request: str = ""


@record
class ToolStarted:
    """A call is about to run: recorded right before its effect. `key` is the idempotency key that the tool receives."""

    call: ToolCall
    effect: Effect = "irreversible"
    key: str = ""
    attempt: int = 1

    @property
    def run_id(self) -> str:
        """Return the run that started the call first: of a call that a fork takes over, the older run."""
        return self.key.removesuffix(f":{self.call.id}")


@record
class ToolFinished:
    result: ToolResult


@record
class Asked:
    """A question, for which the run waits.

    `by`: "other" if the user of the run must not answer it. `until`: when it expires, in seconds since 1970, 0 for never;
    `then` is its answer from that time on. `rules`: the rules of the policies that demand it; an answer holds for no other.
    """

    key: str
    prompt: str
    options: tuple[str, ...] = ()
    call_id: str = ""
    in_doubt: bool = False  # the call was started before, and how it ended is unknown
    about: ToolCall | None = None  # the call in question, with the arguments that its tool receives
    by: str = ""
    until: float = 0.0
    then: Any = None
    rules: tuple[str, ...] = ()

    @property
    def allows_effect(self) -> bool:
        """Return True if its answer can let a call run."""
        return bool(self.rules) or self.in_doubt


@record
class Answered:
    """A question was answered. `by`: the person who answered, if several people can."""

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
    """A fact of your own: a plan, a recalled memory, a lesson.

    `state.custom[name]` holds the last one of each name. If `shown`, readers of the run receive it as a chunk of that type.
    `data` is JSON.
    """

    name: str
    data: Any = None
    shown: bool = True


WITHHELD = "withheld:input"  # the name of the `Custom` fact that says which earlier messages of the user are blocked


def withholding_fact(texts: Iterable[str], titles: Iterable[str]) -> Custom:
    """Return the fact that removes earlier messages from the conversation, and titles made from them from lists.

    It holds fingerprints of the texts, not the texts.
    """
    marks = {"texts": [_fingerprint(text) for text in texts], "titles": [_fingerprint(title) for title in titles]}
    return Custom(WITHHELD, marks, shown=False)


def withholds(fact: Custom, kind: Literal["texts", "titles"], text: str) -> bool:
    """Return True if `fact` is such a fact and names `text`."""
    listed = fact.data.get(kind) if fact.name == WITHHELD and isinstance(fact.data, Mapping) else None
    return isinstance(listed, list) and _fingerprint(text) in listed


def _fingerprint(text: str) -> str:
    from hashlib import sha256  # slow to load, and rarely needed

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@record
class Compacted:
    """The first `upto` messages are replaced by `summary`. The facts stay as they are.

    The user's question of the current turn stays, even if it is among them. `usage`: the cost of the summary.
    """

    upto: int
    summary: str
    usage: Usage = NOTHING


@record
class Stopped:
    """The run stopped. `decided`: True if the strategy or a stop rule ended it, False for a policy, an error or a caller.

    `usage`: what model calls have cost that gave no reply.
    """

    stop: Stop
    output: Any = None
    decided: bool = False
    usage: Usage = NOTHING


@record
class Unknown:
    """A fact that a later version wrote. It is kept as it is and changes nothing here."""

    type: str
    data: Any


@record
class Delta:
    text: str
    kind: Literal["text", "thinking", "progress", "restarted"] = "text"
    call_id: str = ""


Fact = (
    Opened
    | Resumed
    | Received
    | Interjected
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
    """A fact or a delta with its place.

    `seq` counts the facts of one run without gaps; a delta has the number of the fact before it.
    """

    run_id: str
    seq: int
    time: float
    agent: str
    body: Body
