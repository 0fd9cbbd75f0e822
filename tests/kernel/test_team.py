"""After a hand-over: who made a call runs it, and the root's policies and limits go on holding. (Teams come later.)"""

import asyncio

import pytest

from kaname import (
    Agent,
    Approve,
    FallbackStrategy,
    MemoryJournal,
    Policy,
    Retry,
    ScriptedModel,
    ToolResult,
    call,
    deadline,
    max_steps,
    no_repeats,
    tool,
)
from kaname.core.errors import ModelUnavailable
from kaname.core.messages import ToolCall
from kaname.policies.failure import retry


@tool
async def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


@tool(effect="pure")
async def hand_over() -> ToolResult:
    """Let the expert go on."""
    return ToolResult("over to you", transfer="expert")


@tool(effect="pure")
async def look(n: int) -> str:
    """Look."""
    return f"looked {n}"


def with_team(agent, **team):
    recipe = agent.recipe.with_changes(team={name: member.recipe for name, member in team.items()})
    agent.recipe = recipe
    return agent


async def test_an_approved_call_is_run_by_the_agent_that_made_it():
    """It pays, and hands over, in one reply; the payment is approved after the hand-over."""
    journal = MemoryJournal()
    expert = Agent(ScriptedModel(lambda request: "the expert is done"), [look], name="expert", journal=journal)
    root = Agent(
        ScriptedModel([[call("pay", yen=5), call("hand_over")]]), [pay, hand_over], policies=[Approve("pay")], journal=journal
    )
    root = with_team(root, expert=expert)
    waiting = await root.run("go")
    assert list(waiting.questions) == ["approve:c1_0"]
    result = await root.resume(waiting.run_id, {"approve:c1_0": "yes"})
    assert result.output == "the expert is done"
    assert result.state.messages[-3].parts[0].output == "paid 5"


async def test_the_roots_policies_and_limits_hold_for_those_it_hands_over_to():
    seen = []

    class Watch(Policy):
        async def tool(self, call: ToolCall, next, scope):
            seen.append(call.name)
            return await next(call)

    expert = Agent(
        ScriptedModel(lambda request: call("look", n=len(request.messages))), [look], name="expert", journal="memory"
    )
    root = Agent(ScriptedModel([call("hand_over")]), [hand_over], policies=[Watch()], stops=max_steps(3), journal="memory")
    result = await with_team(root, expert=expert).run("go")
    assert seen == ["hand_over", "look", "look"]
    assert result.stop.kind == "max_steps"


@pytest.mark.parametrize(
    ("root", "member", "times"),
    [
        ([], [], 5),
        ([Retry(tries=2)], [], 2),
        ([], [Retry(tries=3)], 3),
        ([Retry(tries=2)], [Retry(tries=3)], 3),
        ([Retry(tries=2)], [Retry(tries=1)], 1),
    ],
)
async def test_failing_model_is_tried_as_often_after_a_hand_over_as_before(root, member, times, monkeypatch):
    monkeypatch.setattr(retry, "PAUSE", 0.0)
    asked = []

    def down(request):
        asked.append(request)
        raise ModelUnavailable("down")

    expert = Agent(ScriptedModel(down), name="expert", policies=member, journal="memory")
    agent = Agent(ScriptedModel([call("hand_over")]), [hand_over], policies=root, journal="memory")
    with pytest.raises(ModelUnavailable):
        await with_team(agent, expert=expert).run("go")
    assert len(asked) == times


SHARED = FallbackStrategy(max_retries=2, backoff=0, degrade=False)


@pytest.mark.parametrize(
    ("root", "member", "times"),
    [
        ([SHARED], [], 3),
        ([], [SHARED], 3),
        ([SHARED], [SHARED], 3),
        ([FallbackStrategy(backoff=0)], [FallbackStrategy(backoff=0)], 3),
        ([FallbackStrategy(backoff=0)], [FallbackStrategy(max_retries=1, backoff=0)], 2),
    ],
)
async def test_failing_tool_is_run_as_often_after_a_hand_over_as_before(root, member, times):
    runs = []

    @tool(effect="pure")
    async def lookup() -> str:
        """Look it up."""
        runs.append(1)
        raise ValueError("out of order")

    expert = Agent(ScriptedModel(["", call("lookup"), "sorry"]), [lookup], name="expert", policies=member, journal="memory")
    agent = Agent(ScriptedModel([call("hand_over")]), [hand_over], policies=root, journal="memory")
    result = await with_team(agent, expert=expert).run("go")
    assert (len(runs), result.output) == (times, "sorry")


async def test_roots_stand_in_is_used_after_the_members_own_tries():
    runs = []

    @tool(effect="pure")
    async def rates() -> str:
        """Look rates up."""
        runs.append("rates")
        raise ValueError("out of order")

    @tool(effect="pure")
    async def old_rates() -> str:
        """Look old rates up."""
        runs.append("old")
        return "0.8"

    mine = FallbackStrategy(max_retries=1, backoff=0)
    expert = Agent(
        ScriptedModel(["", call("rates"), "0.8"]), [rates, old_rates], name="expert", policies=[mine], journal="memory"
    )
    roots = FallbackStrategy(fallback={"rates": "old_rates"}, backoff=0)
    agent = Agent(ScriptedModel([call("hand_over")]), [hand_over, rates, old_rates], policies=[roots], journal="memory")
    result = await with_team(agent, expert=expert).run("go")
    assert (runs, result.output) == (["rates", "rates", "old"], "0.8")


@pytest.mark.parametrize(
    ("root", "member", "looks"),
    [
        (max_steps(30), None, 18),  # the member's default of 10 does not count the root's steps
        (None, max_steps(30), 18),
        (max_steps(None), None, 18),
        (None, None, 9),  # one default for the whole run
        (max_steps(30), max_steps(6), 5),
        ([max_steps(30), no_repeats(1)], None, 18),
    ],
)
async def test_default_limits_are_there_once_a_run(root, member, looks):
    seen = []

    def search(request):
        seen.append(request)
        return call("look", n=len(seen)) if len(seen) <= 18 and request.tools else "that is all"

    expert = Agent(ScriptedModel(search), [look], name="expert", stops=member, journal="memory")
    agent = Agent(ScriptedModel([call("hand_over")]), [hand_over], stops=root, journal="memory")
    result = await with_team(agent, expert=expert).run("go")
    done = [part for message in result.state.turn for part in message.parts if getattr(part, "name", "") == "look"]
    assert len([part for part in done if isinstance(part, ToolResult) and not part.is_error]) == looks
    assert result.stop.kind == ("completed" if looks == 18 else "max_steps")


async def test_roots_steps_are_not_charged_to_a_members_unspoken_limit():
    script = [call("look", n=n) for n in range(12)]
    expert = Agent(ScriptedModel(lambda request: "found"), name="expert", journal="memory")
    agent = Agent(ScriptedModel([*script, call("hand_over")]), [hand_over, look], stops=max_steps(30), journal="memory")
    result = await with_team(agent, expert=expert).run("go")
    assert (result.stop.kind, result.output) == ("completed", "found")


async def test_members_written_deadline_replaces_the_default_also_inside_a_call():
    """One that is switched off leaves none; one that is short interrupts the call that is under way."""

    @tool(effect="pure")
    async def sleep() -> str:
        """Sleep."""
        await asyncio.sleep(30)
        return "slept"

    for stops, kind in ((deadline(0.05), "deadline"), (deadline(None), "completed")):
        script = ["", call("sleep") if kind == "deadline" else "done"]
        expert = Agent(ScriptedModel(script), [sleep], name="expert", stops=stops, journal="memory")
        agent = Agent(ScriptedModel([call("hand_over")]), [hand_over], journal="memory")
        result = await with_team(agent, expert=expert).run("go")
        assert result.stop.kind == kind


async def test_members_time_limit_of_a_tool_is_for_each_try():
    """The root's default time limit does not stand around the member's repeated tries."""
    runs = []

    @tool(effect="pure", timeout=0.2)
    async def slow() -> str:
        """Answer slowly."""
        runs.append(1)
        await asyncio.sleep(0 if len(runs) == 3 else 30)
        return "at last"

    policies = [FallbackStrategy(max_retries=2, backoff=0)]
    expert = Agent(ScriptedModel(["", call("slow"), "done"]), [slow], name="expert", policies=policies, journal="memory")
    agent = Agent(ScriptedModel([call("hand_over")]), [hand_over], journal="memory")
    result = await with_team(agent, expert=expert).run("go")
    assert (len(runs), result.output) == (3, "done")
