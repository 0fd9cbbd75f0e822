"""Contract of what a journal keeps besides facts: accounts, messages, approvals, marks and checks.

A store that the journal does not have is not tested. The queue has a contract of its own (`QueueContract`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

from ..core.errors import InvalidState, RunNotFound
from ..core.events import Event, Interjected, Stopped
from ..core.messages import user
from ..core.steps import Stop
from ..kernel.ports import Journal, Turn
from ..kernel.stores import Balance, Digest, Grant, Stores
from .journal_contract import first_facts, raises


class StoresContract(ABC):
    """Tests for the stores of a journal. Implement `make`."""

    @abstractmethod
    def make(self) -> Journal: ...

    def _with(self, test: Callable[[Journal], Awaitable[None]]) -> None:
        async def go() -> None:
            journal = self.make()
            try:
                await test(journal)
            finally:
                await journal.close()

        asyncio.run(go())

    def test_a_journal_says_what_it_keeps(self) -> None:
        async def test(journal: Journal) -> None:
            assert isinstance(journal.stores, Stores)
            assert (journal.stores.queue is None) == (journal.stores.marks is None), "schedules need both"
            if journal.stores.health is not None:
                await journal.stores.health.probe()
                assert await journal.stores.health.verify() == []

        self._with(test)

    def test_an_account_counts_what_is_spent_and_what_is_reserved(self) -> None:
        async def test(journal: Journal) -> None:
            if (ledger := journal.stores.ledger) is None:
                return

            def up_to_two(balances: Sequence[Balance]) -> list[float] | None:
                return [1.0 for _ in balances] if all(one.spent + one.reserved < 2.0 for one in balances) else None

            both = ("total", "user ken")
            assert await ledger.reserve("a", both, up_to_two) == ([Balance("total"), Balance("user ken")], True)
            assert (await ledger.reserve("b", ("total",), up_to_two))[1]
            balances, reserved = await ledger.reserve("c", ("user ken", "total"), up_to_two)
            assert (balances, reserved) == ([Balance("user ken", 0.0, 1.0), Balance("total", 0.0, 2.0)], False)
            ledger.settle("a", {"total": 0.25, "user ken": 0.25})
            ledger.settle("b", {})
            while sum([one.reserved for one in await ledger.balances()]):  # noqa: ASYNC110 - it is written with the next fact
                await asyncio.sleep(0.01)
            assert (await ledger.reserve("c", ("total",), up_to_two))[0] == [Balance("total", 0.25)]
            assert await ledger.balances("user") == [Balance("user ken", 0.25)]
            assert [one.name for one in await ledger.balances()] == ["total", "user ken"]

        self._with(test)

    def test_a_message_waits_for_its_run_until_it_is_recorded(self) -> None:
        async def test(journal: Journal) -> None:
            if (inbox := journal.stores.inbox) is None:
                return
            turn = Turn("s", "agent", "")
            await raises(RunNotFound, lambda: inbox.put("a", Interjected(user("hello"), id="0")))
            first = await journal.claim("a", turn=turn)
            await journal.append(first_facts("a", "s"), first.epoch)
            hearing = asyncio.create_task(inbox.letters("a", wait=True))
            await asyncio.sleep(0.02)
            one, two, three = [Interjected(user(f"message {number}"), "mika", 1.0, id=str(number)) for number in (1, 2, 3)]
            assert await inbox.put("a", one) == ("a", True)
            assert await asyncio.wait_for(hearing, 10) == [one]
            await inbox.put("a", two)
            assert await inbox.letters("a") == [one, two]
            assert await inbox.letters("a", known={"1"}) == [two]
            await journal.append([Event("a", 3, 3.0, "agent", one)], first.epoch)
            assert await inbox.letters("a") == [two], "what is recorded does not wait any more"
            await journal.append([Event("a", 4, 4.0, "agent", Stopped(Stop("completed")))], first.epoch)
            assert await inbox.put("a", three) == ("a", False)
            second = await journal.claim("b", turn=turn)
            await journal.append(first_facts("b", "s", ("a", 4)), second.epoch)
            assert await inbox.letters("b") == [two, three], "what came too late is for the next run of the session"
            assert await inbox.put("a", Interjected(user("4"), id="4")) == ("b", True)
            assert [said.id for said in await inbox.letters("b")] == ["2", "3", "4"]
            alone = await journal.claim("c")
            await journal.append([*first_facts("c"), Event("c", 3, 3.0, "agent", Stopped(Stop("failed")))], alone.epoch)
            await raises(InvalidState, lambda: inbox.put("c", Interjected(user("5"), id="5")))
            assert await inbox.letters("c") == []
            await journal.release("b", second.epoch)
            await journal.delete("a", cascade=True)
            assert await inbox.letters("b") == []

        self._with(test)

    def test_an_approval_is_kept_once_until_it_is_revoked(self) -> None:
        async def test(journal: Journal) -> None:
            if (grants := journal.stores.grants) is None:
                return
            assert await grants.all() == []
            assert not await grants.revoke("1")
            first = Grant("1", "clerk", "ken", "pay", {"yen": {"at_most": 10}}, until=9.5, by="boss", at=1.5, rule="approve")
            second = Grant("2", "clerk", "ken", "pay", {}, at=2.0)
            await grants.put(first)
            await grants.put(second)
            await grants.put(first._replace(by="somebody else"))
            await grants.put(Grant("3", "clerk", "", "pay", {}))
            assert await grants.find("clerk", "ken", "pay") == [first, second], "one whose id is known stays as it is"
            assert [one.id for one in await grants.all()] == ["3", "2", "1"], "the newest comes first"
            assert await grants.revoke("1")
            assert not await grants.revoke("1")
            await grants.put(first)
            revoked, valid = await grants.find("clerk", "ken", "pay")
            assert (revoked.is_valid(5.0), revoked.id, valid) == (False, "1", second), "an approval does not come back"

        self._with(test)

    def test_a_digest_is_kept_as_long_as_its_run_has_these_facts(self) -> None:
        async def test(journal: Journal) -> None:
            if (digests := journal.stores.digests) is None:
                return
            assert await digests.of(["a", "b"]) == []
            for run in ("a", "b"):
                lease = await journal.claim(run)
                await journal.append([*first_facts(run), Event(run, 3, 3.0, "agent", Stopped(Stop("completed")))], lease.epoch)
            first, other = Digest("a", 3, '{"calls": 1}'), Digest("b", 3, "größer")
            await digests.put([first, other, Digest("none", 1, "{}")])
            assert sorted(await digests.of(["b", "none", "a"])) == [first, other], (
                "of a run that does not exist, nothing is kept"
            )
            await digests.put([Digest("a", 2, "{}")])
            assert await digests.of(["a"]) == [first], "the run has other facts by now"
            await digests.put([first._replace(text="{}")])
            assert await digests.of(["a"]) == [first._replace(text="{}")], "a new one takes the place of the old one"
            await journal.delete("a")
            assert await journal.prune(await journal.runs()) == ["b"]
            assert await digests.of(["a", "b"]) == [], "it goes with its run"
            lease = await journal.claim("a")
            await journal.append(first_facts("a"), lease.epoch)
            assert await digests.of(["a"]) == []
            await journal.release("a", lease.epoch)

        self._with(test)

    def test_marks_are_entered_once_and_never_set_back(self) -> None:
        async def test(journal: Journal) -> None:
            if (marks := journal.stores.marks) is None:
                return
            assert await marks.all() == {}
            await marks.enter({"daily": 5.0, "hourly": 7.0})
            await marks.enter({"daily": 9.0})
            await marks.raise_to({"daily": 8.0, "hourly": 6.0, "new": 1.0})
            assert await marks.all() == {"daily": 8.0, "hourly": 7.0, "new": 1.0}
            await marks.remove(["daily", "unknown"])
            assert await marks.all() == {"hourly": 7.0, "new": 1.0}

        self._with(test)
