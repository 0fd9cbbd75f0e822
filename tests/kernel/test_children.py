"""Child runs: a run inside a tool call, in the same journal, with its parent's limits, its questions passed up."""

import asyncio

import pytest

from kaname import (
    Agent,
    AgentOrchestrator,
    Approve,
    ExecutionMonitor,
    MemoryJournal,
    RunStopped,
    ScriptedModel,
    SqliteJournal,
    TaskPlanner,
    ToolContext,
    Workflow,
    call,
    cost,
    tool,
)
from kaname.core.events import Event, Opened, ToolFinished, ToolStarted
from kaname.core.messages import ModelReply, Usage, assistant
from tests.parts import Died, MortalJournal, until


def family(journal, *, child_model=None, policies=(), stops=None, parent_script=None):
    paid = []

    @tool
    async def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return f"paid {yen}"

    clerk = Agent(
        child_model or ScriptedModel([call("pay", yen=5), "the clerk is done"]),
        [pay],
        name="clerk",
        policies=policies,
        journal="memory",
    )

    @tool(effect="idempotent")
    async def delegate(task: str, context: ToolContext) -> str:
        """Have the clerk do it."""
        return (await context.run_child(clerk, task)).unwrap()

    script = parent_script or [call("delegate", task="pay the bill"), "all done"]
    return paid, Agent(ScriptedModel(script), [delegate], name="boss", stops=stops, journal=journal)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_child_is_a_run_of_the_same_journal_with_a_parent(tmp_path, kind):
    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "journal.db")
    paid, boss = family(journal)
    result = await boss.run("go", session_id="s")
    assert (result.output, paid) == ("all done", [5])
    assert result.steps[0].observation == "the clerk is done"
    child, parent = sorted(await journal.runs(), key=lambda card: card.run_id, reverse=True)
    assert (child.run_id, child.parent, child.agent, child.status) == (
        f"{parent.run_id}/c1_0/clerk",
        parent.run_id,
        "clerk",
        "completed",
    )
    assert result.usage.total == parent.input + parent.output == 4 * 15, "what the child spent is its parent's too"
    assert (await boss.run("go", session_id="s2")).completed
    assert [card.run_id for card in await journal.runs(session="s")] == [parent.run_id], "a child is no turn of the session"
    await journal.close()


async def test_a_childs_chunks_are_shown_under_its_own_name():
    _, boss = family("memory")
    chunks = [chunk async for chunk in boss.run("go")]
    childs = [chunk for chunk in chunks if chunk.agent == "clerk"]
    assert {"delta", "tool_call", "tool_response", "usage"} <= {chunk.type for chunk in childs}
    assert all(chunk.data["run_id"].endswith("/c1_0/clerk") and "fact" not in chunk.data for chunk in childs)
    assert [chunk.seq for chunk in chunks] == list(range(1, len(chunks) + 1))


async def test_a_grandchilds_chunks_are_shown_under_its_own_name_too():
    def boss_of(name, below):
        @tool(effect="idempotent")
        async def delegate(context: ToolContext) -> str:
            """Have it done."""
            return (await context.run_child(below, "x")).unwrap()

        return Agent(ScriptedModel([call("delegate"), f"{name} is done"]), [delegate], name=name, journal="memory")

    top = boss_of("top", boss_of("mid", Agent(ScriptedModel(["leaf is done"]), name="leaf")))
    shown = {(chunk.agent, chunk.data.get("run_id")) async for chunk in top.run("go", run_id="R") if chunk.type == "usage"}
    assert shown == {("top", None), ("mid", "R/c1_0/mid"), ("leaf", "R/c1_0/mid/c1_0/leaf")}


async def test_a_question_inside_a_child_is_asked_and_answered_above():
    journal = MemoryJournal()
    paid, boss = family(journal, policies=[Approve("pay")])
    waiting = await boss.run("go")
    ((key, question),) = waiting.questions.items()
    assert key == f"{waiting.run_id}/c1_0/clerk:approve:c1_0"
    assert question.options == ("yes", "no")
    assert paid == []
    result = await boss.resume(waiting.run_id, {key: "yes"})
    assert (result.output, paid) == ("all done", [5])
    assert {card.status for card in await journal.runs()} == {"completed"}


async def test_a_child_that_died_goes_on_where_it_was():
    journal = MortalJournal()
    paid, boss = family(journal)
    for left in range(2, 8):
        journal.revive(left=left)
        run = boss.run("go")
        with pytest.raises(Died):
            await run
        journal.revive()
        paid.clear()
        result = await boss.resume(run.run_id)
        while result.questions:  # the payment may have been under way
            result = await boss.resume(run.run_id, dict.fromkeys(result.questions, "skip"))
        assert result.output == "all done"
        assert len(paid) <= 1


async def test_a_child_stops_with_its_parent_and_can_go_on_with_it():
    journal = MemoryJournal()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            await asyncio.sleep(slow)
            return ModelReply(assistant("at last"), "end_turn")

    slow = 30
    _, boss = family(journal, child_model=Slow())
    run = boss.run("go").start()
    while len(await journal.runs()) < 2:
        await asyncio.sleep(0.005)
    run.abort("enough")
    assert (await run).stop.kind == "cancelled"
    assert {card.status for card in await journal.runs()} == {"cancelled"}
    slow = 0
    assert (await boss.resume(run.run_id)).output == "all done"


async def test_a_child_spends_its_parents_money():
    expensive = ScriptedModel(lambda request: call("pay", yen=len(request.messages)), usage=Usage(1, 1, 0, 0.4))
    paid, boss = family("memory", child_model=expensive, stops=cost("$1"))
    result = await boss.run("go")
    assert len(paid) == 2, "the third reply would be over a dollar"
    assert result.stop.kind == "budget"


async def test_unwrap_gives_the_output_or_says_why_there_is_none():
    agent = Agent(ScriptedModel(["fine"]), journal="memory")
    assert (await agent.run("go")).unwrap() == "fine"
    endless = Agent(ScriptedModel(lambda request: call("nothing")), journal="memory")
    with pytest.raises(RunStopped, match="duplicate"):
        (await endless.run("go")).unwrap()


async def test_children_of_one_call_have_names_or_are_refused():
    clerk = Agent(ScriptedModel(lambda r: f"done: {r.messages[0].text}"), name="clerk", journal="memory")

    @tool(effect="idempotent")
    async def both(named: bool, context: ToolContext) -> str:
        """Ask twice."""
        one = await context.run_child(clerk, "one", name="first" if named else "")
        two = await context.run_child(clerk, "two", name="second" if named else "")
        return f"{one.unwrap()}, {two.unwrap()}"

    boss = Agent(ScriptedModel([call("both", named=True), call("both", named=False), "done"]), [both], journal="memory")
    steps = (await boss.run("go")).steps
    assert steps[0].observation == "done: one, done: two"
    assert "Give the second one a name" in steps[1].observation


async def test_what_a_child_spent_before_it_failed_counts():
    def script(request):
        return call("pay", yen=1) if len(request.messages) == 1 else RuntimeError("the model broke")

    _, boss = family("memory", child_model=ScriptedModel(script, usage=Usage(10, 5, 0, 0.25)))
    result = await boss.run("go")
    assert result.completed
    assert result.usage.cost == 0.25


async def test_children_at_the_same_time_share_one_budget():
    asked = []

    class Paid:
        name = "paid"

        def most_expensive(self, request, input, output):
            return 0.5

        async def reply(self, request, emit):
            asked.append(1)
            await asyncio.sleep(0.01 * len(asked))
            return ModelReply(assistant("", call("look", n=len(asked))), "tool_use", Usage(1, 1, 0, 0.5))

    @tool(effect="pure")
    def look(n: int) -> int:
        """Look."""
        return n

    helper = Agent(Paid(), [look], name="helper", journal="memory")

    @tool(effect="idempotent")
    async def many(context: ToolContext) -> str:
        """Ask many."""
        results = await asyncio.gather(*[context.run_child(helper, "go", name=f"h{n}") for n in range(4)])
        return ", ".join(result.stop.kind for result in results)

    boss = Agent(ScriptedModel([call("many"), "done"]), [many], stops=cost("$3"), journal="memory")
    result = await boss.run("go")
    assert result.stop.kind == "budget"
    assert result.usage.cost == 3, "and not three dollars each"


async def test_a_child_that_is_let_go_with_its_parent_keeps_its_limits():
    journal, calls = MemoryJournal(), []

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            await asyncio.sleep(0.02)
            calls.append(1)
            return ModelReply(assistant("", call("pay", yen=len(calls))), "tool_use")

    _, boss = family(journal, child_model=Slow())
    run = boss.run("go").start()
    for _ in range(3):
        before = len(calls)
        await until(lambda: len(calls) > before or run.done())
        if (await run.let_go()).stop.kind != "released":
            break
        assert {card.status for card in await journal.runs()} == {"interrupted"}
        run = boss.resume(run.run_id).start()
    result = await run
    while result.questions:
        result = await boss.resume(run.run_id, dict.fromkeys(result.questions, "skip"))
    assert len(calls) <= 12


async def test_an_answer_to_a_childs_question_is_checked_at_the_door():
    from kaname.core.errors import InvalidState

    journal = MortalJournal()
    _, boss = family(journal)
    journal.revive(left=4)  # the child's payment was under way
    run = boss.run("go")
    with pytest.raises(Died):
        await run
    journal.revive()
    waiting = await boss.resume(run.run_id)
    (key,) = waiting.questions
    with pytest.raises(InvalidState, match="retry"):
        await boss.resume(run.run_id, {key: "maybe"})
    assert (await boss.resume(run.run_id, {key: " RETRY "})).output == "all done"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_children_are_deleted_with_their_parent(tmp_path, kind):
    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "journal.db")
    _, boss = family(journal)
    result = await boss.run("go")
    await journal.delete(result.run_id)
    assert await journal.runs() == []
    await journal.close()


async def _swallows_exception(context, clerk):
    try:
        return (await context.run_child(clerk, "pay")).unwrap()
    except Exception:
        return "fine without"


async def _swallows_everything(context, clerk):
    try:
        return (await context.run_child(clerk, "pay")).unwrap()
    except BaseException:
        return "fine without"


async def _gathers(context, clerk):
    done = await asyncio.gather(context.run_child(clerk, "pay"), return_exceptions=True)
    return str(type(done[0]).__name__)


async def _groups(context, clerk):
    async with asyncio.TaskGroup() as group:
        group.create_task(context.run_child(clerk, "pay"))
    return "fine without"


async def _groups_and_swallows(context, clerk):
    try:
        return await _groups(context, clerk)
    except* Exception:
        pass
    return "fine without"


async def _from_a_thread(context, clerk):
    loop = asyncio.get_running_loop()

    def ask():
        return asyncio.run_coroutine_threadsafe(context.run_child(clerk, "pay"), loop).result().unwrap()

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize(
    "work", [_swallows_exception, _swallows_everything, _gathers, _groups, _groups_and_swallows, _from_a_thread]
)
async def test_question_of_a_child_is_asked_whatever_its_tool_catches(work):
    paid, _ = family("memory")

    @tool
    async def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    model = ScriptedModel([call("pay", yen=5), "the clerk is done"])
    clerk = Agent(model, [pay], name="clerk", policies=[Approve("pay")], journal="memory")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Have the clerk do it."""
        return await work(context, clerk)

    boss = Agent(ScriptedModel([call("delegate"), "all done"]), [delegate], journal="memory")
    waiting = await boss.run("go")
    assert (waiting.stop.kind, paid) == ("waiting", [])
    (key,) = waiting.questions
    done = await boss.resume(waiting.run_id, {key: "yes"})
    assert (done.output, paid) == ("all done", [5])


async def test_changed_arguments_that_a_child_does_not_take_are_asked_for_once_more():
    paid, boss = family("memory", policies=[Approve("pay")])
    waiting = await boss.run("go")
    for wrong in ({"yen": "much"}, {"dollars": 1}):
        (key,) = waiting.questions
        waiting = await boss.resume(waiting.run_id, {key: {"args": wrong}})
        (question,) = waiting.questions.values()
        assert (waiting.stop.kind, paid) == ("waiting", [])
        assert "the changed arguments were not accepted" in question.prompt
        assert question.about.args == {"yen": 5}
    (key,) = waiting.questions
    done = await boss.resume(waiting.run_id, {key: {"args": {"yen": 3}}})
    assert (done.output, paid) == ("all done", [3])


async def _one_after_the_other(context, free, first, second):
    await context.run_child(free, "look")
    return [(await context.run_child(one, "pay")).unwrap() for one in (first, second)]


async def _side_by_side(context, free, first, second):
    done = await asyncio.gather(*[context.run_child(one, "pay") for one in (free, first, second)])
    return [one.unwrap() for one in done]


async def _side_by_side_and_careless(context, free, first, second):
    done = await asyncio.gather(*[context.run_child(one, "pay") for one in (free, first, second)], return_exceptions=True)
    return [one.unwrap() for one in done if not isinstance(one, BaseException)]


async def _in_a_group(context, free, first, second):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(context.run_child(one, "pay")) for one in (free, first, second)]
    return [task.result().unwrap() for task in tasks]


@pytest.mark.parametrize("work", [_one_after_the_other, _side_by_side, _side_by_side_and_careless, _in_a_group])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_every_child_of_a_call_asks_its_question_and_pays_once(tmp_path, kind, work):
    paid = []

    @tool
    async def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return "paid"

    def child(name):
        model = ScriptedModel(lambda request: "done" if request.messages[-1].role == "tool" else call("pay", to=name))
        return Agent(model, [pay], name=name, policies=[Approve("pay")] if name != "free" else [], journal="memory")

    free, first, second = map(child, ("free", "first", "second"))

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Have the others do it."""
        return str(await work(context, free, first, second))

    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "j.db")
    boss = Agent(ScriptedModel([call("delegate"), "all done"]), [delegate], journal=journal)
    result, asked = await boss.run("go"), 0
    while result.stop.kind == "waiting":
        asked += len(result.questions)
        result = await boss.resume(result.run_id, dict.fromkeys(result.questions, "yes"))
    assert (result.output, sorted(paid), asked) == ("all done", ["first", "free", "second"], 2)
    await journal.close()


async def test_child_at_work_is_not_cut_off_when_another_child_asks():
    working, asked, paid = asyncio.Event(), asyncio.Event(), []

    @tool
    async def pay(to: str) -> str:
        """Pay."""
        working.set()
        await asked.wait()
        paid.append(to)
        return "paid"

    @tool
    async def order(what: str) -> str:
        """Order."""
        return "ordered"

    class Patient(ScriptedModel):
        async def reply(self, request, emit):
            await working.wait()
            return await super().reply(request, emit)

    payer = Agent(ScriptedModel([call("pay", to="Ito"), "done"]), [pay], name="payer")
    buyer = Agent(Patient([call("order", what="ink"), "done"]), [order], name="buyer", policies=[Approve("order")])

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Have both work in a group, which cancels the one when the other asks."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(context.run_child(one, "go")) for one in (payer, buyer)]
        return str([task.result().unwrap() for task in tasks])

    boss = Agent(ScriptedModel([call("delegate"), "all done"]), [delegate], journal=MemoryJournal())
    run = boss.run("go").start()
    async for chunk in run:
        if chunk.data.get("status") == "waiting":
            for _ in range(100):  # the group cancels the payer now
                await asyncio.sleep(0)
            asked.set()
    waiting = await run
    assert (waiting.stop.kind, paid, len(waiting.questions)) == ("waiting", ["Ito"], 1)
    done = await boss.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    assert (done.output, paid) == ("all done", ["Ito"])


async def test_parent_that_waits_for_a_busy_child_is_let_go_without_a_result_for_its_call():
    """Another process executes the child. That it is busy must not become what the tool returned."""
    journal = MemoryJournal()
    paid, boss = family(journal)
    child_id = "r/c1_0/clerk"
    lease = await journal.claim(child_id)
    await journal.append([Event(child_id, 1, 1.0, "clerk", Opened(parent=("r", "c1_0")))], lease.epoch)
    run = boss.run("go", run_id="r").start()
    while not any([type(fact.body) is ToolStarted async for fact in journal.read("r")]):
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)  # it has looked at the child, and waits
    assert (await run.let_go()).stop.kind == "released"
    assert not any([type(fact.body) is ToolFinished async for fact in journal.read("r")])
    assert paid == []


def delegating(child, given):
    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Have it done."""
        return str((await context.run_child(child, given)).unwrap())

    return Agent(ScriptedModel([call("delegate"), "all done"]), [delegate], name="boss", journal="memory")


def order(**parts):
    flow = Workflow("order", params={"item": {"type": "string"}, "count": 2}, **parts)

    @tool(effect="pure")
    def label(item: str, count: int) -> str:
        """Write a label."""
        return f"{count} x {item}"

    made = flow.task(label, item=flow.param("item"), count=flow.param("count"))
    said = flow.ask("Send it?", ["yes", "no"])
    flow.promise({"label": made, "said": said})
    return flow


@pytest.mark.parametrize("given", [{"item": "cup"}, '{"item": "cup", "count": 2}'], ids=["mapping", "text"])
async def test_a_workflow_runs_as_a_child_and_asks_above(given):
    boss = delegating(order(), given)
    waiting = await boss.run("go")
    (key,) = waiting.questions
    assert (waiting.stop.kind, waiting.questions[key].prompt) == ("waiting", "Send it?")
    result = await boss.resume(waiting.run_id, {key: "yes"})
    assert result.output == "all done"
    assert "2 x cup" in result.steps[0].observation
    (child,) = [card for card in await boss.journal.runs() if card.parent]
    assert (child.agent, child.status) == ("order", "completed")


async def test_a_workflow_child_checks_its_parameters():
    result = await delegating(order(), {"thing": "cup"}).run("go")
    assert "item" in result.steps[0].observation
    result = await delegating(order(), "two cups").run("go")
    assert "JSON object" in result.steps[0].observation


async def test_an_orchestrator_runs_as_a_child():
    plan = '{"steps": [{"name": "one", "tool": "ask_person", "arguments": {"question": "Which?"}}]}'
    planner = TaskPlanner(ScriptedModel([plan]), [])
    boss = delegating(AgentOrchestrator(planner, ExecutionMonitor(judge=False), "memory", name="planner"), "choose")
    waiting = await boss.run("go")
    (key,) = waiting.questions
    result = await boss.resume(waiting.run_id, {key: "the blue one"})
    assert "the blue one" in result.steps[0].observation


async def test_what_cannot_be_run_as_a_child_is_told():
    result = await delegating(lambda: None, "x").run("go")
    assert "expects an Agent, Workflow or AgentOrchestrator" in result.steps[0].observation
