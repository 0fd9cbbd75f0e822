"""`CollaborationManager`: share sessions, give tasks to people and wait for their answers, merge what several agents said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...agent.agent import Agent
from ...core.errors import ConfigError
from ...core.values import plain_text
from ...kernel.ports import Journal
from ...memory.sessions import Sessions
from ...people.person import DelegateToHuman
from ...run.handoffs.roles import Choice, Role, choose
from ...stores.default import choose as choose_journal
from ...teams.meeting import Meeting, Right
from ...teams.merge import Merged, merge
from ...teams.share import members, share_session
from ...teams.tasks import HumanTasks


class CollaborationManager:
    """Work of several agents and people on one journal.

    Args:
        agents: The agents that answer in shared sessions. They need names of their own, and one journal.
        people: Who can be given tasks: by user id, the roles that the person has ("accountant", or a list of names), or a
            `Role("what they are good at", may=("accountant",))`.
        roles: What the agents are good at, by name: a `Role` each. See `assign_task`.
        judge: The agent or model that writes a synthesis, or chooses the best answer.
        context_manager: A `ContextManager`; the context of a session that is shared is shared with it.
        journal: Where tasks for people are kept; by default the journal of the agents.

    Attributes:
        tasks: The tasks that people were given: `pending()`, `answer(run_id, answer, by=…)`.
        last_merge: What came of the last merge: who disagreed, who failed, whether it was tied.
    """

    def __init__(
        self,
        agents: Iterable[Agent[Any]] = (),
        *,
        people: Mapping[str, Role | str | Iterable[str]] | None = None,
        roles: Mapping[str, Role] | None = None,
        judge: Any = None,
        context_manager: Any = None,
        journal: Journal | str | Path | None = None,
    ) -> None:
        self.agents = list(agents)
        self.roles = dict(roles or {})
        self.judge = judge if judge is None or hasattr(judge, "run") else Agent(judge, name="judge", journal="memory")
        self.context_manager = context_manager
        self._chosen = journal is not None or bool(self.agents)  # the journal
        self.journal = self.agents[0].journal if journal is None and self.agents else choose_journal(journal)
        self.tasks = HumanTasks(self.journal, people)
        self.last_merge: Merged | None = None

    def join(self, agent: Agent[Any]) -> None:
        """Have an agent answer in shared sessions, unless agents were named; work on its journal, unless one was chosen."""
        if not self.agents:
            self.agents.append(agent)
        if not self._chosen:
            self._chosen, self.journal = True, agent.journal
            self.tasks = HumanTasks(self.journal, self.tasks.people)

    # Sessions

    async def share_session_with_users(
        self,
        session_id: str,
        user_ids_to_share_with: Iterable[str] | Mapping[str, Right],
        *,
        right: Right = "speak",
        agent: str = "",
        owner: str | None = None,
    ) -> Meeting:
        """Share a session, new or existing, with users: they see what was said in it, and continue it together.

        Args:
            session_id: The session.
            user_ids_to_share_with: The users; or a dict that says what each may do: "read", "speak" or "approve".
            right: What users of a list may do. The default is "speak".
            agent: The agent whose session it is, if several have one of that id.
            owner: The user whose session it is, if several have one of that id.

        Returns:
            The session as a `Meeting`: `said(user)`, `speak(user, text)`, `follow(user)`, `answer(user, …)`.
        """
        given = user_ids_to_share_with
        if isinstance(given, str):
            raise ConfigError.of("share.users", "user_ids_to_share_with must be a list of user ids, not {given!r}", given=given)
        if not self.agents:
            raise ConfigError.of(
                "share.agents", "a shared session needs an agent that answers in it: CollaborationManager([agent])"
            )
        people = given if isinstance(given, Mapping) else dict.fromkeys(given, right)
        meeting = await share_session(self.agents, session_id, people, agent=agent, owner=owner)
        contexts = getattr(self.context_manager, "active_contexts", {})
        if session_id in contexts and meeting.session not in contexts:
            contexts[meeting.session] = dict(contexts[session_id])
        return meeting

    async def shared_session(self, session_id: str) -> Meeting | None:
        """Return a session that was shared, here or in another process, with the users that it is shared with; else None."""
        name = session_id.removeprefix("shared/")
        session = await Sessions(self.journal).named(Meeting(name, self.agents, {}).session)
        return None if session is None else Meeting(name, self.agents, await members(self.journal, session))

    # Tasks

    async def delegate_task_to_human(
        self, task_details: Any, reason_for_delegation: str, human_expert_role: str | None = None, *, run_id: str | None = None
    ) -> Any:
        """Give a task to a person, wait for the answer, and return it; see `HumanTasks.ask`.

        Args:
            task_details: All that the person has to know and to do: a text, or a dict, which is shown as JSON.
            reason_for_delegation: Why a person is asked.
            human_expert_role: The role of the person who is to do it. Without it, or without `people`, anybody can answer.
            run_id: The run of a task that was given before, to wait for it again.
        """
        return await self.tasks.ask(plain_text(task_details), reason_for_delegation, human_expert_role or "", run_id=run_id)

    @property
    def tools(self) -> list[Any]:
        """The tool with which an agent gives a task to a person: its run is parked until the answer comes.

        A subclass that overrides `delegate_task_to_human` has its own method called.
        """
        own = type(self).delegate_task_to_human is not CollaborationManager.delegate_task_to_human
        return [self.delegate_task_to_human if own else DelegateToHuman(self.tasks.roles)]

    def assign_task(self, task: str, needs: str = "") -> Choice:
        """Choose the agent or person for a task by what each is good at, and may do. `name` is empty if none fits; see
        `reason`."""
        return choose(task, {**self.roles, **self.tasks.people}, needs)

    # Results

    async def merge_agent_outputs(
        self, list_of_agent_results: Mapping[str, Any] | Iterable[Any], merge_strategy: Any = "majority_vote", *, task: str = ""
    ) -> Any:
        """Merge what several agents said into one value. `last_merge` says who disagreed, who failed, and whether it was tied.

        Args:
            list_of_agent_results: Results of runs, messages (`{"role", "content"}`), plain values, or errors; also by name.
            merge_strategy: "majority_vote", "summation", "average", "llm_based_synthesis" (by the judge), or one of `merge`.
            task: What was asked, for the judge.
        """
        given = list_of_agent_results
        named = {name: _content(one) for name, one in given.items()} if isinstance(given, Mapping) else None
        results = named if named is not None else given if isinstance(given, str) else [_content(one) for one in given]
        self.last_merge = await merge(results, merge_strategy, judge=self.judge, task=task)
        return self.last_merge.value


def _content(result: Any) -> Any:
    return result["content"] if isinstance(result, Mapping) and {"role", "content"} <= set(result) else result
