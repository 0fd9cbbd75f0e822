"""`Custom` facts, summaries and parents: recorded, folded and shown without a word about them in the kernel."""

import pytest

from kaname import Agent, ScriptedModel
from kaname.core.chunks import chunks_of
from kaname.core.codec import decode, decode_state, encode, encode_state
from kaname.core.events import Compacted, Custom, Event, ModelReplied, Opened, Received
from kaname.core.messages import ModelReply, assistant, user
from kaname.core.state import State, evolve
from kaname.core.steps import CallModel


def folded(*bodies):
    state = State()
    for number, body in enumerate(bodies, 1):
        evolve(state, Event("r", number, float(number), "agent", body))
    return state


def test_the_last_custom_fact_of_a_name_is_in_the_state():
    state = folded(Opened(), Custom("plan", {"tasks": 1}), Custom("mood", "fine"), Custom("plan", {"tasks": 2}))
    assert state.custom == {"plan": {"tasks": 2}, "mood": "fine"}
    assert decode_state(encode_state(state)).custom == state.custom


@pytest.mark.parametrize(
    ("data", "shown"), [({"tasks": 2}, {"tasks": 2}), ([1, 2], {"value": [1, 2]}), (None, {"value": None})]
)
def test_a_custom_fact_is_a_chunk_of_its_own_name(data, shown):
    (chunk,) = chunks_of(Event("r", 7, 1.0, "agent", Custom("plan", data)))
    assert (chunk.type, dict(chunk.data)) == ("plan", {**shown, "fact": 7})


def test_a_summary_stands_in_the_place_of_the_messages():
    said = [Received(user("one")), ModelReplied(ModelReply(assistant("two")), CallModel())]
    state = folded(Opened(), *said, Received(user("three")), Compacted(2, "They counted."))
    assert [message.text for message in state.messages] == ["They counted.", "three"]
    assert [message.text for message in state.turn] == ["three"]
    state = folded(Opened(), *said, Compacted(2, "Somebody counted."))
    assert [message.text for message in state.messages] == ["Somebody counted.", "one"], "what was asked in this turn stays"
    assert [message.text for message in state.turn] == ["one"]
    assert folded(Opened(), Received(user("one")), Compacted(99, "All.")).messages == [user("All."), user("one")]


def test_a_run_knows_its_parent():
    event = Event("r", 1, 1.0, "agent", Opened("s", "u", None, {}, ("above", "c1_0")))
    assert decode(encode(event)) == event
    assert folded(event.body).parent == ("above", "c1_0")


async def test_a_state_knows_its_turn():
    agent = Agent(ScriptedModel(lambda request: "fine"), journal="memory")
    assert [(await agent.run("go", session_id="s")).state.turns for _ in range(3)] == [1, 2, 3]
