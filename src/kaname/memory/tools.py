"""Tools with which a model remembers, recalls and forgets: what belongs to the user of the run, and no other."""

from __future__ import annotations

from typing import Any

from ..kernel.ports import ToolContext
from ..kernel.threads import off_loop
from ..tools.function import tool
from .files import MemoryFiles, as_data, days_of, moment
from .store import Recalled

_MOST = 6
_LEAST = 0.1  # score


def tools_of(files: MemoryFiles) -> tuple[Any, ...]:
    @tool(effect="idempotent")
    async def remember(fact: str, context: ToolContext, about: str = "") -> dict[str, Any]:
        """Remember something about the user for later conversations: a fact, a preference, a decision.

        Args:
            fact: one short sentence that can be understood alone
            about: if only one such fact can hold at a time, what it is about (home, employer); it replaces the old one
        """
        return as_data(await off_loop(lambda: files.of(context.user).add(fact, about=about, run=context.run_id)))

    @tool(effect="pure")
    async def recall(query: str, context: ToolContext, at: str = "") -> list[dict[str, Any]]:
        """Look up what is remembered from earlier conversations, with what held before. Entries come in the order in which they
        were said: of two that disagree the later one holds.

        Args:
            query: what to look for, in words
            at: a date (2026-03-01), to ask what held at that time
        """

        def find_memories() -> list[Recalled]:
            when, known = moment(at), files.known(context.user, context.agent)
            hits = [hit for store in known for hit in store.search(query, _MOST, at=when, least=_LEAST)]
            return sorted(hits, key=lambda one: -one.score)[:_MOST]

        hits = sorted(await off_loop(find_memories), key=lambda one: (one.memory.said, one.memory.id))
        days = days_of([one.memory.said for one in hits])
        return [_with_past(one) | {"since": days[one.memory.said]} for one in hits]

    @tool(effect="irreversible")
    async def forget(id: int, context: ToolContext) -> list[dict[str, Any]]:
        """Forget something about the user for good. Only if the user asks for it.

        What holds now is forgotten with what held before it; of what held before, only the one that is named.

        Args:
            id: the number of the memory, as recall gives it
        """
        return [as_data(one) for one in await off_loop(lambda: files.of(context.user).forget([id]))]

    return remember, recall, forget


def _with_past(found: Recalled) -> dict[str, Any]:
    return as_data(found.memory) | ({"before": [as_data(old) for old in found.before]} if found.before else {})
