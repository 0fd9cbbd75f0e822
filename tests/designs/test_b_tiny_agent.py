"""Design B: the conversation, the turn, the chunks, the abort."""

import asyncio
import threading

import pytest

from kaname import Agent, AgentConnectionError, AgentError, ModelError, ModelReply, ScriptedModel, call, tool
from kaname.core.errors import UnexpectedError
from kaname.core.messages import Message, Text
from tests.parts import add, adding, assert_valid_history, chunks, fail


@pytest.mark.requirement("B3")
async def test_the_conversation_carries_over_to_the_next_run():
    model = ScriptedModel(lambda request: f"I have read {len(request.messages)} messages")
    async with Agent(model, journal="memory") as agent:
        assert (await agent.run("one")).text == "I have read 1 messages"
        async for _ in agent.run("two"):
            pass
        assert [m["content"] for m in agent.messages] == [
            "one",
            "I have read 1 messages",
            "two",
            "I have read 3 messages",
        ]
        assert [m["role"] for m in agent.messages] == ["user", "assistant", "user", "assistant"]
    assert (await agent.run("three")).text == "I have read 1 messages", "a closed agent holds no conversation"


@pytest.mark.requirement("B3", "B6")
async def test_it_loops_until_the_problem_is_solved_and_not_until_a_word_is_said():
    model = ScriptedModel([["I am done! 完了 finished", call("add", a=1, b=2)], call("add", a=2, b=3), "5"])
    result = await Agent(model, [add], journal="memory").run("go")
    assert result.output == "5"
    assert [step.observation for step in result.steps] == ["3", "5", None]


@pytest.mark.requirement("B4")
async def test_one_turn_streams_text_tool_input_and_results():
    model = ScriptedModel([["let me see", call("add", a=3, b=4)], "the sum is 7"])
    seen = await chunks(Agent(model, [add], journal="memory").run("go"))
    shown = [(c["type"], c.get("content") or c.get("arguments")) for c in seen if c["type"] not in ("status", "usage")]
    assert shown[:4] == [("delta", "let me s"), ("delta", "ee"), ("message", "let me see"), ("tool_call", {"a": 3, "b": 4})]
    assert ("tool_response", 7) in shown
    assert "".join(c["content"] for c in seen if c["type"] == "delta") == "let me seethe sum is 7"
    tool_input = next(c for c in seen if c["type"] == "tool_call")
    assert tool_input["tool_name"] == "add"
    assert next(c for c in seen if c["type"] == "tool_response")["result"] == 7


@pytest.mark.requirement("B7")
async def test_a_failing_tool_is_reported_to_the_model_and_the_caller_and_the_run_goes_on():
    sent = []

    def script(request):
        sent.append(request)
        return call("fail", why="no paper") if len(sent) == 1 else "sorry"

    seen = await chunks(Agent(ScriptedModel(script), [fail], journal="memory").run("go"))
    (response,) = [c for c in seen if c["type"] == "tool_response"]
    assert response["is_error"] is True
    assert response["content"] == "ValueError: no paper"
    assert sent[1].messages[-1].parts[0].error == "ValueError: no paper"
    assert seen[-1]["kind"] == "completed"


class Boom(ScriptedModel):
    def __init__(self):
        super().__init__([])

    async def reply(self, request, emit):
        return {}["nothing"]


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("model", "error", "text"),
    [
        (ScriptedModel([ModelError("the provider is down")]), ModelError, "the provider is down"),
        (ScriptedModel([AgentConnectionError("no MCP server")]), AgentConnectionError, "no MCP server"),
        (Boom(), UnexpectedError, "KeyError: 'nothing'"),
        (None, AgentError, "has no model"),
    ],
)
async def test_each_kind_of_failure_has_its_chunk_and_its_exception(model, error, text):
    agent = Agent(model, journal="memory")
    seen = []
    with pytest.raises(error) as raised:
        async for chunk in agent.run("go"):
            seen.append(chunk)
    assert text in str(raised.value)
    assert isinstance(raised.value, AgentError)
    assert raised.value.run_id
    assert seen[-1]["type"] == "error"
    assert text in seen[-1]["message"] or text == seen[-1]["data"]["said"], "a provider's words stand apart"
    assert seen[-1]["data"]["type"] == type(raised.value).__name__
    with pytest.raises(error):
        await agent.run("go")


async def _aborted(run_chunks, event, when):
    """Set the event when the condition holds; the stream must end by it, long before the tool or the model would.

    How long it takes is measured in benchmarks/kernel.py; here a minute of work must not be waited for."""
    seen = []
    async with asyncio.timeout(40):
        async for chunk in run_chunks:
            seen.append(chunk)
            if not event.is_set() and when(chunk):
                event.set()
    assert event.is_set()
    assert seen[-1]["status"] == "stopped"
    assert seen[-1]["kind"] == "cancelled"
    return seen


@pytest.mark.requirement("B9")
@pytest.mark.parametrize("make_event", [asyncio.Event, threading.Event])
async def test_abort_inside_a_stream(make_event):
    event = make_event()
    async with Agent(
        ScriptedModel(lambda r: "x" * 8 * (20_000 if len(r.messages) == 1 else 1), pace=0.005), journal="memory"
    ) as agent:
        await _aborted(agent.run("go", abort_event=event), event, lambda c: c["type"] == "delta")
        assert [m["role"] for m in agent.messages] == ["user"]
        result = await agent.run("again")
        assert result.completed
        assert [m["role"] for m in agent.messages] == ["user", "user", "assistant"]


@pytest.mark.requirement("B9")
@pytest.mark.parametrize("blocking", [False, True])
async def test_abort_inside_a_tool_leaves_a_history_to_go_on_from(blocking):
    event, release = asyncio.Event(), threading.Event()

    @tool
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "late"

    @tool(name="nap")
    def block() -> str:
        """Block."""
        release.wait(60)
        return "late"

    script = ScriptedModel(lambda r: [call("nap"), call("add", a=1, b=1)] if len(r.messages) == 1 else "hello again")
    async with Agent(script, [block if blocking else nap, add], journal="memory") as agent:
        run = agent.run("go", abort_event=event)
        await _aborted(run, event, lambda c: c.get("status") == "tool_started" and c["name"] == "nap")
        result = await agent.run("still there?")
        assert result.output == "hello again"
        assert_valid_history(result.history)
        napped = next(m for m in agent.messages if m["role"] == "tool" and m["name"] == "nap")
        assert "may or may not have taken effect" in napped["content"]
    release.set()


@pytest.mark.requirement("B9")
async def test_abort_while_nobody_reads():
    """A reader that stopped reading does not hold the run up; the abort gets through all the same."""
    agent = Agent(ScriptedModel(["word " * 100_000]), journal="memory")
    run = agent.run("go")
    await anext(run)
    await asyncio.sleep(0.02)
    run.abort("enough")
    async with asyncio.timeout(60):
        result = await run
    assert (result.stop.kind, result.stop.detail) == ("cancelled", "enough")


@pytest.mark.requirement("B9")
async def test_an_abort_before_the_start():
    event = asyncio.Event()
    event.set()
    result = await Agent(ScriptedModel(["a" * 8000], pace=0.01), journal="memory").run("go", abort_event=event)
    assert result.stop.kind == "cancelled"


@pytest.mark.requirement("B4")
async def test_the_text_so_far_is_the_result_of_an_aborted_run():
    event = asyncio.Event()

    @tool
    async def nap() -> str:
        """Sleep."""
        event.set()
        await asyncio.sleep(60)
        return ""

    reply = ModelReply(Message("assistant", (Text("half an answer"), call("nap"))), "tool_use")
    result = await Agent(ScriptedModel([reply]), [nap], journal="memory").run("go", abort_event=event)
    assert result.stop.kind == "cancelled"
    assert result.output == result.text == "half an answer"
    assert_valid_history(result.history)


def test_adding_is_what_it_says():
    assert Agent(adding(), [add], journal="memory").run_sync("go").output == "the sum is 7"
