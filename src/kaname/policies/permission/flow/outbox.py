"""The outbox: calls that wait for the user, as facts of the run, and the one question about them."""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....core.calls import same_call
from ....core.errors import Suspend
from ....core.messages import ToolCall
from ....core.notices import Notice, join_notices, notice
from ....core.people.answers import OUTBOX as KEY
from ....core.people.answers import Selection, read_selection, selection_options
from ....core.people.visible import visible_json, visible_key, visible_line
from .judge import FlowVerdict

if TYPE_CHECKING:
    from ....kernel.view import RunView

OUTBOX = "outbox"  # the name of the fact
RULE = "flow"  # the name of the rule in questions
MOST = 20  # calls that one question is about
_LONGEST = 4_000  # characters of a content that is shown; targets are shown whole
WAITING = (
    "This call has not been made yet: it waits for the user, who is asked at the end. Do not repeat it. Go on with what does "
    "not depend on its result; when nothing is left to do, say so."
)


class WaitingCall(NamedTuple):
    """A call in the outbox, with the arguments that the model sent, and how it is shown to the user."""

    call_id: str
    name: str
    args: Any
    shown: Sequence[Mapping[str, Any]]
    asked_for: bool = True

    def is_same(self, call: ToolCall) -> bool:
        return same_call(ToolCall(self.call_id, self.name, self.args), call)


class Outbox(NamedTuple):
    """The calls of this turn that wait, and, once they are asked about, the ids under which they are made.

    `reply`: the number of the model's reply that is asked about; 0 before.
    """

    turn: int = 0
    waiting: tuple[WaitingCall, ...] = ()
    reply: int = 0
    ids: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{KEY}{self.reply}"

    def place(self, call: ToolCall) -> int | None:
        """Return the place of a call that is made again because the user is asked about it."""
        for place, call_id in enumerate(self.ids):
            if call_id == call.id and self.waiting[place].is_same(call):
                return place
        return None

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "waiting": [one._asdict() for one in self.waiting], "ids": list(self.ids)}


def outbox_of(view: RunView) -> Outbox:
    """Return the outbox of the current turn. Calls that are answered are no longer in it."""
    held = view.state.custom.get(OUTBOX)
    if not isinstance(held, Mapping) or held.get("turn") != view.state.turns:
        return Outbox(view.state.turns)
    waiting = tuple([WaitingCall(**one) for one in held["waiting"]])
    box = Outbox(held["turn"], waiting, held["reply"], tuple(held["ids"]))
    done = box.ids and all(call_id in view.state.results for call_id in box.ids)
    return Outbox(view.state.turns) if done else box


async def hold(call: ToolCall, sent: ToolCall, verdict: FlowVerdict, view: RunView) -> str:
    """Put a call into the outbox, and return what the model is told. Return "" if there is no room or it waits already."""
    async with view.scratch.setdefault(OUTBOX, Lock()):  # several calls of one reply come at the same time
        box = outbox_of(view)
        if any(one.call_id == call.id for one in box.waiting):  # noted before a crash
            return WAITING
        if any(one.is_same(sent) for one in box.waiting) or len(box.waiting) >= MOST:
            return ""
        added = WaitingCall(call.id, sent.name, sent.args, [mark._asdict() for mark in verdict.marks], verdict.asked_for)
        await view.note(OUTBOX, box._replace(waiting=(*box.waiting, added), reply=0, ids=()).to_json(), shown=False)
        return WAITING


async def release(first_place: int, view: RunView) -> tuple[ToolCall, ...]:
    """Return the calls that are made again because the user is asked about them now.

    `first_place`: the place of the first one in the model's reply, from which their ids follow.
    """
    box, number = outbox_of(view), view.state.replied + 1
    calls = [ToolCall(f"c{number}_{first_place + place}", one.name, one.args) for place, one in enumerate(box.waiting)]
    asked = box._replace(reply=number, ids=tuple([call.id for call in calls]))
    await view.note(OUTBOX, asked.to_json(), shown=False)
    return tuple(calls)


def answer_of(box: Outbox, view: RunView) -> Selection:
    """Return the calls that the user allows. Raises `Suspend` if the user has not been asked yet."""
    if box.key not in view.state.answers:
        raise Suspend(box.key, question_about(box), selection_options(len(box.waiting)), rules=(RULE,))
    said = read_selection(view.state.answers[box.key], len(box.waiting))
    return said or Selection(frozenset())  # what is unclear is a no


def question_about(box: Outbox) -> Notice:
    """Return the question: every call with its values, and where each of them comes from."""
    alone = len(box.waiting) == 1
    lines: list[str] = [
        notice("flow.ask_one", "The agent has read text from outside and wants to make this call. Allow it?")
        if alone
        else notice(
            "flow.ask_several",
            "The agent has read text from outside and wants to make these {count} calls. Which do you allow?",
            count=len(box.waiting),
        )
    ]
    for number, call in enumerate(box.waiting, 1):
        lines.append(visible_line(call.name) if alone else f"{number}. {visible_line(call.name)}")
        lines += [join_notices("", ("   ", describe_value(one))) for one in call.shown]
        if not call.asked_for:
            lines.append("   " + notice("flow.not_asked_for", "(your message does not ask for this)"))
    if not alone:
        lines.append(notice("flow.how", 'Answer yes for all, no for none, or with numbers ("1, 3").'))
    return join_notices("\n", lines)


def describe_value(shown: Mapping[str, Any]) -> Notice:
    """Return a value of a call with its origin, in one line."""
    text = visible_json(shown["value"])
    if shown["role"] == "content" and len(text) > _LONGEST:
        more = notice("flow.more", " … ({count} characters are not shown) … ", count=len(text) - _LONGEST)
        text = join_notices("", (text[: _LONGEST * 3 // 4], more, text[-_LONGEST // 4 :]))
    return join_notices("", (f"{visible_key(shown['name'])} = ", text, "  ← ", _origin(shown)))


def _origin(shown: Mapping[str, Any]) -> Notice:
    match shown["whose"]:
        case "user":
            return notice("flow.yours", "yours")
        case "source":
            return notice("flow.from", "from {source}", source=visible_line(shown["source"]))
        case "bounded":
            return notice("flow.bounded", "chosen by the agent")
        case _:
            return notice("flow.nowhere", "unknown: not clearly in your words, and in no result")
