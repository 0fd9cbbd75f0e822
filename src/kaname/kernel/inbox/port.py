"""`Inbox`: the messages of a journal that no run has taken in yet."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol, runtime_checkable

from ...core.errors import ConfigError, InvalidState
from ...core.events import Interjected
from ...core.notices import notice


class Sent(NamedTuple):
    """A message that is stored: the run that has it, and True if that run has not ended."""

    run_id: str
    under_way: bool


class Inbox(Protocol):
    """Messages to runs. A message survives the process once `put` has returned.

    A message to a run that has ended goes to the last run of its session, and from there to the next one. `put` raises
    `RunNotFound`, and `InvalidState` if the run has ended and belongs to no session.

    `letters` returns the messages of a run, and those that came too late for earlier runs of its session, in their order,
    without those whose ids are `known`. With `wait` it waits until there is one. A message leaves the inbox in the same step
    in which `Journal.append` records its `Interjected`, so that each is recorded once.
    """

    async def put(self, run_id: str, said: Interjected) -> Sent: ...
    async def letters(self, run_id: str, known: Collection[str] = (), *, wait: bool = False) -> list[Interjected]: ...


@runtime_checkable
class HasInbox(Protocol):
    @property
    def inbox(self) -> Inbox: ...


def inbox_of(journal: object) -> Inbox:
    """Return the inbox of a journal. Raises `ConfigError` if the journal has none."""
    if isinstance(journal, HasInbox):
        return journal.inbox
    told = notice("inbox.none", "{journal} cannot store messages to a run", journal=type(journal).__name__)
    raise ConfigError(told)


async def waiting_letters(journal: object, run_id: str) -> list[Interjected]:
    """Return the messages that wait for a run. An empty list, if the journal stores none."""
    return await journal.inbox.letters(run_id) if isinstance(journal, HasInbox) else []


def run_is_over(run_id: str) -> InvalidState:
    """Return the error for a message that no run can take in."""
    told = notice(
        "inbox.over",
        "run {run_id} has ended and belongs to no session, so the message was not stored. Start another run.",
        run_id=run_id,
    )
    return InvalidState(told)
