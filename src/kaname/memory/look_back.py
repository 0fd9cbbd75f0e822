"""`look_back`: search the whole of this conversation, also the part that the model no longer sees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from ..core.events import Event
from ..core.messages import Message, ToolResult, is_withheld
from ..core.sentences import sentence_ends
from ..core.state import what_was_said
from ..core.values import plain_text
from ..kernel.ports import ToolContext
from ..tools.function import tool
from ..tools.search.tokenize import query_terms, terms

_MOST, _AROUND = 5, 1  # places, and messages before and after each
_LONGEST = 1_500  # characters that are shown of one message
_PASSAGE = 400  # characters, about; a long message is ranked and shown by its passages


class Said(NamedTuple):
    """A message of a conversation: when, by whom, in which run."""

    time: float
    agent: str
    run_id: str
    message: Message

    @property
    def text(self) -> str:
        """All of it, but for what was only looked up again."""
        results = [part for part in self.message.parts if isinstance(part, ToolResult) and part.name != "look_back"]
        given = [one.error or (plain_text(one.output) if one.shown is None else one.shown) for one in results]
        return "\n".join([*([self.message.text] if self.message.text else []), *given])


def conversation(events: Sequence[Event]) -> list[Said]:
    """All messages that there ever were, whatever has been summed up since; what was blocked is a placeholder."""
    return [Said(event.time, event.agent, event.run_id, message) for event, message in what_was_said(events)]


@tool(effect="pure")
async def look_back(query: str, context: ToolContext) -> dict[str, Any]:
    """Search this conversation from its beginning, including the part that was summed up. Use it before you say that you do not
    know what was said, decided or found earlier.

    Args:
        query: the words to look for
    """
    lineage, asking = await context.journal.lineage(context.run_id), context.state.question
    every = [one for one in conversation(lineage.events) if one.message.role != "system" and one.message != asking]
    said = [one for one in every if not is_withheld(one.message)]
    places = find_places(query, [one.text for one in said])
    near = sorted({near for place in places for near in range(max(0, place - _AROUND), min(len(said), place + _AROUND + 1))})
    passages = [_passage(said[place], query) for place in near if said[place].text]
    return {"passages": passages} if passages else {"passages": [], "note": "nothing of that was said in this conversation"}


def find_places(query: str, texts: Sequence[str], most: int = _MOST) -> list[int]:
    """Return the places of the texts whose passages share the most with the question, the rare words counting more."""
    parts = [(place, text[start:end]) for place, text in enumerate(texts) for start, end in passages(text)]
    best = [parts[number][0] for number in _rank(query, [part for _, part in parts])]
    return list(dict.fromkeys(best))[:most]


def passages(text: str) -> list[tuple[int, int]]:
    """Find where the passages of a text begin and end: cut at the ends of sentences and lines, or within a long one."""
    ends = [*[end for _, end in sentence_ends(text, also=";")], len(text)]
    cuts, start = [0], 0
    for end in ends:
        while end - start > 2 * _PASSAGE:
            start += _PASSAGE
            cuts.append(start)
        if end - start >= _PASSAGE:
            start = end
            cuts.append(start)
    return [(begun, end) for begun, end in pairwise([*dict.fromkeys([*cuts, len(text)])])] or [(0, len(text))]


def _rank(query: str, texts: Sequence[str]) -> list[int]:
    """Rank the texts that share something with the question, the best first; of equals, the last first."""
    wanted = query_terms(query)
    letters = [term for term in wanted if len(term) == 1]  # a single kanji stands in no pair alone
    held = [Counter([*terms(text), *[letter for letter in letters if letter in text]]) for text in texts]
    known = {term: sum([term in one for one in held]) for term in wanted}
    weights = {term: math.log(1 + len(texts) / count) for term, count in known.items() if count}
    scores = {
        place: sum([weight * min(2, one[term]) for term, weight in weights.items()]) / math.log(8 + one.total())
        for place, one in enumerate(held)
        if any(term in one for term in weights)
    }
    return sorted(scores, key=lambda place: (-scores[place], -place))


def _passage(one: Said, query: str) -> dict[str, str]:
    when = datetime.fromtimestamp(one.time).astimezone().strftime("%Y-%m-%d %H:%M")
    who = one.agent if one.message.role == "assistant" else one.message.role
    return {"when": when, "who": who, "text": _around(one.text, query)}


def _around(text: str, query: str) -> str:
    """Return the text around the best-fitting passage of a long text."""
    if len(text) <= _LONGEST:
        return text
    places = passages(text)
    best = _rank(query, [text[start:end] for start, end in places])[:1]
    middle = sum(places[best[0]]) // 2 if best else 0
    start = min(max(0, middle - _LONGEST // 2), len(text) - _LONGEST)
    end = start + _LONGEST
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
