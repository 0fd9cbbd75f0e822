"""Runs that a conversation has left behind: the next turn began while they waited. Later turns hear what became of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..core.errors import RunNotFound
from ..core.events import Custom, Event, Fact, Interjected, Stopped, ToolFinished
from ..core.messages import EARLIER, Message, Text, ToolResult
from ..core.openai_shape import result_text
from ..core.people.labels import FLOW
from ..core.runs import UNDER_WAY
from ..core.state import State
from ..core.values import plain_text
from ..kernel.load import load, read_run
from ..kernel.ports import Journal

LEFT = "left:"  # before the id of a run: the fact that notes it, and the message that says what became of it
_MOST = 2_000  # characters of a result or an answer


async def news_of_left(journal: Journal, before: State, base: str, *, waits: bool) -> list[Fact]:
    """Return the facts with which the next turn begins: the run before it, if it waits, and what became of those left earlier.

    Args:
        before: The state from which the turn continues.
        base: The run that has this state.
        waits: True if that run is left behind as it waits; it may be continued later.
    """
    facts = list[Fact]()
    for name, noted in before.custom.items():
        if name.startswith(LEFT) and not noted.get("told"):
            facts += await _news(journal, name.removeprefix(LEFT), noted["seq"])
    if waits:
        facts.append(_note(base, before.seq))
    return facts


def _note(run_id: str, seq: int) -> Custom:
    return Custom(LEFT + run_id, {"seq": seq}, shown=False)


_EXECUTED = {*UNDER_WAY} - {"waiting"}


async def _news(journal: Journal, run_id: str, seq: int) -> list[Fact]:
    """Return a message about the work of a run since that fact. One that is executed is asked about in a later turn."""
    cards = await journal.runs(run_id=run_id, limit=1)
    if not cards or cards[0].seq == seq or cards[0].status in _EXECUTED:
        return []
    try:
        state, events = await load(journal, run_id), [one for one in await read_run(journal, run_id) if one.seq > seq]
    except RunNotFound:  # it was deleted meanwhile
        return []
    results = [one.body.result for one in events if isinstance(one.body, ToolFinished)]
    if not results and state.stop is None:
        return []
    source = EARLIER if FLOW in state.custom or any(one.untrusted for one in results) else ""
    said = Message("user", (Text(_describe(run_id, state, results, events), source=source),))
    news = Interjected(said, state.agent, time.time(), id=LEFT + run_id)
    return [news] if state.stop is not None else [news, _note(run_id, events[-1].seq)]


def _describe(run_id: str, state: State, results: Sequence[ToolResult], events: Sequence[Event]) -> str:
    lines = [f"(The earlier request that waited, run {run_id}, was continued meanwhile. Do not repeat what it has done.)"]
    lines += [f"{one.name}: {result_text(one)[:_MOST]}" for one in results]
    stops = [one.body for one in events if isinstance(one.body, Stopped)]
    if stops:
        how = "" if stops[-1].stop.kind == "completed" else f" ({stops[-1].stop.summary})"
        lines.append(f"Its answer{how}: {plain_text(state.output or '')[:_MOST] or '-'}")
    else:
        lines.append("It waits for another answer now.")
    return "\n".join(lines)
