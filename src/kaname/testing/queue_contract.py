"""Contract of a queue of runs: order, delays, keys, conversations, and workers that die."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from ..core.turns import MOST_KEYS
from ..kernel.ports import Journal
from ..kernel.stores import AGAIN, QueuedRun, RunQueue, Wanted

_ANY = Wanted(("clerk",))


def _run(run_id: str, **more: Any) -> QueuedRun:
    return QueuedRun(run_id, "clerk", "{}", **more)


async def _ids(queue: RunQueue, count: int = 10, wanted: Wanted = _ANY) -> list[str]:
    return [one.run_id for one in await queue.take(wanted, count)]


async def _until_executing(queue: RunQueue) -> None:
    """Wait until one worker is seen with one run. Its heartbeat may be late on a busy machine."""
    async with asyncio.timeout(30):
        while [one.executing for one in await queue.workers() if one.executing] != [1]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


class QueueContract(ABC):
    """Tests for a queue. `make` returns a journal, its queue, and another worker's journal and queue on the same storage."""

    has_keys = True  # False for an engine that has no limits for each key
    shares_workers = False  # True for an engine that does not say which journal its workers serve

    @abstractmethod
    def make(self) -> tuple[Journal, RunQueue, Journal, RunQueue]: ...

    @abstractmethod
    async def kill(self, journal: Journal, queue: RunQueue) -> None:
        """Let a worker die, and wait until it counts as dead."""

    def _with(self, test: Callable[[RunQueue, RunQueue], Awaitable[None]]) -> None:
        async def go() -> None:
            first, queue, second, other = self.make()
            try:
                await test(queue, other)
            finally:
                await first.close()
                await second.close()

        asyncio.run(go())

    def test_runs_are_handed_out_once_by_priority_and_in_their_order(self) -> None:
        async def test(queue: RunQueue, other: RunQueue) -> None:
            assert await queue.put([_run("a"), _run("b"), _run("urgent", priority=5)]) == ["a", "b", "urgent"]
            assert await queue.put([_run("a"), _run("c")]) == ["c"], "a run is in it once"
            assert await _ids(queue, 2) == ["urgent", "a"]
            assert await _ids(other) == ["b", "c"]
            assert await _ids(queue) == []
            assert await queue.finish("a")
            assert not await other.finish("urgent"), "it is the other worker's"
            assert dict(await queue.count()) == {"taken": 3}
            assert await queue.find("a") is None

        self._with(test)

    def test_people_see_what_is_queued_and_retry_what_was_set_aside(self) -> None:
        async def test(queue: RunQueue, other: RunQueue) -> None:
            await queue.put([_run("a"), _run("b"), _run("c", at=time.time() + 600)])
            assert await _ids(queue, 1) == ["a"]
            await _until_executing(other)
            assert [(await other.entries(state))[0].run_id for state in ("taken", "waiting", "delayed")] == ["a", "b", "c"]
            assert await queue.set_aside("a", "it is broken")
            assert [(one.run_id, one.reason) for one in await other.entries("set_aside")] == [("a", "it is broken")]
            assert not await other.again("b"), "it is not set aside"
            assert await other.again("a")
            (taken,) = await other.take(_ANY, 1)
            assert (taken.run_id, taken.reason, taken.attempts) == ("a", AGAIN, 1)

        self._with(test)

    def test_only_runs_of_known_agents_and_queues_are_taken(self) -> None:
        async def test(queue: RunQueue, other: RunQueue) -> None:
            await queue.put([_run("a"), _run("b", queue="slow"), QueuedRun("c", "stranger")])
            assert await _ids(queue) == ["a"]
            assert await _ids(queue, wanted=Wanted(("clerk",), ("slow",))) == ["b"]
            assert await _ids(queue, wanted=Wanted(("clerk", "stranger"))) == ["c"]

        self._with(test)

    def test_delayed_run_waits_and_holds_nothing_up(self) -> None:
        async def test(queue: RunQueue, other: RunQueue) -> None:
            await queue.put([_run("later", at=time.time() + 600, session="s"), _run("now", session="s")])
            assert await _ids(queue) == ["now"]
            assert await queue.finish("now")
            await queue.put([_run("soon", at=time.time() + 0.2, session="s")])
            async with asyncio.timeout(10):
                while await _ids(queue) != ["soon"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

        self._with(test)

    def test_runs_of_one_conversation_come_one_after_the_other(self) -> None:
        async def test(queue: RunQueue, other: RunQueue) -> None:
            await queue.put([_run("1", session="s"), _run("2", session="s"), _run("3", session="s", user="another")])
            assert await _ids(queue) == ["1", "3"]
            assert await _ids(other) == []
            assert await queue.finish("1")
            assert await _ids(other) == ["2"]

        self._with(test)

    def test_run_is_tried_again_later_or_set_aside_with_its_reason(self) -> None:
        async def test(queue: RunQueue, other: RunQueue) -> None:
            await queue.put([_run("a"), _run("b"), _run("c")])
            assert len(await queue.take(_ANY, 3)) == 3
            assert await queue.retry("a", 0.2, "busy")
            assert await queue.retry("c", 600, "busy")
            assert await queue.set_aside("b", "it kills its worker")
            async with asyncio.timeout(10):
                while not (found := await other.take(_ANY, 2)):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert [(one.run_id, one.attempts) for one in found] == [("a", 2)]
            later, aside = await queue.find("c"), await queue.find("b")
            assert later is not None
            assert later.state == "delayed"
            assert aside is not None
            assert (aside.state, aside.reason) == ("set_aside", "it kills its worker")
            assert await queue.put([_run("b")]) == [], "it is as it was"
            assert await queue.put([_run("b", seq=7)]) == ["b"], "it has other facts now"
            assert await _ids(queue) == ["b"]

        self._with(test)

    def test_runs_of_a_dead_worker_go_to_another_and_the_dead_one_can_change_nothing(self) -> None:
        async def go() -> None:
            first, queue, second, other = self.make()
            await queue.put([_run("a"), _run("b")])
            assert await _ids(queue, 1) == ["a"]
            assert await other.rescue() == []
            await self.kill(first, queue)
            assert await other.rescue() == ["a"]
            assert await _ids(other) == ["a", "b"]
            assert await other.rescue({"a", "b"}) == []
            assert await other.rescue({"b"}) == ["a"], "its own that it does not execute: the answer to `take` was lost"
            assert await _ids(other) == ["a"]
            assert await other.finish("a")
            await second.close()
            await first.close()

        asyncio.run(go())

    def test_waiting_run_is_withdrawn_and_a_taken_one_is_not(self) -> None:
        async def test(queue: RunQueue, other: RunQueue) -> None:
            await queue.put([_run("a"), _run("b")])
            assert await other.withdraw("b")
            assert await _ids(queue) == ["a"]
            assert not await other.withdraw("a")
            assert not await other.withdraw("nothing")

        self._with(test)

    def test_who_waits_hears_of_a_run(self) -> None:
        async def test(queue: RunQueue, other: RunQueue) -> None:
            await queue.put([_run("first")])
            assert await _ids(other) == ["first"]
            waiting = asyncio.create_task(other.wait(30))
            await asyncio.sleep(0.3)
            await queue.put([_run("a")])
            await asyncio.wait_for(waiting, 5)

        self._with(test)

    def test_workers_are_those_who_take_runs(self) -> None:
        if self.shares_workers:
            return

        async def go() -> None:
            first, queue, second, other = self.make()
            lease = await first.claim("a")  # it executes a run by itself
            await queue.put([_run("b")])
            assert await queue.workers() == []
            assert await _ids(other) == ["b"]
            await _until_executing(queue)
            assert len(await queue.workers()) <= 1
            await first.release("a", lease.epoch)
            await first.close()
            await second.close()

        asyncio.run(go())

    def test_keys_take_turns_also_if_one_run_is_taken_at_a_time(self) -> None:
        if not self.has_keys:
            return

        async def test(queue: RunQueue, other: RunQueue) -> None:
            for per_key in (0, 2):
                wanted = Wanted(("clerk",), per_key=per_key)
                await queue.put([_run(f"{key}{n}", key=key) for key in ("ken", "mika", "zoe") for n in range(3)])
                taken = list[str]()
                while found := await _ids(queue, 1, wanted):
                    taken += found
                    assert await queue.finish(found[0])
                    if len(taken) == 4:
                        await queue.put([_run("new", key="aki")])
                assert taken == ["ken0", "mika0", "zoe0", "ken1", "mika1", "zoe1", "ken2", "new", "mika2", "zoe2"]

        self._with(test)

    def test_run_is_found_behind_very_many_keys(self) -> None:
        """Check keys of another agent, and keys that have reached their limit."""
        if not self.has_keys:
            return

        async def test(queue: RunQueue, other: RunQueue) -> None:
            wanted, most = Wanted(("clerk",), per_key=1), MOST_KEYS + 10
            await queue.put([QueuedRun(f"s{number}", "stranger", key=f"a{number:04}") for number in range(most)])
            await queue.put([_run("z0", key="z"), _run("z1", key="z")])
            assert await _ids(queue, 1, wanted) == ["z0"]
            await queue.put([_run(f"c{number}", key=f"a{number:04}") for number in range(most)])
            strangers = [len(await queue.take(Wanted(("stranger",)), most)) for _ in range(2)]
            assert sum(strangers) == most, "now the keys are at their limit"
            await queue.put([_run("y", key="y")])
            found = [one for _ in range(2) for one in await _ids(queue, 9, wanted)]
            assert found == ["y"]

        self._with(test)

    def test_key_has_a_limit_over_all_workers_and_hides_no_other(self) -> None:
        if not self.has_keys:
            return

        async def test(queue: RunQueue, other: RunQueue) -> None:
            limited = Wanted(("clerk",), per_key=2)
            await queue.put([*[_run(f"k{number}", key="ken") for number in range(6)], _run("m", key="mika"), _run("free")])
            assert await _ids(queue, 3, limited) == ["free", "k0", "m"], "each key has its turn"
            assert await _ids(other, 9, limited) == ["k1"], "two of one key are at work"
            assert await _ids(queue, 9, limited) == []
            assert await queue.finish("k0")
            assert await _ids(other, 9, limited) == ["k2"]

        self._with(test)
