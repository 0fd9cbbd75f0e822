"""A model's reply is written with the fact that follows from it. Whatever comes between them, nothing is lost or done early."""

import asyncio
import sqlite3
from typing import Any

import pytest

from kaname import Agent, MemoryJournal, Policy, ScriptedModel, SqliteJournal, call, tool
from kaname.core.errors import JournalFull, UnexpectedError
from kaname.core.events import Event, Opened, Stopped
from kaname.core.messages import Message, ModelReply, Provided, ToolCall, Usage, assistant
from kaname.core.runs import UNDER_WAY
from kaname.core.steps import CallModel, Finish, Stop
from tests.parts import add


async def kinds(journal, run):
    return [type(event.body).__name__ async for event in journal.read(run)]


def acting():
    done = []

    @tool
    async def act(n: int) -> str:
        """Act."""
        done.append(n)
        return f"acted {n}"

    return done, act


class Slow(Policy):
    async def tool(self, call, next, scope):
        await asyncio.sleep(0.01)
        return await next(call)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("policies", [[], [Slow()]])
async def test_a_sink_that_fails_at_the_reply_is_told_of_and_the_run_goes_on(calls, policies):
    def sink(event):
        if type(event.body).__name__ == "ModelReplied":
            raise RuntimeError("no paper")

    _, act = acting()
    model = ScriptedModel([[call("act", n=n) for n in range(calls)], "done"])
    agent = Agent(model, [act], sinks=[sink], policies=policies, journal="memory")
    async with asyncio.timeout(60):
        result = await agent.run("go")
    assert result.output == "done"
    assert (await kinds(agent.journal, result.run_id)).count("Warned") == 1


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_replies_that_follow_each_other_at_once_are_all_recorded(tmp_path, kind):
    class Twice:
        def next(self, state):
            return CallModel() if len(state.replies) < 3 else Finish(Stop("completed"), "done")

    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "journal.db")
    result = await Agent(ScriptedModel(["one", "two", "three"]), strategy=Twice(), journal=journal).run("go")
    assert await kinds(journal, result.run_id) == ["Opened", "Received", *["ModelReplied"] * 3, "Stopped"]
    await journal.close()


async def test_deltas_of_a_second_reply_come_after_the_first_reply():
    class Twice:
        def next(self, state):
            return CallModel() if len(state.replies) < 2 else Finish(Stop("completed"), "done")

    seen = []
    agent = Agent(ScriptedModel(["one", "two"]), strategy=Twice(), sinks=[lambda e: seen.append(e)], journal="memory")
    await agent.run("go")
    facts = [0]
    for event in seen:
        if type(event.body).__name__ == "Delta":
            assert facts[-1] == event.seq, "a delta came before the fact that it follows"
        else:
            facts.append(event.seq)
    assert facts == list(range(6))


@pytest.mark.parametrize("calls", [0, 1, 2])
@pytest.mark.parametrize("policies", [[], [Slow()]])
async def test_a_reply_that_is_no_json_ends_the_run_before_any_tool(calls, policies):
    done, act = acting()

    class Odd:
        name = "odd"

        async def reply(self, request, emit):
            made = tuple(ToolCall("", "act", {"n": n}) for n in range(calls))
            return ModelReply(Message("assistant", (Provided("odd", {"x": b"bytes"}), *made)), "end_turn")

    agent = Agent(Odd(), [act], policies=policies, journal="memory")
    run = agent.run("go")
    with pytest.raises(UnexpectedError, match="'odd' wants back unchanged cannot be recorded as JSON"):
        await run
    assert done == []
    assert await kinds(agent.journal, run.run_id) == ["Opened", "Received", "Stopped"]


async def test_a_fact_after_the_reply_that_is_no_json_leaves_the_reply(tmp_path):
    done = []

    class Spoiling(Policy):
        async def tool(self, call, next, scope):
            return await next(ToolCall(call.id, call.name, {"anything": b"bytes"}))

    @tool
    async def loose(anything: Any) -> str:
        """Take anything."""
        done.append(anything)
        return "taken"

    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(ScriptedModel([call("loose", anything=1), "done"]), [loose], policies=[Spoiling()], journal=journal)
    run = agent.run("go")
    with pytest.raises(UnexpectedError, match="a ToolStarted fact cannot be recorded"):
        await run
    assert done == []
    assert await kinds(agent.journal, run.run_id) == ["Opened", "Received", "ModelReplied", "Stopped"]
    await journal.close()


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), 1, None])
async def test_a_strange_price_does_not_spoil_the_journal(tmp_path, cost):
    journal = SqliteJournal(tmp_path / "journal.db")
    usage = Usage(3.0, 4, 0, cost)
    await Agent(ScriptedModel([ModelReply(assistant("hi"), "end_turn", usage)]), journal=journal).run("go")
    (card,) = await journal.runs()
    assert (card.input, card.output) == (3, 4)
    assert card.cost == (None if cost is None or cost != cost else cost)
    assert await journal.stores.health.verify() == []
    await journal.close()


async def awaited(agent, run_id):
    try:
        return await agent.run("go", run_id=run_id)
    finally:
        await agent.close()


async def test_facts_that_follow_while_the_first_are_on_their_way_leave_a_right_entry(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    lease = await journal.claim("r")
    other = sqlite3.connect(journal.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # another process writes
    facts = [
        Event("r", 1, 1.0, "agent", Opened()),
        Event("r", 2, 2.0, "agent", Stopped(Stop("cancelled", "cancelled while it was starting"))),
    ]
    going = [asyncio.create_task(journal.append([fact], lease.epoch)) for fact in facts]
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    other.close()
    await asyncio.gather(*going)
    (card,) = await journal.runs()
    assert (card.status, card.seq) == ("cancelled", 2)
    await journal.close()


async def test_a_second_cancellation_does_not_lose_the_end_of_the_run(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Slow()], journal=journal)
    await agent.run("warm")
    for number in range(40):
        task = asyncio.create_task(awaited(agent, f"r{number}"))
        for _ in range(number % 20):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(60):
        while any(card.status in UNDER_WAY for card in await journal.runs()):  # nobody waits for their end, but it comes
            await asyncio.sleep(0.01)
    await journal.close()


async def test_an_abort_on_a_full_disk_tells_of_the_disk(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db", max_bytes=150_000)

    async def work(n: int) -> str:
        await asyncio.sleep(0.001 * n)
        return "x" * 100_000

    for number in range(6):
        agent = Agent(ScriptedModel([[call("work", n=n) for n in range(4)], "done"]), [work], journal=journal)
        run = agent.run("go").start()
        await asyncio.sleep(0.0015 * number)
        run.abort()
        try:
            result = await run
        except JournalFull:
            continue
        assert result.stop.kind == "cancelled"
    await journal.close()
