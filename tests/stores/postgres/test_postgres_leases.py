"""A process that was silent for too long, and does not know it: it begins no call that cannot be taken back."""

import asyncio
import threading
import time

import pytest

from kaname import Agent, PostgresJournal, RunBusy, RunSuperseded, ScriptedModel, ToolFallback, call, tool
from kaname.core.events import Event, Opened
from kaname.core.messages import ToolResult
from tests.parts import until
from tests.stores.silence import look_dead


async def _take_over(journal, run_id):
    """Claim the run as soon as its process counts as dead."""
    while True:
        try:
            return await journal.claim(run_id)
        except RunBusy:
            await asyncio.sleep(0.05)


def _in_another_program(url, run_id):
    """Claim the run in an event loop of its own, while that of its process stands still."""

    async def claim():
        other = PostgresJournal(url)
        await other.release(run_id, (await _take_over(other, run_id)).epoch)
        await other.close()

    thread = threading.Thread(target=lambda: asyncio.run(claim()))
    thread.start()
    thread.join()


async def _claimed(journal):
    lease = await journal.claim("r")
    await journal.append([Event("r", 1, 1.0, "clerk", Opened("", ""))], lease.epoch)
    return lease


async def test_lease_asks_nothing_while_heartbeats_are_answered(url):
    journal = PostgresJournal(url.replace("ttl=0.6", "ttl=60"))
    lease = await _claimed(journal)
    assert lease.confirm() is None
    await journal.release("r", lease.epoch)
    await journal.close()


async def test_lease_that_ran_out_asks_once_and_is_certain_again_if_nobody_took_it(url):
    journal = PostgresJournal(url.replace("ttl=0.6", "ttl=2"))
    lease = await _claimed(journal)
    look_dead(journal)
    (asking,) = await until(lambda: (asking := lease.confirm()) and [asking])
    await asking
    assert lease.confirm() is None
    await journal.release("r", lease.epoch)
    await journal.close()


@pytest.mark.parametrize("renewed", [False, True])
async def test_lease_that_ran_out_and_was_taken_is_lost_even_if_the_process_is_heard_again(url, renewed):
    journal, other = PostgresJournal(url), PostgresJournal(url)
    lease = await _claimed(journal)
    look_dead(journal)
    newer = await _take_over(other, "r")
    assert newer.before == "died"
    if renewed:
        await journal.stores.health.probe()
    asking = lease.confirm()
    assert asking is not None
    with pytest.raises(RunSuperseded):
        await asking
    await other.release("r", newer.epoch)
    await journal.release("r", lease.epoch)
    await journal.close()
    await other.close()


async def test_lease_that_ran_out_unseen_by_the_clock_is_asked_for_after_the_next_heartbeat(server, url):
    """The clock of a virtual machine that was paused may have stood still. The server's has not."""
    import asyncpg

    journal = PostgresJournal(url.replace("ttl=0.6", "ttl=60"))
    lease = await _claimed(journal)
    schema = url.partition("schema=")[2].partition("&")[0]
    connection = await asyncpg.connect(server)
    await connection.execute(f"UPDATE {schema}.owners SET until = clock_timestamp() - interval '1 second'")
    await connection.execute(f"UPDATE {schema}.runs SET epoch = epoch + 1")
    await connection.close()
    await journal.stores.health.probe()
    with pytest.raises(RunSuperseded):
        await lease.confirm()
    await journal.release("r", lease.epoch)
    await journal.close()


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["sleeps", "computes"])
async def test_tool_that_blocks_the_event_loop_for_three_times_to_live_is_not_a_death(url, how):
    place, begun, over, outcomes = url.replace("ttl=0.6", "ttl=5"), threading.Event(), threading.Event(), []

    async def watch():
        other = PostgresJournal(place)
        while not over.is_set():
            outcomes.append((await asyncio.gather(other.claim("r"), return_exceptions=True))[0])
            await asyncio.sleep(0.2)
        await other.close()

    @tool
    async def block() -> str:
        """Block."""
        begun.set()
        end = time.monotonic() + 15
        while time.monotonic() < end:
            if how == "sleeps":
                time.sleep(15)
        over.set()
        return "done"

    journal = PostgresJournal(place)
    thread = threading.Thread(target=lambda: begun.wait() and asyncio.run(watch()))
    thread.start()
    result = await Agent(ScriptedModel([call("block"), "done"]), [block], name="clerk", journal=journal).run("go", run_id="r")
    thread.join()
    assert result.output == "done"
    assert len(outcomes) > 5
    assert {type(one) for one in outcomes} == {RunBusy}
    await journal.close()


def _clerk(journal, sink=None):
    """An agent whose tools cannot be repeated, and what they have done."""
    done = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        done.append("paid")
        return "paid"

    async def look(yen: int) -> ToolResult | None:
        done.append("looked")

    async def cancel(yen: int) -> None:
        done.append("cancelled")

    @tool(reconcile=look)
    async def order(yen: int) -> str:
        """Order."""
        done.append("ordered")
        await asyncio.sleep(60)

    @tool(effect="compensable", undo=cancel)
    async def book(yen: int) -> str:
        """Book."""
        done.append("booked")
        await asyncio.sleep(60)

    def agent(name):
        model = ScriptedModel([call(name, yen=5), "done"])
        return Agent(model, [pay, order, book], name="clerk", journal=journal, sinks=[sink] if sink else [])

    return agent, done


@pytest.mark.parametrize("name", ["pay", "order", "book"])
async def test_run_that_was_taken_over_between_the_fact_and_the_call_does_not_make_the_call(url, name):
    """The fact that announces the call is written; before the call, the program stands still until others have the run."""
    journal = PostgresJournal(url)

    def sink(event):
        if type(event.body).__name__ == "ToolStarted":
            look_dead(journal)
            _in_another_program(url, event.run_id)

    agent, done = _clerk(journal, sink)
    with pytest.raises(RunSuperseded):
        await agent(name).run("go", run_id="r")
    assert done == []
    assert (await journal.runs(run_id="r"))[0].status == "interrupted"
    await journal.close()


@pytest.mark.parametrize(("name", "effect"), [("order", "ordered"), ("book", "booked")])
async def test_run_that_was_taken_over_before_an_interrupted_call_is_settled_settles_nothing(url, name, effect):
    journal = PostgresJournal(url)

    def sink(event):
        if type(event.body).__name__ == "Resumed":
            look_dead(journal)
            _in_another_program(url, event.run_id)

    agent, done = _clerk(journal, sink)
    run = agent(name).run("go", run_id="r").start()
    await until(lambda: done)
    await run.let_go()
    with pytest.raises(RunSuperseded):
        await agent(name).resume("r")
    assert done == [effect]
    await journal.close()


async def test_run_that_was_taken_over_during_a_call_that_fails_does_not_undo_it(url):
    """The undo would take back what the other process has done since."""
    journal, done = PostgresJournal(url), []

    async def cancel(yen: int) -> None:
        done.append("cancelled")

    @tool(effect="compensable", undo=cancel)
    async def book(yen: int) -> str:
        """Book."""
        done.append("booked")
        look_dead(journal)
        _in_another_program(url, "r")
        raise ConnectionError("connection reset")

    agent = Agent(ScriptedModel([call("book", yen=5), "done"]), [book], policies=[ToolFallback(max_retries=1)], journal=journal)
    with pytest.raises(RunSuperseded):
        await agent.run("go", run_id="r")
    assert done == ["booked"]
    await journal.close()
