"""What `Privacy` does about data that it has found and that is not simply replaced: it blocks, warns or withholds."""

from __future__ import annotations

from ....core.errors import Halt
from ....core.messages import ModelReply, placeholder
from ....core.notices import notice
from ....core.steps import Stop
from ....kernel.view import RunView
from .rules import Direction


class Unjudged(Exception):
    """A detector has failed: what it would have found is unknown, so the text goes nowhere."""


class Seen:
    """The kinds that were found in one text, reply or call, and are blocked or reported."""

    def __init__(self) -> None:
        self.blocked: dict[str, None] = {}
        self.warned: dict[str, None] = {}


def reason_for(direction: Direction, seen: Seen) -> str:
    kinds = ", ".join(seen.blocked)
    return notice("privacy.blocked", "personal data is blocked here ({side}): {kinds}", side=direction, kinds=kinds)


async def warn_about(direction: Direction, seen: Seen, view: RunView) -> None:
    if seen.warned:
        kinds = ", ".join(seen.warned)
        await view.warn(
            "privacy", notice("privacy.found", "personal data was found ({side}): {kinds}", side=direction, kinds=kinds)
        )


def withhold(reason: str, reply: ModelReply) -> Halt:
    masked = ModelReply(placeholder(role="assistant"), "end_turn", reply.usage)
    return Halt(Stop("blocked", reason, withheld="output"), masked)
