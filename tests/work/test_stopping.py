"""A worker or server that is stopped: calls under way may end, no other begins, and what is left is named."""

import asyncio
import logging
import threading
from contextlib import asynccontextmanager

import pytest

from kaname import (
    Agent,
    Approve,
    Budget,
    Halt,
    MemoryJournal,
    Policy,
    PostgresJournal,
    ScriptedModel,
    SqliteJournal,
    Stop,
    Team,
    ToolContext,
    ToolResult,
    Worker,
    Workflow,
    call,
    tool,
)
from kaname.core.events import ToolFinished, ToolStarted
from kaname.kernel.load import load
from kaname.run import run as module
from kaname.run.run import find_live, let_go_of
from kaname.serve.service import Service
from tests.parts import until
from tests.work.test_workers import Gate, Working


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Open the same journal once more, each time."""
    url = request.getfixturevalue("url") if request.param == "postgres" else ""
    return lambda: PostgresJournal(url) if url else SqliteJournal(tmp_path / "j.db")


class Bank:
    """Tools that end when the test says so. `begun`, `done`: what they did."""

    def __init__(self):
        self.begun, self.free, self.done = [], set(), []

        async def work(name):
            self.begun.append(name)
            await until(lambda: name in self.free)
            self.done.append(name)
            return f"paid {name}"

        @tool
        async def pay(name: str) -> str:
            """Pay."""
            return await work(name)

        @tool(effect="idempotent")
        async def put(name: str) -> str:
            """Put."""
            return await work(name)

        @tool(effect="pure")
        async def look(name: str) -> str:
            """Look."""
            return await work(name)

        self.pay, self.put, self.look = pay, put, look
        self.tools = [pay, put, look]


def steps(*listed):
    """A model that makes the calls of one entry after the other, and then says done."""

    def reply(request):
        number = len([one for one in request.messages if one.role == "assistant"])
        return (
            (list(listed[number]) if isinstance(listed[number], tuple) else listed[number]) if number < len(listed) else "done"
        )

    return ScriptedModel(reply)


def pay(*names):
    return tuple(call("pay", name=name) for name in names)


def stopping(agent, run_id):
    """Wait until the run was told to end."""
    return until(lambda: (work := find_live(agent.journal, run_id)) is None or work.letting_go)


async def facts(journal, run_id, kind=ToolFinished):
    return [event.body async for event in journal.read(run_id) if isinstance(event.body, kind)]


async def results(journal, run_id):
    return sorted([fact.result.output for fact in await facts(journal, run_id)])


async def status(agent, run_id):
    return (await agent.journal.runs(run_id=run_id))[0].status


@asynccontextmanager
async def stopped_at(agent, bank, *begun, grace=60.0):
    """Execute a run until calls have begun, tell its worker to stop, and wait until it has ended."""
    async with asyncio.timeout(60), Working(agent, grace=grace) as worker:
        run_id = await agent.submit("go")
        await until(lambda: set(begun) <= set(bank.begun))
        worker.stop()
        await stopping(agent, run_id)
        yield run_id


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.WARNING, "kaname")
    return lambda: sorted([one.getMessage() for one in caplog.records if "did not end in time" in one.getMessage()])


async def test_calls_under_way_end_and_are_recorded_and_nothing_follows(place):
    bank, journal = Bank(), place()
    agent = Agent(steps(pay("a", "b"), pay("c")), bank.tools, name="clerk", journal=journal)
    async with stopped_at(agent, bank, "a", "b") as run_id:
        assert await status(agent, run_id) == "running"
        bank.free |= {"a", "b", "c"}
    assert await results(journal, run_id) == ["paid a", "paid b"]
    assert (await status(agent, run_id), (await load(journal, run_id)).pending) == ("interrupted", ())
    other = place()
    again = Agent(steps(pay("a", "b"), pay("c")), bank.tools, name="clerk", journal=other)
    async with Working(again):
        await until(lambda: _ended(again, run_id))
    assert sorted(bank.done) == ["a", "b", "c"]
    await journal.close()
    await other.close()


async def _ended(agent, run_id):
    return await status(agent, run_id) == "completed"


async def test_pure_calls_and_model_calls_delay_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_ENDING", 600.0)
    bank, gate = Bank(), Gate(open_at_first=False)
    agent = Agent(steps((call("look", name="x"), *pay("a"))), bank.tools, name="clerk", journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "x", "a", grace=600) as run_id:
        bank.free.add("a")  # the pure call is cut when this one has ended
    assert await results(agent.journal, run_id) == ["paid a"]
    asking = Agent(gate, name="asking", journal=agent.journal)
    async with asyncio.timeout(60), Working(asking, grace=600) as worker:
        asked = await asking.submit("go")
        await until(lambda: gate.asked)
        worker.stop()
    assert {await status(agent, one) for one in (run_id, asked)} == {"interrupted"}
    await agent.journal.close()


class InTurn(Policy):
    """One call at a time."""

    def __init__(self):
        self.free = asyncio.Lock()

    async def tool(self, call, next, scope):
        async with self.free:
            return await next(call)


class Twice(Policy):
    """Each call is tried twice."""

    async def tool(self, call, next, scope):
        await next(call)
        return await next(call)


@pytest.mark.parametrize(("policy", "begun"), [(InTurn, ["a"]), (Twice, ["a", "b"])])
async def test_no_later_call_of_the_step_and_no_other_try_begins(tmp_path, policy, begun):
    bank = Bank()
    agent = Agent(steps(pay("a", "b")), bank.tools, name="clerk", policies=[policy()], journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, *begun) as run_id:
        bank.free |= {"a", "b"}
    assert sorted(bank.begun) == begun
    assert len(await facts(agent.journal, run_id, ToolStarted)) == len(begun)
    await agent.journal.close()


def delegating(child, model=None, background=False, name="clerk"):
    @tool(background=background)
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        return (await context.run_child(child, "pay")).output

    return Agent(model or steps((call("delegate"),)), [delegate], name=name)


@pytest.mark.parametrize("catches", [False, True])
async def test_child_of_a_plain_tool_begins_nothing_more(tmp_path, catches):
    bank = Bank()
    child = Agent(steps(pay("a"), pay("b")), bank.tools, name="payer")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        try:
            return (await context.run_child(child, "pay")).output
        except BaseException:
            if not catches:
                raise
            return "never mind"

    agent = Agent(steps((call("delegate"),)), [delegate], name="clerk", journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "a") as run_id:
        bank.free |= {"a", "b"}
    (card,) = await agent.journal.runs(parent=run_id)
    assert (bank.begun, await results(agent.journal, card.run_id)) == (["a"], ["paid a"])
    assert await results(agent.journal, run_id) == [], "the call has no result yet, and the model hears of none"
    assert (await agent.resume(run_id)).output == "done"
    assert bank.done == ["a", "b"]
    await agent.journal.close()


async def test_child_in_a_model_call_is_released_at_once_and_its_sibling_ends_its_call(tmp_path):
    bank, gate = Bank(), Gate(open_at_first=False)
    payer = Agent(steps(pay("a"), pay("b")), bank.tools, name="payer")
    thinker = Agent(gate, name="thinker")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(context.run_child(one, "go")) for one in (payer, thinker)]
        return " ".join([one.result().output for one in asked])

    agent = Agent(steps((call("delegate"),)), [delegate], name="clerk", journal=tmp_path / "j.db")
    async with Working(agent, grace=600) as worker:
        run_id = await agent.submit("go")
        await until(lambda: gate.asked and bank.begun)
        worker.stop()
        await until(lambda: find_live(agent.journal, f"{run_id}/c1_0/thinker") is None)
        bank.free |= {"a", "b"}
    assert await results(agent.journal, f"{run_id}/c1_0/payer") == ["paid a"]
    gate.open.set()
    assert (await agent.resume(run_id)).stop.kind == "completed"
    assert bank.done == ["a", "b"]
    await agent.journal.close()


@pytest.mark.parametrize("ended", [False, True])
async def test_work_in_the_background_ends_its_call(tmp_path, ended):
    """Also if the run that started it has ended."""
    bank, gate = Bank(), Gate(open_at_first=ended)
    payer = Agent(steps(pay("a"), pay("b")), bank.tools, name="payer")

    def reply(request):
        return call("delegate_to_agent", agent="payer", task="pay", background=True) if len(request.messages) < 3 else "later"

    class Lead(ScriptedModel):
        async def reply(self, request, emit):
            if request.messages[-1].role == "tool":
                await gate.open.wait()
            return await super().reply(request, emit)

    agent = Agent(Lead(reply), name="lead", team=Team((payer,), background=True), journal=tmp_path / "j.db")
    async with Working(agent, grace=600) as worker:
        run_id = await agent.submit("go")
        await until(lambda: bank.begun)
        if ended:
            await until(lambda: _ended(agent, run_id))
            await until(lambda: not worker.executing)
        (task,) = await agent.journal.runs(parent=run_id)
        worker.stop()
        await stopping(agent, task.run_id)
        bank.free |= {"a", "b"}
    assert (bank.begun, await results(agent.journal, task.run_id)) == (["a"], ["paid a"])
    assert await status(agent, task.run_id) == "interrupted"
    await agent.journal.close()


async def test_child_that_a_tool_would_open_afterwards_is_not_opened(tmp_path):
    bank = Bank()
    child = Agent(steps(pay("b")), bank.tools, name="payer")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        await bank.pay.function("a")
        try:
            return (await context.run_child(child, "pay")).output
        except BaseException as problem:
            return f"it failed: {problem}"

    agent = Agent(steps((call("delegate"),)), [delegate], name="clerk", journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "a") as run_id:
        bank.free |= {"a", "b"}
    assert list(await agent.journal.runs(parent=run_id)) == []
    assert await results(agent.journal, run_id) == []
    assert (await agent.resume(run_id)).output == "done"
    assert "b" in bank.done
    await agent.journal.close()


START = call("delegate_to_agent", agent="payer", task="pay", background=True)


async def test_task_that_a_call_collects_is_not_begun_again(tmp_path):
    bank = Bank()
    payer = Agent(steps(pay("a"), pay("b")), bank.tools, name="payer")
    collect = call("tasks", action="collect", task="c1_0")
    agent = Agent(steps(START, collect), name="lead", team=Team((payer,), background=True), journal=tmp_path / "j.db")
    async with Working(agent, grace=600) as worker:
        run_id = await agent.submit("go")
        await until(lambda: _started(agent.journal, run_id, 2))
        await until(lambda: bank.begun)
        worker.stop()
        await stopping(agent, run_id)
        bank.free |= {"a", "b"}
    assert bank.begun == ["a"]
    assert (await agent.resume(run_id)).output == "done"
    assert bank.done == ["a", "b"]
    await agent.journal.close()


async def _started(journal, run_id, number):
    return len(await facts(journal, run_id, ToolStarted)) == number if await journal.runs(run_id=run_id) else False


async def test_task_of_a_conversation_is_not_resumed_while_its_next_run_is_opened():
    bank, journal = Bank(), Slow()
    journal.open.set()
    payer = Agent(steps(pay("a"), pay("b")), bank.tools, name="payer")
    agent = Agent(steps(START), name="lead", team=Team((payer,), background=True), journal=journal)
    first = agent.run("go", session_id="s")
    await first
    await until(lambda: bank.begun)
    ended = asyncio.create_task(let_go_of([first], grace=600))
    await stopping(agent, f"{first.run_id}/c1_0/payer")
    bank.free |= {"a", "b"}
    await ended
    journal.open.clear()
    journal.claimed.clear()
    next_run = agent.run("more", session_id="s").detach()
    await journal.claimed.wait()
    ended = asyncio.create_task(let_go_of([next_run], grace=600))
    await stopping(agent, next_run.run_id)
    journal.open.set()
    await ended
    assert bank.begun == ["a"]


async def test_other_runs_of_the_program_go_on(tmp_path):
    bank = Bank()
    agent = Agent(steps(pay("a"), pay("b")), bank.tools, name="clerk", journal=tmp_path / "j.db")
    own = Agent(steps(pay("c"), pay("d")), bank.tools, name="own", journal=agent.journal)
    parent = delegating(own)
    parent.journal = agent.journal
    mine = parent.run("go").start()
    await until(lambda: "c" in bank.begun)
    async with stopped_at(agent, bank, "a"):
        bank.free |= {"a", "b", "c", "d"}
    assert (await mine).output == "done"
    assert sorted(bank.begun) == ["a", "c", "d"]
    await agent.journal.close()


async def test_calls_that_are_cut_are_named_with_what_becomes_of_them(tmp_path, told):
    """Not those that wait for a person, and not pure ones."""
    bank = Bank()
    payer = Agent(steps((*pay("a"), call("put", name="b"))), bank.tools, name="payer")

    @tool
    async def refund() -> str:
        """Refund."""
        return "refunded"

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        return (await context.run_child(payer, "pay")).output

    first = (call("delegate"), call("look", name="x"), call("refund"))
    tools, policies = [delegate, refund, *bank.tools], [Approve("refund")]
    agent = Agent(steps(first), tools, name="clerk", policies=policies, journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "a", "b", "x", grace=0.2) as run_id:
        assert await until(lambda: _asks(agent.journal, run_id))
    child, again = f"{run_id}/c1_0/payer", "it is repeated when the run is resumed"
    assert told() == [
        f"the call of delegate in run {run_id} did not end in time: {again}",
        f"the call of pay in run {child} did not end in time: it is in doubt whether it took effect",
        f"the call of put in run {child} did not end in time: {again}",
    ]
    assert bank.done == []
    bank.free |= {"b", "x"}
    asked = (await agent.resume(run_id, {"approve:c1_2": "yes"})).questions
    assert [one.in_doubt for one in asked.values()] == [True]
    await agent.journal.close()


async def _asks(journal, run_id):
    return bool((await load(journal, run_id)).questions)


async def test_thread_of_a_call_that_timed_out_may_end(tmp_path):
    gate, free, done = Gate(open_at_first=False), threading.Event(), []

    @tool(timeout=0.05)
    def pay() -> str:
        """Pay."""
        free.wait(60)
        done.append(1)
        return "paid"

    class Asks(Gate):
        async def reply(self, request, emit):
            if request.messages[-1].role == "tool":
                return await gate.reply(request, emit)
            return await ScriptedModel([call("pay")]).reply(request, emit)

    agent = Agent(Asks(), [pay], name="clerk", journal=tmp_path / "j.db")
    worker = Worker([agent], grace=600)
    working = asyncio.create_task(worker.work())
    run_id = await agent.submit("go")
    await until(lambda: gate.asked)
    worker.stop()
    await until(lambda: find_live(agent.journal, run_id) is None)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(working), 0.5)
    free.set()
    await working
    assert done == [1]
    await agent.journal.close()


async def test_stop_at_once_cuts_what_the_first_stop_waits_for(tmp_path, told):
    bank = Bank()
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", journal=tmp_path / "j.db")
    async with asyncio.timeout(60), Working(agent, grace=600) as worker:
        run_id = await agent.submit("go")
        await until(lambda: bank.begun)
        worker.stop()
        await stopping(agent, run_id)
        worker.stop(at_once=True)
    assert len(told()) == 1
    await agent.journal.close()


async def test_pure_call_that_swallows_its_cancellation_does_not_use_up_the_grace(tmp_path):
    begun = []

    @tool(effect="pure")
    async def stubborn() -> str:
        """Look."""
        begun.append(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()
        return ""

    agent = Agent(steps((call("stubborn"),)), [stubborn], name="clerk", journal=tmp_path / "j.db")
    async with asyncio.timeout(30), Working(agent, grace=600) as worker:
        await agent.submit("go")
        await until(lambda: begun)
        worker.stop()
    await agent.journal.close()


async def test_call_that_is_cut_cleans_up_undisturbed(tmp_path):
    """Also if another call ends meanwhile."""
    bank, cleaned = Bank(), []

    @tool(effect="pure")
    async def read() -> str:
        """Read."""
        bank.begun.append("x")
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await asyncio.sleep(0)
            cleaned.append("x")

    agent = Agent(steps((call("read"), *pay("a"))), [read, *bank.tools], name="clerk", journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "x", "a", grace=0.1):
        pass
    assert cleaned == ["x"]
    await agent.journal.close()


async def test_request_to_stop_wins_over_the_release(tmp_path):
    bank = Bank()
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "a") as run_id:
        await agent.stop(run_id, "enough")
    result = await agent.result(run_id)
    assert (result.stop.kind, result.stop.detail) == ("cancelled", "enough")
    await agent.journal.close()


@pytest.mark.parametrize("how", ["leaves the block", "holds it no more"])
async def test_caller_that_goes_away_does_not_end_a_run_that_is_released(tmp_path, how):
    bank = Bank()
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", journal=tmp_path / "j.db")
    async with agent.run("go") as run:
        await until(lambda: bank.begun)
        ended = asyncio.create_task(let_go_of([run], grace=600))
        await stopping(agent, run.run_id)
        run_id = run.run_id
        if how == "holds it no more":
            run.__del__()
            await asyncio.sleep(0)
            bank.free.add("a")
            await ended
        else:
            asyncio.get_running_loop().call_soon(bank.free.add, "a")
    await ended
    assert await status(agent, run_id) == "interrupted"
    assert await results(agent.journal, run_id) == ["paid a"]
    await agent.journal.close()


class Closes(Policy):
    """Ends the run after a payment, as a budget or a deadline does."""

    async def tool(self, call, next, scope):
        result = await next(call)
        if call.name == "pay":
            raise Halt(Stop("budget", "enough"))
        return result


@pytest.mark.parametrize("others", ["together", "one by one"])
async def test_limit_that_is_reached_meanwhile_ends_the_run(tmp_path, others):
    bank = Bank()
    if others == "together":
        agent = Agent(
            steps((call("look", name="x"), *pay("a"))), bank.tools, name="clerk", policies=[Closes()], journal=tmp_path / "j.db"
        )
        run = agent.run("go").detach()
    else:
        flow = Workflow("shop", journal=SqliteJournal(tmp_path / "j.db"), policies=[Closes()])
        flow.options(name="first").task(bank.pay, "a")
        flow.options(name="second").task(bank.look, "x")
        run = flow.run({}).detach()
    await until(lambda: len(bank.begun) == 2)
    ended = asyncio.create_task(let_go_of([run], grace=600))
    await until(lambda: find_live(run.journal, run.run_id).letting_go)
    bank.free.add("a")
    await ended
    result = await run.outcome()
    assert (result.stop.kind, result.stop.detail) == ("budget", "enough")
    await run.journal.close()


async def test_tasks_of_a_workflow_under_way_end_and_no_other_begins(tmp_path):
    bank = Bank()
    flow = Workflow("shop", journal=SqliteJournal(tmp_path / "j.db"))
    first = flow.options(name="first").task(bank.pay, "a")
    flow.options(name="second").task(bank.pay, "b")
    flow.options(name="third").task(bank.pay, first)
    run = flow.run({}).start()
    await until(lambda: len(bank.begun) == 2)
    ended = asyncio.create_task(let_go_of([run], grace=600))
    await until(lambda: find_live(run.journal, run.run_id).letting_go)
    bank.free.add("a")
    await until(lambda: bank.done)
    bank.free.add("b")
    await ended
    assert (bank.begun, await results(run.journal, run.run_id)) == (["a", "b"], ["paid a", "paid b"])
    await run.journal.close()


class Slow(MemoryJournal):
    """A journal whose claims wait for the test."""

    def __init__(self):
        super().__init__()
        self.claimed, self.open = asyncio.Event(), asyncio.Event()

    async def claim(self, run_id, **options):
        self.claimed.set()
        await self.open.wait()
        return await super().claim(run_id, **options)


async def _approved(journal, bank):
    """Return an agent with a run whose payment was approved, but not made yet; its next claim waits."""
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", policies=[Approve("pay")], journal=journal)
    journal.open.set()
    (key,) = (waiting := await agent.run("go")).questions
    journal.open.clear()
    journal.claimed.clear()
    return agent, waiting.run_id, {key: "yes"}


async def test_run_that_a_server_opens_when_it_is_stopped_begins_no_call():
    bank, journal = Bank(), Slow()
    agent, run_id, answers = await _approved(journal, bank)
    service = Service([agent])
    beginning = asyncio.create_task(service.begin(agent.resume(run_id, answers)))
    await journal.claimed.wait()
    closing = asyncio.create_task(service.close())
    await until(lambda: find_live(journal, run_id).letting_go)
    journal.open.set()
    await beginning
    await closing
    assert (bank.begun, await facts(journal, run_id, ToolStarted)) == ([], [])
    assert await status(agent, run_id) == "interrupted"
    bank.free.add("a")
    assert (await agent.resume(run_id)).output == "done", "and the answer was not lost"


async def test_run_that_a_worker_opens_when_it_is_stopped_begins_no_call(tmp_path):
    bank, opening, go = Bank(), asyncio.Event(), asyncio.Event()
    journal = SqliteJournal(tmp_path / "j.db")
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", policies=[Approve("pay")], journal=journal)
    waiting = await agent.run("go")
    claim = journal.claim

    async def claim_slowly(run_id, **options):
        opening.set()
        await go.wait()
        return await claim(run_id, **options)

    async with Working(agent, grace=60) as worker:
        await agent.submit_answers(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
        journal.claim = claim_slowly
        await opening.wait()
        worker.stop()
        await until(lambda: find_live(journal, waiting.run_id).letting_go)
        go.set()
    assert (bank.begun, await facts(journal, waiting.run_id, ToolStarted)) == ([], [])
    journal.claim = claim
    bank.free.add("a")
    async with Working(agent):
        await until(lambda: _ended(agent, waiting.run_id))
    assert bank.done == ["a"]
    await journal.close()


class Silent(MemoryJournal):
    """A journal that was away: each call has to ask it first whether the run is still its own."""

    def __init__(self):
        super().__init__()
        self.asked, self.open = [], asyncio.Event()

    async def claim(self, run_id, **options):
        async def confirm():
            self.asked.append(run_id)
            await self.open.wait()

        return (await super().claim(run_id, **options))._replace(confirm=confirm)


async def test_call_of_before_is_not_undone_afterwards():
    bank, journal, undone = Bank(), Silent(), []

    async def unbook(context: ToolContext) -> None:
        undone.append(context.call_id)

    @tool(effect="compensable", undo=unbook)
    async def book() -> str:
        """Book."""
        bank.begun.append("book")
        await asyncio.Event().wait()

    agent = Agent(steps((call("book"), call("put", name="b"))), [book, *bank.tools], name="clerk", journal=journal)
    journal.open.set()
    run = agent.run("go").start()
    await until(lambda: len(bank.begun) == 2)
    await run.let_go()
    journal.open.clear()
    journal.asked.clear()
    again = agent.resume(run.run_id).start()
    await until(lambda: len(journal.asked) == 2)
    ended = asyncio.create_task(let_go_of([again], grace=600))
    await stopping(agent, run.run_id)
    journal.open.set()
    bank.free.add("b")
    await ended
    assert (undone, bank.done) == ([], ["b"])


async def test_run_that_cannot_be_opened_in_time_is_not_reported_as_begun(monkeypatch):
    monkeypatch.setattr(module, "_ENDING", 0.1)
    journal = Slow()
    service = Service([Agent(steps(), name="clerk", journal=journal)])
    beginning = asyncio.create_task(service.begin(service.agent().run("go")))
    await journal.claimed.wait()
    await service.close()
    with pytest.raises(asyncio.CancelledError):
        await beginning


async def test_run_that_waits_to_be_opened_returns_to_the_queue(tmp_path):
    """Only some are opened at the same time. The others are not begun, and not lost."""
    gate, opening, go, journal = Gate(), [], asyncio.Event(), SqliteJournal(tmp_path / "j.db")
    agent, claim = Agent(gate, name="clerk", journal=journal), journal.claim

    async def claim_slowly(run_id, **options):
        opening.append(run_id)
        await go.wait()
        return await claim(run_id, **options)

    runs = [await agent.submit("go") for _ in range(20)]
    journal.claim = claim_slowly
    async with Working(agent, concurrency=20) as worker:
        await until(lambda: worker.executing == 20 and len(opening) == 16)
        worker.stop()
        await until(lambda: find_live(journal, opening[-1]).letting_go)
        go.set()
    assert (gate.asked, len(opening), len(await journal.runs())) == ([], 16, 16)
    journal.claim = claim
    async with Working(agent):
        for run_id in runs:
            await until(lambda: _there(agent, run_id))
            await until(lambda: _ended(agent, run_id))
    await journal.close()


async def _there(agent, run_id):
    return bool(await agent.journal.runs(run_id=run_id))


async def test_result_of_a_tool_is_used_after_the_release(tmp_path):
    bank = Bank()
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "a") as run_id:
        bank.free.add("a")
    result = await agent.resume(run_id)
    assert (result.output, bank.begun, result.questions) == ("done", ["a"], {})
    assert ToolResult("paid a").output in await results(agent.journal, run_id)
    await agent.journal.close()


class SlowToWrite(MemoryJournal):
    """A journal that writes, and says so when the test lets it."""

    def __init__(self):
        super().__init__()
        self.writing, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()

    async def append(self, *facts, **options):
        await super().append(*facts, **options)
        self.writing.set()
        await self.open.wait()


@pytest.mark.parametrize("how", ["the time is over", "the client leaves", "the loop closes", "the user stops it"])
async def test_run_whose_start_is_cut_can_be_resumed_unless_it_was_to_stop(monkeypatch, how):
    monkeypatch.setattr(module, "_ENDING", 0.2)
    bank, journal = Bank(), SlowToWrite()
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", policies=[Approve("pay")], journal=journal)
    waiting = await agent.run("go")
    service = Service([agent])
    run = agent.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    journal.open.clear()
    journal.writing.clear()
    beginning = asyncio.create_task(service.begin(run))
    await journal.writing.wait()
    task = find_live(journal, run.run_id).task
    if how == "the user stops it":
        run.abort("enough")
        asyncio.get_running_loop().call_later(0.1, journal.open.set)
        await service.close()
    elif how == "the loop closes":
        task.cancel()
    else:
        closing = asyncio.create_task(service.close())
        await stopping(agent, run.run_id)
        if how == "the client leaves":
            beginning.cancel()
            journal.open.set()
        await closing
    journal.open.set()
    await asyncio.wait([beginning, task])
    assert await status(agent, run.run_id) == ("cancelled" if how == "the user stops it" else "interrupted")


async def test_child_of_a_task_whose_run_has_ended_begins_nothing_more(tmp_path):
    bank = Bank()
    child = Agent(steps(pay("a"), pay("b")), bank.tools, name="child")
    payer = delegating(child, name="payer")
    agent = Agent(steps(START), name="lead", team=Team((payer,), background=True), journal=tmp_path / "j.db")
    async with Working(agent, grace=600) as worker:
        run_id = await agent.submit("go")
        await until(lambda: bank.begun)
        await until(lambda: _ended(agent, run_id))
        await until(lambda: not worker.executing)
        worker.stop()
        await stopping(agent, f"{run_id}/c1_0/payer/c1_0/child")
        bank.free |= {"a", "b"}
    assert (bank.begun, bank.done) == (["a"], ["a"])
    await agent.journal.close()


async def test_tasks_of_other_agents_and_runs_with_a_slash_in_their_id_go_on(tmp_path):
    bank, journal = Bank(), SqliteJournal(tmp_path / "j.db")
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", journal=journal)
    payer = Agent(steps(pay("c"), pay("d")), bank.tools, name="payer")
    other = Agent(steps(START), name="lead", team=Team((payer,), background=True), journal=journal)
    own = Agent(steps(pay("e")), bank.tools, name="own", journal=journal)
    first = await other.run("go")
    async with stopped_at(agent, bank, "a", "c"):
        slash = own.run("go", run_id="acme/42").start()
        bank.free |= {"a", "c", "d", "e"}
    assert (await slash).output == "done"
    (task,) = await journal.runs(parent=first.run_id)
    await until(lambda: _ended(other, task.run_id))
    assert sorted(bank.done) == ["a", "c", "d", "e"]
    await journal.close()


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
@pytest.mark.parametrize("how", ["stop", "timeout"])
async def test_cancellation_during_the_drain_reaches_the_child(tmp_path, effect, how):
    bank = Bank()
    payer = Agent(steps(pay("a")), bank.tools, name="payer")

    @tool(effect=effect, timeout=0.5 if how == "timeout" else None)
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        return (await context.run_child(payer, "pay")).output

    agent = Agent(steps((call("delegate"),)), [delegate], name="clerk", journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "a", grace=600) as run_id:
        child = f"{run_id}/c1_0/payer"
        if how == "stop":
            await agent.stop(run_id, "enough")
        await until(lambda: find_live(agent.journal, child) is None)
        bank.free.add("a")
    assert bank.done == [], "it was cut"
    expected = ("cancelled", "cancelled") if how == "stop" else ("interrupted", "interrupted")
    assert (await status(agent, run_id), await status(agent, child)) == expected
    await agent.journal.close()


async def test_worker_that_is_cancelled_twice_cuts_and_names(tmp_path, told):
    bank = Bank()
    agent = Agent(steps(pay("a")), bank.tools, name="clerk", journal=tmp_path / "j.db")
    working = asyncio.create_task(Worker([agent], grace=600).work())
    run_id = await agent.submit("go")
    await until(lambda: bank.begun)
    working.cancel()
    await stopping(agent, run_id)
    working.cancel()
    await asyncio.wait([working])
    assert (len(told()), find_live(agent.journal, run_id), await status(agent, run_id)) == (1, None, "interrupted")
    await agent.journal.close()


async def test_run_that_is_being_cancelled_already_is_cut_and_named(tmp_path, told):
    bank = Bank()

    @tool
    async def pay() -> str:
        """Pay."""
        bank.begun.append("a")
        try:
            await asyncio.Event().wait()
        finally:
            bank.begun.append("cancelled")
            await asyncio.Event().wait()

    agent = Agent(steps((call("pay"),)), [pay], name="clerk", journal=tmp_path / "j.db")
    async with asyncio.timeout(30), Working(agent, grace=0.2) as worker:
        run_id = await agent.submit("go")
        await until(lambda: bank.begun)
        await agent.stop(run_id)
        await until(lambda: "cancelled" in bank.begun)
        worker.stop()
    assert (len(told()), await status(agent, run_id)) == (1, "cancelled")
    await agent.journal.close()


class Pausing(Policy):
    """Pauses before the second try."""

    async def tool(self, call, next, scope):
        result = await next(call)
        if result.error:
            await asyncio.Event().wait()
        return result


async def test_pause_after_a_failed_try_is_not_waited_for(tmp_path, told):
    begun = []

    @tool(effect="idempotent")
    async def put() -> str:
        """Put."""
        begun.append(1)
        raise ConnectionError("down")

    agent = Agent(steps((call("put"),)), [put], name="clerk", policies=[Pausing()], journal=tmp_path / "j.db")
    async with asyncio.timeout(30), Working(agent, grace=600) as worker:
        await agent.submit("go")
        await until(lambda: begun)
        worker.stop()
    assert (begun, told()) == ([1], [])
    await agent.journal.close()


async def test_thread_that_is_left_is_named(tmp_path, told):
    gate, free = Gate(open_at_first=False), threading.Event()

    @tool(timeout=0.05)
    def pay() -> str:
        """Pay."""
        free.wait(60)
        return "paid"

    class Asks(Gate):
        async def reply(self, request, emit):
            if request.messages[-1].role == "tool":
                return await gate.reply(request, emit)
            return await ScriptedModel([call("pay")]).reply(request, emit)

    agent = Agent(Asks(), [pay], name="clerk", journal=tmp_path / "j.db")
    async with Working(agent, grace=0.1) as worker:
        run_id = await agent.submit("go")
        await until(lambda: gate.asked)
        worker.stop()
    assert told() == [f"a thread of a tool of run {run_id} did not end in time"]
    free.set()
    await agent.journal.close()


async def test_call_that_is_released_with_its_child_is_not_counted(tmp_path):
    bank = Bank()
    child = Agent(steps(pay("a"), pay("b")), bank.tools, name="payer")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Delegate."""
        return (await context.run_child(child, "pay")).output

    budget = Budget(tools={"delegate": "1 calls/day"})
    agent = Agent(steps((call("delegate"),)), [delegate], name="clerk", policies=[budget], journal=tmp_path / "j.db")
    async with stopped_at(agent, bank, "a") as run_id:
        bank.free |= {"a", "b"}
    assert (await agent.resume(run_id)).output == "done"
    assert bank.done == ["a", "b"]
    await agent.journal.close()


class Opening(MemoryJournal):
    """A journal that waits, at the first facts of a run that is chosen, until it is let go."""

    def __init__(self, chosen):
        super().__init__()
        self.chosen, self.here, self.free = chosen, asyncio.Event(), asyncio.Event()

    async def append(self, events, *given, **more):
        await super().append(events, *given, **more)
        if self.chosen(events[0].run_id) and not self.here.is_set():
            self.here.set()
            await self.free.wait()


async def test_task_whose_start_is_cut_while_it_is_opened_does_not_work_alone():
    bank, journal = Bank(), Opening(lambda run_id: "/" in run_id)
    payer = Agent(ScriptedModel([call("pay", name="a"), "done"]), [bank.pay], name="payer", journal=MemoryJournal())

    class Impatient(Policy):
        async def tool(self, call, next, scope):
            started = asyncio.ensure_future(next(call))
            await journal.here.wait()
            started.cancel()
            await asyncio.wait([started])
            journal.free.set()
            return ToolResult(error="timed out")

    replies = [call("delegate_to_agent", agent="payer", task="Pay.", background=True), "It timed out."]
    team = Team((payer,), background=True)
    agent = Agent(ScriptedModel(replies), name="lead", journal=journal, team=team, policies=[Impatient()])
    assert (await agent.run("go")).output == "It timed out."
    await until(lambda: journal.runs(agent="payer", status="cancelled"))
    assert bank.begun == []


async def test_step_sequence_that_is_cancelled_while_it_opens_ends():
    journal = Opening(lambda run_id: True)
    steps = Agent(ScriptedModel(["done"]), journal=journal).steps("go")
    opening = asyncio.create_task(steps.next_step())
    await journal.here.wait()
    opening.cancel()
    journal.free.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert [card.status for card in await journal.runs()] == ["cancelled"]
