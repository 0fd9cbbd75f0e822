"""What a worker that is stopped does with calls under way: those that cannot be repeated may end, and their results are kept."""

import asyncio
import logging

from kaname import Agent, ScriptedModel, SqliteJournal, ToolContext, Workflow, call, tool
from kaname.core.events import ToolFinished
from kaname.run.run import find_live, let_go_of
from tests.parts import until
from tests.work.test_workers import Gate, Working


class Bank:
    """Tools that end when the test says so. `done`: what they did."""

    def __init__(self):
        self.begun, self.free, self.done = [], set(), []

        @tool
        async def pay(name: str) -> str:
            """Pay."""
            self.begun.append(name)
            await until(lambda: name in self.free)
            self.done.append(name)
            return f"paid {name}"

        @tool(effect="pure")
        async def look(name: str) -> str:
            """Look."""
            self.begun.append(name)
            await asyncio.Event().wait()

        self.pay, self.look = pay, look


def script(*calls):
    return ScriptedModel(lambda request: "done" if request.messages[-1].role == "tool" else list(calls))


def clerk(bank, model, path):
    return Agent(model, [bank.pay, bank.look], name="clerk", journal=SqliteJournal(path / "j.db"))


async def ending(agent, run_id):
    """Wait until the run was told to end soon."""
    await until(lambda: find_live(agent.journal, run_id).letting_go)


async def results(journal, run_id):
    return [event.body.result.output async for event in journal.read(run_id) if isinstance(event.body, ToolFinished)]


async def status(agent, run_id):
    return (await agent.journal.runs(run_id=run_id))[0].status


async def test_calls_that_cannot_be_repeated_end_and_are_recorded_and_no_step_follows(tmp_path):
    bank = Bank()
    agent = clerk(bank, script(call("pay", name="a"), call("pay", name="b")), tmp_path)
    async with Working(agent, grace=60) as worker:
        run_id = await agent.submit("go")
        await until(lambda: len(bank.begun) == 2)
        worker.stop()
        await ending(agent, run_id)
        assert await status(agent, run_id) == "running"
        bank.free |= {"a", "b"}
    assert sorted(await results(agent.journal, run_id)) == ["paid a", "paid b"]
    assert await status(agent, run_id) == "interrupted"
    result = await agent.resume(run_id)
    assert (result.output, sorted(bank.done)) == ("done", ["a", "b"])
    await agent.journal.close()


async def test_call_that_can_be_repeated_and_model_call_do_not_delay_the_end(tmp_path):
    bank, gate = Bank(), Gate(open_at_first=False)
    agent = clerk(bank, script(call("look", name="a")), tmp_path)
    other = Agent(gate, name="other", journal=agent.journal)
    async with asyncio.timeout(30), Working(agent, grace=600) as worker:
        run_id = await agent.submit("go")
        await until(lambda: bank.begun)
        worker.stop()
    async with asyncio.timeout(30), Working(other, grace=600) as worker:
        asked = await other.submit("go")
        await until(lambda: gate.asked)
        worker.stop()
    assert {await status(agent, one) for one in (run_id, asked)} == {"interrupted"}
    await agent.journal.close()


async def test_call_that_does_not_end_in_time_is_cut_off_and_named(tmp_path, caplog):
    bank = Bank()
    agent = clerk(bank, script(call("pay", name="a")), tmp_path)
    with caplog.at_level(logging.WARNING, "kaname"):
        async with Working(agent, grace=0.2) as worker:
            run_id = await agent.submit("go")
            await until(lambda: bank.begun)
            worker.stop()
    (told,) = [record.getMessage() for record in caplog.records if record.name == "kaname"]
    assert told.startswith(f"run {run_id} is left although a tool is still at work (pay).")
    assert (await status(agent, run_id), bank.done) == ("interrupted", [])
    assert [asked.in_doubt for asked in (await agent.resume(run_id)).questions.values()] == [True]
    await agent.journal.close()


async def test_run_that_a_person_stops_while_its_tool_may_end_is_not_resumed(tmp_path):
    bank = Bank()
    agent = clerk(bank, script(call("pay", name="a")), tmp_path)
    async with Working(agent, grace=60) as worker:
        run_id = await agent.submit("go")
        await until(lambda: bank.begun)
        worker.stop()
        await ending(agent, run_id)
        await agent.stop(run_id, "enough")
    result = await agent.result(run_id)
    assert (result.stop.kind, result.stop.detail) == ("cancelled", "enough")
    await agent.journal.close()


async def test_payment_of_a_child_ends_and_is_recorded(tmp_path):
    bank = Bank()
    child = Agent(script(call("pay", name="a")), [bank.pay], name="payer")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        return (await context.run_child(child, "pay")).output

    agent = Agent(script(call("delegate")), [delegate], name="clerk", journal=SqliteJournal(tmp_path / "j.db"))
    async with Working(agent, grace=60) as worker:
        run_id = await agent.submit("go")
        await until(lambda: bank.begun)
        worker.stop()
        await ending(agent, run_id)
        bank.free |= {"a", "b"}
    (card,) = await agent.journal.runs(parent=run_id)
    assert await results(agent.journal, card.run_id) == ["paid a"]
    assert (await agent.resume(run_id)).output == "done"
    assert bank.done == ["a"]
    await agent.journal.close()


async def test_tasks_of_a_workflow_under_way_end_and_no_other_begins(tmp_path):
    bank = Bank()
    flow = Workflow("shop", journal=SqliteJournal(tmp_path / "j.db"))
    first = flow.options(name="first").task(bank.pay, "a")
    flow.options(name="second").task(bank.pay, "b")
    flow.options(name="third").task(bank.pay, first)
    run = flow.run({}).start()
    await until(lambda: len(bank.begun) == 2)
    ended = asyncio.create_task(let_go_of([run], grace=60))
    await until(lambda: find_live(run.journal, run.run_id).letting_go)
    bank.free.add("a")
    await until(lambda: bank.done)
    bank.free.add("b")
    await ended
    assert bank.begun == ["a", "b"]
    assert sorted(await results(run.journal, run.run_id)) == ["paid a", "paid b"]
    await run.journal.close()
