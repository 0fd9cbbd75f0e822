"""Tasks that a program gives to people, by role: each is a run that waits for its answer, here or in another process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from ..core.durations import backoff
from ..core.errors import ConfigError, InvalidState, RunBusy, nearest
from ..core.notices import notice
from ..kernel.ports import Journal
from ..people.person import DelegateToHuman
from ..run.handoffs.roles import Role
from ..workflows.workflow import Workflow
from .meeting import NotAllowed

_TASK = "delegate_task_to_human"
_GIVEN = ("task_details", "reason_for_delegation", "human_expert_role")
_MOST = 1_000  # tasks that are listed
_TRIES = 8  # until the run that asked is released


class HumanTasks:
    """The tasks on a journal that wait for people.

    Args:
        journal: Where they are kept.
        people: By user id, the roles that the person has ("accountant", or a list of names), or a `Role` whose `may` names
            them. Without people, a role only says who is meant, and anybody can answer.
    """

    def __init__(self, journal: Journal, people: Mapping[str, Role | str | Iterable[str]] | None = None) -> None:
        self._journal = journal
        self.people = {person: _role(given) for person, given in (people or {}).items()}

    @property
    def roles(self) -> list[str]:
        """The roles that people have."""
        return list(dict.fromkeys([name for role in self.people.values() for name in role.may]))

    async def ask(self, details: str, reason: str, role: str = "", *, run_id: str | None = None) -> Any:
        """Give a task to a person with that role, wait for the answer, and return it.

        It can be answered with `answer`, on the page, or in the terminal, also after a restart. If waiting is cancelled, the
        task stays: pass its `run_id` to wait for it again. Raises `ConfigError` if no person has the role.
        """
        if role and self.people and role not in self.roles:
            text = notice("collaboration.no_role", "no person has the role {role!r}", role=role)
            raise ConfigError(text + nearest(role, self.roles))
        agent, given = self._flow.agent, self._flow.as_input(dict(zip(_GIVEN, (details, reason, role), strict=True)))
        result = await (agent.run(given) if run_id is None else agent.start_or_resume(run_id, given))
        if result.questions:
            async for _ in agent.attach(result.run_id):
                pass
            result = await agent.result(result.run_id)
        return result.raise_for_stop().output

    async def pending(self, user_id: str | None = None) -> dict[str, str]:
        """Return the tasks that wait, by run id. `user_id`: only those that this user can answer."""
        cards = await self._journal.runs(agent=_TASK, status="waiting", limit=_MOST)
        asked = {card.run_id: await self._flow.agent.result(card.run_id) for card in cards}
        return {
            run_id: question.prompt
            for run_id, result in asked.items()
            for question in result.questions.values()
            if user_id is None or self._has(user_id, _role_of(result))
        }

    async def answer(self, run_id: str, answer: Any, by: str = "") -> None:
        """Answer a task as the user `by`. Raises `NotAllowed` if the task is for a role that this user does not have."""
        result = await self._flow.agent.result(run_id)
        if not result.questions:
            raise InvalidState.of("collaboration.no_task", "task {run_id} is not waiting for an answer", run_id=run_id)
        if not self._has(by, role := _role_of(result)):
            raise NotAllowed.of(
                "collaboration.not_theirs",
                "{person!r} cannot answer this task: it needs the role {role!r}",
                person=by,
                role=role,
            )
        for attempt in range(1, _TRIES + 1):
            try:
                await self._flow.agent.resume(run_id, dict.fromkeys(result.questions, answer), by=by)
                return
            except RunBusy:  # it has asked, and is not released yet
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(backoff(attempt, 0.02, 3.0))

    @cached_property
    def _flow(self) -> Workflow:
        """One question to a person, as a workflow: every process makes the same, and can take up a task of another."""
        params = {name: {"type": "string"} for name in _GIVEN}
        flow = Workflow(_TASK, [DelegateToHuman()], params=params, journal=self._journal)
        flow.task(_TASK, **{name: flow.param(name) for name in _GIVEN})
        return flow

    def _has(self, person: str, role: str) -> bool:
        return not role or not self.people or (person in self.people and role in self.people[person].may)


def _role(given: Any) -> Role:
    if isinstance(given, Role):
        return given
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(one, str) for one in names):
        raise ConfigError.of(
            "collaboration.people", "give each person a role, a list of roles or a Role, not {given!r}", given=given
        )
    return Role(may=names)


def _role_of(result: Any) -> str:
    """Return the role that a task is for, as it was recorded: among the parameters of its workflow."""
    given = next(message.text for message in result.state.turn if message.role == "user")
    return str(json.loads(given)["human_expert_role"])
