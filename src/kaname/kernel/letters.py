"""Take in what was said to a run: before a model call, and before it would end. An urgent message ends the call under way."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from ..core.errors import Halt, Suspend
from ..core.events import Interjected, Stopped
from ..core.messages import NOTHING, placeholder
from ..core.record import replace

if TYPE_CHECKING:
    from .ports import Admission
    from .scope import Scope


async def take_messages(scope: Scope, admit: Admission) -> bool:
    """Record the messages that wait. Return False if a policy ends the run because of one, whose text is not recorded, or if
    one brings text from outside for the first time: from now on, the run is guarded, and the step is decided anew.

    A question of a child in the background is raised, after the messages before it.
    """
    letters, scope.inbox = scope.inbox, []
    admitted = list[Interjected]()
    for number, said in enumerate(letters):
        if isinstance(said, Suspend):
            if said.key in scope.state.answers or said.key in scope.state.questions:
                continue
            scope.inbox = letters[number + 1 :]
            await _record(scope, admitted)
            raise said
        if said.id in scope.state.custom and scope.state.custom[said.id].get("told"):  # collected meanwhile
            continue
        try:
            judged = await admit(said.message)
        except Halt as end:
            if not end.stop.blocks_input:
                raise
            scope.unbilled += NOTHING if end.reply is None else end.reply.usage
            hidden = replace(said, message=placeholder())
            await scope.record(*admitted, hidden, Stopped(replace(end.stop, withheld="nothing")))
            return False
        scope.unbilled += judged
        admitted.append(said)
    return await _record(scope, admitted)


async def _record(scope: Scope, admitted: list[Interjected]) -> bool:
    if admitted:
        await scope.record(*admitted)
    return not any(said.message.quotes for said in admitted) or not scope.guard()


def interrupt(scope: Scope, task: asyncio.Task[object]) -> None:
    """End the model call under way, if there is one, so that a message is taken in at once."""
    if scope.asking and not scope.interrupting and not scope.stopping:
        scope.interrupting = True
        task.cancel()


async def go_on_if_interrupted(scope: Scope, cut: asyncio.CancelledError) -> None:
    """Return if a model call was cancelled for an urgent message, so that the strategy decides anew; otherwise raise."""
    task, interrupted = asyncio.current_task(), scope.interrupting
    scope.interrupting = False
    if not interrupted or task is None or scope.stopping or task.uncancel():  # the run is to stop
        raise cut
    await scope.emit("", "restarted")  # the pieces of the reply that were shown no longer count


async def settle_interruption(scope: Scope) -> None:
    """Take back the cancellation of a model call that replied all the same."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    task, scope.interrupting = asyncio.current_task(), False
    if task is not None and task.uncancel():
        raise asyncio.CancelledError
