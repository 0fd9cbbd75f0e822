"""At a limit the model answers once more, without tools, from what it has: a limit leaves no empty answer."""

import pytest
from pydantic import BaseModel

from kaname import Agent, ScriptedModel, call, cost, max_steps, no_repeats, per_tool, tool
from kaname.core.errors import ModelError
from kaname.core.messages import ModelReply, Usage, assistant
from kaname.strategies import stop
from kaname.strategies.react import React


@tool(effect="pure")
async def read(page: int) -> str:
    """Read a page."""
    return f"page {page} says {page * 10}"


def reading(stops, last="Pages 1 to 3 say 10, 20 and 30; page 4 was not read.", *, same=False, at_once=1, **more):
    """A model that goes on reading as long as it may, and then says its last words."""
    requests = []

    def model(request):
        requests.append(request)
        if not request.tools:
            if isinstance(last, Exception):
                raise last
            return last
        number = 1 if same else len(requests)
        return [call("read", page=number + k) for k in range(at_once)]

    return requests, Agent(ScriptedModel(model), [read], stops=stops, journal="memory", **more)


@pytest.mark.parametrize(
    ("stops", "same", "kind", "replies"),
    [(max_steps(3), False, "max_steps", 4), (per_tool(3), False, "tool_limit", 5), (no_repeats(2), True, "duplicate", 4)],
)
@pytest.mark.parametrize("at_once", [1, 2])
async def test_limit_is_followed_by_one_call_without_tools(stops, same, kind, replies, at_once):
    requests, agent = reading(stops, same=same, at_once=at_once)
    result = await agent.run("What do the pages say?")
    assert result.output == "Pages 1 to 3 say 10, 20 and 30; page 4 was not read."
    assert result.stop.kind == kind
    assert [bool(request.tools) for request in requests] == [True] * (len(requests) - 1) + [False]
    assert at_once == 2 or len(requests) == replies
    note = requests[-1].messages[-1]
    assert note.role == "user"
    assert str(result.stop.detail) in note.text
    asked = [c.id for message in requests[-1].messages for c in message.calls]
    answered = [part.call_id for message in requests[-1].messages if message.role == "tool" for part in message.parts]
    assert asked == answered  # a provider refuses a call without a result


async def test_limit_of_money_is_not_overdrawn_for_last_words():
    def model(request):
        spent = ModelReply(assistant("", call("read", page=1)), usage=Usage(input=10, output=10, cost=0.6))
        return spent if request.tools else "too dear"

    result = await Agent(ScriptedModel(model), [read], stops=cost("$1") | no_repeats(None), journal="memory").run("go")
    assert result.stop.kind == "budget"
    assert result.output == ""
    assert len(result.state.replies) == 2


async def test_limit_of_money_that_is_reached_with_another_one_forbids_last_words_too():
    def model(request):
        return ModelReply(assistant("", call("read", page=1)), usage=Usage(input=10, output=10, cost=0.6))

    result = await Agent(ScriptedModel(model), [read], stops=[cost("$1"), max_steps(2)], journal="memory").run("go")
    assert result.stop.kind in ("max_steps", "budget")
    assert len(result.state.replies) == 2


async def test_last_words_take_the_wanted_form():
    class Found(BaseModel):
        numbers: list[int]

    requests, agent = reading(max_steps(2), '{"numbers": [10, 20]}', output=Found)
    result = await agent.run("go")
    assert result.output == Found(numbers=[10, 20])
    assert result.stop.kind == "max_steps"
    assert requests[-1].schema is not None
    _, agent = reading(max_steps(2), "I do not know", output=Found)
    result = await agent.run("go")
    assert result.output is None
    assert result.stop.kind == "max_steps"


async def test_last_words_that_cannot_be_had_leave_the_limit_as_the_end():
    _, agent = reading(max_steps(2), ModelError("503: overloaded"))
    run = agent.run("go")
    chunks = [chunk async for chunk in run]
    assert (await run).stop.kind == "max_steps"
    assert any("gave no final answer: the model could not answer" in str(chunk) for chunk in chunks)


async def test_last_words_that_call_a_tool_run_none():
    requests, agent = reading(max_steps(2), call("read", page=9))
    result = await agent.run("go")
    assert result.stop.kind == "max_steps"
    assert len(requests) == 3
    assert len(result.state.results) == 2


async def test_run_that_goes_on_after_its_limit_has_tools_again():
    requests, agent = reading(max_steps(2))
    run = agent.run("go")
    await run
    result = await agent.resume(run.run_id)
    assert [bool(request.tools) for request in requests] == [True, True, False, True, True, False]
    assert result.stop.kind == "max_steps"


async def test_next_turn_of_the_session_has_its_own_limit():
    requests, agent = reading(max_steps(2))
    for _ in range(2):
        assert (await agent.run("go", session_id="s")).stop.kind == "max_steps"
    assert [bool(request.tools) for request in requests] == [True, True, False, True, True, False]


async def test_last_words_can_be_switched_off():
    requests, agent = reading(max_steps(2), strategy=React(concludes=False))
    result = await agent.run("go")
    assert len(requests) == 2
    assert result.stop.kind == "max_steps"
    assert result.output == ""


async def test_last_words_are_replayed_as_they_were():
    _, agent = reading(per_tool(2))
    run = agent.run("go")
    await run
    assert (await agent.replay(run.run_id)).same


async def test_replay_does_not_mind_other_words_of_the_same_notice(monkeypatch):
    """A later version words its limits otherwise; a recorded decision is the same if its code and values are."""
    _, agent = reading(per_tool(2))
    run = agent.run("go")
    await run
    real = stop.notice
    monkeypatch.setattr(stop, "notice", lambda code, text, **values: real(code, f"in other words: {text}", **values))
    first = (await agent.replay(run.run_id)).difference
    assert first is None or first.prompt  # what the model is told at the limit is worded otherwise, too
    monkeypatch.setattr(stop, "notice", lambda code, text, **values: real(code + ".other", text, **values))
    assert not (await agent.replay(run.run_id)).same
