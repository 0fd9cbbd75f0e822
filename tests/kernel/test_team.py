"""After a hand-over: who made a call runs it, and the root's policies and limits go on holding. (Teams come later.)"""

from kaname import Agent, Approve, MemoryJournal, Policy, ScriptedModel, ToolResult, call, max_steps, tool
from kaname.core.messages import ToolCall


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
    recipe = agent.recipe.altered(team={name: member.recipe for name, member in team.items()})
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
