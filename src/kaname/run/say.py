"""Say something to a run that is under way, here or in another process."""

from __future__ import annotations

import os
import time

from ..core.errors import ConfigError
from ..core.events import Interjected
from ..core.messages import Text
from ..kernel.load import load
from ..kernel.ports import Journal, Recipe
from ..people.entrance import Origin, admit
from .input import Input, as_message
from .request import check_ids
from .run import find_live


async def say(journal: Journal, recipe: Recipe, run_id: str, given: Input, *, by: str = "", urgent: bool = False) -> bool:
    """Store a message for a run. Return False if the run has ended, so that the next run of its session gets the message.

    Args:
        recipe: The agent. Its policies decide how the message is recorded.
        by: The person who says it.
        urgent: End the model call under way, so that the message is taken in at once.

    Raises:
        RunNotFound: If there is no such run.
        InvalidState: If the run has ended and belongs to no session.
    """
    check_ids(run_id=run_id, by=by)
    if (inbox := journal.stores.inbox) is None:
        raise ConfigError.of("inbox.none", "{journal} cannot store messages to a run", journal=type(journal).__name__)
    message = as_message(given)
    if not any(not isinstance(part, Text) or part.text.strip() for part in message.parts):
        raise ConfigError.of("say.empty", "the message is empty")
    cards = await journal.runs(run_id=run_id, limit=1) if by or recipe.team else []
    at_work = (await load(journal, run_id)).agent if cards and recipe.team else ""
    origin = Origin(cards[0].user if cards else "", by, at_work)
    said = Interjected(await admit(message, recipe, origin), by, time.time(), urgent, os.urandom(8).hex())
    sent = await inbox.put(run_id, said)
    if (work := find_live(journal, sent.run_id)) is not None:
        work.hear(said)
    return sent.under_way
