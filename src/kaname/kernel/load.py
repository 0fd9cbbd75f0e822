"""Reading a run back: fold its facts, after those of the runs it goes on from."""

from __future__ import annotations

from ..core.errors import RunNotFound
from ..core.events import Event, Opened
from ..core.state import State, evolve
from .ports import Journal


async def read_run(journal: Journal, run: str, upto: int | None = None) -> list[Event]:
    """The run's own facts, up to and with number `upto`."""
    events: list[Event] = []
    async for event in journal.read(run):
        if upto is not None and event.seq > upto:
            break
        events.append(event)
    if not events:
        raise RunNotFound(run)
    return events


async def load(journal: Journal, run: str, upto: int | None = None) -> State:
    """Where the run stood after that fact. Resuming, forking and a session's next run all begin here."""
    lives: list[list[Event]] = []
    at: tuple[str, int | None] | None = (run, upto)
    while at is not None:
        lives.append(await read_run(journal, *at))
        first = lives[-1][0].body
        at = first.base if isinstance(first, Opened) else None
    state = State()
    for events in reversed(lives):
        for event in events:
            evolve(state, event)
    return state
