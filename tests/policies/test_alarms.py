"""Time limits of one event loop share a timer: each rings in its time, and none is left behind."""

import asyncio
import gc
import weakref

import pytest

from kaname.policies.failure.timeout import Late, within


async def test_limits_ring_in_the_order_of_their_times():
    rang: list[float] = []

    async def wait(seconds: float) -> None:
        with pytest.raises(Late):
            await within(seconds, asyncio.Event().wait())
        rang.append(seconds)

    await asyncio.gather(*[wait(seconds) for seconds in (0.3, 0.05, 0.2, 0.1)])
    assert rang == sorted(rang)


async def test_limit_inside_another_rings_for_its_own_work():
    async def inner() -> str:
        with pytest.raises(Late):
            await within(0.01, asyncio.Event().wait())
        return "went on"

    assert await within(60, inner()) == "went on"
    with pytest.raises(Late):
        await within(0.01, within(60, asyncio.Event().wait()))


async def test_limit_that_was_kept_rings_for_nobody_else():
    async def quick() -> int:
        return 1

    assert [await within(0.01, quick()) for _ in range(100)] == [1] * 100
    assert await within(60, asyncio.sleep(0.05, "undisturbed")) == "undisturbed"


async def test_cancelling_is_not_taken_for_a_limit():
    task = asyncio.create_task(within(60, asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_event_loop_is_released_with_its_limits():
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def work() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await within(600, asyncio.sleep(0))

    for _ in range(3):
        asyncio.run(work())
    gc.collect()
    assert [loop() for loop in loops[:2]] == [None, None]
