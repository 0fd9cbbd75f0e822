"""The children of a call: the runs that its tool has opened, and what they mean for the call."""

from __future__ import annotations

from typing import Protocol

from ..core.errors import JournalError, Released, Suspend
from ..core.messages import NOTHING, Usage
from ..core.record import field, mutable


class Spender(Protocol):
    """A run of a child, or its state."""

    @property
    def usage(self) -> Usage: ...


@mutable
class Family:
    """The children of one call.

    Args:
        opened: The attempt of the call and the id, for each child that it has opened.
        children: The last run of each child, by id. Its usage grows while it is executed.
        charged: What policies have charged to the call itself.
        untrusted: A child has read text from outside, so the result of the call counts as such text.
        question: The question of a child, which the call asks even if its tool catches what was raised.
        failure: Why the journal could not record a child, which fails the run, or that a child was released with the run.
            It is not the result of the call.
    """

    opened: set[tuple[int, str]] = field(factory=set)
    children: dict[str, Spender] = field(factory=dict)
    charged: Usage = NOTHING
    untrusted: bool = False
    question: Suspend | None = None
    failure: JournalError | Released | None = None

    @property
    def spent(self) -> Usage:
        """Return the usage of the children so far."""
        return sum([one.usage for one in self.children.values()], NOTHING)

    def raise_caught(self) -> None:
        """Raise the question of a child, or why one has no result. The tool may have caught it, and it must not."""
        if (question := self.question) is not None:
            self.question = None
            raise question
        if self.failure is not None:  # the child is resumed with this run: for the model, it has not failed
            raise self.failure
