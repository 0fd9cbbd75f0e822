"""Design C: what becomes of a termination policy's decision, and of replies that no policy foresees."""

import subprocess
import sys

import pytest
from pydantic import BaseModel

from kaname import Agent, Approve, ConfigError, Guardrails, ScriptedModel, ToolRule, UnexpectedError, call, tool
from kaname.core.errors import InvalidState
from kaname.core.events import Event, ModelReplied, Opened, Received, ToolStarted
from kaname.core.messages import Message, ModelReply, Text, assistant, user
from kaname.core.state import State, evolve
from kaname.core.steps import CallModel, CallTools, Stop
from kaname.designs import (
    AgentConfiguration,
    AgentError,
    AgentLoopContext,
    AgentLoopRunner,
    AgentStepSequence,
    ContinueWithThinking,
    ContinueWithTools,
    DuplicateDetectionPolicy,
    LLMResponse,
    LoopPhase,
    MaxStepsExceeded,
    OutputDecodingFailed,
    StandardTerminationPolicy,
    StopReason,
    TerminateImmediately,
    TerminateWithOutput,
    ToolCallInfo,
)
from kaname.strategies.react import React
from tests.parts import assert_valid_history, until


class Out(BaseModel):
    answer: str


@tool(effect="pure")
def page(number: int) -> str:
    """A page."""
    return f"page {number}"


def said(text, *calls, stop_reason="end_turn"):
    return ModelReply(Message("assistant", ((Text(text),) if text else ()) + calls), stop_reason)


def deciding(decide):
    """A policy of one function."""
    return type("Own", (), {"decide": lambda self, reply, state: decide(reply, state)})()


def sequence_of(replies, tools=(), policy=None, output=None, configuration=None):
    model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(replies)
    return AgentStepSequence(model, "go", tools, configuration, output=output, termination_policy=policy, journal="memory")


async def kinds(sequence):
    return [step.kind async for step in sequence]


# A policy is asked once for each reply


class Twice(StandardTerminationPolicy):
    """Think twice, then decide as usual."""

    asked = 0

    def decide(self, reply, state):
        self.asked += 1
        return ContinueWithThinking() if self.asked <= 2 else super().decide(reply, state)


@pytest.mark.requirement("C2", "C3")
@pytest.mark.parametrize("reads_phase", [False, True])
async def test_c2_a_policy_is_asked_once_for_each_reply(reads_phase):
    policy = Twice()
    sequence, seen = sequence_of(["t1", "t2", "t3"], policy=policy), []
    async for step in sequence:
        seen.append((step.kind, step.text))
        if reads_phase:
            assert sequence.phase
    assert seen == [("thinking", "t1"), ("thinking", "t2"), ("final_response", "t3")]
    assert policy.asked == 3


@pytest.mark.requirement("C2", "C9")
async def test_c2_results_that_are_handed_in_do_not_ask_the_policy_again():
    asked = []

    def decide(reply, state):
        asked.append(reply)
        return StandardTerminationPolicy().decide(reply, state)

    by_hand = AgentConfiguration(auto_execute_tools=False)
    sequence = sequence_of([[call("page", number=1), call("page", number=2)], "done"], [page], deciding(decide), None, by_hand)
    async for step in sequence:
        if step.kind == "tool_call" and step.call.args["number"] == 2:
            await sequence.submit("c1_0", "one")
            await sequence.submit("c1_1", "two")
    assert len(asked) == 2


@pytest.mark.requirement("C9")
async def test_c9_policies_judge_the_calls_that_the_caller_runs():
    """A forbidden tool is refused before the caller is asked for its result, and an approval comes first."""
    by_hand = AgentConfiguration(auto_execute_tools=False)
    rules = Guardrails(tools=[ToolRule("page", allowed=False)])
    agent = Agent(ScriptedModel([call("page", number=1), "done"]), [page], policies=[rules], journal="memory")
    steps = [step async for step in agent.steps("go", configuration=by_hand)]
    assert "is not allowed" in steps[1].result.error
    agent = Agent(ScriptedModel([call("page", number=1), "done"]), [page], policies=[Approve("page")], journal="memory")
    sequence = agent.steps("go", configuration=by_hand)
    with pytest.raises(InvalidState, match="approve:c1_0"):
        await anext(sequence)
    with pytest.raises(InvalidState):
        await sequence.submit("c1_0", "sneaked in")
    await sequence.answer("approve:c1_0", "yes")
    assert (await anext(sequence)).kind == "tool_call"
    with pytest.raises(InvalidState, match="c1_0"):
        await anext(sequence)
    await sequence.submit("c1_0", "by hand")
    assert [step.kind async for step in sequence] == ["tool_result", "final_response"]


# The calls of a decision


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("in_a_run", [False, True])
async def test_c3_a_call_that_the_policy_leaves_out_is_not_run(in_a_run):
    def first_only(reply, state):
        decision = StandardTerminationPolicy().decide(reply, state)
        return ContinueWithTools(decision.calls[:1]) if isinstance(decision, ContinueWithTools) else decision

    replies = ScriptedModel([[call("page", number=1), call("page", number=2)], "done"])
    if in_a_run:
        agent = Agent(replies, [page], strategy=React(termination=deciding(first_only)), journal="memory")
        result = await agent.run("go")
    else:
        sequence = sequence_of(replies, [page], deciding(first_only))
        assert await kinds(sequence) == ["tool_call", "tool_result", "final_response"]
        result = sequence.result
    assert [step.observation for step in result.steps][:2] == ["page 1", "Error: not run: this call was left out"]
    assert_valid_history(result.history)


MINE = ToolCallInfo("mine", "page", {"number": 9})


@pytest.mark.requirement("C3")
@pytest.mark.parametrize(("reply", "calls"), [("hello", ()), ("hello", (MINE,)), (call("page", number=1), (MINE,))])
async def test_c3_calls_that_the_reply_does_not_have_are_refused(reply, calls):
    sequence = sequence_of([reply], [page], deciding(lambda reply, state: ContinueWithTools(calls)))
    with pytest.raises(UnexpectedError, match=r"Own\.decide continues with calls that the reply does not have"):
        await sequence.next_step()
    assert (sequence.result.stop.kind, await sequence.next_step()) == ("failed", None)


@pytest.mark.requirement("C1", "C3")
@pytest.mark.parametrize("decision", [ContinueWithThinking("look closer"), TerminateWithOutput("enough")])
async def test_c1_a_reply_with_text_and_calls_is_a_thought_if_its_calls_are_not_run(decision):
    def decide(reply, state):
        return decision if reply.message.calls else StandardTerminationPolicy().decide(reply, state)

    replies = [said("let me see", call("page", number=1)), '{"answer": "x"}', '{"answer": "x"}']
    sequence = sequence_of(replies, [page], deciding(decide), Out)
    steps = [step async for step in sequence]
    assert (steps[0].kind, steps[0].text, steps[-1].output) == ("thinking", "let me see", Out(answer="x"))
    assert not [step for step in steps if step.kind == "tool_call"]
    assert_valid_history(sequence.result.history)


# The final phase


@pytest.mark.requirement("C6")
async def test_c6_a_call_in_the_final_phase_is_not_run_and_counts_as_a_try():
    requests, phases = [], []

    def script(request):
        requests.append((bool(request.tools), request.schema is not None))
        return ["done", call("page", number=1), '{"answer": "3"}'][len(requests) - 1]

    sequence = sequence_of(ScriptedModel(script), [page], output=Out)
    async for step in sequence:
        phases.append((step.kind, sequence.phase))
    final = LoopPhase.final_output
    assert phases == [("thinking", final(0)), ("thinking", final(1)), ("final_response", LoopPhase.completed())]
    assert requests == [(True, False), (False, True), (False, True)]
    assert sequence.result.steps[1].observation == "Error: not run: this call was left out"
    assert_valid_history(sequence.result.history)


@pytest.mark.requirement("C6")
async def test_c6_who_thinks_on_in_the_final_phase_stays_in_it():
    requests = []

    def script(request):
        requests.append((bool(request.tools), request.schema is not None))
        return ["done", "hm", '{"answer": "3"}'][len(requests) - 1]

    def decide(reply, state):
        return ContinueWithThinking() if reply.message.text == "hm" else TerminateWithOutput(reply.message.text)

    assert await kinds(sequence_of(ScriptedModel(script), [page], deciding(decide), Out)) == ["thinking"] * 2 + [
        "final_response"
    ]
    assert requests == [(True, False), (False, True), (False, True)]


@pytest.mark.requirement("C6", "C7")
@pytest.mark.parametrize("tools", [[], [page]])
async def test_c6_calls_in_the_final_phase_end_as_output_that_cannot_be_decoded(tools):
    replies = [*["done"][: len(tools)], *[call("page", number=n) for n in range(9)]]
    sequence = sequence_of(replies, tools, output=Out)
    with pytest.raises(OutputDecodingFailed, match="after 3 tries: it calls a tool"):
        await kinds(sequence)
    assert len(sequence.result.state.replies) == len(tools) + 3


# The end


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("output", [None, Out])
@pytest.mark.parametrize("reason", [Stop("completed"), "completed", "duplicate"])
async def test_c3_terminate_immediately_ends_at_once_whatever_the_reason(reason, output):
    sequence = sequence_of(["hello"], [page], deciding(lambda reply, state: TerminateImmediately(reason)), output)
    assert await sequence.next_step() is None
    assert sequence.result.stop.kind == (reason if isinstance(reason, str) else reason.kind)
    assert sequence.phase == LoopPhase.completed()


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("reason", ["duplicate_tool_call_detected", "waiting", None])
def test_c3_a_reason_that_is_no_kind_of_end_is_refused(reason):
    with pytest.raises(ConfigError, match="TerminateImmediately takes a Stop"):
        TerminateImmediately(reason)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("tools", [[], [page]])
async def test_c4_an_empty_reply_completes_at_once(tools):
    sequence = sequence_of([said("")], tools, output=Out)
    assert await sequence.next_step() is None
    assert sequence.result.stop.kind == "completed"
    run = await Agent(ScriptedModel([said(""), '{"answer": "x"}', '{"answer": "x"}']), tools, output=Out).run("go")
    assert run.output == Out(answer="x"), "a run asks once more: it has no caller who could"


@pytest.mark.requirement("C4")
async def test_c4_a_text_that_was_cut_off_is_the_final_response():
    sequence = sequence_of([said("half", stop_reason="max_tokens")])
    steps = [step async for step in sequence]
    assert [(step.kind, step.text, step.output) for step in steps] == [("final_response", "half", "half")]
    assert sequence.result.stop.kind == "incomplete"


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("output", [None, Out])
async def test_c3_the_final_text_is_the_policys(output):
    text = '{"answer": "p"}'
    sequence = sequence_of(["hello"], (), deciding(lambda reply, state: TerminateWithOutput(text)), output)
    assert (await sequence.next_step()).text == text


@pytest.mark.requirement("C2", "C8")
async def test_c2_the_last_thought_before_the_limit_is_not_lost():
    sequence = sequence_of(["thinking aloud"], [page], output=Out, configuration=AgentConfiguration(max_steps=1))
    assert (await sequence.next_step()).text == "thinking aloud"
    with pytest.raises(MaxStepsExceeded):
        await sequence.next_step()


@pytest.mark.requirement("C8")
async def test_c8_a_policy_that_raises_ends_the_run_as_failed():
    def decide(reply, state):
        raise KeyError("x")

    sequence = sequence_of(["hello"], policy=deciding(decide))
    with pytest.raises(UnexpectedError, match="KeyError: 'x'"):
        await sequence.next_step()
    assert (sequence.result.stop.kind, await sequence.next_step()) == ("failed", None)


# Configuration


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("configuration", [None, AgentConfiguration(max_steps=20)])
async def test_c5_a_policys_own_limit_goes_before_a_default_that_nobody_wrote(configuration):
    policy = DuplicateDetectionPolicy(StandardTerminationPolicy(), 3, None)
    sequence = sequence_of([call("page", number=1)] * 9, [page], policy, None, configuration)
    assert await kinds(sequence) == ["tool_call", "tool_result"] * 3
    many = sequence_of([*[call("page", number=n) for n in range(7)], "read"], [page], policy, None, configuration)
    assert (await kinds(many))[-1] == "final_response"


@pytest.mark.requirement("C5", "C9")
async def test_c5_a_limit_that_the_configuration_names_holds_around_the_policy():
    policy = DuplicateDetectionPolicy(StandardTerminationPolicy(), 3)
    sequence = sequence_of([call("page", number=1)] * 9, [page], policy, None, AgentConfiguration(max_duplicate_tool_calls=1))
    assert await kinds(sequence) == ["tool_call", "tool_result"]


@pytest.mark.requirement("C9")
@pytest.mark.parametrize("name", ["max_steps", "max_duplicate_tool_calls", "max_tool_calls_per_tool"])
def test_c9_a_wrong_limit_is_refused_by_its_name(name):
    with pytest.raises(ConfigError, match=f"{name} must be an integer of at least 1"):
        AgentConfiguration(**{name: 0})


@pytest.mark.requirement("C3")
def test_c3_a_class_is_not_a_policy():
    with pytest.raises(ConfigError, match="is not a termination policy"):
        sequence_of([], policy=StandardTerminationPolicy)


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("hook", ["execute_tool", "send_request", "decode_final_output", "add_final_output_request"])
def test_c1_a_method_that_the_loop_would_not_call_is_refused(hook):
    with pytest.raises(ConfigError, match=f"Mine.{hook} has no effect in kaname"):
        type("Mine", (AgentLoopRunner,), {hook: lambda self: None})


# Names


@pytest.mark.requirement("C1", "C8")
def test_c1_the_documents_names_can_be_imported_and_made():
    names = {}
    exec("from kaname.designs import *", names)
    assert {"StandardTerminationPolicy", "DuplicateDetectionPolicy", "AgentError", "LLMResponse", "StopReason"} <= names.keys()
    assert LLMResponse(Message("assistant", ()), "end_turn").stop_reason == "end_turn"
    assert "end_turn" in StopReason.__args__
    assert AgentLoopContext().spent.steps == 0
    assert MaxStepsExceeded(steps=3).steps == 3
    assert "no JSON" in str(OutputDecodingFailed("no JSON"))
    assert issubclass(OutputDecodingFailed, AgentError)
    assert isinstance(AgentStepSequence[ScriptedModel, Out](ScriptedModel([]), "go", journal="memory"), AgentStepSequence)


# Leaving early

_LEFT = """
import asyncio
from kaname import Agent, ScriptedModel, call
def add(a: int, b: int) -> int:
    "Add."
    return a + b
agent = Agent(ScriptedModel([call("add", a=1, b=2), "done"]), [add], journal={journal!r})
async def main():
    sequence = agent.steps("go", run_id="left")
    async for step in sequence:
        raise ValueError("mine")
try:
    asyncio.run(main())
except ValueError as error:
    print(error, asyncio.run(agent.result("left")).stop.kind)
"""


@pytest.mark.requirement("C1", "C10")
def test_c1_an_error_of_the_callers_own_leaves_nothing_but_itself(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _LEFT.format(journal=str(tmp_path / "j.db"))],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.stdout, done.stderr) == ("mine cancelled\n", "")


@pytest.mark.requirement("C1")
async def test_c1_a_sequence_that_nobody_holds_any_more_is_ended():
    agent = Agent(ScriptedModel([call("page", number=1), "done"]), [page], journal="memory")
    sequence = agent.steps("go", run_id="left")
    await sequence.next_step()
    del sequence

    async def ended():
        return (await agent.result("left")).stop.kind == "cancelled"

    await until(ended, freeing=True)


@pytest.mark.requirement("C3")
@pytest.mark.parametrize("decision", [ContinueWithThinking("hm"), TerminateWithOutput("enough"), ContinueWithTools(())])
def test_c3_a_call_that_was_started_before_a_crash_is_settled_whatever_the_policy_says_now(decision):
    asked = ToolCallInfo("c1_0", "page", {"number": 1})
    facts = [
        Opened(),
        Received(user("go")),
        ModelReplied(ModelReply(assistant("", asked), "tool_use"), CallModel()),
        ToolStarted(asked, "irreversible"),
    ]
    state = State()
    for number, fact in enumerate(facts, 1):
        evolve(state, Event("r", number, float(number), "agent", fact))
    assert React(termination=deciding(lambda reply, state: decision)).next(state) == CallTools((asked,))
