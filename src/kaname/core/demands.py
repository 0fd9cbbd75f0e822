"""Demands: what policies state about a call before it runs. `kernel/door.py` joins them and decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from .messages import ToolResult
from .record import record


@record
class Refuse:
    """The call must not run. `reason`: what the model reads instead of a result."""

    reason: str


@record
class Ask:
    """A person must allow the call.

    Args:
        rule: Names the rule that demands it, with all that it says, so that it is the same in every process. An answer and a
            lasting approval hold for the rules that were asked about, and for no other.
        reason: Text that the question shows in addition to the call.
        by: "other" if the user of the run must not answer.
        until: When the question expires, in seconds since 1970; 0 for never.
        then: True if the call is allowed when the question has expired, False if it is refused.
    """

    rule: str
    reason: str = ""
    by: str = ""
    until: float = 0.0
    then: bool = False


@record
class Wait:
    """The user must allow the call, at the end of the turn together with others.

    Args:
        rule: Names the rule, as in `Ask`.
        reason: Text for a question about this call alone, which is asked if the call cannot wait.
        hold: Puts the call aside and returns what the model reads meanwhile.
    """

    rule: str
    reason: str
    hold: Callable[[], Awaitable[ToolResult]]


Demand = Refuse | Ask | Wait
