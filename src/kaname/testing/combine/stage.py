"""The stage of a case: an agent, what is said to it, and people who answer its questions as they like."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.codec import encode
from ...core.errors import AgentError, InvalidState, RunBusy
from ...core.messages import ToolCall
from .dying import DEAD, KILLED, Died, MortalJournal
from .ledger import Got, OutsideLedger, PersonAnswer, root, who
from .monitor import is_lasting
from .rules import DeclaredRules

FORMS = ("yes", "true", "approved", "run", "always", "everywhere", "args", "no", "declined", "reason", "strange", "silence")
PEOPLE = ("owner", "other", "nobody")


@dataclass
class Stage:
    """Everything that a way in needs.

    `make(user)` builds the agent anew on the same journal, as another process would, for the runs of that user.
    `words` is what the user says; `slots` holds further texts by the place where they come in ("system", "assistant", "tool",
    "file", "say", "picture", and "other": another person).
    """

    rng: random.Random
    ledger: OutsideLedger
    rules: DeclaredRules
    make: Callable[[str], Any]
    words: str = ""
    turns: list[str] = field(default_factory=list)
    slots: dict[str, list[str]] = field(default_factory=dict)
    user: str = "ann"
    session: str | None = None
    journal: MortalJournal | None = None
    folder: Path | None = None
    agent: Any = None
    forms: tuple[str, ...] = FORMS
    people: tuple[str, ...] = PEOPLE
    answers_at_most: int = 8
    waits: float = 0.0  # seconds after which open questions have expired
    pass_time: Callable[[float], None] = time.sleep
    edit: Callable[[random.Random, ToolCall], Mapping[str, Any]] | None = None
    runs: list[tuple[str, str]] = field(default_factory=list)  # runs that were begun, and their users

    reason: str = ""  # what people write when they refuse
    brain: Any = None  # the model that obeys
    made: dict[str, str] = field(default_factory=dict)  # which implementation of a tool is in use, if there are several

    def __post_init__(self) -> None:
        self.agent = self.make(self.user)

    def slot(self, name: str) -> str:
        """Return the texts for a place, and take them off the list."""
        return " ".join(self.slots.pop(name, []))

    def all_words(self, *, but: tuple[str, ...] = ()) -> str:
        """Return the user's words, with the texts of all places that the way in does not have."""
        rest = [
            text
            for name in [*self.slots]
            if name not in but and name not in ("other", "picture")
            for text in self.slots.pop(name)
        ]
        return " ".join([self.words, *rest])

    async def attempt(self, during: str, work: Awaitable[Any]) -> Any:
        """Await the work. An exception is recorded, and `None` returned; only typed errors are allowed."""
        try:
            return await work
        except Died:
            self.ledger.deaths += 1
            return None
        except AgentError as error:
            if not _was_killed(error):
                self.ledger.fail(during, error)
            return None
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the monitor judges it
            self.ledger.fail(during, error)
            return None

    @contextmanager
    def inside(self, run_id: str, user: str) -> Iterator[None]:
        """Say in the ledger for which run, and for which user, everything in this block is executed."""
        tokens = root.set(run_id), who.set(user)
        try:
            yield
        finally:
            root.reset(tokens[0])
            who.reset(tokens[1])

    async def begin(self, given: Any, *, user: str | None = None, name: str = "", **options: Any) -> Any:
        """Run the agent to its end or its first open question. After a kill, revive the journal and resume."""
        user = self.user if user is None else user
        if user != self.user:
            self.agent, self.user = self.make(user), user
        run = self.agent.run(given, user_id=user, session_id=options.pop("session_id", self.session), **options)
        self.runs.append((run.run_id, user))
        with self.inside(name or run.run_id, user):
            return await self.revive(run.run_id, await self.attempt("run", _wait_for(run)), user)

    async def revive(self, run_id: str, result: Any, user: str) -> Any:
        """Return the result; if the process was killed meanwhile, start another one that resumes the run."""
        for _ in range(3):
            if self.journal is None or not self.journal.dead:
                return result
            await self.journal.revive()
            self.ledger.resumed.add(run_id)
            self.agent = self.make(user)
            with self.inside(run_id, user):
                result = await self.attempt("resume after a kill", _resume(self.agent, run_id))
        return result

    async def settle(self, result: Any, user: str | None = None) -> Any:
        """PersonAnswer the questions of a run in random forms, until it ends or everybody has had their say."""
        user = self.user if user is None else user
        for turn in range(self.answers_at_most):
            if result is None or not getattr(result, "questions", None):
                break
            result = await self.answer(result, user, calm=turn >= self.answers_at_most - 3) or result
        if result is not None:
            kind = getattr(getattr(result, "stop", None), "kind", "")
            self.ledger.got.append(Got(self.ledger.now(), user, str(result.output), result.run_id, kind, root.get()))
        return result

    async def answer(self, result: Any, user: str, *, calm: bool = False) -> Any:
        """PersonAnswer one question of a waiting run, and return the new result. `calm`: with a plain yes of another person."""
        key, asked = self.rng.choice(sorted(result.questions.items(), key=lambda one: one[0]))
        form = "yes" if calm else self.rng.choice(self.forms)
        who = "other" if calm else self.rng.choice(self.people)
        by = {"owner": user, "other": "boss", "nobody": ""}[who]
        if form == "silence":
            if not getattr(asked, "until", 0.0):
                return result
            self.pass_time(self.waits)
            self.ledger.expired.append((self.ledger.now(), result.run_id))
            return await self.go_on(result.run_id, None, "", user)
        value = self.form_of(form, asked)
        return await self.give(result.run_id, key, asked, value, by, user)

    def form_of(self, form: str, asked: Any) -> Any:
        """Return the value of an answer in one of the forms of docs/approvals.md."""
        if getattr(asked, "in_doubt", False):
            return "retry" if form in ("yes", "true", "approved", "run", "always", "everywhere", "args") else "skip"
        if getattr(asked, "about", None) is None:
            return {"no": "no", "reason": self.reason or "too much", "strange": "perhaps?", "declined": "no"}.get(form, "yes")
        where = {"approved": True, "for": "always", "where": {}}
        forms = {"true": True, "approved": {"approved": True}, "run": {"approved": True, "for": "run"}, "everywhere": where}
        forms |= {"always": {"approved": True, "for": "always"}, "no": "no", "declined": {"approved": False, "reason": "yes"}}
        forms |= {"reason": self.reason or "too much", "strange": 1}
        if form == "args":
            return {"args": dict(self.edit(self.rng, asked.about) if self.edit is not None else asked.about.args)}
        return forms.get(form, "yes")

    async def give(self, run_id: str, key: str, asked: Any, value: Any, by: str, user: str) -> Any:
        """Give an answer through `agent.resume`, and record whether it was accepted."""
        about = getattr(asked, "about", None)
        args = about.args if about is not None and isinstance(about.args, Mapping) else None
        tool = about.name if about is not None else ""
        made = self.made.get(tool, "")
        entry = PersonAnswer(
            self.ledger.now(), run_id, key, value, by, tool, args, str(asked.prompt), user, root=root.get(), made=made
        )
        self.ledger.answers.append(entry)
        return await self.go_on(run_id, {key: value}, by, user, entry)

    async def go_on(self, run_id: str, answers: Any, by: str, user: str, entry: PersonAnswer | None = None) -> Any:
        """Resume a run, with or without answers."""
        if entry is None:
            self.ledger.resumed.add(run_id)
            self.ledger.restarted.append((self.ledger.now(), run_id))
            entry = PersonAnswer(0, run_id, "", None, by)
        entry.accepted = True  # effects come before the call returns
        try:
            with self.inside(run_id, user):
                result = await self.agent.resume(run_id, answers, by=by)
        except InvalidState as problem:
            entry.accepted, entry.problem = False, f"InvalidState: {problem}"
            result = await self.attempt("result", self.agent.result(run_id))
            entry.open_after = result is not None and entry.key in (result.questions or {})
            asked = (result.questions or {}).get(entry.key) if result is not None else None
            entry.expired = "expired" in str(problem) or (asked is None and "expire" in str(problem))
            return result
        except Died:
            self.ledger.deaths += 1
            return await self.revive(run_id, None, user)
        except AgentError as problem:
            if self.journal is not None and self.journal.dead:
                return await self.revive(run_id, None, user)
            self.ledger.fail("resume", problem)
            return None
        except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - the monitor judges it
            self.ledger.fail("resume", problem)
            return None
        return result

    async def revoke_all(self) -> None:
        """Revoke every lasting approval of the journal."""
        grants = self.agent.journal.stores.grants
        for grant in await grants.all() if grants is not None else ():
            await grants.revoke(grant.id)
        for one in self.ledger.answers:
            if is_lasting(one) == "always" and not one.revoked:
                one.revoked = self.ledger.now()

    async def fork(self, run_id: str, rng: random.Random) -> Any:
        """Fork a run at a random fact, and settle the new one."""
        user = dict(self.runs).get(run_id, self.user)
        cards = await self.agent.journal.runs(run_id=run_id)
        if not cards:
            return None
        self.agent = self.make(user)
        run = self.agent.fork(run_id, rng.randint(2, max(2, cards[0].seq)))
        self.ledger.forks[run.run_id] = run_id
        with self.inside(run.run_id, user):
            return await self.settle(await self.attempt("fork", _wait_for(run)), user)

    async def stop_while_waiting(self) -> None:
        """Begin a run; if it waits for an answer, stop it, and say yes afterwards."""
        result = await self.begin(self.words)
        if result is None or not result.questions or not await self.attempt("stop", self.agent.stop(result.run_id)):
            return
        self.ledger.stopped[result.run_id] = self.ledger.now()
        for key, asked in result.questions.items():
            await self.give(result.run_id, key, asked, "yes", "boss", self.user)

    async def replay_all(self) -> None:
        """Replay every run of the case with the same agent, and note which replays differ."""
        for run_id, user in self.runs:
            done = await self.attempt("replay", self.make(user).replay(run_id))
            if done is not None and not done.same:
                self.ledger.replays.append((run_id, str(done)))

    def note_files(self, when: str = "") -> None:
        """Note what the files of the case hold now."""
        for path in sorted(self.folder.rglob("*")) if self.folder is not None else ():
            if path.is_file():
                self.ledger.rest[f"{path.name}{when}"] = path.read_bytes()

    async def read_all(self) -> None:
        """Read every run of the journal, and note what is stored where."""
        journal = self.agent.journal
        facts: list[str] = []
        async for change in journal.changes(wait=False):
            facts.append(encode(change.event))
        self.ledger.rest["facts"] = (
            "\n".join(facts).encode().decode("unicode_escape", "replace").encode() + "\n".join(facts).encode()
        )
        for card in await journal.runs(limit=1000):
            if card.parent:
                continue
            found = (await asyncio.gather(self.agent.result(card.run_id), return_exceptions=True))[0]
            if isinstance(found, BaseException):
                self.ledger.unreadable.append((card.run_id, found))
        self.note_files()


def _was_killed(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Died) or DEAD in str(error) or KILLED in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


async def _wait_for(run: Any) -> Any:
    return await run


async def _resume(agent: Any, run_id: str) -> Any:
    with suppress(RunBusy):
        return await agent.resume(run_id)
    return await agent.resume(run_id, takeover=True)
