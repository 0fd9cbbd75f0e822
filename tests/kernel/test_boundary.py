"""Other people's code at its worst: models, policies, strategies, sinks, tools and journals that do what they should not."""

import asyncio
import gc
import json
import re
import threading
import time
from pathlib import Path

import pytest

from kaname import (
    Agent,
    Approve,
    ConfigError,
    InvalidState,
    JournalError,
    MemoryJournal,
    ModelError,
    ModelReply,
    Policy,
    ScriptedModel,
    SharedSession,
    SqliteJournal,
    Stop,
    Suspend,
    ToolCall,
    ToolContext,
    ToolResult,
    Usage,
    call,
    deadline,
    max_steps,
    per_tool,
    tool,
)
from kaname.core.errors import AgentConnectionError, RunSuperseded, UnexpectedError
from kaname.core.messages import Message, Text, assistant
from kaname.core.steps import CallTools, Finish
from kaname.strategies.react import React
from kaname.strategies.termination import ContinueWithTools, DuplicateDetectionPolicy
from kaname.testing import freeze, save_run
from kaname.tools.loading import all_tools
from tests.parts import Died, MortalJournal, add, adding, assert_valid_history, chunks, kinds, until


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request, tmp_path):
    made = "memory" if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")
    yield made
    if made != "memory":
        await made.close()


def saying(*parts, **more):
    return ModelReply(Message("assistant", tuple(parts)), "end_turn", **more)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (None, "the model 'odd', or a policy around it, returned None; expected a ModelReply"),
        ("text", "expected a ModelReply"),
        (ModelReply(Message("user", ())), "expected an assistant's Message"),
        (saying("bare text"), "expected texts, thinking, media and tool calls"),
        (saying(Text(None)), "expected texts"),
        (saying(ToolCall("", "", {})), "expected a ToolCall with a name"),
        (saying(ToolCall("", None, {})), "expected a ToolCall with a name"),
        (saying(ToolCall("", "add", {"a": {1}})), "the arguments of add, as the model 'odd' returned them, cannot be recorded"),
        (saying(Text("x"), usage=None), "expected a Usage"),
    ],
)
async def test_a_model_that_returns_something_else(journal, reply, told):
    class Odd:
        name = "odd"

        async def reply(self, request, emit):
            return reply

    agent = Agent(Odd(), [add], journal=journal)
    run = agent.run("go")
    with pytest.raises(UnexpectedError) as raised:
        await run
    assert told in str(raised.value)
    assert (await agent.journal.runs(run_id=run.run_id))[0].status == "failed"
    fine = Agent(ScriptedModel(["well again"]), journal=agent.journal)
    assert (await fine.resume(run.run_id)).output == "well again"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"strategy": type("S", (), {"next": lambda self, state: None})()}, "S.next returned None, which is no step"),
        ({"strategy": type("S", (), {"next": lambda self, state: CallTools(())})()}, "returned CallTools with no calls"),
        (
            {"strategy": type("S", (), {"next": lambda self, s: Finish(Stop("completed"), object())})()},
            "the output cannot be recorded",
        ),
        ({"strategy": React(termination=type("T", (), {"decide": lambda self, r, s: None})())}, "T.decide returned None"),
        (
            {"strategy": React(termination=type("T", (), {"decide": lambda self, r, s: ContinueWithTools(())})())},
            "T.decide continues with calls that the reply does not have",
        ),
        ({"stops": lambda state, step: True}, "returned True; expected a Stop"),
        (
            {"policies": [type("P", (Policy,), {"tool": lambda self, c, next, scope: asyncio.sleep(0)})()]},
            "returned None; expected a ToolResult",
        ),
    ],
)
async def test_a_strategy_rule_or_policy_that_returns_something_else(journal, options, told):
    agent = Agent(ScriptedModel([call("add", a=1, b=2) if "policies" in options else "hi"]), [add], journal=journal, **options)
    async with asyncio.timeout(60):
        with pytest.raises(UnexpectedError) as raised:
            await agent.run("go")
    assert told in str(raised.value)


async def test_a_question_that_is_asked_again_after_its_answer():
    class Deaf(Policy):
        async def tool(self, call, next, scope):
            raise Suspend("ok?", "May I?")

    agent = Agent(ScriptedModel([call("add", a=1, b=2)]), [add], policies=[Deaf()], journal="memory")
    result = await agent.run("go")
    with pytest.raises(UnexpectedError, match="'ok\\?' was asked again, although it has been answered"):
        await agent.resume(result.run_id, {"ok?": "yes"})


async def test_a_tool_that_was_cancelled_inside_is_a_tool_that_failed():
    @tool
    async def inner() -> str:
        """Wait for something that is cancelled."""
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task
        return ""

    @tool
    async def leave() -> str:
        """Leave."""
        raise SystemExit(3)

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    @tool
    def mute() -> str:
        """Mute."""
        raise Mute

    model = ScriptedModel([[call("inner"), call("leave"), call("mute"), call("add", a=1, b=1)], "went on"])
    result = await Agent(model, [inner, leave, mute, add], journal="memory").run("go")
    assert result.output == "went on"
    assert [s.observation for s in result.steps[:4]] == [
        "Error: CancelledError",
        "Error: SystemExit: 3",
        "Error: Mute: (its message cannot be shown)",
        "2",
    ]


async def test_a_tool_that_has_trouble_with_another_run():
    agent = Agent(ScriptedModel([]), journal="memory")

    @tool
    async def other() -> str:
        """Resume another run."""
        return (await agent.resume("nosuch")).output

    result = await Agent(ScriptedModel([call("other"), "went on"]), [other], journal="memory").run("go")
    assert result.output == "went on"
    assert "run 'nosuch' was not found" in result.steps[0].observation


async def test_sinks_that_raise_our_own_errors_or_never_return():
    def ours(event):
        raise ModelError("the sink's own")

    reached = asyncio.Event()

    async def stuck(event):
        if type(event.body).__name__ in ("ModelReplied", "Stopped"):
            reached.set()
            await asyncio.sleep(1000)

    assert (await Agent(adding(), [add], sinks=[ours], journal="memory").run("go")).completed
    run = Agent(adding(), [add], sinks=[stuck], journal="memory").run("go").start()
    await reached.wait()
    run.abort()
    async with asyncio.timeout(60):
        assert (await run).stop.kind == "cancelled"


async def test_texts_that_are_no_unicode(journal):
    agent = Agent(ScriptedModel(["ok \ud800"]), journal=journal)
    result = await agent.run("hi \ud800 there\0")
    assert result.output == "ok \ud800"
    assert (await agent.resume(result.run_id)).output == "ok \ud800"
    for name in ("session_id", "user_id", "run_id"):
        with pytest.raises(ConfigError, match=name):
            agent.run("hi", **{name: "s\ud800"})


async def test_a_number_too_large_for_the_file(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    with pytest.raises(JournalError, match="OverflowError"):
        await Agent(ScriptedModel(["ok"], usage=Usage(2**70, 1)), journal=journal).run("go")
    assert (await Agent(adding(), [add], journal=journal).run("go")).completed, "the writer lives"
    await journal.close()


async def test_a_journal_whose_owners_have_no_folder(tmp_path):
    (tmp_path / "journal.db-owners").write_text("in the way")
    journal = SqliteJournal(tmp_path / "journal.db")
    with pytest.raises(JournalError, match="cannot be opened"):
        await Agent(adding(), [add], journal=journal).run("go")
    await journal.close()


async def test_a_closed_journal_refuses(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(ScriptedModel(["word " * 500], pace=0.005), journal=journal)
    run = agent.run("go").start()
    await until(journal.runs)
    await journal.close()
    async with asyncio.timeout(60):
        with pytest.raises(JournalError, match="is closed"):
            await run
        with pytest.raises(JournalError, match="is closed"):
            await agent.run("again")


async def test_journals_that_nobody_holds_are_let_go(tmp_path):
    async def one(number):
        agent = Agent(adding(), [add], journal=tmp_path / f"{number}.db")
        await agent.run("go")
        ours.update(writers() - before)  # while the agent is held

    def writers():
        return {thread for thread in threading.enumerate() if thread.name.startswith("kaname-journal")}

    before, ours = writers(), set()  # the first are of other tests, and may end meanwhile
    for number in range(8):
        await one(number)
    assert ours, "they were there"
    await until(lambda: not writers() & ours, freeing=True)


async def test_a_takeover_in_the_same_process(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")

    class Long(ScriptedModel):
        """Works on, and does not end before the run is taken over."""

        async def reply(self, request, emit):
            if len(request.messages) > 8:
                await taken.wait()
            return await super().reply(request, emit)

    for _ in range(10):
        taken = asyncio.Event()
        model = Long(lambda r: call("add", a=len(r.messages), b=1) if len(r.messages) < 60 else "done")
        agent = Agent(model, [add], journal=journal, stops=max_steps(None) | per_tool(None))
        old = agent.run("go").start()
        while not await journal.runs(run_id=old.run_id):
            await asyncio.sleep(0.001)
        new = agent.resume(old.run_id, takeover=True).start()
        asyncio.get_running_loop().call_later(0.01, taken.set)
        assert (await new).output == "done"
        with pytest.raises(RunSuperseded):
            await old
    await journal.close()


async def test_an_abort_while_the_end_is_being_written(tmp_path):
    class Slow(SqliteJournal):
        async def append(self, events, epoch):
            if type(events[-1].body).__name__ == "Stopped":
                writing.set()
                await asyncio.sleep(0.05)
            await super().append(events, epoch)

    journal, writing = Slow(tmp_path / "journal.db"), asyncio.Event()
    agent = Agent(ScriptedModel(["the answer"]), journal=journal)
    run = agent.run("go").start()
    await writing.wait()
    run.abort()
    result = await run
    assert (result.stop.kind, result.output) == ("completed", "the answer")
    assert (await kinds(agent, run.run_id)).count("Stopped") == 1
    await journal.close()


async def test_aborts_before_there_is_anything_to_stop(journal):
    agent = Agent(ScriptedModel(["word " * 500], pace=0.001), journal=journal)
    event = asyncio.Event()
    event.set()
    assert (await agent.run("go", abort_event=event)).stop.kind == "cancelled"
    seen = await chunks(agent.run("go", abort_event=event))
    assert seen[-1]["kind"] == "cancelled", "a status chunk, in any case"
    run = agent.run("go")
    run.abort("never mind")
    result = await run
    assert (result.stop.kind, result.stop.detail) == ("cancelled", "never mind")
    with pytest.raises(ConfigError, match="abort_event"):
        agent.run("go", abort_event=True)


async def test_two_who_wait_for_one_run_and_one_who_leaves():
    agent = Agent(ScriptedModel(["word " * 20], pace=0.005), journal="memory")
    run = agent.run("go")

    async def wait():
        return await run

    leaving, staying = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0.02)
    leaving.cancel()
    assert (await staying).completed
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_failing_run_left_in_its_context_is_not_complained_about(caplog):
    agent = Agent(ScriptedModel([ModelError("down")]), journal="memory")
    async with agent.run("go"):
        await asyncio.sleep(0.02)
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_arguments_nested_beyond_reason(journal):
    deep = "[" * 600 + "]" * 600
    agent = Agent(ScriptedModel([ToolCall("", "add", '{"a": ' + deep + "}"), "told"]), [add], journal=journal)
    result = await agent.run("go")
    assert result.output == "told"
    assert result.steps[0].observation.startswith("Error: the arguments of add do not fit")
    assert (await agent.resume(result.run_id)).output == "told"


async def test_what_cannot_be_repaired_because_the_tool_is_gone_is_asked_about():
    for change in ("removed", "other arguments"):
        journal, log = MortalJournal(), []

        @tool
        async def pay(yen: int) -> str:
            """Pay."""
            log.append(yen)
            return "paid"

        @tool(name="pay")
        async def other(yen: list[str]) -> str:
            """Pay."""
            return "paid"

        model = ScriptedModel([call("pay", yen=5), "done"])
        journal.revive(left=2)
        run = Agent(model, [pay], journal=journal).run("go")
        with pytest.raises(Died):
            await run
        journal.revive()
        later = Agent(model, [] if change == "removed" else [other], journal=journal)
        ((key, question),) = (await later.resume(run.run_id)).questions.items()
        assert ("the tool no longer exists" if change == "removed" else "no longer accepted") in question.prompt
        assert (await later.resume(run.run_id, {key: {"result": "paid"}})).steps[0].observation == "paid"
        assert log == [5]


async def test_repairs_that_raise_our_own_errors_lead_to_a_question():
    for effect, repairs in (("compensable", "undo"), ("irreversible", "reconcile")):
        journal = MortalJournal()

        def broken(n: int):
            raise AgentConnectionError("bank offline")

        @tool(effect=effect, **{repairs: broken})
        async def act(n: int) -> str:
            """Act."""
            return "acted"

        agent = Agent(ScriptedModel([call("act", n=1), "done"]), [act], journal=journal)
        journal.revive(left=2)
        run = agent.run("go")
        with pytest.raises(Died):
            await run
        journal.revive()
        (question,) = (await agent.resume(run.run_id)).questions.values()
        assert "bank offline" in question.prompt


@pytest.mark.parametrize("ended", ["max_steps", "cancelled", "failed", "sink", "undecodable"])
async def test_runs_that_stopped_and_went_on_replay(ended):
    def fails_once(event):
        raise RuntimeError("once")

    trouble = [ModelError("down")] if ended == "failed" else []

    def script(request):
        done = sum(m.role == "tool" for m in request.messages)
        if done == 1 and trouble:
            raise trouble.pop()
        if done < 4:
            return call("add", a=done, b=0)
        return "never json" if ended == "undecodable" and not again else ("7" if ended == "undecodable" else "done")

    again = False
    options = {"max_steps": {"stops": max_steps(2)}, "sink": {"sinks": [fails_once]}, "undecodable": {"output": int}}.get(
        ended, {}
    )
    agent = Agent(ScriptedModel(script, pace=0.001), [add], journal="memory", **options)
    run = agent.run("go")
    if ended == "failed":
        with pytest.raises(ModelError):
            await run
    elif ended == "cancelled":
        async for chunk in run:
            if chunk["type"] == "tool_response":
                run.abort()
    else:
        await run
    again = True
    result = await agent.resume(run.run_id)
    while not result.completed:
        result = await agent.resume(run.run_id)
    assert result.output == (7 if ended == "undecodable" else "done")
    assert_valid_history(result.history)
    replay = await agent.replay(run.run_id)
    assert replay.same, str(replay)


async def test_a_conversation_keeps_the_turn_that_failed():
    replies = ["one", ModelError("down"), "three"]
    async with Agent(ScriptedModel(lambda r: replies.pop(0)), journal="memory") as agent:
        await agent.run("a")
        with pytest.raises(ModelError):
            await agent.run("b")
        await agent.run("c")
        assert [m["content"] for m in agent.messages] == ["a", "one", "b", "c", "three"]


async def test_a_session_is_its_agents_and_users():
    """Programs, agents and users that choose the same name for a session do not read each other's conversations."""
    journal = MemoryJournal()

    def agent(name):
        return Agent(ScriptedModel(lambda r: f"{len(r.messages)}"), name=name, journal=journal)

    said = [
        (await agent(name).run("hi", session_id="user-1", user_id=user)).output
        for name, user in [("a", ""), ("b", ""), ("a", "ken"), ("a", ""), ("a", "ken"), ("b", "")]
    ]
    assert said == ["1", "1", "1", "3", "3", "3"]


async def test_a_session_can_be_shared_on_purpose():
    journal = MemoryJournal()
    agents = [Agent(ScriptedModel(lambda r: f"{len(r.messages)}", pace=0.001), name=f"a{n}", journal=journal) for n in range(3)]
    results = await asyncio.gather(*[agent.run("hi", session_id=SharedSession("s"), user_id=agent.name) for agent in agents])
    assert [r.output for r in results] == ["1", "3", "5"]
    assert (await agents[0].run("hi", session_id="s")).output == "1", "another one"


async def test_a_long_session_costs_the_same_at_its_end(tmp_path):
    """Not a timing: how often the journal is read."""

    class Counting(SqliteJournal):
        reads = 0

        def read(self, run, after=0):
            Counting.reads += 1
            return super().read(run, after)

    journal = Counting(tmp_path / "journal.db")
    agent = Agent(ScriptedModel(lambda r: f"{len(r.messages)}"), journal=journal)
    for number in range(30):
        assert (await agent.run("x", session_id="s")).output == str(1 + 2 * number)
    assert Counting.reads == 0
    other = Agent(ScriptedModel(lambda r: f"{len(r.messages)}"), journal=journal)
    assert (await other.run("x", session_id="s")).output == "61", "and another agent reads it back"
    await journal.close()


@pytest.mark.parametrize("answer", ["Yes", " ok ", "はい", "Y"])
async def test_ways_to_say_yes(answer):
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], policies=[Approve("add")], journal="memory")
    result = await agent.run("go")
    assert (await agent.resume(result.run_id, dict.fromkeys(result.questions, answer))).steps[0].observation == "3"


async def test_a_recording_with_every_kind_of_line_end(tmp_path):
    agent = Agent(ScriptedModel(["a\u2028b\x85c\r\nd"]), journal="memory")
    result = await agent.run("hi\u2028there")
    path = await save_run(agent.journal, result.run_id, tmp_path / "r.jsonl")
    freeze(path, agent)()  # also inside a running loop
    with pytest.raises(ConfigError, match="does not hold this run"):
        freeze(result, Agent(ScriptedModel([]), journal="memory"))()


async def test_limits_in_every_arrangement():
    many = ScriptedModel([call("add", a=n, b=0) for n in range(8)] + ["done"])
    assert (
        await Agent(many, [add], stops=[max_steps(20) | per_tool(None), lambda s, step: None], journal="memory").run("x")
    ).completed
    loose = React(termination=DuplicateDetectionPolicy(max_duplicate_tool_calls=4))
    same = ScriptedModel([call("add", a=1, b=1)] * 4 + ["done"])
    assert (await Agent(same, [add], strategy=loose, journal="memory").run("x")).output == "done"

    @tool
    async def nap() -> str:
        """Nap."""
        await asyncio.sleep(30)
        return ""

    begun = time.monotonic()
    result = await Agent(ScriptedModel([call("nap")]), [nap], stops=[deadline("0.1s") | max_steps(3)], journal="memory").run(
        "x"
    )
    assert result.stop.kind == "deadline"
    assert time.monotonic() - begun < 25


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Agent(tools=add), "tools must be a list"),
        (lambda: Agent(tools={"name": "x"}), "tools must be a list"),
        (lambda: Agent(stops=5), "a stop rule must be"),
        (lambda: Agent(stops="max_steps"), "a stop rule must be"),
        (lambda: max_steps(3) | 7, "a stop rule must be"),
        (lambda: Agent(policies=[object()]), "is not a policy"),
        (lambda: Agent(output="Nope"), "is not a type that pydantic"),
        (lambda: Agent(output={"type": "object"}), "is not a type"),
        (lambda: Agent(journal="memory").steps("x", configuration={"max_steps": 3}), "AgentConfiguration"),
        (lambda: tool("name"), "@tool must be applied to a function"),
        (lambda: tool(dict), "@tool must be applied to a function"),
    ],
)
def test_more_mistakes_that_are_told_at_once(make, told):
    with pytest.raises(ConfigError) as raised:
        make()
    assert told in str(raised.value)


async def test_a_sequence_with_a_question_tells_each_step_once():
    model = ScriptedModel([[call("add", a=1, b=2), call("echo", text="hi")], "done"])

    def echo(text: str) -> str:
        """Echo."""
        return text

    async with Agent(model, [add, echo], policies=[Approve("add")], journal="memory").steps("go") as sequence:
        seen = [await sequence.next_step() for _ in range(3)]
        with pytest.raises(InvalidState) as missing:
            await sequence.next_step()
        assert "approve:c1_0" in str(missing.value)
        await sequence.answer("approve:c1_0", "yes")
        seen += [step async for step in sequence]
    assert [(s.kind, getattr(getattr(s, "call", None), "name", "")) for s in seen] == [
        ("tool_call", "add"),
        ("tool_call", "echo"),
        ("tool_result", "echo"),
        ("tool_result", "add"),
        ("final_response", ""),
    ]


async def test_a_sequence_that_is_left_and_one_that_is_dropped():
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], journal="memory")
    sequence = agent.steps("go", session_id="s")
    async for step in sequence:
        assert step.kind == "tool_call"
        break
    assert (await sequence.next_step()).kind == "tool_result", "it can be pulled on"
    await sequence.aclose()
    assert (await agent.resume(sequence.run_id)).output == "done"
    dropped = agent.steps("go")
    await dropped.next_step()
    run = dropped.run_id
    del dropped

    async def ended():
        return (await agent.journal.runs(run_id=run))[0].status == "cancelled"

    await until(ended, freeing=True)


async def test_results_handed_in_are_made_json():
    from kaname import AgentConfiguration

    agent = Agent(ScriptedModel([[call("add", a=1, b=2), call("add", a=2, b=2)], "done"]), [add], journal="memory")
    async with agent.steps("go", configuration=AgentConfiguration(auto_execute_tools=False)) as sequence:
        first, second = [(await sequence.next_step()).call for _ in range(2)]
        await sequence.submit(first.id, await sequence.execute_tool(first))
        await sequence.submit(second.id, {"a", "b"} & {"a"})
        results = [await sequence.next_step() for _ in range(2)]
    assert [r.result.output for r in results] == [3, ["a"]]


async def test_in_a_fork_results_are_made_json():
    import datetime

    agent = Agent(ScriptedModel(lambda r: call("add", a=1, b=2) if len(r.messages) == 1 else "done"), [add], journal="memory")
    result = await agent.run("go")
    fork = await agent.fork(result.run_id, at=3, results={"c1_0": datetime.date(2026, 1, 2)})
    assert fork.steps[0].observation == "2026-01-02"
    assert assistant("x").text == "x"
    assert isinstance(fork.state.results["c1_0"], ToolResult)


def test_error_in_a_function_of_the_program_names_the_programs_own_line():
    class Parsing(Policy):
        async def model(self, request, next, scope):
            return json.loads("{bad")  # raises deep in the standard library

    line = next(
        at for at, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("the standard library")
    )
    with pytest.raises(UnexpectedError, match=rf"JSONDecodeError: .* \(at {re.escape(__file__)}:{line}\)"):
        Agent(ScriptedModel(["hi"]), policies=[Parsing()], journal="memory").run_sync("go")


def test_error_while_a_file_of_tools_is_loaded_names_the_files_own_line(tmp_path):
    (tmp_path / "shop_tools.py").write_text('import json\n\nRATES = json.loads("{bad")\n\ndef rate(): "Rate."\n')
    with pytest.raises(ConfigError, match=r"JSONDecodeError: .*shop_tools\.py:3\)"):
        all_tools(["shop_tools.py"], tmp_path)


async def test_error_in_a_tool_is_logged_with_the_line_of_the_tool_and_the_model_reads_no_path(caplog):
    def script(request):
        return call("rate", text="{bad") if len(request.messages) == 1 else "done"

    @tool
    def rate(text: str) -> str:
        """Rate."""
        return json.loads(text)  # the line of the tool

    line = next(
        at for at, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# the line of the tool")
    )
    agent = Agent(ScriptedModel(script), [rate], journal="memory")
    result = await agent.run("go")
    (logged,) = caplog.messages
    assert "the tool rate raised JSONDecodeError" in logged
    assert f"(at {__file__}:{line}, run {result.run_id})" in logged
    facts = [event async for event in agent.journal.read(result.run_id)]
    assert "JSONDecodeError" in result.steps[0].observation
    assert __file__ not in repr(facts)
    await agent.tools.execute("rate", {"text": "{bad"})
    assert f"(at {__file__}:{line})" in caplog.messages[-1]


async def test_error_of_kanames_own_in_a_tool_is_not_logged(caplog):
    @tool
    def read(context: ToolContext) -> str:
        """Read."""
        return context.file("none.png").mime

    result = await Agent(ScriptedModel([call("read"), "done"]), [read], journal="memory").run("go")
    assert "there is no file" in result.steps[0].observation
    assert not caplog.messages
