"""Read a run back: fold its facts, after those of the runs from which it continues."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from logging import getLogger
from typing import Any, TypeVar

from ..core.codec import decode_state, encode_state
from ..core.errors import ConfigError, JournalError, RunNotFound
from ..core.events import Custom, Event, Opened, Stopped
from ..core.runs import RunInfo
from ..core.state import FOLD, State, evolve
from ..core.steps import Stop
from .ports import Journal, Lineage
from .threads import off_loop

T = TypeVar("T")
_EVERY = 100  # facts
_PAGE = 1000  # runs


@asynccontextmanager
async def close_at_the_end(facts: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close the facts at the end, if they can be closed: a program's own journal may return an iterator without `aclose`."""
    try:
        yield facts
    finally:
        if (close := getattr(facts, "aclose", None)) is not None:
            await close()


async def read_run(journal: Journal, run_id: str, upto: int | None = None) -> list[Event]:
    """Return the run's own facts, up to and including number `upto`. Raises `RunNotFound`."""
    events: list[Event] = []
    async for event in journal.read(run_id):
        if upto is not None and event.seq > upto:
            break
        events.append(event)
    if not events:
        raise RunNotFound(run_id)
    return events


async def list_runs(journal: Journal, fits: Callable[[RunInfo], bool], *, limit: int, **which: Any) -> list[RunInfo]:
    """Return the last runs that fit, the newest first. Others do not take their places.

    `which`: what else the runs have in common, as `Journal.runs` takes it.
    """
    found, before, page = list[RunInfo](), 0, limit
    while len(found) < limit:
        cards = await journal.runs(**which, before=before, limit=page)
        found += [card for card in cards if fits(card)]
        if len(cards) < page:
            break
        before, page = cards[-1].place, max(limit, _PAGE)
    return found[:limit]


async def read_whole(journal: Journal, run_id: str, upto: int | None = None) -> list[Event]:
    """Return the run's facts, after those of the runs from which it continues."""
    return (await journal.lineage(run_id, upto)).events


async def walk(journal: Journal, run_id: str, upto: int | None = None) -> Lineage:
    """Return the lineage of a run, read run by run, for a journal without a faster way."""
    lives: list[list[Event]] = []
    at: tuple[str, int | None] | None = (run_id, upto)
    while at is not None:
        lives.append(await read_run(journal, *at))
        first = lives[-1][0].body
        at = first.base if isinstance(first, Opened) else None
    return Lineage("", [event for events in reversed(lives) for event in events])


async def load(journal: Journal, run_id: str, upto: int | None = None) -> State:
    """Return the state of the run after that fact. Resuming, forking and the next run of a session begin here."""
    snapshot, events = await journal.lineage(run_id, upto, fold=FOLD)
    state = decode_state(snapshot) if snapshot else State()
    for event in events:
        evolve(state, event)
    return state


def agents_of_turn(state: State) -> list[str]:
    """Return the agents that had this turn of the conversation, the current one last."""
    handed = [(call_id, result.transfer) for call_id, result in state.results.items() if result.transfer]
    first = state.callers.get(handed[0][0], state.agent) if handed else state.agent
    return [first, *[to for _, to in handed]]


async def ancestors(journal: Journal, state: State) -> list[str]:
    """Return the agents that had the work in the runs above this one."""
    path = list[str]()
    while state.parent is not None:
        state = await load(journal, state.parent[0])
        path = [*agents_of_turn(state), *path]
    return path


async def add_fact(journal: Journal, run_id: str, fact: Custom, *, later: bool = True) -> None:
    """Add a fact to a run that is over, such as a rating. `later`: it changes the time of the run's last change.

    Raises `ConfigError` if the run is not over.
    """
    state = await load(journal, run_id)
    if state.stop is None:
        raise ConfigError.of("run.not_over", "run {run_id} has not ended yet", run_id=run_id)
    lease = await journal.claim(run_id)
    try:
        when = max(state.time, time.time()) if later else state.time
        await journal.append([Event(run_id, lease.seq + 1, when, state.agent, fact)], lease.epoch)
    finally:
        await journal.release(run_id, lease.epoch)


async def end_run(journal: Journal, run_id: str, stop: Stop) -> None:
    """End a run that is waiting or interrupted, and that no process executes."""
    lease = await journal.claim(run_id)
    try:
        state = await load(journal, run_id)
        if state.stop is None:
            ended = Event(run_id, lease.seq + 1, max(state.time, time.time()), state.agent, Stopped(stop))
            await journal.append([ended], lease.epoch)
    finally:
        await journal.release(run_id, lease.epoch)


async def keep_snapshot(journal: Journal, run_id: str, state: State, facts_before: int) -> None:
    """Store the state of an ended run now and then, so that the next run of its session need not fold all facts.

    A snapshot is stored at every hundredth fact, or at about every fortieth part of a long history, so that their size stays
    in proportion.
    """
    spacing = max(_EVERY, 1 << max(0, state.facts.bit_length() - 6))
    if state.stop is None or facts_before // spacing == state.facts // spacing:
        return
    try:
        await journal.keep_snapshot(run_id, state.seq, FOLD, await off_loop(encode_state, state))
    except JournalError as problem:  # nothing is lost but time
        getLogger("kaname").warning("no snapshot of run %s was kept: %s", run_id, problem)
