"""Limits that an author wrote hold in a plan and in a step sequence, and a call belongs to the agent that made it."""

from __future__ import annotations

import json
from typing import Any

from kaname import Agent, Price, Team, ToolContext, ToolResult, Usage, call, cost, per_tool, tool
from kaname.designs import AgentConfiguration
from kaname.designs.orchestrator.orchestrator import AgentOrchestrator
from kaname.models.providers.scripted import ScriptedModel


async def test_plan_keeps_the_limit_on_calls_of_its_agent() -> None:
    ran: list[str] = []

    @tool(effect="pure")
    async def look(q: str) -> str:
        """Look it up."""
        ran.append(q)
        return q

    steps = [{"name": f"s{number}", "tool_name": "look", "arguments": {"q": str(number)}} for number in range(3)]
    plan = json.dumps({"description": "all", "steps": steps})
    result = await AgentOrchestrator.around(Agent(ScriptedModel([plan]), [look], stops=[per_tool(2)])).agent.run("Go.")
    assert result.stop.kind == "tool_limit"
    assert len(ran) <= 2


async def test_sequence_keeps_the_written_limit_on_calls_beside_a_configuration() -> None:
    ran: list[str] = []

    @tool(effect="pure")
    async def look(q: str) -> str:
        """Look it up."""
        ran.append(q)
        return q

    replies: list[Any] = [call("look", q=str(number)) for number in range(3)]
    agent = Agent(ScriptedModel([*replies, "Done."]), [look], stops=[per_tool(1)])
    async with agent.steps("Go.", configuration=AgentConfiguration(max_steps=9)) as sequence:
        _ = [step async for step in sequence]
    assert ran == ["0"]


async def test_tool_that_is_run_by_hand_is_charged_to_the_run() -> None:
    @tool(effect="idempotent")
    async def paint(what: str) -> Any:
        """Paint."""
        return ToolResult("painted", usage=Usage(10, 10, cost=0.2))

    replies: list[Any] = [call("paint", what=str(number)) for number in range(3)]
    model = ScriptedModel([*replies, "Done."], usage=Usage(100, 50), price=Price(100, 100))
    agent, painted = Agent(model, [paint], stops=[cost("$0.3")]), 0
    async with agent.steps("Go.", configuration=AgentConfiguration(auto_execute_tools=False)) as sequence:
        async for step in sequence:
            if step.kind == "tool_call":
                painted += 1
                await sequence.submit(step.call.id, await sequence.execute_tool(step.call))
        assert sequence.result.usage.cost is not None
        assert sequence.result.usage.cost > 0.4
    assert painted == 2


async def test_call_beside_a_transfer_is_of_the_agent_that_made_it() -> None:
    seen: list[str] = []

    @tool
    async def pay(yen: int, context: ToolContext) -> str:
        """Pay."""
        seen.append(context.agent)
        return "paid"

    member = Agent(ScriptedModel(["Done.", "Done."]), [], name="member")
    said = [call("transfer_to_agent", agent="member", reason="asked"), call("pay", yen=1)]
    await Agent(ScriptedModel([said]), [pay], name="desk", team=Team((member,))).run("Go.")
    assert seen == ["desk"]
