"""Contract of the lists of a journal: pages, sessions, counts, and lists after a deletion."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..core.events import Asked, Custom, Event, Opened, Received, Stopped
from ..core.messages import user
from ..core.runs import TITLE
from ..core.steps import Stop, StopKind
from ..kernel.ports import Journal


async def write(
    journal: Journal,
    run: str,
    *,
    session: str = "",
    whose: str = "",
    agent: str = "agent",
    base: str = "",
    parent: str = "",
    end: StopKind | None = "completed",
    time: float = 1.0,
) -> None:
    """Write a short run as an agent would. Without an `end` it asks a question and waits."""
    opened = Opened(session, whose, (base, 3) if base else None, parent=(parent, "call") if parent else None)
    last = Asked("approve:1", "Allow it?") if end is None else Stopped(Stop(end), "done")
    lease = await journal.claim(run)
    bodies: Sequence[Any] = (opened, Received(user(f"hello {run}")), last)
    await journal.append([Event(run, seq, time, agent, body) for seq, body in enumerate(bodies, 1)], lease.epoch)
    await journal.release(run, lease.epoch)


async def ids(journal: Journal, **wanted: Any) -> list[str]:
    return [card.run_id for card in await journal.runs(**wanted)]


class JournalLists(ABC):
    """Tests for the lists of a journal. `JournalContract` contains them."""

    @abstractmethod
    def make(self) -> Journal:
        """Return a new, empty journal."""

    def _with(self, test: Callable[[Journal], Awaitable[None]]) -> None:
        async def go() -> None:
            journal = self.make()
            try:
                await test(journal)
            finally:
                await journal.close()

        asyncio.run(go())

    def test_pages_of_runs_are_the_list_whatever_is_asked_for(self) -> None:
        async def test(journal: Journal) -> None:
            ends: tuple[StopKind | None, ...] = ("completed", "failed", None)
            for number in range(24):
                whose, agent, parent = f"u{number % 2}", f"a{number % 3}", f"r{number - 1:02}" if number % 8 == 7 else ""
                session = "" if parent else f"s{number % 4}"
                run, end = f"r{number:02}", ends[number % 3]
                await write(journal, run, session=session, whose=whose, agent=agent, parent=parent, end=end, time=number + 1.0)
            filters: list[dict[str, Any]] = [
                {},
                {"user": "u1"},
                {"agent": "a2"},
                {"user": "u0", "agent": "a0"},
                {"status": "failed"},
                {"user": "u1", "status": "failed"},
                {"agent": "a2", "status": "waiting"},
                {"session": "s1"},
                {"session": "s1", "user": "u1", "agent": "a2", "status": "waiting"},
                {"parent": "r06"},
                {"since": 12.0},
                {"since": 12.0, "agent": "a1"},
                {"until": 12.0, "user": "u0"},
                {"starting": "r1"},
            ]
            for wanted in filters:
                whole = await journal.runs(**wanted, limit=1_000)
                assert whole, wanted
                pages, before = [], 0
                while page := await journal.runs(**wanted, before=before, limit=2):
                    pages += page
                    before = page[-1].place
                assert pages == whole, wanted
            assert await ids(journal, parent="r06") == ["r07"]
            assert await ids(journal, starting="r1", limit=1) == ["r19"]
            assert await ids(journal, starting="1") == await ids(journal, parent="r00") == []

        self._with(test)

    def test_sessions_come_by_their_last_change_and_not_by_the_clock(self) -> None:
        async def test(journal: Journal) -> None:
            await write(journal, "1", session="a", whose="ken", end=None, time=90.0)
            await write(journal, "2", session="a", whose="mika", time=80.0)
            await write(journal, "3", session="b", whose="ken", agent="other", time=70.0)
            await write(journal, "4", session="shared/room", whose="ken", time=60.0)
            await write(journal, "5", session="shared/room", whose="mika", agent="other", base="4", time=50.0)
            await write(journal, "6", session="", whose="ken")
            await write(journal, "7", session="", whose="ken", parent="6")
            assert [one.runs for one in await journal.sessions()] == [("4", "5"), ("3",), ("2",), ("1",)]
            lease = await journal.claim("1")  # its question is answered later
            await journal.append([Event("1", 4, 40.0, "agent", Stopped(Stop("completed")))], lease.epoch)
            (first, *others) = await journal.sessions()
            assert (first.runs, first.last.status, first.updated, first.first.title) == (("1",), "completed", 40.0, "hello 1")
            assert [one.runs for one in others] == [("4", "5"), ("3",), ("2",)]
            lease = await journal.claim("2")
            await journal.append([Event("2", 4, 30.0, "agent", Custom(TITLE, "renamed"))], lease.epoch)
            await journal.release("2", lease.epoch)
            assert (await journal.sessions(limit=1))[0].last.title == "renamed"
            assert [one.runs for one in await journal.sessions(user="ken")] == [("1",), ("4", "5"), ("3",)]
            assert [one.runs for one in await journal.sessions(user="mika", agent="other")] == [("4", "5")]
            assert [one.runs for one in await journal.sessions(session="a")] == [("2",), ("1",)]
            pages, before = [], 0
            while page := await journal.sessions(before=before, limit=1):
                pages += page
                before = page[-1].place
            assert pages == await journal.sessions()

        self._with(test)

    def test_all_runs_are_counted_by_status_and_day(self) -> None:
        async def test(journal: Journal) -> None:
            for number in range(6):
                end: StopKind = "failed" if number % 3 == 2 else "completed"
                await write(journal, f"{number}", whose=f"u{number % 2}", end=end, time=number * 43_200.0 + 1)
            await write(journal, "inner", parent="0")
            lease = await journal.claim("open")
            await journal.append([Event("open", 1, 1.0, "agent", Opened())], lease.epoch)
            days = {(one.status, one.day) for one in await journal.count()}
            assert days == {(end, day) for end in ("completed", "failed") for day in (1, 2)} | {
                ("completed", 0),
                ("running", 0),
            }
            assert sum([one.runs for one in await journal.count()]) == 7, "the one inside another is left out"
            await journal.release("open", lease.epoch)
            assert sum([one.runs for one in await journal.count() if one.status == "interrupted"]) == 1
            assert sum([one.runs for one in await journal.count(user="u1")]) == 3
            assert sum([one.runs for one in await journal.count(since=86_400.0)]) == 4
            assert {one.day for one in await journal.count(since=86_402.0, shift=43_200.0)} == {1, 2}

        self._with(test)

    def test_pruning_takes_what_no_other_run_needs_and_nothing_that_goes_on(self) -> None:
        async def test(journal: Journal) -> None:
            await write(journal, "turn 1", session="s")
            await write(journal, "turn 2", session="s", base="turn 1")
            await write(journal, "kept 1", session="t")
            await write(journal, "kept 2", session="t", base="kept 1", end=None)
            await write(journal, "outer")
            await write(journal, "inner", parent="outer")
            await write(journal, "inmost", parent="inner", end=None)
            await write(journal, "forked")
            await write(journal, "fork", base="forked")
            await write(journal, "changed")
            at_work = await journal.claim("fork")
            cards = await journal.runs()
            lease = await journal.claim("changed")
            await journal.append([Event("changed", 4, 9.0, "agent", Custom("rating", {"rating": "good"}))], lease.epoch)
            await journal.release("changed", lease.epoch)
            trial: set[str] = set()
            expected = {"turn 1", "turn 2", "outer", "inner", "inmost"}
            assert set(await journal.prune(cards, trial=trial)) == expected == trial
            assert len(await journal.runs()) == 10, "a trial deletes nothing"
            assert set(await journal.prune(cards)) == expected
            assert set(await ids(journal)) == {"kept 1", "kept 2", "forked", "fork", "changed"}
            assert await journal.prune(cards) == []
            await journal.release("fork", at_work.epoch)
            assert set(await journal.prune(cards)) == {"fork", "forked"}
            assert await journal.lineage("kept 2")
            freed, free = await journal.tidy()
            assert freed >= 0 <= free

        self._with(test)

    def test_changes_after_a_deletion_are_seen_by_who_has_seen_all_before(self) -> None:
        async def test(journal: Journal) -> None:
            for run in ("1", "2"):
                await write(journal, run)
            last = max([change.place async for change in journal.changes(wait=False)])
            await journal.delete("2")
            await journal.delete("1")
            assert [change async for change in journal.changes(wait=False)] == []
            await write(journal, "3")
            assert {change.event.run_id async for change in journal.changes(last, wait=False)} == {"3"}
            assert (await journal.runs())[0].place > last, "a place is not given twice"

        self._with(test)
