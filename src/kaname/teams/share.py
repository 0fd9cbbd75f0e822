"""Share a session with other people: one that exists already goes on as a shared one, with all that was said in it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..core.errors import InvalidState
from ..core.events import Custom, Event, Fact, Opened, Stopped
from ..core.runs import SHARED, TITLE, UNDER_WAY
from ..core.steps import Stop
from ..kernel.load import add_fact, load
from ..kernel.ports import Journal
from ..kernel.threads import off_loop
from ..memory.sessions import Session, Sessions
from ..run.recipe import describe
from ..run.request import check_ids, new_run_id
from .meeting import Meeting, Right

_MEMBERS = "members"  # the fact that says with whom a session is shared


async def share_session(
    agents: list[Any], session_id: str, people: Mapping[str, Right], *, agent: str = "", owner: str | None = None
) -> Meeting:
    """Share a session, new or existing, and return it as a `Meeting` of these people and those it was shared with before.

    They see what was said and, as far as their rights go, continue it. The user whose session it was may approve. What is said
    later in the original session is not seen here.

    Args:
        agents: The agents that answer; they share one journal.
        session_id: The session.
        people: With whom, and what each may do: "read", "speak" or "approve".
        agent: The agent whose session it is, if several have one of that id.
        owner: The user whose session it is, if several have one of that id.

    Raises:
        InvalidState: A run of the session is under way, or waits for an answer.
        ConfigError: Several agents or users have such a session, or none of `agents` is its agent.
    """
    check_ids(session_id=session_id)
    session_id = session_id.removeprefix(SHARED)
    meeting = Meeting(session_id, agents, dict(people))  # it checks what it is given
    journal = meeting.journal
    shared = await meeting.record()
    if shared is not None:
        known = await members(journal, shared)
        await add_fact(journal, shared.runs[0], Custom(_MEMBERS, {**known, **people}, shown=False), later=False)
        return Meeting(session_id, agents, {**known, **people})
    own = await Sessions(journal).named(session_id, agent=agent, user=owner)
    everyone: dict[str, Right] = {own.user: "approve"} if own is not None and own.user else {}
    everyone |= people
    await _go_on_as_shared(Meeting(session_id, agents, everyone), own)
    return Meeting(session_id, agents, everyone)


async def members(journal: Journal, session: Session) -> dict[str, Right]:
    """Return with whom a session is shared, and what each may do."""
    held = (await load(journal, session.runs[0])).custom.get(_MEMBERS)
    return dict(held) if isinstance(held, Mapping) else {}


async def _go_on_as_shared(meeting: Meeting, own: Session | None) -> None:
    """Write the first run of the shared session: it says nothing, and goes on from the last of the user's own."""
    journal, base = meeting.journal, None
    if own is not None:
        (last,) = await journal.runs(run_id=own.runs[-1], limit=1)
        if last.status in UNDER_WAY:
            raise InvalidState.of(
                "share.under_way",
                "session {session!r} cannot be shared now: its last run is {status}. Wait until it ends, or stop it.",
                session=own.id,
                status=last.status,
            )
        base = (last.run_id, last.seq)
    at_work = meeting.agent(own.agent if own is not None else "")
    described = await off_loop(describe, at_work.recipe)
    facts: list[Fact] = [
        Opened(meeting.session, own.user if own is not None else "", base, described),
        *([Custom(TITLE, own.title)] if own is not None and own.title else []),
        Custom(_MEMBERS, dict(meeting.people), shown=False),
        Stopped(Stop("completed")),
    ]
    run_id, when = new_run_id(), time.time()
    lease = await journal.claim(run_id)
    events = [Event(run_id, lease.seq + place, when, at_work.name, fact) for place, fact in enumerate(facts, 1)]
    await journal.append(events, lease.epoch)
