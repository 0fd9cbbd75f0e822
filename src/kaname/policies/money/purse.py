"""Purse of a run and its children: what they have spent of a limit on money, and what their open calls can still cost."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

from ...core.state import State
from ...kernel.bases import StopRuleBase, optional

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
        """Return what is left of a rule's limit; None if it has none that is known."""
        by_facts: float | None = optional(rule, StopRuleBase, "dollars_left")(state)
        if by_facts is None:
            written = optional(rule, StopRuleBase, "root") or rule
            allowed = optional(rule, StopRuleBase, "allows_unpriced")
            return written.limit - self.spent - sum(self.reserved.values()) if allowed else None  # of what is known
        opening = self._opening.setdefault(id(optional(rule, StopRuleBase, "root") or rule), by_facts + self.spent)
        return min(by_facts, opening - self.spent) - sum(self.reserved.values())


def purse_of(view: RunView) -> Purse:
    purse: Purse = view.scratch.setdefault(Purse, Purse())
    return purse
