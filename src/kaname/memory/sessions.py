"""Conversations over several runs: which there are, what was said in them; rename, export, delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from ..core.errors import ConfigError, nearest
from ..core.events import Custom
from ..core.messages import is_withheld
from ..core.notices import notice
from ..core.openai_shape import to_openai
from ..core.runs import TITLE, SessionInfo, as_title
from ..kernel.load import add_fact
from ..kernel.ports import Journal
from .look_back import Said, conversation, find_places

SEARCHED = 1_000  # sessions whose texts a search reads
_PAGE, _SEVERAL = 500, 6
_AT_ONCE = 20  # sessions that are read at the same time
_FEW = 3  # places that are shown of one session


class Session(NamedTuple):
    """`runs`: the ids, the oldest first. `status`: of the last one. A session belongs to one agent and one user, unless it is
    shared: then both are those of its last run. `place`: where its last change stands in the order of the journal."""

    id: str
    agent: str
    user: str
    title: str
    runs: tuple[str, ...]
    created: float
    updated: float
    status: str
    cost: float | None
    place: int = 0

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "runs": list(self.runs)}


class Sessions:
    """The sessions of a journal.

    Args:
        journal: The journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def all(self, *, agent: str = "", user: str | None = None, before: int = 0, limit: int = 100) -> list[Session]:
        """List sessions, the one that changed last first, by the order of the journal.

        Args:
            agent: Only sessions of this agent.
            user: Only sessions of this user.
            before: Only sessions that changed before this place: the `place` of the last session of the page before.
            limit: The maximum number of sessions.
        """
        return [_session(one) for one in await self._journal.sessions(agent=agent, user=user, before=before, limit=limit)]

    async def pages(self, *, agent: str = "", user: str | None = None) -> AsyncIterator[Session]:
        """Go through all sessions, reading a page at a time."""
        before = 0
        while found := await self.all(agent=agent, user=user, before=before, limit=_PAGE):
            for one in found:
                yield one
            before = found[-1].place

    async def named(self, session: str, *, agent: str = "", user: str | None = None) -> Session | None:
        """Return the session with exactly this id, or None. Raises `ConfigError` if several agents or users have one."""
        found = await self._journal.sessions(session=session, agent=agent, user=user, limit=_SEVERAL) if session else []
        return _only(session, [_session(one) for one in found]) if found else None

    async def get(self, session: str, *, agent: str = "", user: str | None = None) -> Session:
        """Return the session with this id, or the only one whose id or title begins so."""
        if (exact := await self.named(session, agent=agent, user=user)) is not None:
            return exact
        every = [one async for one in self.pages(agent=agent, user=user)]
        fitting = [one for one in every if session and (one.id.startswith(session) or one.title.startswith(session))]
        if not fitting:
            hint = nearest(session, [one.id for one in every])
            raise ConfigError(notice("session.none", "there is no session {session!r}", session=session) + hint)
        return _only(session, fitting)

    async def said(self, session: Session) -> list[Said]:
        """Return all that was said in a session, also what was summed up since, with a placeholder for blocked content."""
        lineage = await self._journal.lineage(session.runs[-1])
        return [one for one in conversation(lineage.events) if one.message.role != "system"]

    async def search(
        self, query: str, *, agent: str = "", user: str | None = None, among: Sequence[Session] | None = None
    ) -> list[tuple[Session, Sequence[Said]]]:
        """Search the last `SEARCHED` sessions for something like it; return them with the places, the best first.

        `among`: the sessions to search, if they are listed already.
        """
        sessions = await self.all(agent=agent, user=user, limit=SEARCHED) if among is None else among
        every = list[list[Said]]()
        for start in range(0, len(sessions), _AT_ONCE):
            every += await asyncio.gather(*[self.said(one) for one in sessions[start : start + _AT_ONCE]])
        spoken = [(number, one) for number, said in enumerate(every) for one in said if one.text]
        places = [(number, one) for number, one in spoken if not is_withheld(one.message)]
        best: dict[int, list[Said]] = {}
        for place in find_places(query, [one.text for _, one in places], most=_FEW * 20):
            number, one = places[place]
            best.setdefault(number, []).append(one)
        return [(sessions[number], said[:_FEW]) for number, said in best.items()]

    async def rename(self, session: Session, title: str) -> None:
        if not as_title(title):
            raise ConfigError.of("session.title", "the title must not be empty")
        await add_fact(self._journal, session.runs[0], Custom(TITLE, as_title(title)), later=False)

    async def export(self, session: Session) -> dict[str, Any]:
        """The whole conversation as JSON, its messages in the OpenAI shapes, with their times and runs."""
        said = await self.said(session)
        messages = [{**to_openai(one.message), "time": one.time, "run": one.run_id, "agent": one.agent} for one in said]
        return {**session.as_json(), "messages": messages}

    async def delete(self, session: Session) -> None:
        """All its runs, with their children and whatever went on from them."""
        for run in session.runs:
            if await self._journal.runs(run_id=run, limit=1):  # not deleted with the one it went on from
                await self._journal.delete(run, cascade=True)


def _only(session: str, fitting: list[Session]) -> Session:
    if len(fitting) > 1:
        told = ", ".join([f"{one.id} ({one.agent}, {one.user or '–'})" for one in fitting[: _SEVERAL - 1]])
        raise ConfigError.of(
            "session.several",
            "{session!r} matches several sessions: {told}. Specify the agent and the user.",
            session=session,
            told=told,
        )
    return fitting[0]


def _session(one: SessionInfo) -> Session:
    place, first, last, runs, updated, cost = one
    return Session(last.session, last.agent, last.user, first.title, runs, first.created, updated, last.status, cost, place)
