"""Design C: steps pulled one by one, termination, phases, typed output."""

import asyncio

import pytest
from pydantic import BaseModel

from kaname import (
    Agent,
    AgentConfiguration,
    AgentStepSequence,
    DuplicateDetectionPolicy,
    InvalidState,
    LLMError,
    MaxStepsExceeded,
    ModelReply,
    OutputDecodingFailed,
    ScriptedModel,
    StandardTerminationPolicy,
    ToolCall,
    ToolExecutionFailed,
    ToolNotFound,
    call,
    max_steps,
    no_repeats,
    per_tool,
    tool,
)
from kaname.core.events import Event, ModelReplied, Received, ToolFinished, ToolStarted
from kaname.core.messages import Message, Text, ToolResult, user
from kaname.core.state import State, evolve
from kaname.core.steps import CallModel
from kaname.strategies.react import React
from kaname.strategies.termination import (
    ContinueWithThinking,
    ContinueWithTools,
    TerminateImmediately,
    TerminateWithOutput,
)
from tests.parts import add, assert_valid_history, fail


class Report(BaseModel):
    n: int


def spelled(steps):
    return [(s.kind, getattr(s, "text", None) or getattr(getattr(s, "call", None), "args", None)) for s in steps]


@pytest.mark.requirement("C1", "C2")
async def test_the_steps_come_in_the_order_of_the_document():
    script = [["thinking aloud", call("add", a=1, b=2), call("add", a=3, b=4)], "that is all", '{"n": 10}']
    agent = Agent(ScriptedModel(script), [add], output=Report, journal="memory")
    sequence = agent.steps("go")
    assert isinstance(sequence, AgentStepSequence)
    steps = [step async for step in sequence]
    assert [s.kind for s in steps] == [
        *["tool_call", "tool_result", "tool_call", "tool_result"],
        *["thinking", "final_response"],
    ]
    assert steps[0].call.args == {"a": 1, "b": 2}
    assert steps[0].thought == "thinking aloud"
    assert (steps[1].result.output, steps[3].result.output) == (3, 7)
    assert steps[4].text == "that is all"
    assert steps[5].output == Report(n=10)
    assert await sequence.next_step() is None


@pytest.mark.requirement("C1")
async def test_nothing_runs_ahead_of_the_caller():
    asked, ran = [], []

    def script(request):
        asked.append(len(request.messages))
        return call("note", n=len(asked)) if len(asked) < 3 else "done"

    @tool
    def note(n: int) -> int:
        """Note."""
        ran.append(n)
        return n

    sequence = Agent(ScriptedModel(script), [note], journal="memory").steps("go")
    assert (asked, ran) == ([], [])
    assert (await sequence.next_step()).kind == "tool_call"
    await asyncio.sleep(0.05)
    assert (len(asked), ran) == (1, [1])
    assert (await sequence.next_step()).kind == "tool_result"
    await asyncio.sleep(0.05)
    assert (len(asked), ran) == (1, [1])
    assert (await sequence.next_step()).kind == "tool_call"
    assert (len(asked), ran) == (2, [1, 2])
    await sequence.aclose()
    assert sequence.result.stop.kind == "cancelled"


REASONS = ["tool_use", "end_turn", "max_tokens", "stop_sequence", None]


@pytest.mark.requirement("C3", "C4")
@pytest.mark.parametrize(
    ("calls", "text", "wanted"),
    [
        (True, True, ["tools", "tools", "text", "text", "tools"]),
        (True, False, ["tools", "tools", "incomplete", "completed", "tools"]),
        (False, True, ["incomplete", "text", "text", "text", "text"]),
        (False, False, ["incomplete", "completed", "incomplete", "completed", "completed"]),
    ],
)
def test_the_standard_table(calls, text, wanted):
    parts = (*((Text("said"),) if text else ()), *((ToolCall("c1", "add", {}),) if calls else ()))
    for reason, expected in zip(REASONS, wanted, strict=True):
        match StandardTerminationPolicy().decide(ModelReply(Message("assistant", parts), reason), State()):
            case ContinueWithTools(made):
                decided = "tools" if made == parts[-1:] else "?"
            case TerminateWithOutput(output):
                decided = "text" if output == "said" else "?"
            case TerminateImmediately(stop):
                decided = stop.kind
            case ContinueWithThinking():
                decided = "thinking"
        assert decided == expected, f"{reason}: {decided}, not {expected}"


@pytest.mark.requirement("C4")
async def test_an_end_turn_with_calls_is_a_tool_turn():
    gemini = ModelReply(Message("assistant", (call("add", a=1, b=2),)), "end_turn")
    result = await Agent(ScriptedModel([gemini, "3"]), [add], journal="memory").run("go")
    assert [step.observation for step in result.steps] == ["3", None]


@pytest.mark.requirement("C3")
async def test_a_policy_of_ones_own_can_have_the_model_think_on():
    class Twice:
        def decide(self, reply, state):
            return ContinueWithThinking("more, please") if len(state.replies) < 2 else TerminateWithOutput(reply.message.text)

    agent = Agent(ScriptedModel(["first", "second"]), strategy=React(termination=Twice()), journal="memory")
    steps = [step async for step in agent.steps("go")]
    assert spelled(steps) == [("thinking", "first"), ("final_response", "second")]


def repeating(*sent):
    return ScriptedModel([*[call("add", **args) if isinstance(args, dict) else args for args in sent]])


@pytest.mark.requirement("C5")
async def test_the_same_call_more_than_twice_ends_the_run():
    spellings = ['{"a": 1, "b": 2}', '{"b":2.0,"a":1}', {"b": 2, "a": 1}]
    model = ScriptedModel([ToolCall("", "add", args) for args in spellings])
    result = await Agent(model, [add], journal="memory").run("go")
    assert result.stop.kind == "duplicate"
    assert "add was called with the same arguments more than 2 times" in result.stop.detail
    assert [step.observation for step in result.steps[:2]] == ["3", "3"], "what was done is kept"
    assert_valid_history(result.history)


@pytest.mark.requirement("C5")
async def test_one_tool_more_than_five_times_ends_the_run():
    model = repeating(*[{"a": n, "b": 1} for n in range(8)])
    result = await Agent(model, [add], stops=per_tool(AgentConfiguration().max_tool_calls_per_tool), journal="memory").run("go")
    assert result.stop.kind == "tool_limit"
    assert len([s for s in result.steps if s.observation and s.observation.isdigit()]) == 5
    more = Agent(repeating(*[{"a": n, "b": 1} for n in range(8)], "done"), [add], journal="memory")
    assert (await more.run("go")).output == "done", "the limit is the sequence's; an agent reads as many files as it takes"


@pytest.mark.requirement("C5")
def test_the_policy_that_wraps_another():
    policy = DuplicateDetectionPolicy()
    assert (policy.max_duplicate_tool_calls, policy.max_tool_calls_per_tool) == (2, 5)
    state = State()
    evolve(state, Event("r", 1, 1.0, "a", Received(user("go"))))
    decisions = []
    for number in range(3):
        call = ToolCall(f"c{number}", "add", {"a": 1})
        reply = ModelReply(Message("assistant", (call,)), "tool_use")
        evolve(state, Event("r", 3 * number + 2, 1.0, "a", ModelReplied(reply, CallModel())))
        decisions.append(type(policy.decide(reply, state)).__name__)
        evolve(state, Event("r", 3 * number + 3, 1.0, "a", ToolStarted(call)))
        evolve(state, Event("r", 3 * number + 4, 1.0, "a", ToolFinished(ToolResult(1, call_id=call.id, name="add"))))
    assert decisions == ["ContinueWithTools", "ContinueWithTools", "TerminateImmediately"]
    assert isinstance(policy.decide(ModelReply(Message("assistant", (Text("hi"),)), "end_turn"), state), TerminateWithOutput)


@pytest.mark.requirement("C6")
async def test_schema_and_tools_are_never_sent_together():
    requests = []

    def script(request):
        requests.append((bool(request.tools), request.schema is not None))
        return [call("add", a=1, b=2), "text", "not json", '{"n": 3}'][len(requests) - 1]

    result = await Agent(ScriptedModel(script), [add], output=Report, journal="memory").run("go")
    assert result.output == Report(n=3)
    assert requests == [(True, False), (True, False), (False, True), (False, True)]
    requests.clear()
    await Agent(ScriptedModel(lambda r: requests.append((bool(r.tools), bool(r.schema))) or '{"n": 1}'), output=Report).run("x")
    assert requests == [(False, True)]


@pytest.mark.requirement("C7")
async def test_a_wrong_answer_is_asked_for_again_with_the_error():
    notes = []

    def script(request):
        notes.append(request.messages[-1].text)
        return ['{"n": "many"}', "```json\n{'n': 3,}\n```"][len(notes) - 1]

    result = await Agent(ScriptedModel(script), output=Report, journal="memory").run("go")
    assert result.output == Report(n=3)
    assert "n: Input should be a valid integer" in notes[1]


@pytest.mark.requirement("C7", "C8")
async def test_after_two_more_tries_it_gives_up():
    asked = []
    agent = Agent(ScriptedModel(lambda r: asked.append(1) or "never json"), output=Report, journal="memory")
    result = await agent.run("go")
    assert (result.stop.kind, result.output, result.text, len(asked)) == ("undecodable", None, "never json", 3)
    with pytest.raises(OutputDecodingFailed, match="after 3 tries"):
        result.raise_for_stop()
    with pytest.raises(OutputDecodingFailed):
        async for step in agent.steps("go"):
            assert step.kind == "thinking"


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(int, '{"result": 5}', 5), (list[int], "[1, 2]", [1, 2]), (dict[str, int], '{"a": 1}', {"a": 1}), (str, "hello", "hello")],
)
async def test_any_type_that_pydantic_can_validate(kind, text, value):
    result = await Agent(ScriptedModel([text]), output=kind, journal="memory").run("go")
    assert result.output == value


@pytest.mark.requirement("C8")
async def test_max_steps_is_raised_by_the_sequence_and_returned_by_run():
    agent = Agent(repeating(*[{"a": n, "b": n} for n in range(9)]), [add], stops=max_steps(3), journal="memory")
    sequence, seen = agent.steps("go"), []
    with pytest.raises(MaxStepsExceeded, match="limit of 3 steps") as raised:
        async for step in sequence:
            seen.append(step.kind)
    assert seen == ["tool_call", "tool_result"] * 3
    assert raised.value.run_id == sequence.run_id
    result = await agent.run("go")
    assert result.stop.kind == "max_steps"
    assert [step.observation for step in result.steps][:3] == ["0", "2", "4"]


@pytest.mark.requirement("C8")
async def test_a_models_failure_is_an_llm_error():
    sequence = Agent(ScriptedModel([LLMError("overloaded")]), journal="memory").steps("go")
    with pytest.raises(LLMError, match="overloaded"):
        await sequence.next_step()
    assert await sequence.next_step() is None


@pytest.mark.requirement("C8", "C9")
async def test_the_caller_runs_the_tools():
    model = ScriptedModel([[call("add", a=1, b=2), call("fail", why="x"), call("unknown")], "done"])
    agent = Agent(model, [add, fail], journal="memory")
    async with agent.steps("go", configuration=AgentConfiguration(auto_execute_tools=False)) as sequence:
        steps = [await sequence.next_step() for _ in range(3)]
        assert [s.kind for s in steps] == ["tool_call"] * 3
        with pytest.raises(InvalidState, match="is waiting for"):
            await sequence.next_step()
        first, second, third = [s.call for s in steps]
        await sequence.submit(first.id, (await sequence.execute_tool(first)).output)
        with pytest.raises(ToolExecutionFailed, match="fail: ValueError: x"):
            await sequence.execute_tool(second)
        await sequence.submit(second.id, error="it failed")
        with pytest.raises(ToolNotFound, match="unknown"):
            await sequence.execute_tool(third)
        await sequence.submit(third.id, {"by": "hand"})
        with pytest.raises(InvalidState, match="has already been answered"):
            await sequence.submit(third.id, 1)
        rest = [await sequence.next_step() for _ in range(4)]
        assert [s.kind for s in rest] == ["tool_result", "tool_result", "tool_result", "final_response"]
        assert [s.result.output for s in rest[:3]] == [3, None, {"by": "hand"}]
        assert rest[1].result.error == "it failed"


@pytest.mark.requirement("C9")
async def test_the_configurations_defaults_and_limits():
    assert AgentConfiguration() == AgentConfiguration(10, True, 2, 5)
    agent = Agent(repeating(*[{"a": 1, "b": 1}] * 9), [add], stops=no_repeats(5) | max_steps(50), journal="memory")
    sequence = agent.steps("go", configuration=AgentConfiguration(max_duplicate_tool_calls=1))
    assert [s.kind async for s in sequence] == ["tool_call", "tool_result"]
    assert sequence.result.stop.kind == "duplicate"


@pytest.mark.requirement("C10")
async def test_two_runs_of_one_agent_never_mix():
    @tool
    async def echo(text: str) -> str:
        """Echo."""
        await asyncio.sleep(0.001 * (len(text) % 5))
        return text

    def script(request):
        task = request.messages[0].text
        return task if len(request.messages) > 4 else call("echo", text=f"{task} {len(request.messages)}")

    agent = Agent(ScriptedModel(script, pace=0.0001), [echo], journal="memory")
    results = await asyncio.gather(*[agent.run(f"task {n}") for n in range(100)])
    for number, result in enumerate(results):
        assert result.output == f"task {number}"
        assert [s.observation for s in result.steps] == [f"task {number} 1", f"task {number} 3", None]


@pytest.mark.requirement("C10")
async def test_pulling_from_two_tasks_at_once_gives_every_step_once():
    sequence = Agent(repeating({"a": 1, "b": 2}, {"a": 3, "b": 4}, "done"), [add], journal="memory").steps("go")
    steps = await asyncio.gather(*[sequence.next_step() for _ in range(6)])
    assert [s and s.kind for s in steps] == [*["tool_call", "tool_result"] * 2, "final_response", None]


@pytest.mark.requirement("C10")
async def test_runs_of_one_session_take_turns():
    model = ScriptedModel(lambda r: f"{len(r.messages)}: {r.messages[-1].text}", pace=0.001)
    agent = Agent(model, journal="memory")
    results = await asyncio.gather(*[agent.run(f"m{n}", session_id="s") for n in range(5)])
    assert [r.output for r in results] == [f"{1 + 2 * n}: m{n}" for n in range(5)]
    assert len((await agent.run("other", session_id="t")).history) == 2
