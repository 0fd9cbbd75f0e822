"""Design A: state, tools, registry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import (
    Agent,
    AgentState,
    AgentStep,
    DuplicateToolError,
    ScriptedModel,
    Tool,
    ToolNotFoundError,
    ToolRegistry,
    ToolResult,
    call,
)
from kaname.core.openai_shape import from_openai
from tests.parts import add, assert_valid_history


@pytest.mark.requirement("A3")
def test_agent_state_keeps_messages_and_steps():
    state = AgentState()
    assert state.max_history == 50
    state.add_message("user", "hello")
    state.add_message("assistant", "こんにちは")
    state.add_step(AgentStep(thought="greet", action="wave", action_input="both hands", observation="waved"))
    assert state.get_messages() == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "こんにちは"},
    ]
    assert state.get_steps() == [AgentStep("greet", "wave", "both hands", "waved")]
    state.clear()
    assert state.get_messages() == []
    assert state.get_steps() == []


def fill(state, calls_of_each_exchange):
    """Add whole exchanges: a question, calls with their results (one reply a call), an answer."""
    number = 0
    for calls in calls_of_each_exchange:
        state.add_message("user", "question")
        for _ in range(calls):
            number += 1
            made = {"id": f"c{number}", "function": {"name": "add", "arguments": "{}"}}
            state.add_message("assistant", "", tool_calls=[made])
            state.add_message("tool", str(number), tool_call_id=f"c{number}", name="add")
        state.add_message("assistant", "answer")


@pytest.mark.requirement("A3")
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 12))
def test_history_is_cut_at_whole_exchanges(calls_of_each_exchange, limit):
    whole, state = AgentState(max_history=1000), AgentState(max_history=limit)
    fill(whole, calls_of_each_exchange)
    fill(state, calls_of_each_exchange)
    kept = state.get_messages()
    assert_valid_history([from_openai(message) for message in kept])
    assert len(kept) <= limit
    assert kept[-1] == whole.get_messages()[-1]
    assert limit < 2 or kept[0]["role"] == "user"
    last_exchange = 2 + 2 * calls_of_each_exchange[-1]
    if last_exchange <= limit:
        assert kept == whole.get_messages()[-len(kept) :]
        assert len(kept) >= last_exchange, "an exchange that fits stays whole"


@pytest.mark.requirement("A3")
def test_one_exchange_keeps_its_question_and_its_last_calls_within_the_limit():
    state = AgentState(max_history=4)
    state.add_message("user", "question")
    for number in range(10):
        made = {"id": f"c{number}", "function": {"name": "add", "arguments": "{}"}}
        state.add_message("assistant", "", tool_calls=[made])
        state.add_message("tool", str(number), tool_call_id=f"c{number}", name="add")
    assert [message["content"] for message in state.get_messages()] == ["question", "", "9"]
    several = [{"id": f"d{n}", "function": {"name": "add", "arguments": "{}"}} for n in range(6)]
    state.add_message("assistant", "", tool_calls=several)
    for n in range(6):
        state.add_message("tool", f"d{n}", tool_call_id=f"d{n}", name="add")
    kept = state.get_messages()
    assert [message["content"] for message in kept] == ["question", "", *[f"d{n}" for n in range(6)]], "a call and its results"
    assert_valid_history([from_openai(message) for message in kept])


@pytest.mark.requirement("A3")
def test_steps_are_limited_too():
    state = AgentState(max_history=2)
    for number in range(5):
        state.add_step(AgentStep(str(number)))
    assert [step.thought for step in state.get_steps()] == ["3", "4"]


@pytest.mark.requirement("A3")
def test_a_tool_result_never_stays_without_its_call():
    state = AgentState(max_history=3)
    state.add_message("user", "first")
    state.add_message("assistant", "", tool_calls=[{"id": "c1", "function": {"name": "add", "arguments": "{}"}}])
    state.add_message("tool", "3", tool_call_id="c1", name="add")
    state.add_message("user", "second")
    state.add_message("assistant", "done")
    assert [m["content"] for m in state.get_messages()] == ["second", "done"]


class Shout:
    name = "shout"
    description = "Say it loudly."

    async def execute(self, input_text: str) -> ToolResult:
        if not input_text:
            return ToolResult(output="", error="nothing to shout")
        return ToolResult(output=input_text.upper(), error=None)


@pytest.mark.requirement("A7")
async def test_a_class_with_execute_is_a_tool():
    assert isinstance(Shout(), Tool)
    assert not isinstance(object(), Tool)
    assert ToolResult(output="x", error=None).is_error is False
    assert ToolResult(output="", error="broken").is_error is True
    agent = Agent(ScriptedModel([call("shout", input="hey"), call("shout", input=""), "done"]), [Shout()], journal="memory")
    result = await agent.run("go")
    assert [step.observation for step in result.steps] == ["HEY", "Error: nothing to shout\n", None]


@pytest.mark.requirement("A7")
async def test_every_tool_can_be_executed_with_a_text():
    assert isinstance(add, Tool)
    assert (await add.execute('{"a": 1, "b": 2}')).output == 3
    assert "b: Field required" in (await add.execute('{"a": 1}')).error


@pytest.mark.requirement("A8")
def test_the_registry():
    registry = ToolRegistry()
    registry.register(Shout())
    registry.register(add)
    assert registry.list_tools() == ["add", "shout"]
    assert registry.has("add")
    assert not registry.has("ad")
    assert registry.get("shout").name == "shout"
    with pytest.raises(DuplicateToolError, match="already a tool named 'add'"):
        registry.register(add)
    with pytest.raises(ToolNotFoundError, match="no tool named 'shuot'; did you mean 'shout'"):
        registry.get("shuot")
