"""See and steer queued work: workers, the queue, and schedules. For the terminal and the page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ...core.errors import ConfigError, nearest
from ...core.notices import Notice, notice, to_json
from ...kernel.load import list_runs
from ...kernel.ports import Journal
from ...kernel.stores import QueuedRun
from ...run.request import new_run_id
from ..agent import Agent
from .order import decode_reason
from .scheduler import marks_of, schedules_of
from .submit import queue_of

STATES = ("set_aside", "taken", "waiting", "delayed")


async def list_workers(journal: Journal) -> list[dict[str, Any]]:
    return [one._asdict() for one in await queue_of(journal).workers()]


async def list_queue(journal: Journal, limit: int = 100) -> dict[str, Any]:
    """Return the number of queued runs in each state, and the first `limit` of each."""
    queue = queue_of(journal)
    listed = [_entry(one) for state in STATES for one in await queue.entries(state, limit)]
    return {"counts": dict(await queue.count()), "runs": listed}


def _entry(one: QueuedRun) -> dict[str, Any]:
    reason = decode_reason(one.reason)
    told = {"reason_notice": to_json(reason)} if isinstance(reason, Notice) else {}
    return {**one._replace(order="", reason=reason)._asdict(), **told}


async def list_schedules(agents: Sequence[Agent[Any]]) -> list[dict[str, Any]]:
    """Return the schedules with their next times and their last five runs."""
    found, told = schedules_of(agents), list[dict[str, Any]]()
    marks = await marks_of(agents).all() if found else {}
    for name, (agent, one) in found.items():
        cards = await list_runs(agent.journal, lambda card: not card.parent, starting=f"{one.key}@", limit=5)
        paused = one.paused_mark in marks
        about = {"name": name, "agent": agent.name, "when": one.timing, "missed": one.missed, "paused": paused}
        runs = [{"run_id": card.run_id, "status": card.status, "created": card.created} for card in cards]
        told.append({**about, "next": None if paused else one.next_tick(time.time()), "runs": runs})
    return told


async def retry_run(journal: Journal, run_id: str) -> None:
    """Return a run that was set aside to the queue. Raises `ConfigError` if it is not set aside."""
    if not await queue_of(journal).again(run_id):
        raise ConfigError.of("queue.not_aside", "run {run_id} is not set aside", run_id=run_id)


async def steer_schedule(agents: Sequence[Agent[Any]], action: str, name: str) -> str:
    """Pause or resume a schedule in all processes, or run it now. Return the id of the run, if there is one.

    Ticks during the pause are dropped. Raises `ConfigError` if the schedule does not exist.
    """
    found, marks = schedules_of(agents), marks_of(agents)
    if name not in found:
        raise ConfigError(notice("schedule.unknown", "there is no schedule {name!r}", name=name) + nearest(name, found))
    agent, one = found[name]
    if action == "run":
        return await agent.submit(one.user_input, run_id=f"{one.key}@{new_run_id()}", **one.how)
    if action == "pause":
        await marks.raise_to({one.paused_mark: time.time()})
    else:
        await marks.raise_to({one.mark: time.time()})
        await marks.remove([one.paused_mark])
    return ""
