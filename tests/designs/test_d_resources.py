"""Design D, 3.9 and 3.11: resources that hold, failures that are recovered from, in the document's names."""

import asyncio

import pytest

from kaname import (
    Agent,
    Budget,
    ConfigError,
    Equals,
    MemoryJournal,
    ModelFallback,
    Pace,
    Price,
    ScriptedModel,
    call,
    cost,
    tool,
)
from kaname.core.errors import ModelDenied, ModelUnavailable
from kaname.core.messages import Usage
from kaname.designs import ErrorRecoveryManager, ResourceManager


@tool(effect="pure")
def look(n: int) -> int:
    """Look."""
    return n


@pytest.mark.requirement("D9")
def test_d9_can_execute_answers_for_quota_budget_and_machine_with_the_reason():
    manager = ResourceManager({"openai": {"limit": 2, "used": 2}}, {"memory_limit": "4GB"}, {"budget": 1.0, "spent": 0.9})
    assert manager.can_execute("search", 0.05, {"memory": "2GB"})
    for asked, why in (
        (("openai", 0.0, {}), "quota"),
        (("x", 0.2, {}), r"\$0.1000 of the budget"),
        (("x", 0.0, {"memory": "8GB"}), "8GB"),
        (("x", None, {}), "not known"),
    ):
        verdict = manager.can_execute(*asked)
        assert not verdict
        assert why.replace("\\", "") in verdict.reason


@pytest.mark.requirement("D9")
def test_d9_manager_begins_with_the_documents_values():
    manager = ResourceManager()
    assert manager.api_quotas == {"openai": {"limit": 1000, "used": 0}}
    assert manager.compute_resources == {"cpu_limit": "80%", "memory_limit": "4GB"}
    assert manager.cost_tracking == {"budget": 10.0, "spent": 0.0}
    with pytest.raises(ConfigError, match="80%"):
        ResourceManager(compute_resources={"cpu_limit": "much"})


@pytest.mark.requirement("D9")
async def test_d9_is_asked_before_every_model_and_tool_call():
    manager = ResourceManager({"scripted": {"limit": 3}, "look": {"limit": 1}}, {}, {"budget": 1.0})
    script = [call("look", n=1), call("look", n=2), "done", "more"]
    model = ScriptedModel(script, usage=Usage(10, 5, cost=0.1))
    agent = Agent(model, [look], policies=[manager], journal="memory")
    result = await agent.run("go")
    assert result.output == "done"
    assert "quota of 1 calls of look is used up" in str(result.messages)
    assert manager.api_quotas == {"scripted": {"limit": 3, "used": 3}, "look": {"limit": 1, "used": 1}}
    assert manager.cost_tracking["spent"] == pytest.approx(0.3)
    refused = await agent.run("go")
    assert (refused.stop.kind, "quota of 3 calls of scripted" in refused.stop.detail) == ("budget", True)


@pytest.mark.requirement("D9")
async def test_d9_budget_holds_for_runs_at_the_same_time():
    class Thrifty(ScriptedModel):
        async def reply(self, request, emit):
            await asyncio.sleep(0)
            output = request.settings["max_tokens"]
            said = await super().reply(request, emit)
            return type(said)(said.message, said.stop_reason, Usage(10, output, cost=self._price.of(Usage(10, output))))

    journal = MemoryJournal()
    manager = ResourceManager({}, {}, {"budget": 0.05})
    agents = [
        Agent(Thrifty(["ok"], price=Price(1, 10)), policies=[manager], journal=journal, settings={"max_tokens": 1000})
        for _ in range(20)
    ]
    results = await asyncio.gather(*[agent.run("go") for agent in agents])
    assert 0.04 < sum(result.usage.cost for result in results) <= 0.05


@pytest.mark.requirement("D9")
async def test_d9_accounts_rates_and_limits_stand_around_one_call():
    policies = [Budget(user="$1/day", agent="100 calls/day"), Pace(requests="1000/min", at_once=4)]
    agent = Agent(ScriptedModel(["ok"], price=Price(1, 1)), policies=policies, stops=cost("$0.50"), journal="memory")
    assert (await agent.run("go", user_id="ann")).output == "ok"
    assert await policies[0].can_execute(agent.journal, user="ann", agent="agent")
    assert policies[1].can_execute(agent.recipe.model)[0]


@pytest.mark.requirement("D11")
def test_d11_failure_is_retried_then_replaced_then_reported():
    manager = ErrorRecoveryManager({"default": {"max_attempts": 3, "delay": 1}}, {"tool_A_failure": "try_tool_B"})
    error = TimeoutError("too slow")
    first, second, third = [manager.handle_failure(error, {"tool": "tool_A", "attempt": n}) for n in (1, 2, 3)]
    assert [(one.action, one.wait) for one in (first, second)] == [("retry", 1.0), ("retry", 2.0)]
    assert (third.action, third.tool) == ("fallback", "tool_B")
    last = manager.handle_failure(error, {"tool": "tool_B", "attempt": 3})
    assert (last.action, "try again later" in last.message) == ("report", True)
    assert manager.handle_failure(TypeError("bad"), {"tool": "tool_B", "attempt": 1}).action == "report"


@pytest.mark.requirement("D11")
async def test_d11_breaker_opens_and_the_model_is_told():
    ran = []

    @tool(effect="pure")
    def service_x() -> str:
        """Ask X."""
        ran.append(1)
        raise OSError("down")

    breakers = {"service_x": {"failure_threshold": 2}}
    manager = ErrorRecoveryManager({"default": {"max_attempts": 1}}, circuit_breakers=breakers)
    manager.degrade = False
    script = [call("service_x"), call("service_x"), call("service_x"), "done"]
    from kaname import no_repeats

    result = await Agent(ScriptedModel(script), [service_x], policies=[manager], stops=no_repeats(None), journal="memory").run(
        "go"
    )
    assert (result.output, len(ran), manager.circuit_breakers["service_x"]["is_open"]) == ("done", 2, True)
    assert "is not called for now" in str(result.messages)


@pytest.mark.requirement("D11")
async def test_d11_failed_call_is_repeated_and_another_tool_stands_in():
    tried = []

    @tool(effect="pure")
    def tool_a(n: int) -> int:
        """A."""
        tried.append("a")
        raise OSError("down")

    @tool(effect="pure")
    def tool_b(n: int) -> int:
        """B."""
        tried.append("b")
        return n

    manager = ErrorRecoveryManager({"default": {"max_attempts": 2, "delay": 0}}, {"tool_a_failure": "try_tool_b"})
    result = await Agent(
        ScriptedModel([call("tool_a", n=1), "done"]), [tool_a, tool_b], policies=[manager], journal="memory"
    ).run("go")
    assert (result.output, tried) == ("done", ["a", "a", "b"])


@pytest.mark.requirement("D11")
async def test_d11_next_model_answers_and_what_remains_is_told_in_plain_words():
    down = ScriptedModel([ModelDenied("no")], name="first")
    result = await Agent([down, ScriptedModel(["ok"], name="second")], journal="memory").run("go")
    assert (result.output, result.models) == ("ok", ("second",))
    with pytest.raises(ModelUnavailable) as failed:
        agent = Agent(ScriptedModel([ModelUnavailable("x", status=503)]), policies=[ErrorRecoveryManager()], journal="memory")
        from kaname import Retry

        await Agent(ScriptedModel([ModelUnavailable("x", status=503)]), policies=[Retry(1)], journal=agent.journal).run(
            "go", run_id="r"
        )
    assert failed.value.run_id == "r"
    partial = (await agent.result("r")).partial
    assert "down or overloaded" in partial.why
    assert "kaname runs resume r" in partial.advice[-1]


@pytest.mark.requirement("D14")
async def test_d14_load_is_spread_over_instances_and_the_choice_of_tools_is_told():
    busy = asyncio.Event()

    class Instance(ScriptedModel):
        async def reply(self, request, emit):
            asked.append(self.name)
            await busy.wait()
            return await super().reply(request, emit)

    asked = []
    agent = Agent([[Instance(["ok"], name="one"), Instance(["ok"], name="two")]], journal="memory")
    runs = [agent.run("go").start() for _ in range(4)]
    while len(asked) < 4:
        await asyncio.sleep(0)
    busy.set()
    await asyncio.gather(*runs)
    assert sorted(asked) == ["one", "one", "two", "two"]
    assert isinstance(next(p for p in agent.recipe.policies if isinstance(p, ModelFallback)), ModelFallback)
    assert Equals("look", "see").place == "choice"
