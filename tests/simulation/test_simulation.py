"""Promises hold in simulated schedules: crashes at every moment, stores with faults, clocks that differ."""

import asyncio
import os
import random

import pytest

from kaname.testing.simulation import play, run_schedules
from kaname.testing.simulation.grounds import OWN
from kaname.testing.simulation.world import Killed, World, inside, simulated_time
from tests.properties import nightly

FEW, MANY, NIGHTLY = 5, 250, 20_000
REPAIRED = [  # schedules in which a promise was broken once
    ("children", 4),  # the call of a child that the journal could not record counted as failed, and the child was left behind
    ("children", 5),
    ("background", 6),  # so did a task in the background when it was collected
    ("background", 41),
    ("queue", 8000011674),  # a worker put a run into the queue that another one had ended since it was looked at
    ("forks", 654040693596),  # a fork undid a call with which the older run had gone on
    ("children", 154),  # a claim whose answer was lost kept its run from all other processes
]


@pytest.mark.parametrize("ground", OWN)
def test_ground_keeps_its_promises_with_the_same_seeds_each_time(ground):
    told = run_schedules(range(FEW), ground)
    assert told, str(told)


@pytest.mark.parametrize(("ground", "seed"), REPAIRED)
def test_schedule_that_broke_a_promise_once_does_not_break_it_again(ground, seed):
    told = run_schedules([seed], ground)
    assert told, str(told)


@pytest.mark.slow
@pytest.mark.parametrize("count", [MANY, *nightly(NIGHTLY)])
def test_new_schedules_break_no_promise(count):
    given = os.environ.get("KANAME_SEED")
    first = random.SystemRandom().randrange(10**12) if given is None else int(given)
    told = run_schedules(range(first, first + count))
    assert told, str(told)


@pytest.mark.parametrize("ground", OWN)
def test_seed_repeats_a_schedule_exactly(ground):
    with simulated_time():
        one, other = [play(11, ground, traced=True) for _ in range(2)]
    assert len(one.trace) > 3
    assert one.trace == other.trace


def test_time_of_a_world_passes_at_once_and_only_there():
    async def program(process):
        before = loop_time()
        await asyncio.sleep(3600)
        slept.append(loop_time() - before)

    def loop_time():
        return asyncio.get_running_loop().time()

    slept = []
    with simulated_time():
        world = World(1)
        with inside(world):
            world.start("a", program)
            world.run(10_000)
    assert slept == [pytest.approx(3600)]
    assert not world.problems


def test_killed_process_does_nothing_any_more_and_its_program_is_started_again():
    done = []

    async def program(process):
        done.append(f"{process} begins")
        try:
            await asyncio.sleep(1)
            if process.life == 0:
                process.kill()
                raise Killed
            done.append(f"{process} ends")
        finally:
            if process.alive:
                done.append(f"{process} tidies up")

    with simulated_time():
        world = World(1)
        with inside(world):
            world.start("a", program)
            world.run(100)
    assert done == ["a begins", "a1 begins", "a1 ends", "a1 tidies up"]


def test_program_that_never_ends_is_a_broken_promise():
    async def program(process):
        await asyncio.get_running_loop().create_future()

    with simulated_time():
        world = World(1)
        with inside(world):
            world.start("a", program)
            world.run(100)
    assert [name for name, _ in world.problems] == ["never-ends"]
