"""Features that are moves: kills, forks, replays, stops, revocations, further users and programs."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from .draft import Draft
from .registry import feature


async def _await(run: Any) -> Any:
    return await run


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
        result = await stage.begin(stage.words)
        if result is None or not result.questions:
            return
        if await stage.attempt("stop", stage.agent.stop(result.run_id)):
            stage.ledger.stopped[result.run_id] = stage.ledger.now()
            for key, asked in result.questions.items():
                await stage.give(result.run_id, key, asked, "yes", "boss", stage.user)

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
        d.made = stage.made = "other"
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
        for run_id, user in stage.runs[:1]:
            cards = await stage.agent.journal.runs(run_id=run_id)
            if not cards:
                continue
            stage.agent = stage.make(user)
            run = stage.agent.fork(run_id, rng.randint(2, max(2, cards[0].seq)))
            stage.ledger.forks[run.run_id] = run_id
            with stage.inside(run.run_id, user):
                await stage.settle(await stage.attempt("fork", _await(run)), user)

    d.moves.append(move)


@feature
def replay(d: Draft, rng: random.Random) -> None:
    """A recorded run is replayed with the same agent."""

    async def move(stage: Any, d: Draft) -> None:
        for run_id, user in stage.runs:
            done = await stage.attempt("replay", stage.make(user).replay(run_id))
            if done is not None and not done.same:
                stage.ledger.replays.append((run_id, str(done)))

    d.moves.append(move)
