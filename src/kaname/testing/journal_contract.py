"""Contract of a journal: facts, claims, snapshots, following and deleting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..core.errors import JournalError, RunBusy, RunNotFound, RunSuperseded, SessionBusy
from ..core.events import Delta, Event, ModelReplied, Noted, Opened, Received, Stopped
from ..core.messages import ModelReply, Usage, assistant, user
from ..core.steps import CallModel, Stop
from ..kernel.ports import Journal, Turn
from . import samples
from .journal_lists import JournalLists


def raises(kind: type[Exception], work: Callable[[], Awaitable[Any]]) -> Awaitable[None]:
    """Check that the work raises that error."""

    async def check() -> None:
        try:
            await work()
        except kind:
            return
        raise AssertionError(f"expected {kind.__name__}")

    return check()


def first_facts(run_id: str, session: str = "", base: tuple[str, int] | None = None, whose: str = "") -> list[Event]:
    """Return the first two facts of a run."""
    opened = Opened(session, whose, base)
    return [Event(run_id, 1, 1.0, "agent", opened), Event(run_id, 2, 2.0, "agent", Received(user(f"hello {run_id}")))]


def _note(run_id: str, seq: int) -> Event:
    return Event(run_id, seq, float(seq), "agent", Noted(user(f"note {seq} of {run_id}")))


class JournalContract(JournalLists):
    """Tests for a journal. Implement `make`, and `reopen` if your journal keeps its facts."""

    def reopen(self, journal: Journal) -> Journal | None:
        """Return another journal on the same storage. None (default) if the facts are lost with the object."""
        return None

    def test_turn_of_a_session_that_another_run_has_taken_is_refused_when_it_is_written(self) -> None:
        async def test(journal: Journal) -> None:
            turn = Turn("s", "clerk", "u")
            first, second = await journal.claim("1", turn=turn), await journal.claim("2", turn=turn)
            await journal.append([Event("1", 1, 1.0, "clerk", Opened("s", "u"))], first.epoch)
            early = [Event("2", 1, 1.0, "clerk", Opened("s", "u"))]
            await raises(SessionBusy, lambda: journal.append(early, second.epoch))
            await journal.release("2", second.epoch)
            again = await journal.claim("2", turn=turn)
            behind = [Event("2", 1, 1.0, "clerk", Opened("s", "u", ("1", 1)))]
            await raises(SessionBusy, lambda: journal.append(behind, again.epoch))  # that one is still at it
            await journal.release("2", again.epoch)
            await journal.append([Event("1", 2, 2.0, "clerk", Stopped(Stop("completed")))], first.epoch)
            late = await journal.claim("2", turn=turn._replace(after=1))
            await raises(SessionBusy, lambda: journal.append(behind, late.epoch))  # it has gone on since
            await journal.release("2", late.epoch)
            again = await journal.claim("2", turn=turn._replace(after=2))
            await journal.append([Event("2", 1, 3.0, "clerk", Opened("s", "u", ("1", 2)))], again.epoch)
            other = await journal.claim("3", turn=Turn("s", "clerk", "somebody else"))
            await journal.append([Event("3", 1, 3.0, "clerk", Opened("s", "somebody else"))], other.epoch)

        self._with(test)

    def test_facts_come_back_whole_and_in_order(self) -> None:
        async def test(journal: Journal) -> None:
            wanted = [event._replace(run_id="r") for event in samples.events() if not isinstance(event.body, Delta)]
            lease = await journal.claim("r")
            assert lease.seq == 0
            await raises(RunNotFound, lambda: journal.append([wanted[0]], lease.epoch))  # its base is not there
            base = await journal.claim("other")
            await journal.append(first_facts("other"), base.epoch)
            lease = await journal.claim("r", takeover=True)
            for event in wanted[:5]:
                await journal.append([event], lease.epoch)
            await journal.append(wanted[5:], lease.epoch)
            assert [event async for event in journal.read("r")] == wanted
            assert [event.seq async for event in journal.read("r", after=5)] == list(range(6, len(wanted) + 1))

        self._with(test)

    def test_an_unknown_run_is_empty_and_cannot_be_written(self) -> None:
        async def test(journal: Journal) -> None:
            assert [event async for event in journal.read("nobody")] == []
            await raises(JournalError, lambda: journal.append(first_facts("nobody"), 1))
            await raises(RunNotFound, lambda: journal.delete("nobody"))

        self._with(test)

    def test_a_gap_is_refused_and_changes_nothing(self) -> None:
        async def test(journal: Journal) -> None:
            lease = await journal.claim("r")
            await journal.append(first_facts("r"), lease.epoch)
            await raises(JournalError, lambda: journal.append([_note("r", 4)], lease.epoch))
            assert [event.seq async for event in journal.read("r")] == [1, 2]

        self._with(test)

    def test_one_owner_at_a_time(self) -> None:
        async def test(journal: Journal) -> None:
            lease = await journal.claim("r")
            await journal.append(first_facts("r"), lease.epoch)
            await raises(RunBusy, lambda: journal.claim("r"))
            assert [card.status for card in await journal.runs()] == ["running"]
            await journal.release("r", lease.epoch)
            assert [card.status for card in await journal.runs()] == ["interrupted"]  # nobody executes it any more
            assert [len(await journal.runs(status=one)) for one in ("running", "interrupted")] == [0, 1]
            again = await journal.claim("r")
            assert again.epoch > lease.epoch
            assert again.seq == 2

        self._with(test)

    def test_who_was_overtaken_cannot_write(self) -> None:
        async def test(journal: Journal) -> None:
            lease = await journal.claim("r")
            await journal.append(first_facts("r"), lease.epoch)
            newer = await journal.claim("r", takeover=True)
            await raises(RunSuperseded, lambda: journal.append([_note("r", 3)], lease.epoch))
            await journal.append([_note("r", 3)], newer.epoch)

        self._with(test)

    def test_a_stop_gives_the_run_free(self) -> None:
        async def test(journal: Journal) -> None:
            lease = await journal.claim("r")
            await journal.append([*first_facts("r"), Event("r", 3, 3.0, "agent", Stopped(Stop("completed"), 1))], lease.epoch)
            await raises(JournalError, lambda: journal.append([_note("r", 4)], lease.epoch))
            assert (await journal.claim("r")).seq == 3

        self._with(test)

    def test_many_writers_keep_their_order(self) -> None:
        async def test(journal: Journal) -> None:
            async def write(run_id: str) -> list[int]:
                lease = await journal.claim(run_id)
                await journal.append(first_facts(run_id), lease.epoch)
                acknowledged: list[int] = []

                async def one(seq: int) -> None:
                    await journal.append([_note(run_id, seq)], lease.epoch)
                    acknowledged.append(seq)

                await asyncio.gather(*[one(seq) for seq in range(3, 23)])
                return acknowledged

            runs = [f"r{number}" for number in range(20)]
            for order in await asyncio.gather(*[write(run) for run in runs]):
                assert order == list(range(3, 23))
            for run in runs:
                read = [event async for event in journal.read(run)]
                assert [event.seq for event in read] == list(range(1, 23))
                assert all(run in event.body.message.text for event in read[1:])  # type: ignore[union-attr]

        self._with(test)

    def test_the_index_knows_the_runs(self) -> None:
        async def test(journal: Journal) -> None:
            for run, session in (("a", "s1"), ("b", "s1"), ("c", "")):
                lease = await journal.claim(run)
                await journal.append(first_facts(run, session), lease.epoch)
            lease = await journal.claim("d")
            reply = ModelReply(assistant("hi"), "end_turn", Usage(3, 4, 0, 0.5))
            more = [Event("d", 3, 9.0, "agent", ModelReplied(reply, CallModel()))]
            await journal.append(
                [*first_facts("d"), *more, Event("d", 4, 9.5, "agent", Stopped(Stop("completed"), "hi"))], lease.epoch
            )
            assert {card.run_id for card in await journal.runs()} == {"a", "b", "c", "d"}
            assert [card.run_id for card in await journal.runs(session="s1")] == ["b", "a"]
            assert [card.run_id for card in await journal.runs(limit=1, session="s1")] == ["b"]
            lease = await journal.claim("e")
            await journal.append(first_facts("e", "s1", whose="ken"), lease.epoch)
            assert [card.run_id for card in await journal.runs(session="s1", user="ken")] == ["e"]
            assert [card.run_id for card in await journal.runs(session="s1", user="", agent="agent")] == ["b", "a"]
            assert [card.run_id for card in await journal.runs(since=9.5)] == ["d"], "what changed since then"
            (card,) = await journal.runs(status="completed")
            assert (card.run_id, card.cost, card.input, card.output, card.title) == ("d", 0.5, 3, 4, "hello d")
            assert (card.created, card.updated, card.seq) == (1.0, 9.5, 4)

        self._with(test)

    def test_runs_are_listed_by_the_order_of_opening_and_not_by_the_clock(self) -> None:
        async def test(journal: Journal) -> None:
            for number, run in enumerate(("b", "c", "a")):
                lease = await journal.claim(run)
                await journal.append([Event(run, 1, 10.0 - number, "agent", Opened("s1"))], lease.epoch)
            assert [card.run_id for card in await journal.runs()] == ["a", "c", "b"]
            assert [card.run_id for card in await journal.runs(session="s1", limit=1)] == ["a"]

        self._with(test)

    def test_a_claim_that_was_given_back_unused_leaves_nothing(self) -> None:
        async def test(journal: Journal) -> None:
            lease = await journal.claim("r")
            await raises(RunBusy, lambda: journal.claim("r"))
            await journal.release("r", lease.epoch)
            assert await journal.runs() == []
            await raises(RunNotFound, lambda: journal.delete("r"))
            assert (await journal.claim("r")).seq == 0

        self._with(test)

    def test_a_lineage_is_all_that_made_a_run(self) -> None:
        async def test(journal: Journal) -> None:
            for run, base in (("a", None), ("b", ("a", 2)), ("c", ("b", 1))):
                lease = await journal.claim(run)
                await journal.append(first_facts(run, "s1", base), lease.epoch)
            wanted = [*first_facts("a", "s1"), first_facts("b", "s1", ("a", 2))[0], *first_facts("c", "s1", ("b", 1))]
            assert await journal.lineage("c") == ("", wanted)
            assert await journal.lineage("c", 1) == ("", wanted[:-1])
            await raises(RunNotFound, lambda: journal.lineage("nobody"))

        self._with(test)

    def test_a_snapshot_stands_for_the_facts_before_it_if_it_is_kept(self) -> None:
        async def test(journal: Journal) -> None:
            for run, base in (("a", None), ("b", ("a", 2))):
                lease = await journal.claim(run)
                await journal.append(first_facts(run, "s1", base), lease.epoch)
            await journal.keep_snapshot("a", 2, 7, '{"a state": "as text"}')
            await journal.keep_snapshot("nobody", 2, 7, "{}")
            whole = await journal.lineage("b")
            assert await journal.lineage("b", fold=8) == whole, "a snapshot of another fold is not used"
            snapshot, events = await journal.lineage("b", fold=7)
            if snapshot:
                assert snapshot == '{"a state": "as text"}'
                assert events == whole.events[2:]
            assert (await journal.lineage("a", 1, fold=7)).events == whole.events[:1], "it is of a later fact"

        self._with(test)

    def test_a_run_is_followed_until_it_is_over(self) -> None:
        async def test(journal: Journal) -> None:
            lease = await journal.claim("r")
            await journal.append(first_facts("r"), lease.epoch)

            async def follow() -> list[int]:
                return [event.seq async for event in journal.follow("r", 1)]

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.02)
            await journal.append([_note("r", 3)], lease.epoch)
            await journal.append([Event("r", 4, 4.0, "agent", Stopped(Stop("completed"), 1))], lease.epoch)
            assert await asyncio.wait_for(following, 10) == [2, 3, 4]
            assert await follow() == [2, 3, 4]
            await raises(RunNotFound, lambda: anext(journal.follow("nobody")))

        self._with(test)

    def test_changes_come_in_the_order_of_appending_and_from_any_place_on(self) -> None:
        async def test(journal: Journal) -> None:
            leases = {run: await journal.claim(run) for run in ("a", "b")}
            for run in ("b", "a"):
                await journal.append(first_facts(run), leases[run].epoch)
            await journal.append([_note("b", 3)], leases["b"].epoch)
            every = [change async for change in journal.changes(wait=False)]
            assert [(c.event.run_id, c.event.seq) for c in every] == [("b", 1), ("b", 2), ("a", 1), ("a", 2), ("b", 3)]
            places = [change.place for change in every]
            assert places == sorted(places)
            later = [change async for change in journal.changes(places[1], wait=False)]
            assert [(c.event.run_id, c.event.seq) for c in later] == [("a", 1), ("a", 2), ("b", 3)]

        self._with(test)

    def test_who_executes_a_run_hears_that_it_is_to_stop(self) -> None:
        async def test(journal: Journal) -> None:
            lease = await journal.claim("r")
            await journal.append(first_facts("r"), lease.epoch)
            hearing = asyncio.create_task(journal.asked_to_stop("r"))
            await asyncio.sleep(0.02)
            assert await journal.ask_to_stop("r", "enough")
            assert await asyncio.wait_for(hearing, 10) == "enough"
            await journal.release("r", lease.epoch)
            assert not await journal.ask_to_stop("r", "nobody is there")
            await raises(RunNotFound, lambda: journal.ask_to_stop("nobody", ""))

        self._with(test)

    def test_deleting_takes_what_depends_on_it_only_when_told(self) -> None:
        async def test(journal: Journal) -> None:
            for run, base in (("a", None), ("b", ("a", 2)), ("c", ("b", 2))):
                lease = await journal.claim(run)
                await journal.append(first_facts(run, "", base), lease.epoch)
                await raises(RunBusy, lambda run=run: journal.delete(run))  # type: ignore[misc]
                await journal.release(run, lease.epoch)
            await raises(JournalError, lambda: journal.delete("a"))
            assert len(await journal.runs()) == 3
            await journal.delete("a", cascade=True)
            assert await journal.runs() == []
            assert [event async for event in journal.read("a")] == []

        self._with(test)

    def test_what_was_acknowledged_outlives_the_object(self) -> None:
        async def test(journal: Journal) -> None:
            lease = await journal.claim("r")
            await journal.append(first_facts("r"), lease.epoch)
            other = self.reopen(journal)
            if other is not None:
                assert [event async for event in other.read("r")] == first_facts("r")
                await other.close()

        self._with(test)
