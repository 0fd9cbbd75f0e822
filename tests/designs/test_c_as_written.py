"""Design C as its document has it: the components, the flow of `next_step`, phases, policies, queue, errors, parameters."""

import asyncio

import pytest
from pydantic import BaseModel

from kaname import Agent, ConfigError, ScriptedModel, call, max_steps, no_repeats, per_tool, tool
from kaname.core.messages import Message, ModelReply, Text
from kaname.core.state import State
from kaname.designs import (
    AgentConfiguration,
    AgentLoopRunner,
    AgentStepSequence,
    AgentTerminationPolicy,
    ContinueWithThinking,
    ContinueWithTools,
    DuplicateDetectionPolicy,
    InvalidState,
    LLMError,
    LoopPhase,
    MaxStepsExceeded,
    OutputDecodingFailed,
    StandardTerminationPolicy,
    TerminateImmediately,
    TerminateWithOutput,
    TerminationPolicy,
    TerminationReason,
    ToolExecutionFailed,
    ToolNotFound,
)
from kaname.strategies.graph.strategy import GraphStrategy
from kaname.strategies.graph.task import Graph
from kaname.strategies.react import React


class Weather(BaseModel):
    city: str
    degrees: int


@tool(effect="pure")
def temperature(city: str) -> int:
    """The temperature in a city."""
    return {"Kyoto": 21, "Oslo": 4}[city]


def asked_for(*cities):
    return [call("temperature", city=city) for city in cities]


# コンポーネント構成


@pytest.mark.requirement("C1")
async def test_c1_a_sequence_can_be_made_by_itself():
    model = ScriptedModel([asked_for("Kyoto"), "21 degrees", '{"city": "Kyoto", "degrees": 21}'])
    sequence = AgentStepSequence(
        model, "How warm is it in Kyoto?", [temperature], AgentConfiguration(), output=Weather, journal="memory"
    )
    steps = [step async for step in sequence]
    assert [step.kind for step in steps] == ["tool_call", "tool_result", "thinking", "final_response"]
    assert (steps[1].result.output, steps[-1].output) == (21, Weather(city="Kyoto", degrees=21))


@pytest.mark.requirement("C1")
def test_c1_the_documents_other_names_are_the_same_things():
    assert AgentLoopRunner is AgentStepSequence
    assert AgentTerminationPolicy is TerminationPolicy


@pytest.mark.requirement("C1")
async def test_c1_a_sequence_of_an_agent_is_a_run_of_that_agent():
    agent = Agent(ScriptedModel(lambda request: f"{len(request.messages)} messages"), journal="memory")
    await agent.run("Hello", session_id="s")
    sequence = AgentStepSequence(agent, "Again", session_id="s", run_id="mine")
    assert (await sequence.next_step()).text == "3 messages"
    assert (sequence.run_id, (await agent.result("mine")).output) == ("mine", "3 messages")
    with pytest.raises(ConfigError, match="an agent already has its tools"):
        AgentStepSequence(agent, "Again", [temperature])


# メインループフロー: nextStep() の処理フロー


@pytest.mark.requirement("C2")
async def test_c2_the_eight_stages_of_next_step():
    happened = []

    def script(request):
        happened.append(f"5 request with {len(request.messages)} messages")
        return [asked_for("Kyoto", "Oslo"), "done"][len(happened) > 3]

    class Policy(StandardTerminationPolicy):
        def decide(self, reply, state):
            if not happened or not happened[-1].startswith("7"):
                happened.append(f"7 policy sees {len(state.messages)} messages")
            return super().decide(reply, state)

    @tool(effect="pure")
    def temperature(city: str) -> int:
        """The temperature in a city."""
        happened.append(f"8 {city}")
        return 1

    configuration = AgentConfiguration(max_steps=2)
    sequence = AgentStepSequence(
        ScriptedModel(script), "go", [temperature], configuration, termination_policy=Policy(), journal="memory"
    )
    seen = [await sequence.next_step()]
    tools = ["8 Kyoto", "8 Oslo"]
    assert happened[:2] == ["5 request with 1 messages", "7 policy sees 2 messages"], "the reply is in the context by then"
    assert sorted(set(happened[2:])) == tools
    count = len(happened)
    seen += [await sequence.next_step() for _ in range(3)]
    assert len(happened) == count, "1: what is queued is returned before anything else happens"
    assert [(one.kind, one.call.args["city"]) for one in seen] == [
        ("tool_call", "Kyoto"),
        ("tool_result", "Kyoto"),
        ("tool_call", "Oslo"),
        ("tool_result", "Oslo"),
    ]
    assert (await sequence.next_step()).kind == "final_response"
    assert happened[count] == "5 request with 4 messages"
    assert await sequence.next_step() is None, "2: the loop is over"
    assert await sequence.next_step() is None


@pytest.mark.requirement("C2", "C8")
async def test_c2_the_limit_is_judged_before_the_request_is_sent():
    asked = []

    def script(request):
        asked.append(1)
        return call("temperature", city=["Kyoto", "Oslo"][len(asked) % 2])

    sequence = AgentStepSequence(ScriptedModel(script), "go", [temperature], AgentConfiguration(max_steps=2), journal="memory")
    with pytest.raises(MaxStepsExceeded) as raised:
        [step async for step in sequence]
    assert (raised.value.steps, len(asked)) == (2, 2)


# 判定結果の処理分岐


@pytest.mark.requirement("C3")
async def test_c3_each_decision_is_acted_on_as_the_table_says():
    decisions = [
        ContinueWithThinking("look closer"),
        "tools",
        TerminateWithOutput("said by the policy"),
    ]
    notes = []

    class Own:
        def decide(self, reply, state):
            decision = decisions[len(state.replies) - 1]
            return ContinueWithTools(reply.message.calls) if decision == "tools" else decision

    def script(request):
        notes.append(request.messages[-1].text)
        return ["hm", asked_for("Oslo"), "what the model says"][len(notes) - 1]

    sequence = AgentStepSequence(ScriptedModel(script), "go", [temperature], termination_policy=Own(), journal="memory")
    steps = [step async for step in sequence]
    assert [step.kind for step in steps] == ["thinking", "tool_call", "tool_result", "final_response"]
    assert (steps[0].text, steps[-1].output) == ("hm", "said by the policy")
    assert notes[1] == "look closer"


@pytest.mark.requirement("C3")
async def test_c3_terminate_immediately_ends_with_none_and_runs_nothing():
    class Enough:
        def decide(self, reply, state):
            return TerminateImmediately(TerminationReason("incomplete", "enough"))

    sequence = AgentStepSequence(
        ScriptedModel([asked_for("Oslo")]), "go", [temperature], termination_policy=Enough(), journal="memory"
    )
    assert await sequence.next_step() is None
    assert (sequence.result.stop.kind, sequence.result.stop.detail) == ("incomplete", "enough")
    assert not sequence.result.state.results
    assert sequence.phase == LoopPhase.completed()


@pytest.mark.requirement("C3")
def test_c3_what_cannot_decide_is_refused_when_it_is_passed_in():
    class Without: ...

    class Late:
        async def decide(self, reply, state): ...

    model = ScriptedModel([])
    for policy in (Without(), Late(), DuplicateDetectionPolicy(Late())):
        with pytest.raises(ConfigError, match="is not a termination policy"):
            AgentStepSequence(model, "go", termination_policy=policy, journal="memory")
        with pytest.raises(ConfigError, match="is not a termination policy"):
            Agent(model, strategy=React(termination=policy), journal="memory")
    graph = Agent(strategy=GraphStrategy(Graph("g", ())), journal="memory")
    with pytest.raises(ConfigError, match="works only with the ReAct strategy"):
        graph.steps("go", termination_policy=StandardTerminationPolicy())


# 構造化出力フェーズ管理


@pytest.mark.requirement("C6", "C8")
async def test_c6_the_phases_in_their_order():
    sent, phases = [], []

    def script(request):
        sent.append((bool(request.tools), request.schema is not None))
        replies = [asked_for("Oslo"), "4 degrees", "no JSON", '{"city": "Oslo"}', '{"city": "Oslo", "degrees": 4}']
        return replies[len(sent) - 1]

    sequence = AgentStepSequence(ScriptedModel(script), "go", [temperature], output=Weather, journal="memory")
    phases.append(sequence.phase)
    async for _ in sequence:
        phases.append(sequence.phase)
    tools, final = LoopPhase.tool_use(), LoopPhase.final_output
    assert phases == [tools, tools, tools, final(0), final(1), final(2), LoopPhase.completed()]
    assert sent == [(True, False)] * 2 + [(False, True)] * 3
    assert [phase.retry_count for phase in phases][-4:] == [0, 1, 2, 0]


@pytest.mark.requirement("C6")
async def test_c6_without_tools_the_schema_is_sent_at_once():
    seen = []

    def script(request):
        seen.append((bool(request.tools), request.schema is not None, sequence.phase))
        return '{"city": "Oslo", "degrees": 4}'

    sequence = AgentStepSequence(ScriptedModel(script), "go", output=Weather, journal="memory")
    assert (await sequence.next_step()).output == Weather(city="Oslo", degrees=4)
    assert seen == [(False, True, LoopPhase.tool_use())]
    assert sequence.phase == LoopPhase.completed()


@pytest.mark.requirement("C7")
async def test_c7_an_answer_is_asked_for_again_twice_and_no_more():
    notes = []

    def script(request):
        notes.append(request.messages[-1].text)
        return '{"city": "Oslo"}'

    sequence = AgentStepSequence(ScriptedModel(script), "go", output=Weather, journal="memory")
    with pytest.raises(OutputDecodingFailed, match="degrees: Field required"):
        [step async for step in sequence]
    assert len(notes) == 3
    assert all("degrees: Field required" in note for note in notes[1:])


# 終了ポリシーシステム


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("reason", ["tool_use", "end_turn", None])
async def test_c4_calls_are_run_whatever_the_provider_calls_the_stop(reason):
    replies = [ModelReply(Message("assistant", (call("temperature", city="Oslo"),)), reason), "4"]
    sequence = AgentStepSequence(ScriptedModel(replies), "go", [temperature], journal="memory")
    assert [step.kind async for step in sequence] == ["tool_call", "tool_result", "final_response"]


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("reason", "parts", "kinds", "ended"),
    [
        ("max_tokens", (Text("half an"), call("temperature", city="Oslo")), ["final_response"], "incomplete"),
        ("max_tokens", (), [], "incomplete"),
        ("stop_sequence", (Text("so far"),), ["final_response"], "completed"),
        ("stop_sequence", (), [], "completed"),
        ("tool_use", (Text("I will look"),), [], "incomplete"),
        (None, (Text("hello"),), ["final_response"], "completed"),
    ],
)
async def test_c4_the_other_rows_of_the_table(reason, parts, kinds, ended):
    reply = ModelReply(Message("assistant", parts), reason)
    sequence = AgentStepSequence(ScriptedModel([reply]), "go", [temperature], journal="memory")
    assert [step.kind async for step in sequence] == kinds
    assert (sequence.result.stop.kind, len(sequence.result.state.results)) == (ended, 0)
    decided = StandardTerminationPolicy().decide(reply, State())
    assert isinstance(decided, TerminateWithOutput) == (bool(reply.message.text) and reason != "tool_use")


@pytest.mark.requirement("C5")
async def test_c5_duplicates_end_the_sequence_with_the_defaults():
    same = [call("temperature", city="Oslo")] * 9
    agent = Agent(ScriptedModel(same), [temperature], journal="memory")
    sequence = agent.steps("go")
    assert [step.kind async for step in sequence] == ["tool_call", "tool_result"] * 2
    assert sequence.result.stop.kind == "duplicate"


@tool(effect="pure")
def page(number: int) -> str:
    """A page."""
    return f"page {number}"


def pages(count):
    return ScriptedModel([*[call("page", number=n) for n in range(count)], "read"])


@pytest.mark.requirement("C5", "C9")
async def test_c5_one_tool_five_times_is_the_sequences_default_and_not_the_runs():
    sequence = Agent(pages(8), [page], journal="memory").steps("go")
    assert [step.kind async for step in sequence] == ["tool_call", "tool_result"] * 5
    assert sequence.result.stop.kind == "tool_limit"
    assert (await Agent(pages(8), [page], journal="memory").run("go")).output == "read"
    for how in (
        {"stops": per_tool(None)},
        {"strategy": React(termination=DuplicateDetectionPolicy(max_tool_calls_per_tool=None))},
    ):
        steps = [step async for step in Agent(pages(8), [page], journal="memory", **how).steps("go")]
        assert steps[-1].output == "read", "what the user wrote comes before the sequence's default"
    without = AgentConfiguration(max_tool_calls_per_tool=None)
    steps = [
        step async for step in Agent(pages(8), [page], stops=per_tool(1), journal="memory").steps("go", configuration=without)
    ]
    assert steps[-1].output == "read", "and a configuration before both"


@pytest.mark.requirement("C5")
async def test_c5_the_policy_wraps_one_of_ones_own():
    class Talkative:
        def decide(self, reply, state):
            return ContinueWithTools(reply.message.calls) if reply.message.calls else ContinueWithThinking()

    policy = DuplicateDetectionPolicy(Talkative(), max_duplicate_tool_calls=1)
    model = ScriptedModel(["let me see", asked_for("Oslo"), asked_for("Oslo")])
    sequence = AgentStepSequence(
        model, "go", [temperature], AgentConfiguration(max_duplicate_tool_calls=9), termination_policy=policy, journal="memory"
    )
    assert [step.kind async for step in sequence] == ["thinking", "tool_call", "tool_result"]
    assert sequence.result.stop.kind == "duplicate"


@pytest.mark.requirement("C5")
async def test_c5_the_limits_hold_around_a_policy_of_ones_own():
    class Always:
        def decide(self, reply, state):
            return ContinueWithTools(reply.message.calls)

    sequence = AgentStepSequence(pages(8), "go", [page], termination_policy=Always(), journal="memory")
    assert len([step async for step in sequence]) == 10
    assert sequence.result.stop.kind == "tool_limit"


# エラーハンドリング


@pytest.mark.requirement("C8")
async def test_c8_errors_carry_what_the_document_says():
    @tool
    def broken(city: str) -> int:
        """Broken."""
        raise LookupError(f"no {city}")

    model = ScriptedModel([[call("broken", city="Oslo"), call("missing"), call("temperature")], LLMError("overloaded")])
    sequence = AgentStepSequence(
        model, "go", [broken, temperature], AgentConfiguration(auto_execute_tools=False), journal="memory"
    )
    with pytest.raises(InvalidState, match="has not started"):
        _ = sequence.result
    first, second, third = [(await sequence.next_step()).call for _ in range(3)]
    with pytest.raises(ToolExecutionFailed, match="broken: LookupError: no Oslo") as failed:
        await sequence.execute_tool(first)
    assert failed.value.name == "broken"
    assert isinstance(failed.value.underlying_error, LookupError)
    with pytest.raises(ToolNotFound) as unknown:
        await sequence.execute_tool(second)
    assert unknown.value.name == "missing"
    with pytest.raises(ToolExecutionFailed) as unfit:
        await sequence.execute_tool(third)
    assert (unfit.value.name, "city" in str(unfit.value.underlying_error)) == ("temperature", True)
    for one in (first, second):  # arguments that do not fit are the model's to mend: nobody is asked
        await sequence.submit(one.id, error="no")
    assert [(await sequence.next_step()).kind for _ in range(3)] == ["tool_result"] * 3
    with pytest.raises(LLMError, match="overloaded"):
        await sequence.next_step()


@pytest.mark.requirement("C8")
async def test_c8_the_number_of_steps_is_told_by_a_run_too():
    result = await Agent(pages(8), [page], stops=max_steps(3), journal="memory").run("go")
    with pytest.raises(MaxStepsExceeded) as raised:
        result.raise_for_stop()
    assert raised.value.steps == 3, "the last words are not one of them"


@pytest.mark.requirement("C8")
async def test_c8_a_failing_tool_is_the_models_to_mend():
    @tool
    def broken() -> int:
        """Broken."""
        raise LookupError("gone")

    model = ScriptedModel([[call("broken"), call("missing")], "I could not"])
    steps = [step async for step in AgentStepSequence(model, "go", [broken], journal="memory")]
    assert [step.kind for step in steps] == ["tool_call", "tool_result"] * 2 + ["final_response"]
    assert (steps[1].result.is_error, "gone" in steps[1].result.error) == (True, True)
    assert "there is no tool named 'missing'" in steps[3].result.error


# 設定パラメータ


@pytest.mark.requirement("C9")
async def test_c9_each_parameter_and_its_default():
    made = AgentConfiguration()
    assert (made.max_steps, made.auto_execute_tools) == (10, True)
    assert (made.max_duplicate_tool_calls, made.max_tool_calls_per_tool) == (2, 5)
    with pytest.raises(ConfigError, match="configuration must be an AgentConfiguration"):
        AgentStepSequence(pages(1), "go", [page], {"max_steps": 3}, journal="memory")
    free = {"max_tool_calls_per_tool": None}
    agent = Agent(pages(20), [page], journal="memory")
    with pytest.raises(MaxStepsExceeded) as raised:
        [step async for step in agent.steps("go", configuration=AgentConfiguration(**free))]
    assert raised.value.steps == 10


@pytest.mark.requirement("C9")
async def test_c9_limits_that_an_agent_was_given_hold_for_its_sequence():
    agent = Agent(pages(20), [page], stops=max_steps(3) | no_repeats(1), journal="memory")
    with pytest.raises(MaxStepsExceeded) as raised:
        [step async for step in agent.steps("go")]
    assert raised.value.steps == 3


@pytest.mark.requirement("C10")
async def test_c10_two_sequences_of_one_agent_do_not_mix():
    def script(request):
        asked = request.messages[0].text
        return call("page", number=len(request.messages) + 10 * int(asked)) if len(request.messages) < 4 else asked

    agent = Agent(ScriptedModel(script, pace=0.0001), [page], journal="memory")

    async def pull(n):
        return [step async for step in agent.steps(str(n))]

    for n, steps in enumerate(await asyncio.gather(*[pull(n) for n in range(20)])):
        numbers = [step.call.args["number"] for step in steps if step.kind == "tool_call"]
        assert (numbers, steps[-1].output) == ([10 * n + 1, 10 * n + 3], str(n))
