"""Conversations over several runs: which there are, what was said in them; rename, export, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.errors import ConfigError, nearest
from ...core.events import Custom
from ...core.messages import is_withheld
from ...core.notices import notice
from ...core.openai_shape import to_openai
from ...core.runs import TITLE, RunInfo, titled
from ...kernel.load import add_fact
from ...kernel.ports import Journal
from ..ids import SHARED
from .look_back import Said, conversation, found

_ALL = 1_000_000
_FEW = 3  # places that are shown of one session


class Session(NamedTuple):
    """`runs`: the ids, the oldest first. `status`: of the last one. A session belongs to one agent and one user, unless it is
    shared: then both are those of its last run."""

    id: str
    agent: str
    user: str
    title: str
    runs: tuple[str, ...]
    created: float
    updated: float
    status: str
    cost: float | None

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "runs": list(self.runs)}


class Sessions:
    """The sessions of a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def all(self, *, agent: str = "", user: str | None = None, limit: int = 100) -> list[Session]:
        """The one whose last run was opened last first, in the journal's order: the clock may have been set."""
        by_session: dict[tuple[str, ...], list[RunInfo]] = {}
        for card in await self._journal.runs(limit=_ALL):
            if card.session and not card.parent:
                whose = () if card.session.startswith(SHARED) else (card.agent, card.user)
                by_session.setdefault((card.session, *whose), []).append(card)
        wanted = [cards for cards in by_session.values() if any(_is_of(card, agent, user) for card in cards)]  # shared: whole
        return [_session(cards) for cards in wanted[:limit]]

    async def get(self, session: str, *, agent: str = "", user: str | None = None) -> Session:
        """The one of that id, or of whose id or title that is the only beginning."""
        every = await self.all(agent=agent, user=user, limit=_ALL)
        exact = [one for one in every if one.id == session]
        fitting = exact or [one for one in every if session and (one.id.startswith(session) or one.title.startswith(session))]
        if not fitting:
            hint = nearest(session, [one.id for one in every])
            raise ConfigError(notice("session.none", "there is no session {session!r}", session=session) + hint)
        if len(fitting) > 1:
            told = ", ".join([f"{one.id} ({one.agent}, {one.user or '–'})" for one in fitting[:5]])
            raise ConfigError(
                notice("session.several", "{session!r} may be {told}: name the agent and the user", session=session, told=told)
            )
        return fitting[0]

    async def said(self, session: Session) -> list[Said]:
        """All that was said in it, also what has been summed up since. In the place of what was blocked is a placeholder."""
        lineage = await self._journal.lineage(session.runs[-1])
        return [one for one in conversation(lineage.events) if one.message.role != "system"]

    async def search(self, query: str, *, agent: str = "", user: str | None = None) -> list[tuple[Session, Sequence[Said]]]:
        """The sessions in which something like it was said, with the places; the best first."""
        sessions = await self.all(agent=agent, user=user, limit=_ALL)
        every = [await self.said(session) for session in sessions]
        spoken = [(number, one) for number, said in enumerate(every) for one in said if one.text]
        places = [(number, one) for number, one in spoken if not is_withheld(one.message)]
        best: dict[int, list[Said]] = {}
        for place in found(query, [one.text for _, one in places], most=_FEW * 20):
            number, one = places[place]
            best.setdefault(number, []).append(one)
        return [(sessions[number], said[:_FEW]) for number, said in best.items()]

    async def rename(self, session: Session, title: str) -> None:
        if not titled(title):
            raise ConfigError(notice("session.title", "a title is a text that is not empty"))
        await add_fact(self._journal, session.runs[0], Custom(TITLE, titled(title)), later=False)

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


def _is_of(card: RunInfo, agent: str, user: str | None) -> bool:
    return (not agent or card.agent == agent) and (user is None or card.user == user)


def _session(cards: list[RunInfo]) -> Session:
    last, first = cards[0], cards[-1]
    costs = [card.cost for card in cards if card.cost is not None]
    cost = sum(costs) if len(costs) == len(cards) else None
    runs = tuple([card.run_id for card in reversed(cards)])
    updated = max([card.updated for card in cards])
    return Session(last.session, last.agent, last.user, first.title, runs, first.created, updated, last.status, cost)
