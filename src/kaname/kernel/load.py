"""Reading a run back: fold its facts, after those of the runs it goes on from."""

from __future__ import annotations

import time
from logging import getLogger

from ..core.codec import decode_state, encode_state
from ..core.errors import ConfigError, JournalError, RunNotFound
from ..core.events import Custom, Event, Opened, Stopped
from ..core.notices import notice
from ..core.state import FOLD, State, evolve
from ..core.steps import Stop
from .ports import Journal, Lineage
from .threads import off_loop

_EVERY = 100  # facts


async def read_run(journal: Journal, run_id: str, upto: int | None = None) -> list[Event]:
    """The run's own facts, up to and with number `upto`."""
    events: list[Event] = []
    async for event in journal.read(run_id):
        if upto is not None and event.seq > upto:
            break
        events.append(event)
    if not events:
        raise RunNotFound(run_id)
    return events


async def read_whole(journal: Journal, run_id: str, upto: int | None = None) -> list[Event]:
    """The run's facts, after those of the runs that it went on from."""
    return (await journal.lineage(run_id, upto)).events


async def walk(journal: Journal, run_id: str, upto: int | None = None) -> Lineage:
    """The lineage of a run, read run by run: for a journal that has no better way."""
    lives: list[list[Event]] = []
    at: tuple[str, int | None] | None = (run_id, upto)
    while at is not None:
        lives.append(await read_run(journal, *at))
        first = lives[-1][0].body
        at = first.base if isinstance(first, Opened) else None
    return Lineage("", [event for events in reversed(lives) for event in events])


async def load(journal: Journal, run_id: str, upto: int | None = None) -> State:
    """Where the run stood after that fact. Resuming, forking and a session's next run all begin here."""
    snapshot, events = await journal.lineage(run_id, upto, fold=FOLD)
    state = decode_state(snapshot) if snapshot else State()
    for event in events:
        evolve(state, event)
    return state


async def add_fact(journal: Journal, run_id: str, fact: Custom, *, later: bool = True) -> None:
    """Write one more fact to a run that is over, such as what somebody thinks of it. `later`: it counts as news of the run."""
    state = await load(journal, run_id)
    if state.stop is None:
        raise ConfigError(notice("run.not_over", "{run_id} is not over yet", run_id=run_id))
    lease = await journal.claim(run_id)
    try:
        when = max(state.time, time.time()) if later else state.time
        await journal.append([Event(run_id, lease.seq + 1, when, state.agent, fact)], lease.epoch)
    finally:
        await journal.release(run_id, lease.epoch)


async def end_run(journal: Journal, run_id: str, stop: Stop) -> None:
    """End a run that nobody executes, and that has not ended: it waits, or was interrupted."""
    lease = await journal.claim(run_id)
    try:
        state = await load(journal, run_id)
        if state.stop is None:
            ended = Event(run_id, lease.seq + 1, max(state.time, time.time()), state.agent, Stopped(stop))
            await journal.append([ended], lease.epoch)
    finally:
        await journal.release(run_id, lease.epoch)


async def keep_snapshot(journal: Journal, run_id: str, state: State, facts_before: int) -> None:
    """Keep the state of a run that has ended, now and then, so that the next one of its session need not fold them all.

    At every hundredth fact, and at about every fortieth part of a long history: what is written stays in proportion to it.
    """
    spacing = max(_EVERY, 1 << max(0, state.facts.bit_length() - 6))
    if state.stop is None or facts_before // spacing == state.facts // spacing:
        return
    try:
        await journal.keep_snapshot(run_id, state.seq, FOLD, await off_loop(encode_state, state))
    except JournalError as problem:  # nothing is lost but time
        getLogger("kaname").warning("no snapshot of run %s was kept: %s", run_id, problem)
