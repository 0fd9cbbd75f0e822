"""What a reader with fresh eyes found: swallowed cancellations, late approvals, races for a run, answers that are none."""

import asyncio
import sqlite3

import pytest

from kaname import (
    Agent,
    Approve,
    ConfigError,
    InvalidState,
    LLMError,
    MemoryJournal,
    ModelReply,
    Policy,
    ScriptedModel,
    SqliteJournal,
    Stop,
    ToolResult,
    call,
    tool,
)
from kaname.core.errors import JournalLocked, RunNotFound
from kaname.core.events import Event, Noted, Opened, Received, Warned
from kaname.core.messages import assistant, system, user
from kaname.core.state import State, evolve
from kaname.policies.failure.timeout import Late, within
from kaname.stores.sqlite.owners import Owner, is_alive
from kaname.testing import ModelContract, SinkContract, ToolContract
from tests.parts import Died, MortalJournal, add, adding


class Stubborn:
    """A model that swallows every cancellation and answers with one more payment."""

    name = "stubborn"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def reply(self, request, emit):
        self.asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return ModelReply(assistant("", call("pay", yen=len(request.messages))), "tool_use")


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_model_that_swallows_the_cancellation_takes_no_further_step(how):
    paid = []

    @tool
    async def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    model = Stubborn()
    run = Agent(model, [pay], journal="memory").run("go").start()
    await model.asked.wait()
    if how == "abort":
        run.abort()
        run.abort("again")
        assert (await run).stop.kind == "cancelled"
    else:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run, 0.01)
    assert paid == []


async def test_a_new_turn_is_told_that_a_call_may_still_be_run():
    paid = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return "paid"

    told = []

    def script(request):
        told.append([m.parts[0].error for m in request.messages if m.role == "tool"])
        return call("pay", yen=1) if len(request.messages) == 1 else "fine"

    agent = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], journal="memory")
    first = await agent.run("pay", session_id="s")
    assert first.steps[0].observation == "Error: not run yet: this call waits for somebody's answer, and may still be run"
    await agent.run("and now?", session_id="s")
    assert told[1] == ["not run yet: this call waits for somebody's answer, and may still be run"]
    assert (await agent.resume(first.run_id, dict.fromkeys(first.questions, "yes"))).completed
    assert paid == [1]


async def test_two_threads_open_a_new_file_at_once(tmp_path):
    for number in range(20):
        journal = SqliteJournal(tmp_path / f"{number}.db")
        agent = Agent(ScriptedModel(["hi"]), journal=journal)
        result, _ = await asyncio.gather(agent.run("go"), journal.runs())
        assert result.completed
        await journal.close()


async def test_patience_is_waited_for_once(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db", patience=1.0)
    await Agent(adding(), [add], journal=journal).run("go")
    holder = sqlite3.connect(journal.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    began = asyncio.get_running_loop().time()
    outcomes = await asyncio.gather(
        *[Agent(adding(), [add], journal=journal).run("go") for _ in range(30)], return_exceptions=True
    )
    assert all(isinstance(outcome, JournalLocked) for outcome in outcomes)
    waited = asyncio.get_running_loop().time() - began
    assert waited < 20, "the first batch alone, then all the others together: a second each, and not thirty"
    holder.execute("ROLLBACK")
    holder.close()
    await journal.close()


async def test_of_several_who_resume_at_once_one_wins_and_the_others_are_told(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    down = True
    agent = Agent(ScriptedModel(lambda r: LLMError("down") if down else "word " * 100, pace=0.001), journal=journal)
    run = agent.run("go")
    with pytest.raises(LLMError):
        await run
    down = False
    outcomes = await asyncio.gather(*[agent.resume(run.run_id) for _ in range(4)], return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Result", "RunBusy", "RunBusy", "RunBusy"]
    await journal.close()


async def test_a_waiting_sequence_does_not_hold_its_session_up():
    agent = Agent(
        ScriptedModel(lambda r: call("add", a=1, b=1) if len(r.messages) == 1 else "hi"),
        [add],
        policies=[Approve()],
        journal="memory",
    )
    async with agent.steps("go", session_id="z") as sequence:
        assert (await sequence.next_step()).kind == "tool_call"
        async with asyncio.timeout(60):
            assert (await agent.run("and I?", session_id="z")).completed


async def test_a_sequence_is_part_of_the_open_agents_conversation():
    async with Agent(ScriptedModel(lambda r: f"{len(r.messages)}"), journal="memory") as agent:
        await agent.run("one")
        assert [step.output async for step in agent.steps("two")] == ["3"]
        assert (await agent.run("three")).output == "5"


@pytest.mark.parametrize("answer", ["yes", {"results": 5}, None, {"result": 1, "more": 2}, 3])
async def test_an_answer_that_is_none_is_refused_before_it_is_recorded(answer):
    journal, log = MortalJournal(), []

    @tool
    async def pay() -> str:
        """Pay."""
        log.append(1)
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), "done"]), [pay], journal=journal)
    journal.revive(left=2)
    run = agent.run("go")
    with pytest.raises(Died):
        await run
    journal.revive()
    (key,) = (await agent.resume(run.run_id)).questions
    with pytest.raises(InvalidState, match='Answer with "retry", "skip" or'):
        await agent.resume(run.run_id, {key: answer})
    assert (await agent.resume(run.run_id, {key: " Retry "})).completed
    assert log == [1, 1]


async def test_an_approval_that_is_not_understood_is_no_approval():
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve("add")], journal="memory")
    result = await agent.run("go")
    with pytest.raises(InvalidState, match="is not clear and was not recorded"):
        await agent.resume(result.run_id, {key: {"arg": 3} for key in result.questions})
    assert (await agent.result(result.run_id)).questions == result.questions


async def test_a_replay_sees_another_context_other_settings_and_a_rule_that_is_gone():
    def context(text):
        async def build(messages, view):
            return (system(text), *messages)

        return build

    def never(state, step):
        return Stop("blocked", "never") if state.replies else None

    journal = MemoryJournal()
    model = ScriptedModel([call("add", a=1, b=2), "done"])
    first = Agent(model, [add], context=context("Be kind."), settings={"temperature": 0}, stops=never, journal=journal)
    result = await first.run("go")
    assert result.stop.kind == "blocked"
    assert (await first.replay(result.run_id)).same

    def again(**changed):
        given = {"context": context("Be kind."), "settings": {"temperature": 0}, "stops": never, **changed}
        return Agent(model, [add], journal=journal, **given).replay(result.run_id)

    assert "\ninstructions, settings and tools are the same" in str(await again(context=context("Be rude.")))
    assert not (await again(stops=None)).same
    hotter = await again(settings={"temperature": 1})
    assert "the settings have changed" in str(hotter)
    assert "a different request at fact 3" in str(hotter), "the place where they part is shown"


async def test_a_fork_answers_the_question_with_a_result():
    agent = Agent(
        ScriptedModel(lambda r: call("add", a=1, b=2) if len(r.messages) == 1 else "done"),
        [add],
        policies=[Approve()],
        journal="memory",
    )
    waiting = await agent.run("go")
    fork = await agent.fork(waiting.run_id, results={"c1_0": 99})
    assert (fork.stop.kind, fork.steps[0].observation) == ("completed", "99")


async def test_errors_know_their_run():
    agent = Agent(ScriptedModel([LLMError("down")]), journal="memory")
    sequence = agent.steps("go")
    with pytest.raises(LLMError) as raised:
        await sequence.next_step()
    assert raised.value.run_id == sequence.run_id
    with pytest.raises(RunNotFound) as missing:
        await agent.resume("nowhere")
    assert missing.value.run_id == "nowhere"


async def test_a_hand_over_to_nobody_is_told():
    @tool
    def give() -> ToolResult:
        """Give."""
        return ToolResult("over to you", transfer="expert")

    result = await Agent(ScriptedModel([call("give"), "I stay"]), [give], journal="memory").run("go")
    assert result.steps[0].observation == "Error: there is no agent named 'expert' to hand over to"
    assert (result.output, result.state.agent) == ("I stay", "agent")


def test_the_contracts_can_fail():
    class Sink(SinkContract):
        def make(self):
            def broken(event):
                if event.run_id != "sample":
                    raise RuntimeError("not in a run")

            return broken

    with pytest.raises(AssertionError, match="gets no further events"):
        Sink().test_it_hears_a_run()

    class Model(ModelContract):
        def make(self):
            class Swallowing:
                name = "swallowing"

                async def reply(self, request, emit):
                    try:
                        await emit("x")
                    except asyncio.CancelledError:
                        await asyncio.sleep(0)
                    return ModelReply(assistant("x"), "end_turn")

            return Swallowing()

    with pytest.raises(AssertionError, match="swallowed the cancellation"):
        Model().test_it_lets_itself_be_cancelled()

    class Tool(ToolContract):
        def make(self):
            return {"name": "anything", "parameters": True, "execute": lambda **more: more}

    with pytest.raises((AssertionError, TypeError)):
        Tool().test_it_can_be_shown_to_a_model()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Agent(sinks=[3]), "3 is not a sink"),
        (lambda: Agent(strategy=3), "3 is not a strategy"),
        (lambda: Agent(context=[3]), "3 is not a context part"),
        (lambda: tool(effect="nope"), "effect 'nope' is unknown"),
    ],
)
def test_parts_that_are_none_are_told_at_once(make, told):
    with pytest.raises(ConfigError) as raised:
        make()
    assert told in str(raised.value)


# What no test had seen


async def test_long_errors_of_policies_are_cut_too():
    class Refuse(Policy):
        async def tool(self, call, next, scope):
            return ToolResult(error="no " * 100_000)

    result = await Agent(ScriptedModel([call("add", a=1, b=2), "ok"]), [add], policies=[Refuse()], journal="memory").run("go")
    assert len(result.steps[0].observation) < 11_000


def test_a_clock_that_goes_backwards_does_not_give_time_back():
    state = State()
    for number, (moment, body) in enumerate(
        [(10.0, Opened()), (11.0, Received(user("x"))), (20.0, Warned("", "")), (5.0, Warned("", ""))], 1
    ):
        evolve(state, Event("r", number, moment, "a", body))
    assert state.spent.seconds == 9.0


async def test_a_time_limit_and_a_cancellation_at_once():
    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            task.cancel()  # from outside, while the limit is already ringing

    async def limited():
        await within(0.01, work())

    task = asyncio.create_task(limited())
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(Late):
        await within(0.01, asyncio.sleep(60))
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_the_file_itself_refuses_a_gap(tmp_path):
    """Another process wrote in between, with the same epoch: it cannot be, and it is refused all the same."""
    journal = SqliteJournal(tmp_path / "journal.db")
    lease = await journal.claim("r")
    await journal.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    behind = sqlite3.connect(journal.path)
    behind.execute("UPDATE runs SET seq = 7")
    behind.commit()
    behind.close()
    with pytest.raises(Exception, match=r"last fact of run \S+ is 7"):
        await journal.append([Event("r", 2, 1.0, "a", Noted(user("x")))], lease.epoch)
    await journal.close()


async def test_the_reader_cannot_write(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.runs()
    with pytest.raises(Exception, match="readonly"):
        await journal._reader.transact(lambda connection: connection.execute("DELETE FROM runs"))
    await journal.close()


def test_what_dead_owners_left_is_swept_away(tmp_path):
    folder = tmp_path / "owners"
    folder.mkdir()
    (folder / "123-dead").touch()
    alive = Owner(folder)
    other = Owner(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted([alive.name, other.name])
    assert is_alive(folder / other.name)
    assert not is_alive(folder / "123-dead")
    other.close()
    assert not is_alive(folder / other.name)
    alive.close()


async def test_a_resume_that_is_refused_leaves_the_run_free(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve()], journal=journal)
    waiting = await agent.run("go")
    other = SqliteJournal(tmp_path / "journal.db")
    with pytest.raises(InvalidState):
        await agent.resume(waiting.run_id, {"approve:nothing": "yes"})
    elsewhere = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve()], journal=other)
    assert (await elsewhere.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))).completed
    await journal.close()
    await other.close()


async def test_closing_a_journal_does_not_stop_the_loop(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    await Agent(adding(), [add], journal=journal).run("go")
    other = sqlite3.connect(journal.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # another process writes
    slow = asyncio.create_task(journal.claim("r"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(journal.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    other.execute("ROLLBACK")  # the loop was free to do so
    other.close()
    await closing
    assert (await slow).epoch == 1


async def test_whoever_is_cancelled_while_claiming_a_run_leaves_it_free(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    down = True
    agent = Agent(ScriptedModel(lambda r: LLMError("down") if down else "up again"), journal=journal)
    run = agent.run("go")
    with pytest.raises(LLMError):
        await run
    for number in range(40):
        claiming = asyncio.create_task(journal.claim(run.run_id))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        claiming.cancel()
        try:
            lease = await claiming
        except asyncio.CancelledError:
            continue
        await journal.release(run.run_id, lease.epoch)  # it was quicker than the cancellation
    down = False
    assert (await agent.resume(run.run_id)).output == "up again"
    await journal.close()
