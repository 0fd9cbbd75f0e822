"""A run as its caller sees it: await and iterate, readers and sinks, cancelling, leaving."""

import asyncio
import logging
import tracemalloc
import warnings

import pytest

from kaname import (
    Agent,
    ConfigError,
    Guardrails,
    Halt,
    InvalidState,
    JournalError,
    ModelReply,
    Policy,
    ScriptedModel,
    Stop,
    Suspend,
    Usage,
    call,
    cost,
    max_steps,
    tool,
)
from kaname.core.errors import RunStopped, UnexpectedError
from kaname.core.events import Delta, Warned
from kaname.core.messages import assistant
from tests.parts import add, adding, assert_valid_history, chunks, facts, kinds, until


async def test_nothing_happens_before_a_run_is_awaited():
    agent = Agent(adding(), [add], journal="memory")
    run = agent.run("go")
    assert run.run_id
    await asyncio.sleep(0.01)
    assert await agent.journal.runs() == []
    result = await run
    assert result.run_id == run.run_id
    assert await run is result, "a second await gives the same result"


async def test_started_it_goes_on_by_itself():
    agent = Agent(adding(), [add], journal="memory")
    run = agent.run("go").start()

    async def ended():
        return [card.status for card in await agent.journal.runs()] == ["completed"]

    await until(ended)
    assert (await run).output == "the sum is 7"


async def test_leaving_the_loop_early_and_awaiting_the_rest():
    agent = Agent(ScriptedModel(["word " * 2000]), journal="memory")
    run = agent.run("go")
    async for chunk in run:
        if chunk.type == "delta":
            break
    result = await run
    assert result.completed
    assert result.text == "word " * 2000


async def test_a_run_that_nobody_holds_any_more_is_cancelled():
    agent = Agent(ScriptedModel(["word " * 2000], pace=0.001), journal="memory")
    async for _ in agent.run("go"):
        break

    async def gone():
        return (await agent.journal.runs())[0].status == "cancelled" and len(asyncio.all_tasks()) == 1

    await until(gone, freeing=True)


async def test_a_run_as_a_context_manager_is_over_at_its_end():
    agent = Agent(ScriptedModel(["word " * 2000], pace=0.001), journal="memory")
    async with agent.run("go") as run:
        await anext(run)
    assert (await agent.journal.runs())[0].status == "cancelled"
    assert len(asyncio.all_tasks()) == 1


async def test_a_slow_reader_does_not_fill_memory():
    class Endless:
        name = "endless"

        async def reply(self, request, emit):
            for _ in range(100_000):
                await emit("x" * 1000)
            return ModelReply(assistant("done"), "end_turn")

    run = Agent(Endless(), journal="memory").run("go")
    await anext(run)
    await asyncio.sleep(0)
    tracemalloc.start()
    for _ in range(200):
        await asyncio.sleep(0.001)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 2_000_000, "the model ran ahead of its reader"
    result = await run
    assert result.output == "done"


async def test_a_failing_sink_never_breaks_a_run(caplog):
    heard, others = [], []

    def broken(event):
        heard.append(event)
        if len(heard) == 3:
            raise RuntimeError("printer on fire")

    async def fine(event):
        await asyncio.sleep(0)
        others.append(event)

    agent = Agent(adding(), [add], sinks=[broken, fine], journal="memory")
    result = await agent.run("go")
    assert result.output == "the sum is 7"
    assert len(heard) == 3
    warned = [e.body for e in await facts(agent, result.run_id) if isinstance(e.body, Warned)]
    assert len(warned) == 1
    assert "raised RuntimeError: printer on fire; it is disabled for this run" in warned[0].text
    assert [e for e in others if not isinstance(e.body, Delta)] == await facts(agent, result.run_id)
    assert "".join(e.body.text for e in others if isinstance(e.body, Delta)) == "the sum is 7"

    def at_the_end(event):
        if type(event.body).__name__ == "Stopped":
            raise RuntimeError("too late")

    with caplog.at_level(logging.WARNING, "kaname"):
        assert (await Agent(adding(), [add], sinks=[at_the_end], journal="memory").run("go")).completed
    assert "too late" in caplog.text


async def test_parallel_calls_run_in_parallel_and_answer_in_order():
    gate, running = asyncio.Event(), []

    @tool
    async def meet(n: int) -> int:
        """Meet."""
        running.append(n)
        if len(running) == 5:
            gate.set()
        await gate.wait()
        await asyncio.sleep(0.01 * (5 - n))
        return n

    model = ScriptedModel([[call("meet", n=n) for n in range(5)], "done"])
    async with asyncio.timeout(60):
        result = await Agent(model, [meet], journal="memory").run("go")
    assert [s.observation for s in result.steps[:5]] == list("01234")
    assert_valid_history(result.history)


async def test_policies_wrap_both_joints_the_first_outermost():
    order = []

    class Mark(Policy):
        def __init__(self, name):
            self.name = name

        async def model(self, request, next, scope):
            order.append(f"{self.name} model")
            return await next(request)

        async def tool(self, call, next, scope):
            order.append(f"{self.name} tool")
            result = await next(call)
            order.append(f"{self.name} back")
            return result

    await Agent(adding(), [add], policies=[Mark("a"), Mark("b")], journal="memory").run("go")
    assert order == [*["a model", "b model"], *["a tool", "b tool", "b back", "a back"], *["a model", "b model"]]


async def test_a_policy_can_end_ask_or_fail():
    class Moody(Policy):
        async def model(self, request, next, scope):
            match request.messages[0].text:
                case "halt":
                    raise Halt(Stop("blocked", "not today"))
                case "ask" if "mood" not in scope.state.answers:
                    raise Suspend("mood", "How are you?")
                case "bug":
                    raise ZeroDivisionError("oops")
            return await next(request)

    agent = Agent(ScriptedModel(["fine"]), policies=[Moody()], journal="memory")
    result = await agent.run("halt")
    assert (result.stop.kind, result.stop.detail) == ("blocked", "not today")
    with pytest.raises(RunStopped, match="blocked: not today"):
        result.raise_for_stop()
    result = await agent.run("ask")
    assert list(result.questions) == ["mood"]
    assert (await agent.resume(result.run_id, {"mood": "well"})).output == "fine"
    with pytest.raises(UnexpectedError, match=r"ZeroDivisionError: oops \(at .*test_runs.py:\d+\)") as raised:
        await agent.run("bug")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert (await agent.journal.runs(run_id=raised.value.run_id))[0].status == "failed"


async def test_cost_is_limited_and_an_unknown_price_cannot_be():
    dear = Usage(100, 100, 0, 0.4)
    model = ScriptedModel(lambda r: call("add", a=len(r.messages), b=1), usage=dear)
    result = await Agent(model, [add], stops=cost("$1"), journal="memory").run("go")
    assert result.stop.kind == "budget"
    assert "limit of $1 was reached ($1.2000 spent)" in result.stop.detail
    assert result.usage.cost == pytest.approx(1.2)
    unknown = ScriptedModel(lambda r: call("add", a=1, b=1), usage=Usage(1, 1, 0, None))
    result = await Agent(unknown, [add], stops=cost("$1"), journal="memory").run("go")
    assert "a model or a tool has cost is not known" in result.stop.detail
    assert result.usage.cost is None


async def test_rules_of_ones_own_join_with_the_others():
    def no_sevens(state, step):
        return Stop("blocked", "seven") if "7" in str(state.results.values()) else None

    for stops in (
        no_sevens,
        [no_sevens],
        max_steps(5) | no_sevens,
        no_sevens | max_steps(5),
        (max_steps(5) | no_sevens) | cost(9),
    ):
        result = await Agent(adding(), [add], stops=stops, journal="memory").run("go")
        assert (result.stop.kind, result.stop.detail) == ("blocked", "seven")
    with pytest.raises(ConfigError, match="at least 1"):
        max_steps(0)


def test_the_synchronous_world(tmp_path):
    agent = Agent(adding(), [add], journal=tmp_path / "j.db")
    assert agent.run_sync("go").output == "the sum is 7"
    assert agent.run_sync("go", session_id="s").session == "s"


async def test_run_sync_says_what_to_write_inside_a_loop():
    with pytest.raises(ConfigError, match="await agent.run"):
        Agent(adding(), [add], journal="memory").run_sync("go")


async def test_a_run_id_is_used_once():
    agent = Agent(adding(), [add], journal="memory")
    await agent.run("go", run_id="mine")
    with pytest.raises(JournalError, match="run 'mine' already exists"):
        await agent.run("go", run_id="mine")
    assert (await agent.resume("mine")).output == "the sum is 7"


async def test_the_facts_of_a_run():
    agent = Agent(adding(), [add], journal="memory")
    result = await agent.run("go")
    assert await kinds(agent, result.run_id) == [
        *["Opened", "Received", "ModelReplied", "ToolStarted", "ToolFinished", "ModelReplied", "Stopped"]
    ]
    (card,) = await agent.journal.runs()
    assert (card.title, card.status, card.agent, card.input) == ("go", "completed", "agent", 20)


async def test_in_a_conversation_runs_at_the_same_time_do_not_see_each_other():
    async with Agent(ScriptedModel(lambda r: f"{len(r.messages)}", pace=0.001), journal="memory") as agent:
        assert [r.output for r in await asyncio.gather(*[agent.run(f"at once {n}") for n in range(5)])] == ["1"] * 5
    async with agent:
        await agent.run("first")
        results = await asyncio.gather(*[agent.run(f"at once {n}") for n in range(5)])
        assert [r.output for r in results] == ["3"] * 5
        assert (await agent.run("after")).output == "5"


async def test_chunks_say_what_they_hold():
    (first, *_) = await chunks(Agent(adding(), [add], journal="memory").run("go"))
    assert first["status"] == "started"
    with pytest.raises(KeyError, match="this 'status' chunk has time, agent, type, data, seq, status"):
        first["nonsense"]
    assert first.get("nonsense") is None
    assert "Chunk({'time'" in repr(first)


async def test_an_abort_while_it_waits_for_its_turn_in_the_session():
    agent = Agent(ScriptedModel(["word " * 500], pace=0.01), journal="memory")
    first = agent.run("one", session_id="s").start()
    await until(agent.journal.runs)
    second = agent.run("two", session_id="s").start()
    await asyncio.sleep(0.01)  # also if it has not come to its waiting yet
    second.abort("never mind")
    result = await second
    assert (result.stop.kind, result.stop.detail, result.text) == ("cancelled", "never mind", "")
    first.abort()
    assert (await first).stop.kind == "cancelled"
    assert len(await agent.journal.runs()) == 1


async def test_two_readers_of_one_run_are_told():
    run = Agent(ScriptedModel(["word " * 50], pace=0.01), journal="memory").run("go")
    first = asyncio.create_task(chunks(run))
    await until(run.journal.runs)
    with pytest.raises(InvalidState, match="only one task can read a stream"):
        await chunks(run)
    assert (await first)[-1]["kind"] == "completed"


def test_a_forked_process_has_threads_and_a_journal_of_its_own(tmp_path):
    """As in a server that loads the program and then forks its workers. A file that is open then is refused: SQLite would
    write where nobody reads."""
    import os

    def block() -> str:
        """Block."""
        return f"{os.getpid()}"

    def agent(name) -> Agent:
        return Agent(ScriptedModel([call("block"), "ok"]), [block], journal=tmp_path / name)

    def in_child(work) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking with threads: the point here
            child = os.fork()
        if child == 0:
            try:
                os._exit(work())
            finally:
                os._exit(9)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def runs(made) -> int:
        return 0 if made.run_sync("go").steps[0].observation == str(os.getpid()) else 1

    def refused(made) -> int:
        try:
            made.run_sync("go")
        except JournalError as problem:
            return 0 if "was in use when this process was forked" in str(problem) else 2
        return 1

    used, unused = agent("used.db"), agent("unused.db")
    assert runs(used) == 0
    assert in_child(lambda: runs(unused)) == 0
    assert in_child(lambda: refused(used)) == 0
    assert in_child(lambda: refused(agent("used.db"))) == 0
    assert runs(used) == 0
    asyncio.run(used.journal.close())
    assert in_child(lambda: runs(agent("used.db"))) == 0


@pytest.mark.parametrize("where", ["Received", "ToolFinished", "Stopped"])
async def test_a_run_may_be_aborted_from_inside(where):
    def sink(event):
        if type(event.body).__name__ == where:
            run.abort("from inside")

    run = Agent(adding(), [add], sinks=[sink], journal="memory").run("go")
    result = await run
    assert result.stop.kind == ("completed" if where == "Stopped" else "cancelled")


async def test_a_run_may_be_aborted_from_another_thread():
    run = Agent(ScriptedModel(["word " * 20_000], pace=0.01), journal="memory").run("go").start()
    await asyncio.to_thread(run.abort)
    async with asyncio.timeout(60):
        assert (await run).stop.kind == "cancelled"


async def test_run_takes_what_was_said_before_it_elsewhere():
    asked = []
    model = ScriptedModel(lambda request: asked.append(request.messages) or "four")
    agent = Agent(model, [add], journal="memory")
    before = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "1 + 2?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "3"},
        {"role": "assistant", "content": "three"},
    ]
    result = await agent.run([*before, {"role": "user", "content": "plus one?"}])
    assert [message.role for message in asked[0]] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert result.output == "four"
    assert result.steps[0].thought == "four", "the turn begins with the last message"
    (card,) = await agent.journal.runs()
    assert card.title == "1 + 2?"


async def test_guardrails_look_at_what_was_said_before_too():
    asked = []
    model = ScriptedModel(lambda request: asked.append(request.messages) or "ok")
    agent = Agent(model, journal="memory", policies=[Guardrails(blocked_patterns=["secret-[0-9]+"])])
    said = [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "secret-1",
            "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "secret-2"},
    ]
    await agent.run([*said, {"role": "user", "content": "and now?"}])
    assert "secret-1" not in repr(asked[0])
    assert "secret-2" not in repr(asked[0])
    assert asked[0][1].calls


async def test_scripted_model_reads_what_a_tool_returned_from_the_results_of_the_message():
    def model(request):
        last = request.messages[-1]
        return f"{last.results[0].name}: {last.results[0].output}" if last.role == "tool" else call("add", a=3, b=4)

    assert (await Agent(ScriptedModel(model), [add], journal="memory").run("What is 3 + 4?")).output == "add: 7"


async def test_title_has_no_control_characters_and_the_list_of_runs_can_be_read(tmp_path):
    agent = Agent(ScriptedModel(["done"]), journal=tmp_path / "journal.db")
    run = await agent.run("\x02 hello\x00\x1b[2J there")
    assert [card.title for card in await agent.journal.runs()] == ["hello[2J there"]
    assert (await agent.result(run.run_id)).output == "done"
    await agent.close()
