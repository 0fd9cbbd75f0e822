"""Effects and resume, forks, replay, frozen runs."""

import asyncio

import pytest

from kaname import (
    Agent,
    Approve,
    InvalidState,
    JournalError,
    MemoryJournal,
    ModelError,
    ScriptedModel,
    SqliteJournal,
    ToolContext,
    call,
    max_steps,
    per_tool,
    tool,
)
from kaname.cli.main import main
from kaname.core.errors import ReplayDiverged, RunNotFound
from kaname.testing import freeze, save_run
from tests.parts import Died, MortalJournal, add, adding, assert_valid_history, facts, kinds


def world(effect, **repairs):
    """A tool that counts how often it took effect, and dies in the middle of its first call."""
    log, journal = [], MortalJournal()

    @tool(effect=effect, **repairs)
    async def act(n: int, context: ToolContext) -> str:
        """Act."""
        log.append((n, context.idempotency_key, context.attempt))
        return f"acted {n}"

    return log, journal, Agent(ScriptedModel([call("act", n=1), "done"]), [act], journal=journal)


def only(result):
    (key,) = result.questions
    return key


async def dies_after_the_effect(agent, journal):
    """Killed between the tool's effect and the record of its result: the worst moment."""
    journal.revive(left=2)  # opened and received are one write; then the reply with the intent
    run = agent.run("go")
    with pytest.raises(Died):
        await run
    journal.revive()
    assert (await kinds(agent, run.run_id))[-1] == "ToolStarted"
    return run.run_id


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
async def test_what_may_be_repeated_runs_again_with_the_same_key(effect):
    log, journal, agent = world(effect)
    run = await dies_after_the_effect(agent, journal)
    assert (await agent.resume(run)).output == "done"
    assert [n for n, _, _ in log] == [1, 1]
    assert log[0][1] == log[1][1] == f"{run}:c1_0"
    assert [attempt for _, _, attempt in log] == [1, 2]


async def test_what_is_irreversible_is_asked_about_and_never_repeated_blindly():
    log, journal, agent = world("irreversible")
    run = await dies_after_the_effect(agent, journal)
    result = await agent.resume(run)
    assert result.stop.kind == "waiting"
    ((key, question),) = result.questions.items()
    assert question.options == ("retry", "skip")
    assert 'act({"n": 1}) was started and then interrupted' in question.prompt
    assert len(log) == 1
    again = await agent.resume(run)
    assert again.stop.kind == "waiting", "asking again changes nothing"
    done = await agent.resume(run, {key: "skip"})
    assert done.output == "done"
    assert len(log) == 1
    assert "not known whether it took effect" in done.steps[0].observation


@pytest.mark.parametrize(
    ("answer", "times", "seen"), [("retry", 2, "acted 1"), ({"result": "it went through"}, 1, "it went through")]
)
async def test_what_a_person_may_answer(answer, times, seen):
    log, journal, agent = world("irreversible")
    run = await dies_after_the_effect(agent, journal)
    (key,) = (await agent.resume(run)).questions
    result = await agent.resume(run, {key: answer})
    assert (result.output, len(log), result.steps[0].observation) == ("done", times, seen)


async def test_an_answer_holds_for_one_death_and_not_for_the_next():
    log, journal, agent = world("irreversible")
    run = await dies_after_the_effect(agent, journal)
    (first,) = (await agent.resume(run)).questions
    journal.revive(left=2)  # the answer, the second intent; then death after the second effect
    with pytest.raises(Died):
        await agent.resume(run, {first: "retry"})
    journal.revive()
    assert len(log) == 2
    result = await agent.resume(run)
    (second,) = result.questions
    assert second != first
    assert len(log) == 2
    assert (await agent.resume(run, {second: "skip"})).output == "done"
    assert len(log) == 2


@pytest.mark.parametrize("found", ["paid already", None])
async def test_reconcile_looks_instead_of_asking(found):
    looked = []

    async def look(n: int, context: ToolContext):
        looked.append((n, context.idempotency_key))
        return found

    log, journal, agent = world("irreversible", reconcile=look)
    run = await dies_after_the_effect(agent, journal)
    result = await agent.resume(run)
    assert result.output == "done"
    assert looked == [(1, f"{run}:c1_0")]
    assert len(log) == (1 if found else 2)
    assert result.steps[0].observation == (found or "acted 1")


async def test_a_reconcile_that_fails_leads_to_a_question():
    def look(n: int):
        raise ConnectionError("the bank is closed")

    log, journal, agent = world("irreversible", reconcile=look)
    run = await dies_after_the_effect(agent, journal)
    (question,) = (await agent.resume(run)).questions.values()
    assert "checking its result failed: ConnectionError: the bank is closed" in question.prompt
    assert len(log) == 1


async def test_what_is_compensable_is_undone_first():
    order = []

    def undo(n: int):
        order.append(f"undo {n}")

    log, journal, agent = world("compensable", undo=undo)
    run = await dies_after_the_effect(agent, journal)
    assert (await agent.resume(run)).output == "done"
    assert order == ["undo 1"]
    assert len(log) == 2


async def test_fork_does_not_undo_a_call_with_which_the_older_run_has_gone_on():
    order = []

    def undo(n: int):
        order.append(f"undo {n}")

    log, _, agent = world("compensable", undo=undo)
    first = await agent.run("go")
    started = (await kinds(agent, first.run_id)).index("ToolStarted") + 1
    fork = await agent.fork(first.run_id, at=started)
    ((key, question),) = fork.questions.items()
    assert f"was started by run {first.run_id}, and may have taken effect there" in question.prompt
    assert (await agent.resume(fork.run_id, {key: {"result": "acted 1"}})).output == "done"
    assert (order, len(log)) == ([], 1)
    again = await agent.fork(first.run_id, at=started)
    assert (await agent.resume(again.run_id, {only(again): "retry"})).output == "done"
    assert order == []
    assert [key for _, key, _ in log] == [f"{first.run_id}:c1_0", f"{again.run_id}:c1_0"], "each run undoes only its own call"
    assert (await agent.replay(again.run_id)).same


@pytest.mark.parametrize(("effect", "answers"), [("idempotent", ["yes"]), ("irreversible", ["retry", "yes"])])
async def test_fork_that_asks_for_an_approval_keeps_the_key_of_a_call_that_it_takes_over(effect, answers):
    log, _, agent = world(effect)
    first = await agent.run("go")
    careful = Agent(
        ScriptedModel([call("act", n=1), "done"]), agent.tools.values(), policies=[Approve("act")], journal=agent.journal
    )
    fork = await careful.fork(first.run_id, at=(await kinds(agent, first.run_id)).index("ToolStarted") + 1)
    for answer in answers:
        fork = await careful.resume(fork.run_id, {only(fork): answer})
    assert fork.output == "done"
    assert [key for _, key, _ in log] == [f"{first.run_id}:c1_0"] * 2


async def test_resume_on_a_completed_run_returns_its_result_and_writes_nothing():
    agent = Agent(adding(), [add], journal="memory")
    result = await agent.run("go")
    before = await facts(agent, result.run_id)
    again = await agent.resume(result.run_id)
    assert (again.output, again.usage, again.steps) == (result.output, result.usage, result.steps)
    assert await facts(agent, result.run_id) == before


async def test_resume_after_a_failure_goes_on_where_it_was():
    asked = []

    def script(request):
        asked.append(len(request.messages))
        if len(asked) == 2:
            raise ModelError("overloaded")
        return call("add", a=1, b=2) if len(request.messages) == 1 else "3"

    agent = Agent(ScriptedModel(script), [add], journal="memory")
    run = agent.run("go")
    with pytest.raises(ModelError):
        await run
    result = await agent.resume(run.run_id)
    assert (result.output, result.attempt) == ("3", 2)
    assert asked == [1, 3, 3], "the recorded step is not repeated"


async def test_resume_after_a_limit_starts_the_limits_anew():
    agent = Agent(
        ScriptedModel([call("add", a=n, b=0) for n in range(4)] + ["done"]), [add], stops=max_steps(3), journal="memory"
    )
    result = await agent.run("go")
    assert result.stop.kind == "max_steps"
    assert (await agent.resume(result.run_id)).output == "done"


async def test_answers_are_checked_and_nothing_is_lost():
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve("add")], journal="memory")
    result = await agent.run("go")
    (key,) = result.questions
    with pytest.raises(InvalidState, match=f"no open question 'approve:c9_9'; did you mean '{key}'"):
        await agent.resume(result.run_id, {"approve:c9_9": "yes"})
    assert (await agent.resume(result.run_id, {key: "yes"})).output == "done"
    assert (await agent.resume(result.run_id, {key: "yes"})).output == "done", "the same answer again is passed over"
    with pytest.raises(InvalidState, match="has already been answered with 'yes'"):
        await agent.resume(result.run_id, {key: "no"})
    with pytest.raises(RunNotFound, match="run 'nowhere' was not found"):
        await agent.resume("nowhere")


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ("yes", "3"),
        (True, "3"),
        ({"args": {"a": 10, "b": 20}}, "30"),
        ("no", "Error: the user did not allow this call"),
        (False, "Error: the user did not allow this call"),
        ("too dear", "Error: the user did not allow this call: too dear"),
    ],
)
async def test_approval(answer, seen):
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve("add")], journal="memory")
    result = await agent.run("go")
    assert result.stop.kind == "waiting"
    (key,) = result.questions
    result = await agent.resume(result.run_id, {key: answer})
    assert result.steps[0].observation == seen


async def test_a_definition_without_code_is_run_by_the_caller():
    definition = {"type": "function", "function": {"name": "ask_boss", "parameters": {"type": "object"}}}
    agent = Agent(ScriptedModel([[call("ask_boss"), call("add", a=1, b=1)], "done"]), [definition, add], journal="memory")
    result = await agent.run("go")
    ((key, question),) = result.questions.items()
    assert question.prompt == "Run ask_boss({}) and answer with its result."
    result = await agent.resume(result.run_id, {key: {"boss": "says no"}})
    assert result.steps[0].observation == '{"boss": "says no"}'


async def test_the_next_run_of_a_session_whose_last_one_died():
    journal = MortalJournal()
    agent = Agent(
        ScriptedModel(lambda r: call("add", a=1, b=2) if len(r.messages) == 1 else f"{len(r.messages)} messages"),
        [add],
        journal=journal,
    )
    journal.revive(left=2)
    with pytest.raises(Died):
        await agent.run("first", session_id="s")
    journal.revive()
    result = await agent.run("second", session_id="s")
    assert result.output == "4 messages"
    assert_valid_history(result.history)
    assert [m["role"] for m in result.messages] == ["user", "assistant", "tool", "user", "assistant"]


@pytest.mark.parametrize("effect", ["pure", "idempotent", "compensable", "irreversible"])
async def test_the_intent_is_on_disk_before_the_effect(tmp_path, effect):
    journal, elsewhere, seen = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db"), []

    @tool(effect=effect)
    async def act(context: ToolContext) -> str:
        """Act."""
        seen.append([type(event.body).__name__ async for event in elsewhere.read(context.run_id)])
        return "acted"

    assert (await Agent(ScriptedModel([call("act"), "done"]), [act], journal=journal).run("go")).completed
    assert seen == [["Opened", "Received", "ModelReplied", "ToolStarted"]]
    await journal.close()
    await elsewhere.close()


# Forks


async def test_a_fork_goes_on_from_an_earlier_fact_with_another_result():
    agent = Agent(
        ScriptedModel(lambda r: call("add", a=1, b=2) if len(r.messages) == 1 else f"it is {r.messages[-1].parts[0].output}"),
        [add],
        journal="memory",
    )
    original = await agent.run("go")
    assert original.output == "it is 3"
    fork = await agent.fork(original.run_id, at=3, results={"c1_0": 99})
    assert fork.output == "it is 99"
    assert fork.run_id != original.run_id
    assert (await agent.resume(original.run_id)).output == "it is 3", "the original stays"
    assert (await agent.resume(fork.run_id)).output == "it is 99"
    with pytest.raises(InvalidState, match="call 'c9_9' is not waiting for a result at fact .*; did you mean 'c1_0'"):
        await agent.fork(original.run_id, at=3, results={"c9_9": 1})
    with pytest.raises(InvalidState, match="has no fact 8; its facts are 1 to 7"):
        await agent.fork(original.run_id, at=8)


async def test_a_fork_with_another_model_prompt_and_input():
    seen = []

    def script(request):
        seen.append([m.text for m in request.messages])
        return "from the other model"

    agent = Agent(ScriptedModel(["from the first"]), instructions="Be brief.", journal="memory")
    original = await agent.run("question one")
    fork = await agent.fork(original.run_id, model=ScriptedModel(script), instructions="Be long.", user_input="question two")
    assert fork.output == "from the other model"
    assert seen == [["Be long.", "question one", "from the first", "question two"]]
    second = await agent.fork(fork.run_id, at=1, model=ScriptedModel(script), user_input="question three")
    assert second.completed
    assert seen[1] == ["Be brief.", "question one", "from the first", "question three"]
    with pytest.raises(JournalError, match="cascade"):
        await agent.journal.delete(original.run_id)
    await agent.journal.delete(original.run_id, cascade=True)
    assert await agent.journal.runs() == []


# Replay


async def test_a_run_replays_offline_with_the_same_decisions(tmp_path):
    ran = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        ran.append(yen)
        return f"paid {yen}"

    model = ScriptedModel([[call("pay", yen=1), call("add", a=1, b=2)], call("pay", yen=2), "done"])
    agent = Agent(model, [pay, add], policies=[Approve("pay")], journal="memory")
    result = await agent.run("go")
    while result.questions:
        result = await agent.resume(result.run_id, dict.fromkeys(result.questions, "yes"))
    assert ran == [1, 2]
    replayed = await agent.replay(result.run_id)
    assert replayed.same, str(replayed)
    assert ran == [1, 2], "nothing was paid by the replay"
    path = await save_run(agent.journal, result.run_id, tmp_path / "runs" / "pay.jsonl")
    await asyncio.to_thread(freeze(path, agent))
    await asyncio.to_thread(freeze(result, agent))


@pytest.mark.parametrize("change", ["prompt", "tool", "limit", "code"])
async def test_a_replay_says_where_it_differs_and_how(change):
    def add_slowly(a: int, b: int) -> int:
        """Add, but with another description."""
        return a + b

    @tool(effect="pure", name="add", description="Add two numbers.")
    def wrong(a: int, b: int) -> int:
        return a - b

    model = ScriptedModel([call("add", a=1, b=2), "done"])
    original = Agent(model, [add], instructions="Add well.\nBe brief.", journal="memory")
    result = await original.run("go")
    changed = {
        "prompt": lambda: Agent(model, [add], instructions="Add well.\nBe long.", journal=original.journal),
        "tool": lambda: Agent(
            model, [tool(name="add")(add_slowly)], instructions="Add well.\nBe brief.", journal=original.journal
        ),
        "limit": lambda: Agent(model, [add], instructions="Add well.\nBe brief.", stops=max_steps(1), journal=original.journal),
        "code": lambda: Agent(model, [wrong], instructions="Add well.\nBe brief.", journal=original.journal),
    }[change]()
    replay = await changed.replay(result.run_id, rerun_pure_tools=change == "code")
    assert not replay.same
    told = {
        "prompt": ["at fact 3", "-Be brief.", "+Be long."],
        "tool": ["at fact 3", "schema of tool add has changed"],
        "limit": ["at fact 6", "recorded: ModelReplied", 'now:      Noted {"message"', "limit of 1 steps"],
        "code": ["at fact 5", '"output":3', '"output":-1'],
    }[change]
    for part in told:
        assert part in str(replay)
    wanted = "a different prompt" if change in ("prompt", "tool") else "takes a different decision"
    with pytest.raises(ReplayDiverged, match=wanted):
        await asyncio.to_thread(freeze(result, changed, rerun_pure_tools=change == "code"))


async def test_a_run_that_died_and_was_resumed_replays():
    _, journal, agent = world("irreversible")
    run = await dies_after_the_effect(agent, journal)
    (key,) = (await agent.resume(run)).questions
    await agent.resume(run, {key: "skip"})
    replay = await agent.replay(run)
    assert replay.same, str(replay)


async def test_a_run_that_failed_or_was_cut_off_replays_as_far_as_it_goes():
    agent = Agent(ScriptedModel([call("add", a=1, b=2), ModelError("down")]), [add], journal="memory")
    run = agent.run("go")
    with pytest.raises(ModelError):
        await run
    replay = await agent.replay(run.run_id)
    assert replay.same, str(replay)


async def test_the_second_run_of_a_session_replays_with_what_came_before(tmp_path):
    agent = Agent(ScriptedModel(lambda r: f"{len(r.messages)}"), journal="memory")
    await agent.run("a", session_id="s")
    second = await agent.run("b", session_id="s")
    assert second.output == "3"
    assert (await agent.replay(second.run_id)).same
    path = await save_run(agent.journal, second.run_id, tmp_path / "second.jsonl")
    await asyncio.to_thread(freeze(path, lambda: agent))


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_waiting_run_is_stopped_with_its_children(tmp_path, kind):
    """Nobody executes them: they are ended where they are recorded, and an answer comes too late."""
    journal = SqliteJournal(tmp_path / "journal.db") if kind == "sqlite" else MemoryJournal()
    cashier = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve("add")], name="cashier")

    @tool(effect="idempotent")
    async def delegate(context: ToolContext) -> str:
        """Have the cashier do it."""
        return str((await context.run_child(cashier, "go")).output)

    lead = Agent(ScriptedModel([call("delegate"), "all done"]), [delegate], name="lead", journal=journal)
    waiting = await lead.run("go")
    assert waiting.stop.kind == "waiting"
    assert await lead.stop(waiting.run_id, "not wanted") is True
    assert {card.agent: card.status for card in await journal.runs()} == {"lead": "cancelled", "cashier": "cancelled"}
    assert (await lead.result(waiting.run_id)).stop.detail == "not wanted"
    assert await lead.stop(waiting.run_id) is False, "it is over already"
    with pytest.raises(RunNotFound):
        await lead.stop("no-such-run")
    await lead.close()
    await journal.close()


async def test_waiting_run_is_stopped_at_the_terminal(tmp_path, monkeypatch, capsys):
    journal = SqliteJournal(tmp_path / "journal.db")
    waiting = await Agent(
        ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve("add")], journal=journal
    ).run("go")
    monkeypatch.setenv("KANAME_LANG", "en")
    command = ["runs", "stop", waiting.run_id, "--journal", str(tmp_path / "journal.db")]
    assert await asyncio.to_thread(main, command) == 0
    assert "stopped" in capsys.readouterr().err
    assert (await journal.runs())[0].status == "cancelled"
    assert await asyncio.to_thread(main, command) == 1
    assert "has already ended: cancelled" in capsys.readouterr().err
    await journal.close()


async def test_replay_counts_a_call_that_a_stop_has_interrupted_before_the_stop():
    begun = asyncio.Event()

    @tool(effect="idempotent")
    async def pay(yen: int) -> str:
        """Pay."""
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return "paid"

    script = [call("pay", yen=1), call("pay", yen=2), "Paid twice."]
    agent = Agent(ScriptedModel(script), [pay], stops=max_steps(20) | per_tool(1), journal=MemoryJournal())
    run = agent.run("Pay twice.")
    waiting = asyncio.ensure_future(run)
    await begun.wait()
    run.abort()
    stopped = await waiting
    assert stopped.stop.kind == "cancelled"
    resumed = await agent.resume(stopped.run_id)
    replay = await agent.replay(resumed.run_id)
    assert replay.same, str(replay)


@pytest.mark.parametrize("answer", ["yes", "no", None])
async def test_replay_without_the_policy_that_asked_is_not_the_same(answer):
    ran, journal = [], MemoryJournal()

    @tool(effect="irreversible")
    def pay(yen: int) -> str:
        """Pay."""
        ran.append(yen)
        return "paid"

    def clerk(*policies):
        return Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=policies, journal=journal, name="clerk")

    careful = clerk(Approve("pay"))
    run = await careful.run("Pay.")
    if answer is not None:
        await careful.resume(run.run_id, dict.fromkeys(run.questions, answer))
    assert (await careful.replay(run.run_id)).same
    careless = await clerk().replay(run.run_id)
    assert not careless.same
    assert "Asked" in careless.difference.recorded
    assert ran == ([5] if answer == "yes" else [])


async def test_fork_of_a_waiting_run_replays():
    @tool(effect="irreversible")
    def pay(yen: int) -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="memory")
    waiting = await agent.run("Pay.")
    fork = await agent.fork(waiting.run_id)
    assert (await agent.replay(fork.run_id)).same
    await agent.resume(fork.run_id, dict.fromkeys(fork.questions, "yes"))
    replay = await agent.replay(fork.run_id)
    assert replay.same, str(replay)
