"""Features that are moves: kills, forks, replays, stops, revocations, further users and programs."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from .draft import Draft
from .registry import feature


@feature
def kill(d: Draft, rng: random.Random) -> None:
    """The process is killed at a random fact."""

    async def move(stage: Any, d: Draft) -> None:
        stage.journal.die_after(rng.randint(0, 14), written=rng.random() < 0.5)

    d.before.append(move)


@feature
def again(d: Draft, rng: random.Random) -> None:
    """The user asks again in another run."""
    d.turns.append(d.sentence("pay", {"yen": rng.choice((100, 250)), "to": "shop"}))


@feature
def stop(d: Draft, rng: random.Random) -> None:
    """A waiting run is stopped, and resumed with a yes afterwards."""

    async def move(stage: Any, d: Draft) -> None:
        await stage.stop_while_waiting()

    d.moves.append(move)


@feature
def cut(d: Draft, rng: random.Random) -> None:
    """A run is stopped while a tool works, and resumed."""
    held: list[Any] = []

    async def during(context: Any) -> None:
        d.during = None
        held.append(asyncio.create_task(held[0].agent.stop(context.run_id)))
        await asyncio.sleep(0.3)

    async def before(stage: Any, d: Draft) -> None:
        held.append(stage)
        d.during = during

    async def move(stage: Any, d: Draft) -> None:
        d.during = None
        for run_id, user in list(stage.runs):
            result = await stage.attempt("result", stage.agent.result(run_id))
            if result is not None and result.stop.kind == "cancelled":
                await stage.settle(await stage.go_on(run_id, None, "", user), user)

    d.before.append(before)
    d.moves.append(move)


@feature
def revoke(d: Draft, rng: random.Random) -> None:
    """All lasting approvals are revoked, and the user asks again."""
    words = d.sentence("pay", {"yen": 100, "to": "shop"})

    async def move(stage: Any, d: Draft) -> None:
        await stage.revoke_all()
        await stage.settle(await stage.begin(words))

    d.moves.append(move)


@feature
def other_program(d: Draft, rng: random.Random) -> None:
    """Another program on the same journal has an agent and a tool of the same name that does something else."""
    words = d.sentence("pay", {"yen": 100, "to": "shop"})

    async def move(stage: Any, d: Draft) -> None:
        d.made, stage.made = "other", {"pay": "other"}
        stage.agent = stage.make(stage.user)
        await stage.settle(await stage.begin(words))

    d.moves.append(move)


@feature
def other_user(d: Draft, rng: random.Random) -> None:
    """Another user says the same words to the agent."""

    async def move(stage: Any, d: Draft) -> None:
        await stage.settle(await stage.begin(stage.words, user="zoe"))

    d.moves.append(move)


@feature
def fork(d: Draft, rng: random.Random) -> None:
    """Somebody forks a run of the case, at a random fact."""

    async def move(stage: Any, d: Draft) -> None:
        for run_id, _ in stage.runs[:1]:
            await stage.fork(run_id, rng)

    d.moves.append(move)


@feature
def replay(d: Draft, rng: random.Random) -> None:
    """The recorded runs are replayed with the same agent."""

    async def move(stage: Any, d: Draft) -> None:
        await stage.replay_all()

    d.moves.append(move)
