"""Policies: found wherever they are overridden, refused when they are none, and asked again after a crash."""

import pytest

from kaname import Agent, Approve, ConfigError, Policy, ScriptedModel, ToolResult, call, tool
from tests.parts import Died, MortalJournal, add, adding


async def test_a_policy_overridden_on_the_object_is_called():
    policy, seen = Policy(), []

    async def watch(call, next, scope):
        seen.append(call.name)
        return await next(call)

    async def listen(request, next, scope):
        seen.append("model")
        return await next(request)

    policy.tool, policy.model = watch, listen
    await Agent(adding(), [add], policies=[policy], journal="memory").run("go")
    assert seen == ["model", "add", "model"]


async def test_what_only_looks_like_a_policy_is_refused_before_anything_runs():
    class Duck:
        async def model(self, request, next, scope):
            return await next(request)

        async def tool(self, call, next, scope):
            return ToolResult("quack")

    with pytest.raises(ConfigError, match="not a policy: derive its class from kaname.Policy"):
        Agent(adding(), [add], policies=[Duck()], journal="memory")


@pytest.mark.parametrize("answer", ["yes", True, {"args": {"n": 2}}])
async def test_an_approval_that_is_asked_after_a_crash_takes_yes_for_an_answer(answer):
    """The call was under way when the process died, and may be repeated; the new process wants it approved."""
    journal, log = MortalJournal(), []

    @tool(effect="idempotent")
    async def act(n: int) -> str:
        """Act."""
        log.append(n)
        return f"acted {n}"

    model = ScriptedModel([call("act", n=1), "done"])
    journal.revive(left=2)
    run = Agent(model, [act], journal=journal).run("go")
    with pytest.raises(Died):
        await run
    journal.revive()
    careful = Agent(model, [act], policies=[Approve("act")], journal=journal)
    waiting = await careful.resume(run.run_id)
    assert waiting.questions["approve:c1_0"].options == ("yes", "no")
    assert (await careful.resume(run.run_id, {"approve:c1_0": answer})).output == "done"
    assert log == [1, 2 if isinstance(answer, dict) else 1]


async def test_what_a_run_says_of_its_agent_follows_the_tools():
    """Tools that were registered or taken away between two runs are in the second one's first fact."""
    agent = Agent(ScriptedModel(lambda request: "fine"), [add], journal="memory")

    async def tools(run):
        first, *_ = [event.body async for event in agent.journal.read(run)]
        return list(first.recipe["tools"])

    assert await tools((await agent.run("go")).run_id) == ["add"]

    @tool
    def later() -> str:
        """Later."""
        return ""

    agent.tools.register(later)
    assert await tools((await agent.run("go")).run_id) == ["add", "later"]
