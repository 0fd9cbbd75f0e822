"""`Meeting`: several people and agents in one conversation, with names, rights, and one ordered stream that all can read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, NamedTuple

from ..core.chunks import Chunk, chunks_of
from ..core.errors import AgentError, ConfigError, nearest
from ..core.events import Stopped
from ..core.notices import notice
from ..core.runs import RunInfo
from ..kernel.ports import Journal
from ..memory.files import LEARNING
from ..memory.look_back import Said
from ..memory.sessions import Session, Sessions
from ..run.request import SharedSession
from ..run.run import Run

Right = Literal["read", "speak", "approve"]
_RIGHTS = ("read", "speak", "approve")  # each has those before it


class NotAllowed(AgentError):
    """A person did what their rights do not cover. Nothing was done."""


class Shown(NamedTuple):
    """A chunk of the meeting's stream. `place`: where it stands in the order of all; go on after it with `follow(after=…)`."""

    place: int
    run_id: str
    person: str  # whose message the run answers
    chunk: Chunk


class Meeting:
    """A conversation of several people with several agents.

    Args:
        name: The name of the meeting. Its session is `SharedSession(name)`.
        agents: The agents that answer. They must share one journal. The first one answers if a message names no agent.
        people: The right of each person: "read" the stream, "speak" as well, or "approve" as well, which allows to answer the
            questions of runs.
    """

    def __init__(self, name: str, agents: Mapping[str, Any] | list[Any], people: Mapping[str, Right]) -> None:
        listed = (
            list(agents.values()) if isinstance(agents, Mapping) else list(agents) if isinstance(agents, list | tuple) else []
        )
        if not all(hasattr(agent, "recipe") for agent in listed) or not isinstance(people, Mapping):
            raise ConfigError.of(
                "meeting.form",
                "a meeting needs a list of agents and a dict of people with their rights: Meeting(name, [agent], "
                '{{"ann": "speak"}})',
            )
        self.agents = {agent.name: agent for agent in listed}
        self.people, self.session = dict(people), SharedSession(name)
        if not listed or len(self.agents) != len(listed) or len({id(agent.journal) for agent in self.agents.values()}) != 1:
            raise ConfigError.of(
                "meeting.agents",
                "a meeting needs agents with different names that share one journal: Agent(…, name=…, journal=…)",
            )
        for person, right in people.items():
            if right not in _RIGHTS or not person or not isinstance(person, str):
                raise ConfigError.of(
                    "meeting.right",
                    "the right of {person!r} must be 'read', 'speak' or 'approve', not {right!r}",
                    person=person,
                    right=right,
                )

    @property
    def journal(self) -> Journal:
        journal: Journal = next(iter(self.agents.values())).journal
        return journal

    def speak(self, person: str, text: str, *, to: str = "", **options: Any) -> Run[Any]:
        """Speak, and have an agent answer. Who speaks while another is being answered waits for their turn."""
        self._check(person, "speak")
        told = "\n  ".join(str(text).splitlines())  # a line that begins with another's name is still this person's
        run: Run[Any] = self.agent(to).run(f"{person}: {told}", session_id=self.session, user_id=person, **options)
        return run

    async def questions(self) -> dict[str, dict[str, str]]:
        """Return the open questions by run: their keys and prompts."""
        waiting = await self.journal.runs(session=self.session, status="waiting")
        asked = {card.run_id: (await self.agent(card.agent).result(card.run_id)).questions for card in waiting}
        return {run: {key: question.prompt for key, question in keys.items()} for run, keys in asked.items()}

    async def answer(self, person: str, run_id: str, answers: Mapping[str, Any], **options: Any) -> Any:
        """Answer what a run of this meeting asks. Who did so is recorded with it."""
        self._check(person, "approve")
        cards = await self.journal.runs(run_id=run_id, limit=1)
        if not cards or cards[0].session != self.session:
            raise ConfigError.of("meeting.no_run", "run {run_id} does not belong to this meeting", run_id=run_id)
        return await self.agent(cards[0].agent).resume(run_id, answers, by=person, **options)

    async def follow(self, person: str, after: int = 0, *, wait: bool = True) -> AsyncIterator[Shown]:
        """All that happens in the meeting, in the order in which it was recorded, from any process. A fact may be several
        chunks of one place: to go on after it, take them all."""
        self._check(person, "read")
        known: dict[str, str | None] = {**await self._before()}
        async for place, event in self.journal.changes(after, wait=wait):
            speaker = await self._speaker(event.run_id, known)
            if speaker is not None:
                for chunk in chunks_of(event):
                    yield Shown(place, event.run_id, speaker, chunk)
            elif isinstance(event.body, Stopped):
                known.pop(event.run_id, None)  # of another session: nothing more is expected of it

    async def _speaker(self, run_id: str, known: dict[str, str | None]) -> str | None:
        """Return the person whose message a run of this meeting, or the run it is in, answers; None for other runs."""
        if run_id not in known:
            cards = await self.journal.runs(run_id=run_id, limit=1)
            card = cards[0] if cards else RunInfo(run_id)
            inner = card.parent if run_id != f"{card.parent}.{LEARNING}" else ""
            known[run_id] = card.user if card.session == self.session else await self._speaker(inner, known) if inner else None
        return known[run_id]

    async def _before(self) -> dict[str, str]:
        """Return the runs of the session that this one goes on from, if it was shared later: each with its user."""
        found = await self.journal.sessions(session=self.session, limit=1)
        earlier, base = dict[str, str](), found[0].first.base if found else ""
        while base and (cards := await self.journal.runs(run_id=base, limit=1)):
            earlier[base], base = cards[0].user, cards[0].base
        return earlier

    async def said(self, person: str) -> list[Said]:
        """Return all that was said, also before the session was shared."""
        self._check(person, "read")
        session = await self.record()
        return [] if session is None else await Sessions(self.journal).said(session)

    async def record(self) -> Session | None:
        """The meeting as a session, to be exported or deleted with `Sessions`; none if nobody has spoken yet."""
        return await Sessions(self.journal).named(self.session)

    def agent(self, name: str) -> Any:
        if not name:
            return next(iter(self.agents.values()))
        if name not in self.agents:
            message = notice("meeting.no_agent", "there is no agent {name!r} in this meeting", name=name)
            raise ConfigError(message + nearest(name, self.agents))
        return self.agents[name]

    def _check(self, person: str, right: Right) -> None:
        held = self.people.get(person)
        if held is None or _RIGHTS.index(held) < _RIGHTS.index(right):
            raise NotAllowed.of(
                "meeting.not_allowed",
                "{person!r} needs the right {right!r} in this meeting, but {held}",
                person=person,
                right=right,
                held=notice("meeting.held", "has only {held!r}", held=held)
                if held
                else notice("meeting.unknown_person", "is not a member"),
            )
