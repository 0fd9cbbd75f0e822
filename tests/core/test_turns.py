"""Turns at places for work: by user, and given back whatever happens."""

import asyncio
from contextlib import suppress

from kaname.core.turns import Places


class Desk:
    """Work at places that goes on until it is told to end. `served`: who got a place, in order."""

    def __init__(self, most, per_key):
        self.places, self.served, self.ends = Places(most, per_key), [], {}

    def come(self, name):
        self.ends[name] = asyncio.Event()

        async def work():
            async with self.places.take(name[0]):
                self.served.append(name)
                await self.ends[name].wait()

        return asyncio.create_task(work())


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_users_take_turns_and_none_has_more_than_a_part_of_the_places():
    desk = Desk(3, 2)
    tasks = [desk.come(name) for name in ("a1", "a2", "a3", "a4", "a5")]
    await settle()
    assert desk.served == ["a1", "a2"], "a place is left for others"
    tasks += [desk.come(name) for name in ("b1", "b2", "c1")]
    await settle()
    assert desk.served == ["a1", "a2", "b1"]
    desk.ends["a1"].set()
    await settle()
    assert desk.served[3:] == ["c1"], "who has nothing comes before who has something"
    for name in ("a2", "b1", "c1", "b2", "a3", "a4", "a5"):
        desk.ends[name].set()
        await settle()
    assert desk.served[4:] == ["a3", "b2", "a4", "a5"]
    await asyncio.gather(*tasks)


async def test_one_place_goes_from_user_to_user():
    desk = Desk(1, 1)
    tasks = [desk.come(name) for name in ("a1", "a2", "a3", "b1", "b2")]
    await settle()
    for end in desk.ends.values():
        end.set()
    await asyncio.gather(*tasks)
    assert desk.served == ["a1", "a2", "b1", "a3", "b2"]


async def test_cancelled_work_gives_its_place_back_also_in_the_moment_in_which_it_gets_it():
    desk = Desk(1, 1)
    first, second, third = desk.come("a1"), desk.come("b1"), desk.come("c1")
    await settle()
    second.cancel()  # it waits
    await settle()
    first.cancel()  # it works; the third gets its place,
    await asyncio.sleep(0)
    third.cancel()  # and is cancelled before it can begin
    fourth = desk.come("d1")
    await settle()
    assert desk.served[-1] == "d1"
    desk.ends["d1"].set()
    for task in (first, second, third, fourth):
        with suppress(asyncio.CancelledError):
            await task
    last = desk.come("e1")
    desk.ends["e1"].set()
    await last
    assert desk.served[-1] == "e1"


async def test_work_without_a_name_has_no_more_places_than_a_user():
    places, served = Places(2, 1), list[str]()

    async def work(key, end):
        async with places.take(key):
            served.append(key)
            await end.wait()

    ends = [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.create_task(work(key, end)) for key, end in zip(("", "", "ann"), ends, strict=True)]
    await settle()
    assert served == ["", "ann"]
    for end in ends:
        end.set()
    await asyncio.gather(*tasks)
    assert served == ["", "ann", ""]


async def test_free_place_is_given_without_looking_at_all_that_wait():
    looks = 0

    class Key(str):
        __slots__ = ()

        def __hash__(self):
            nonlocal looks
            looks += 1
            return super().__hash__()

    places = Places(8, 2)

    async def work(key):
        async with places.take(key):
            await asyncio.sleep(0)

    async def looks_for_each(keys, each):
        nonlocal looks
        looks = 0
        await asyncio.gather(*[work(Key(f"user {number % keys}")) for number in range(keys * each)])
        return looks / (keys * each)

    few = await looks_for_each(10, 4)
    assert await looks_for_each(10, 100) < 2 * few, "many of each user"
    assert await looks_for_each(1_000, 1) < 2 * few, "one of each of many users"
