"""The window on a long conversation: within its limits, and never a result without its call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import Agent, ConfigError, ScriptedModel, call, max_steps, tool
from kaname.context.window import Window
from kaname.core.messages import Message, ToolCall, ToolResult, assistant, system, user
from kaname.core.tokens import tokens_of
from tests.parts import assert_valid_history
from tests.properties import tries


@st.composite
def histories(draw):
    messages, number = [system("Be brief.")] if draw(st.booleans()) else [], 0
    for _ in range(draw(st.integers(1, 6))):
        messages.append(user(draw(st.text(max_size=30)) or "?"))
        for _ in range(draw(st.integers(0, 4))):
            calls = [ToolCall(f"c{number + n}", "look", {"n": n}) for n in range(draw(st.integers(1, 3)))]
            number += len(calls)
            messages.append(Message("assistant", tuple(calls)))
            messages += [
                Message("tool", (ToolResult("x" * draw(st.integers(0, 60)), call_id=one.id, name="look"),)) for one in calls
            ]
        if draw(st.booleans()):
            messages.append(assistant("done"))
    return messages


@tries(300)
@given(histories(), st.none() | st.integers(1, 12), st.none() | st.integers(1, 120))
def test_window_never_parts_a_call_from_its_results(messages, most, tokens):
    if most is None and tokens is None:
        most = 5
    seen = list(Window(most, tokens).cut(messages))
    assert_valid_history(seen)
    asked = max(place for place, one in enumerate(messages) if one.role == "user")
    head = [one for one in messages if one.role == "system"]
    rest = [one for one in seen if one.role != "system"]
    assert seen[: len(head)] == head
    assert rest[0].role == "user"
    assert messages[asked] in rest
    places = [next(n for n, other in enumerate(messages) if other is one) for one in seen]
    assert places == sorted(set(places)), "in their order, each once"
    within = (most is None or len(rest) <= most) and (tokens is None or sum(map(tokens_of, rest)) <= tokens)
    least = 1 + next((n for n in range(1, len(messages) - asked) if messages[-n].role != "tool"), 0)
    assert within or len(rest) <= least, "more only if the question and the last step alone are more"


def test_long_conversation_is_cut_to_its_end():
    messages = [system("s"), *[one for n in range(1000) for one in (user(f"q{n}"), assistant(f"a{n}"))], user("now")]
    seen = Window(messages=7).cut(messages)
    assert [one.text for one in seen] == ["s", "q997", "a997", "q998", "a998", "q999", "a999", "now"]
    assert sum(map(tokens_of, Window(tokens=200).cut(messages))) < 210
    assert Window(messages=9999).cut(messages) is messages


async def test_agent_with_a_window_goes_through_a_long_turn_and_keeps_the_question():
    seen = []

    @tool(effect="pure")
    def look(n: int) -> str:
        """Look."""
        return f"saw {n}"

    def script(request):
        seen.append([message.text or message.role for message in request.messages])
        return call("look", n=len(seen)) if len(seen) < 12 else "done"

    made = Agent(
        ScriptedModel(script), [look], instructions="Look.", context=Window(messages=6), stops=max_steps(30), journal="memory"
    )
    assert (await made.run("What is there?")).output == "done"
    assert all(len(one) <= 7 and one[:2] == ["Look.", "What is there?"] for one in seen)
    assert (await made.replay((await made.run("Again?")).run_id)).same


@pytest.mark.parametrize("wrong", [{}, {"messages": 0}, {"tokens": -1}])
def test_window_without_a_size_is_told(wrong):
    with pytest.raises(ConfigError):
        Window(**wrong)
