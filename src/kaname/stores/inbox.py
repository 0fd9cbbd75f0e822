"""Inbox of a journal in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ..core.events import Event, Interjected
from ..core.runs import UNDER_WAY
from ..kernel.inbox.port import Sent, run_is_over
from .news import News


class Addressee(NamedTuple):
    """A run as the inbox sees it. `thread`: the conversation that it belongs to, or None."""

    run_id: str
    status: str
    thread: tuple[str, ...] | None
    last: str  # the last run of the conversation


class MemoryInbox:
    """`find`: returns a run of the journal, or raises `RunNotFound`."""

    def __init__(self, find: Callable[[str], Addressee]) -> None:
        self._find = find
        self._letters: dict[str, tuple[str, Interjected]] = {}  # with the run of each, by id
        self._news = News()

    async def put(self, run_id: str, said: Interjected) -> Sent:
        to = self._find(run_id)
        if to.status not in UNDER_WAY:
            if to.thread is None:
                raise run_is_over(run_id)
            to = self._find(to.last)
        self._letters[said.id] = (to.run_id, said)
        self._news.tell()
        return Sent(to.run_id, to.status in UNDER_WAY)

    async def letters(self, run_id: str, known: Collection[str] = (), *, wait: bool = False) -> list[Interjected]:
        while True:
            version = await self._news.version() if wait else 0
            found = [said for to, said in self._letters.values() if said.id not in known and self._is_for(to, run_id)]
            if found or not wait:
                return found
            await self._news.wait(version)

    def _is_for(self, to: str, run_id: str) -> bool:
        if to == run_id:
            return True
        its, mine = self._find(to), self._find(run_id)
        return its.thread is not None and its.thread == mine.thread and its.status not in UNDER_WAY

    def remove(self, events: Sequence[Event]) -> None:
        """Remove the messages that these facts record."""
        for event in events:
            if isinstance(event.body, Interjected):
                self._letters.pop(event.body.id, None)

    def forget(self, run_id: str) -> None:
        """Delete the messages to a run that is deleted."""
        self._letters = {one: letter for one, letter in self._letters.items() if letter[0] != run_id}
