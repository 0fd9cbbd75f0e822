"""Limits count every call, whoever makes it: the model or the strategy."""

import pytest

from kaname import Agent, ScriptedModel, call, max_steps, no_repeats, per_tool, tool
from kaname.core.messages import ToolCall
from kaname.core.steps import CallTools, Finish, Stop


class Repeating:
    """A strategy that makes the same call again and again, without any model."""

    def __init__(self, times, at_once=1, args=lambda number: {"n": 1}):
        self.times, self.at_once, self.args = times, at_once, args

    def next(self, state):
        done = len(state.results)
        if done >= self.times:
            return Finish(Stop("completed"), done)
        return CallTools(tuple(ToolCall(f"t{done + k}", "act", self.args(done + k)) for k in range(self.at_once)))


def acting(strategy, stops):
    done = []

    @tool(effect="pure")
    async def act(n: int) -> int:
        """Act."""
        done.append(n)
        return n

    return done, Agent(tools=[act], strategy=strategy, stops=stops, journal="memory")


@pytest.mark.parametrize(
    ("stops", "kind", "times"),
    [
        (max_steps(3) | no_repeats(None) | per_tool(None), "max_steps", 3),
        (max_steps(None) | no_repeats(2) | per_tool(None), "duplicate", 2),
        (max_steps(None) | no_repeats(None) | per_tool(4), "tool_limit", 4),
    ],
)
@pytest.mark.parametrize("at_once", [1, 2])
async def test_calls_that_a_strategy_makes_are_counted(stops, kind, times, at_once):
    done, agent = acting(Repeating(12, at_once), stops)
    result = await agent.run("go")
    assert result.stop.kind == kind
    assert len(done) == times - times % at_once


async def test_calls_in_one_reply_are_counted_before_any_of_them_runs():
    done, agent = acting(None, no_repeats(2))
    agent = Agent(ScriptedModel([[call("act", n=1)] * 3, "done"]), [agent.tools["act"]], stops=no_repeats(2), journal="memory")
    assert (await agent.run("go")).stop.kind == "duplicate"
    assert done == []


async def test_calls_that_never_start_are_steps():
    """A tool that is not there is asked for a limited number of times."""
    script = ScriptedModel(lambda request: call("nothing_of_the_kind", n=len(request.messages)) if request.tools else "no")
    agent = Agent(script, [acting(None, None)[1].tools["act"]], journal="memory", stops=max_steps(6) | per_tool(5))
    result = await agent.run("go")
    assert (result.stop.kind, result.output, len(result.steps)) == ("max_steps", "no", 7)


async def test_second_try_of_a_call_is_a_call_of_its_tool_and_the_same_step():
    from kaname import FallbackStrategy

    tries = []

    @tool(effect="pure")
    async def flaky(n: int) -> int:
        """Fail at first."""
        tries.append(n)
        if len(tries) % 3:
            raise RuntimeError("not yet")
        return n

    script = ScriptedModel([call("flaky", n=1), call("flaky", n=2), "done"])
    retries = FallbackStrategy(max_retries=2, backoff=0)
    agent = Agent(script, [flaky], policies=[retries], stops=per_tool(6) | max_steps(3), journal="memory")
    assert (await agent.run("go")).output == "done"
    assert len(tries) == 6
    tries.clear()
    script = ScriptedModel(lambda request: call("flaky", n=len(request.messages)) if request.tools else "done")
    agent = Agent(script, [flaky], policies=[retries], stops=per_tool(5), journal="memory")
    assert (await agent.run("go")).stop.kind == "tool_limit"
    assert len(tries) == 5


async def test_limits_and_results_begin_anew_with_every_turn():
    done, agent = acting(Repeating(3), max_steps(4) | no_repeats(3) | per_tool(3))
    for turn in range(1, 4):
        result = await agent.run("go", session_id="s")
        assert (result.stop.kind, result.output, result.state.turns) == ("completed", 3, turn)
        assert len(done) == 3 * turn


async def test_call_refused_for_its_form_is_not_counted_as_a_use():
    @tool(effect="pure")
    def look(n: int) -> int:
        """Look."""
        return n

    script = [call("look", n="x"), call("look", n="y"), call("look", n=1), call("look", n=2), call("look", n=3), "done"]
    agent = Agent(ScriptedModel(script), [look], stops=[per_tool(2)], journal="memory")
    result = await agent.run("go")
    assert result.stop.kind == "tool_limit"
    assert [one.output for one in result.state.results.values() if not one.is_error] == [1, 2]
