"""Recognise what a run of this agent has said, in the history that a caller sends along.

A chat client keeps the conversation itself and sends all of it with every request. What a run has read must not be forgotten
between two requests, and what no run has said must not count as the agent's own words. So the run is looked up in the
journal: by the first message of the conversation or among the last runs, then by the recorded texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..core.events import Asked, Event, ModelReplied, Stopped
from ..core.messages import EARLIER, Message, Text, ToolResult
from ..core.openai_shape import result_text
from ..core.people.asking import question_in_words, question_text
from ..core.people.labels import FLOW
from ..core.record import replace
from ..core.runs import title_of
from ..core.state import State
from ..core.values import plain_text
from ..kernel.load import load, read_run
from ..kernel.ports import Journal

_LOOKED_THROUGH, _LOADED = 200, 8  # runs of the user whose titles are compared, and runs that are read


class Recognised(NamedTuple):
    """The messages, and where the runs that have said them have read text from outside; "" if nowhere."""

    messages: list[Message]
    taint: str = ""


async def recognise(
    sent: Sequence[Message], admitted: Sequence[Message], journal: Journal, agent: str, user: str
) -> Recognised:
    """Return the admitted messages, without the mark of what comes from outside on those that a run of this agent and user has
    made. `sent`: the same messages as they came."""
    messages, taint = list(admitted), ""
    open_places = [place for place, one in enumerate(messages) if one.role in ("assistant", "tool") and one.quotes]
    first = next((one for one in messages if one.role == "user"), None)
    if not open_places or first is None:
        return Recognised(messages)
    for run_id in await _last_runs(title_of(first), journal, agent, user):
        state, spoken = await load(journal, run_id), _spoken(await read_run(journal, run_id))
        for place in tuple(open_places):
            if (known := _find(sent[place], messages[place], state, spoken)) is not None:
                messages[place] = known
                open_places.remove(place)
                taint = taint or str((state.custom.get(FLOW) or {}).get("source", ""))
        if not open_places:
            break
    return Recognised(messages, taint)


async def _last_runs(title: str, journal: Journal, agent: str, user: str) -> list[str]:
    """Return the last runs of an agent and user: those that began with this title, then others. The newest come first.

    A client may send only the last messages of a conversation.
    """
    cards = [card for card in await journal.runs(agent=agent, user=user, limit=_LOOKED_THROUGH) if not card.parent]
    fitting = [card.run_id for card in cards if card.title == title]
    return [*fitting[:_LOADED], *[card.run_id for card in cards if card.title != title][:_LOADED]]


def _find(sent: Message, message: Message, state: State, spoken: Sequence[str]) -> Message | None:
    """Return the message with the origin that a run has recorded for it; None if the run has not said it."""
    if message.role == "tool":
        parts = [_find_result(part, state) if isinstance(part, ToolResult) else part for part in message.parts]
        return None if None in parts else Message("tool", tuple([part for part in parts if part is not None]))
    if not sent.text.strip():
        return message
    wanted = (message.text.strip(), sent.text.strip())
    recorded = [one for one in state.messages if one.role == "assistant" and one.text.strip() in wanted]
    if recorded:
        return None if recorded[-1].quotes else _own(message)
    return _own(message) if _is_made_of(sent.text, spoken) else None


def _spoken(facts: Iterable[Event]) -> list[str]:
    """Return the words of a run to its user, in order: replies, questions and its output."""
    said = list[str]()
    for fact in facts:
        match fact.body:
            case ModelReplied(reply):
                said.append(reply.message.text)
            case Asked():
                said += [question_in_words(fact.run_id, fact.body), question_text(fact.body)]
            case Stopped(output=output) if output is not None:
                said.append(plain_text(output))
    return said


def _own(message: Message) -> Message:
    kept = [replace(part, source="") if isinstance(part, Text) and part.source == EARLIER else part for part in message.parts]
    return Message(message.role, tuple(kept))


def _find_result(part: ToolResult, state: State) -> ToolResult | None:
    said = result_text(part)
    recorded = [one for message in state.messages for one in message.parts if isinstance(one, ToolResult)]
    same = [one for one in recorded if result_text(one) == said and part.name in ("", one.name)]
    if len({one.name for one in same}) != 1 or any(one.source for one in same):
        return None
    return replace(part, name=same[-1].name, source="", untrusted=any(one.untrusted for one in same))


def _is_made_of(text: str, said: Iterable[str]) -> bool:
    """Return True if a text is made of nothing but these, in their order: a client shows several messages of a run as one."""
    rest = text.strip()
    for one in said:
        if one.strip() and rest.startswith(one.strip()):
            rest = rest.removeprefix(one.strip()).strip()
    return not rest
