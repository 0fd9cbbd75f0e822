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
from kaname.context.history import window
from kaname.core.messages import Message, ToolCall, assistant, user
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


@pytest.mark.requirement("A3")
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 12))
def test_history_is_cut_at_whole_exchanges(calls_of_each_exchange, limit):
    messages, number = [], 0
    for calls in calls_of_each_exchange:
        messages.append(user("question"))
        made = [ToolCall(f"c{number + place}", "add", {}) for place in range(calls)]
        number += calls
        if made:
            messages.append(assistant("", *made))
            messages += [Message("tool", (ToolResult(1, call_id=c.id, name="add"),)) for c in made]
        messages.append(assistant("answer"))
    kept = window(messages, limit)
    assert_valid_history(kept)
    assert kept[0].role == "user"
    last_exchange = 2 + (calls_of_each_exchange[-1] and calls_of_each_exchange[-1] + 1)
    assert len(kept) <= max(limit, last_exchange)
    assert list(kept) == messages[-len(kept) :]


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
