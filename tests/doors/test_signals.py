"""Signals: a time limit holds, and ends the step as a time limit, whatever the code under it does with the cancellation."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from kaname import Agent, Guardrails, Policy, ScriptedModel, Timeout, call, deadline, tool
from kaname.core.errors import ModelTimeout
from kaname.core.messages import ModelReply, ToolResult, assistant
from kaname.kernel.replies import ask_beside
from kaname.policies.content.guardrails.verdicts import run_check
from kaname.policies.failure.timeout import Late, within
from kaname.tools.registry import ToolRegistry

LIMIT = 0.05  # seconds


async def returns(value: Any) -> Any:
    """Wait for ever, and swallow the cancellation."""
    try:
        await asyncio.Event().wait()
    except BaseException:
        return value


async def raises(value: Any) -> Any:
    """Wait for ever, and raise something else instead of the cancellation."""
    try:
        await asyncio.Event().wait()
    except BaseException:
        raise ValueError("interrupted") from None


async def groups(value: Any) -> Any:
    """Wait for ever in another task, and swallow the cancellation."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
    except BaseException:
        return value


async def waits_on(value: Any) -> Any:
    """Swallow the cancellation and go on for a while."""
    try:
        await asyncio.Event().wait()
    except BaseException:
        await asyncio.sleep(0)
        return value


SWALLOW = [returns, raises, groups, waits_on]


class SlowModel:
    """A model that swallows the cancellation."""

    name = "slow"

    def __init__(self, swallow: Any) -> None:
        self._swallow = swallow

    async def reply(self, request: Any, emit: Any) -> ModelReply:
        return await self._swallow(ModelReply(assistant("late")))


class SlowPolicy(Policy):
    """A policy that swallows the cancellation, in front of the tool or of the model."""

    place = "send"

    def __init__(self, swallow: Any, joint: str) -> None:
        self._swallow, self._joint = swallow, joint

    async def tool(self, call, next, view):
        return await (self._swallow(ToolResult("late")) if self._joint == "tool" else next(call))

    async def model(self, request, next, view):
        return await (self._swallow(ModelReply(assistant("late"))) if self._joint == "model" else next(request))


def slow_tool(swallow: Any, timeout: float | None = None) -> Any:
    @tool(timeout=timeout)
    async def work() -> str:
        """Work."""
        return await swallow("late")

    return work


@tool(timeout=LIMIT)
def quick() -> str:
    """Return at once."""
    return "quick"


def calling(name: str) -> ScriptedModel:
    return ScriptedModel([call(name), "done"])


def under_a_deadline(place: str, swallow: Any) -> Agent:
    async def check(text: str) -> None:
        await swallow(None)

    made = {
        "tool": lambda: Agent(calling("work"), [slow_tool(swallow)], stops=deadline(LIMIT)),
        "policy of a tool": lambda: Agent(
            calling("quick"), [quick], policies=[SlowPolicy(swallow, "tool")], stops=deadline(LIMIT)
        ),
        "model": lambda: Agent(SlowModel(swallow), stops=deadline(LIMIT)),
        "policy of a model": lambda: Agent(
            ScriptedModel(["hi"]), policies=[SlowPolicy(swallow, "model")], stops=deadline(LIMIT)
        ),
        "check": lambda: Agent(ScriptedModel(["hi"]), policies=[Guardrails(input_checks=[check])], stops=deadline(LIMIT)),
    }
    return made[place]()


@pytest.mark.parametrize("swallow", SWALLOW)
@pytest.mark.parametrize("place", ["tool", "policy of a tool", "model", "policy of a model", "check"])
async def test_deadline_that_is_swallowed_ends_the_run_at_its_deadline(place, swallow):
    result = await under_a_deadline(place, swallow).run("go")
    failed = place == "check" and swallow is raises  # a check that fails blocks the text, which is stricter
    assert result.stop.kind == ("blocked" if failed else "deadline")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("swallow", SWALLOW)
@pytest.mark.parametrize("place", ["tool", "policy"])
async def test_timeout_of_a_tool_that_is_swallowed_is_its_result(place, swallow):
    slow = slow_tool(swallow, LIMIT) if place == "tool" else quick
    policies = [] if place == "tool" else [SlowPolicy(swallow, "tool")]
    result = await Agent(calling(slow.name), [slow], policies=policies).run("go")
    assert result.output == "done"
    assert "0.05 s" in str(result.steps[0].observation)


@pytest.mark.parametrize("swallow", SWALLOW)
@pytest.mark.parametrize("place", ["model", "policy"])
async def test_timeout_of_a_model_that_is_swallowed_fails_as_a_timeout(place, swallow):
    policies = [Timeout(LIMIT)] if place == "model" else [Timeout(LIMIT), SlowPolicy(swallow, "model")]
    model = SlowModel(swallow) if place == "model" else ScriptedModel(["hi"])
    with pytest.raises(ModelTimeout):
        await Agent(model, policies=policies).run("go")


@pytest.mark.parametrize("swallow", SWALLOW)
async def test_check_that_swallows_its_limit_blocks_the_text(swallow):
    async def check(text: str) -> None:
        await swallow(None)

    verdict = await run_check(check, "text", LIMIT)
    assert verdict.action == "block"
    guard = Guardrails(input_checks=[check], check_seconds=LIMIT)
    result = await Agent(ScriptedModel(["hi"]), policies=[guard]).run("go")
    assert result.stop.kind == "blocked"


@pytest.mark.parametrize("swallow", SWALLOW)
async def test_sink_that_swallows_its_limit_is_disabled_and_the_run_completes(swallow, monkeypatch):
    monkeypatch.setattr("kaname.kernel.scope._SINK_SECONDS", LIMIT)
    seen = []

    async def sink(event: Any) -> None:
        seen.append(event)
        await swallow(None)

    result = await Agent(ScriptedModel(["hi"]), sinks=[sink]).run("go")
    assert result.output == "hi"
    assert len(seen) == 1


@pytest.mark.parametrize("swallow", SWALLOW)
async def test_context_part_that_swallows_the_deadline_of_a_request_ends_the_run_at_its_deadline(swallow):
    async def part(messages: Any, view: Any) -> Any:
        with suppress(BaseException):
            await ask_beside(tuple(messages), view)
        return messages

    result = await Agent(SlowModel(swallow), context=[part], stops=deadline(LIMIT)).run("go")
    assert result.stop.kind == "deadline"


@pytest.mark.parametrize("swallow", SWALLOW)
async def test_registry_keeps_the_time_limit_of_a_tool_that_swallows_it(swallow):
    result = await ToolRegistry([slow_tool(swallow, LIMIT)]).execute("work", {})
    assert "0.05 s" in str(result.error)


async def test_cancellation_by_the_caller_comes_before_a_limit_that_has_rung():
    async def stubborn() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()  # until the limit
        running.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "swallowed both"

    running = asyncio.create_task(within(LIMIT, stubborn()))
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_value_within_the_limit_is_returned():
    assert await within(60, asyncio.sleep(0, 1)) == 1
    with pytest.raises(Late):
        await within(LIMIT, returns(1))
