"""Lessons as values, and where they are kept: as facts in the journal, with every change, so that each can be explained."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Literal

from ...core.codec import digest
from ...core.errors import ConfigError, RunBusy, RunNotFound
from ...core.events import Custom, Event, Fact, Opened, Stopped
from ...core.notices import from_json, join_notices, notice, to_json
from ...core.record import field, record, replace
from ...core.runs import LESSONS, TITLE
from ...core.steps import Stop
from ...kernel.load import add_fact, read_run
from ...kernel.ports import Journal
from ...tools.search.tokenize import terms

LessonStatus = Literal["suggested", "approved", "dropped"]
_PATIENCE, _PAUSE = 10.0, 0.02  # seconds
_ID = 12  # digits of an id; those of older lessons have six, with which the longer ones begin
_LESSON, _STRATEGY = "lesson", "Lessons"  # the name of the facts; no agent has the strategy, so nothing resumes these runs


@record
class Lesson:
    """Short advice for the model, with the reasons for it.

    `id`: the same for the same topic. `user`: whose runs it comes from; only their runs are told it, unless a person has
    `shared` it. `when`: the words of each kind of task that it is about; () for every task. `source`: "rules" if kaname wrote
    the text, "user" if these are a user's words, "model" if a model wrote it, "person" if an operator did. `evidence`: ids of
    runs. `trial`: the numbers of its last trial. `why`: the reason for its status.
    """

    id: str
    agent: str
    user: str
    advice: str
    source: Literal["rules", "user", "model", "person"] = "rules"
    cause: str = ""
    tool: str = ""
    when: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    status: LessonStatus = "suggested"
    shared: bool = False
    trial: Mapping[str, Any] = field(factory=dict)
    why: str = ""
    time: float = 0.0

    @property
    def is_proven(self) -> bool:
        """Return True if its last trial has shown that it helps and does no harm."""
        return self.trial.get("decision") == "helps"

    def is_told(self, mode: str) -> bool:
        """Return True if models are told it. Without a person's approval, only text that kaname itself wrote can be."""
        if self.status == "suggested":
            return mode == "apply" and self.source == "rules" and self.is_proven
        return mode != "off" and self.status == "approved"

    def fits(self, task: str) -> bool:
        """Return True if a task has at least half of the words of a kind of task that the lesson is about."""
        text = f"{task.casefold()} {' '.join(terms(task))}"
        return not self.when or any(sum([word in text for word in kind.split()]) * 2 >= len(kind.split()) for kind in self.when)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__match_args__}
        return {**data, "advice": to_json(self.advice), "why": to_json(self.why), "proven": self.is_proven}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Lesson:
        known: dict[str, Any] = {name: told[name] for name in cls.__match_args__ if name in told}
        lists = {name: tuple(told.get(name, ())) for name in ("when", "evidence")}
        return cls(**{**known, **lists, "advice": from_json(told["advice"]), "why": from_json(told.get("why", ""))})


def make_lesson(agent: str, user: str, advice: str, **more: Any) -> Lesson:
    """Return a lesson that is suggested now. Rules give one lesson for each cause and tool, whatever its words."""
    topic = [more.get("cause", ""), more.get("tool", ""), more.get("source", "rules")]
    topic = topic if topic[0] and topic[2] == "rules" else [str(advice)]
    return Lesson(digest([agent, user, *topic])[:_ID], agent, user, advice, time=time.time(), **more)


class LessonBook:
    """The lessons in a journal. Those of each agent and user are a run of their own, which `erase_user` erases with the user's.

    Args:
        journal: The journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def of(self, agent: str, user: str) -> list[Lesson]:
        """Return the lessons of an agent for a user, with those that are shared."""
        own = await self._read(agent, user)
        return own + [one for one in await self._read(agent, "") if one.shared] if user else own

    async def all(self, agent: str = "") -> list[Lesson]:
        """Return all lessons, of one agent if it is named."""
        cards = await self._journal.runs(agent=LESSONS, starting=f"{LESSONS}-", limit=10_000)
        found = [lesson for card in reversed(cards) for lesson in await self._facts(card.run_id)]
        return [one for one in found if not agent or one.agent == agent]

    async def find(self, lesson_id: str) -> Lesson:
        """Return a lesson by its id, or by the beginning of it. Raises `ConfigError` if there is none, or several."""
        known = await self.all()
        found = [one for one in known if one.id == lesson_id] or [one for one in known if one.id.startswith(lesson_id)]
        if len({one.id for one in found}) == 1 and lesson_id:
            return found[0]
        if found and lesson_id:
            ids = ", ".join([*dict.fromkeys([one.id for one in found])][:5])
            raise ConfigError.of("lessons.several", "{id!r} matches several lessons: {ids}", id=lesson_id, ids=ids)
        raise ConfigError.of("lessons.unknown", "there is no lesson {id!r}. List them with: kaname learn", id=lesson_id)

    async def put(self, lesson: Lesson) -> Lesson:
        """Store a lesson, or another state of it."""
        run_id, fact = _book_id(lesson.agent, lesson.user), Custom(_LESSON, lesson.to_json(), shown=False)
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                if not await self._journal.runs(run_id=run_id, limit=1):
                    await self._open(run_id, lesson)
                await add_fact(self._journal, run_id, fact)
                return lesson
            except RunBusy:  # another process writes a lesson
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(_PAUSE)

    async def _open(self, run_id: str, lesson: Lesson) -> None:
        """Make the run that holds the lessons, unless another process has just made it."""
        opened, title = Opened(user=lesson.user, recipe={"strategy": _STRATEGY}), f"{LESSONS} {lesson.agent}"
        facts: tuple[Fact, ...] = (opened, Custom(TITLE, title, shown=False), Stopped(Stop("completed")))
        lease = await self._journal.claim(run_id)
        if lease.seq:
            await self._journal.release(run_id, lease.epoch)
            return
        events = [Event(run_id, place, time.time(), LESSONS, one) for place, one in enumerate(facts, 1)]
        await self._journal.append(events, lease.epoch)

    async def approve(self, lesson_id: str, *, share: bool = False, untested: bool = False) -> Lesson:
        """Approve a lesson, so that models are told it. `share`: for all users of the agent.

        Raises:
            ConfigError: If no trial has shown that it helps, unless it may be `untested`.
        """
        one = await self.find(lesson_id)
        if not one.is_proven and not untested:
            message = notice("lessons.unproven", "no trial has shown that lesson {id} helps. Try it with: kaname learn try "
                          "{id} --eval FILE, or approve it without a trial with --untested", id=lesson_id)  # fmt: skip
            raise ConfigError(message)
        if share and one.user:
            await self.put(replace(one, status="dropped", why=notice("lessons.shared", "shared with all users")))
            one = replace(one, user="", id=_shared_id(one))
        by = notice("lessons.approved", "approved by a person")
        return await self.put(replace(one, status="approved", shared=share or one.shared, why=by))

    async def drop(self, lesson_id: str, why: str = "") -> Lesson:
        """Stop telling a lesson, and what all users are told of it or in the same words. It is not suggested again."""
        one, why = await self.find(lesson_id), why or notice("lessons.rolled_back", "rolled back by a person")
        parts = [other for other in await self.all(one.agent) if other.shared and other.status != "dropped"]
        alike = [other for other in parts if other.id == _shared_id(one) or other.advice.split() == one.advice.split()]
        same = [other for other in alike if other.id != one.id]
        for other in same:
            await self.put(replace(other, status="dropped", why=why))
        if same:
            ids = ", ".join([other.id for other in same])
            why = join_notices("", [why, notice("lessons.rolled_back_too", ", for all users too: {ids}", ids=ids)])
        return await self.put(replace(one, status="dropped", why=why))

    async def _read(self, agent: str, user: str) -> list[Lesson]:
        try:
            return await self._facts(_book_id(agent, user))
        except RunNotFound:
            return []

    async def _facts(self, run_id: str) -> list[Lesson]:
        facts = [event.body for event in await read_run(self._journal, run_id)]
        found = dict[str, Lesson]()
        for one in [Lesson.from_json(fact.data) for fact in facts if isinstance(fact, Custom) and fact.name == _LESSON]:
            before = found.get(one.id)
            if before is not None and one.status == "suggested" != before.status:  # written by somebody who did not know yet
                one = replace(before, trial=one.trial or before.trial)
            found[one.id] = one
        return [*found.values()]


def _shared_id(one: Lesson) -> str:
    """Return the id of the copy of a user's lesson that all users are told."""
    return digest([one.agent, "", one.id])[:_ID]


def _book_id(agent: str, user: str) -> str:
    return f"{LESSONS}-{digest([agent, user])[:16]}"
