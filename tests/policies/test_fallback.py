"""Fallback in a run: retries by effect, another tool, and an answer without it."""

import pytest

from kaname import (
    Agent,
    Approve,
    ConfigError,
    FallbackStrategy,
    Guardrails,
    MemoryJournal,
    ScriptedModel,
    ToolResult,
    ToolRule,
    call,
    tool,
)

QUICK = {"backoff": 0.001}


def failing(effect, times=99, **more):
    ran = []

    @tool(effect=effect, name="shaky", **more)
    def shaky(x: int = 0) -> str:
        """Shaky."""
        ran.append(x)
        if len(ran) <= times:
            raise ConnectionError("no line")
        return "fine"

    return shaky, ran


async def run(tools, strategy, *script, **more):
    journal = MemoryJournal()
    agent = Agent(ScriptedModel(list(script)), tools, policies=[strategy], journal=journal, **more)
    handle = agent.run("go")
    seen = [chunk async for chunk in handle]
    return await handle, seen, agent


@pytest.mark.requirement("A6")
@pytest.mark.parametrize(("effect", "tries"), [("pure", 3), ("idempotent", 3), ("irreversible", 1), ("compensable", 1)])
async def test_what_is_tried_again_depends_on_the_effect(effect, tries):
    shaky, ran = failing(effect)
    result, _, _ = await run([shaky], FallbackStrategy(**QUICK), call("shaky"), "without it")
    assert len(ran) == tries
    assert (result.stop.kind, result.output) == ("degraded", "without it")
    assert f"shaky failed after {tries} tr" in result.stop.detail


async def test_what_can_be_undone_is_undone_before_it_is_tried_again():
    undone = []
    shaky, ran = failing("compensable", times=1)
    shaky.undoes(lambda x: undone.append(x))
    result, _, _ = await run([shaky], FallbackStrategy(**QUICK), call("shaky", x=7), "done")
    assert (ran, undone, result.completed) == ([7, 7], [7], True)


async def test_every_try_has_its_number_in_the_journal_and_one_key():
    shaky, _ = failing("idempotent", times=2)
    _, seen, _ = await run([shaky], FallbackStrategy(**QUICK), call("shaky"), "done")
    started = [chunk["attempt"] for chunk in seen if chunk.type == "status" and chunk["status"] == "tool_started"]
    assert started == [1, 2, 3]


async def test_another_tool_stands_in():
    shaky, _ = failing("pure")

    @tool(effect="pure")
    def steady(x: int = 0) -> str:
        """Steady."""
        return f"steady {x}"

    strategy = FallbackStrategy(fallback={"shaky": "steady"}, **QUICK)
    result, seen, _ = await run([shaky, steady], strategy, call("shaky", x=5), "done")
    assert result.completed
    assert [chunk["content"] for chunk in seen if chunk.type == "tool_response"] == ["steady 5"]
    assert any(
        "used steady instead" in chunk["content"] for chunk in seen if chunk.type == "status" and chunk["status"] == "warning"
    )


async def test_mistakes_of_the_model_are_not_failures_of_the_tool():
    @tool(effect="pure")
    def strict(x: int) -> ToolResult:
        """Strict."""
        return ToolResult(error="x is too small", retryable=False)

    script = [call("strict", y=1), call("stric", x=1), call("strict", x=1), "I see."]
    result, _, _ = await run([strict], FallbackStrategy(**QUICK), *script)
    assert result.completed, "the model was told, and answered"
    assert [step.observation for step in result.steps][2] == "Error: x is too small"


async def test_without_degradation_the_model_goes_on():
    shaky, ran = failing("pure")
    result, _, _ = await run([shaky], FallbackStrategy(degrade=False, max_retries=0), call("shaky"), "it failed")
    assert (result.stop.kind, len(ran)) == ("completed", 1)


async def test_a_typed_answer_without_the_tool():
    shaky, _ = failing("pure")
    result, _, _ = await run([shaky], FallbackStrategy(**QUICK), call("shaky"), '{"result": 3}', output=int)
    assert (result.stop.kind, result.output) == ("degraded", 3)


def test_mistakes_are_told_at_once():
    with pytest.raises(ConfigError, match="circular"):
        FallbackStrategy(fallback={"a": "b", "b": "a"})
    with pytest.raises(ConfigError, match="max_retries"):
        FallbackStrategy(-1)


async def test_no_tool_stands_in_past_an_approval_or_a_rule():
    ran = []

    @tool(effect="pure")
    def shaky(x: int = 0) -> str:
        """Shaky."""
        raise ConnectionError("no line")

    @tool(effect="pure")
    def steady(x: int = 0) -> str:
        """Steady."""
        ran.append(x)
        return "steady"

    for other in (Approve("steady"), Guardrails(tools=[ToolRule("steady", allowed=False)])):
        for order in (0, 1):
            policies = [FallbackStrategy(fallback={"shaky": "steady"}, **QUICK)]
            policies.insert(order, other)
            agent = Agent(
                ScriptedModel([call("shaky"), "without"]), [shaky, steady], policies=policies, journal=MemoryJournal()
            )
            result = await agent.run("go")
            assert (result.stop.kind, ran) == ("degraded", [])


async def test_what_may_have_been_done_is_not_done_another_way():
    paid = []

    @tool
    def pay(yen: int) -> str:
        """Pay."""
        raise TimeoutError("no reply")

    @tool
    def wire(yen: int) -> str:
        """Pay by wire."""
        paid.append(yen)
        return "paid"

    result, _, _ = await run(
        [pay, wire], FallbackStrategy(fallback={"pay": "wire"}, **QUICK), call("pay", yen=5), "It may have been paid."
    )
    assert (result.stop.kind, paid) == ("degraded", [])
    assert "may have taken effect" in result.stop.detail


async def test_a_model_that_calls_on_although_nothing_is_on_offer():
    shaky, ran = failing("pure")
    result, _, _ = await run([shaky], FallbackStrategy(max_retries=0), call("shaky"), [call("shaky", x=1)], "never asked")
    assert len(ran) == 1
    assert result.stop.kind in ("degraded", "incomplete")


async def test_a_stand_in_that_takes_other_arguments_is_tried_once():
    shaky, _ = failing("pure")

    @tool(effect="pure")
    def other(name: str) -> str:
        """Other."""
        return name

    result, _, _ = await run(
        [shaky, other], FallbackStrategy(fallback={"shaky": "other"}, **QUICK), call("shaky", x=5), "without"
    )
    assert "other failed after 1 try" in result.stop.detail
