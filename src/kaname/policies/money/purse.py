"""Purse of a run and its children: what they have spent of a limit on money, and what their open calls can still cost."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from ...core.state import State
from ...kernel.bases import bound_of

if TYPE_CHECKING:
    from ...kernel.view import RunView


PURSES = Lock()
"""Hold it to look into purses and to reserve in them: a tool can run another agent in a thread of its own."""


class Purse:
    """Calls at the same time must not spend the same money. The facts alone cannot tell: a call is recorded after it."""

    __slots__ = ("_opening", "reserved", "spent")

    def __init__(self) -> None:
        self.spent = 0.0
        self.reserved: dict[str, float] = {}
        self._opening: dict[int, float] = {}  # what was left at first, by the rule that a person has written

    def remainder(self, rule: Any, state: State) -> float | None:
        """Return the remaining amount of a rule's limit; None if the rule has no limit, or the amount is unknown."""
        bound = bound_of(rule)
        by_facts, written = bound.dollars_left(state), bound.root or rule
        if by_facts is None:
            most = bound_of(written).most if bound.allows_unpriced else None
            return None if most is None else most - self.spent - sum(self.reserved.values())  # of what is known
        opening = self._opening.setdefault(id(written), by_facts + self.spent)
        return min(by_facts, opening - self.spent) - sum(self.reserved.values())


def purse_of(view: RunView) -> Purse:
    purse: Purse = view.scratch.setdefault(Purse, Purse())
    return purse
