"""A run's result and questions as the journal has them, without executing anything; runs that have begun; code without a loop."""

import asyncio
import gc
import logging

import pytest

from kaname import Agent, Approve, ConfigError, InvalidState, RunNotFound, ScriptedModel, call, tool
from tests.parts import until

paid = []


@tool
async def pay(yen: int) -> str:
    """Pay."""
    await asyncio.sleep(0.05)
    paid.append(yen)
    return f"paid {yen}"


def paying(**options):
    paid.clear()
    return Agent(
        ScriptedModel([call("pay", yen=5), "Paid."]), [pay], **{"journal": "memory", "policies": [Approve("pay")], **options}
    )


async def test_result_of_a_run_executes_nothing_whatever_became_of_it():
    agent = paying()
    waiting = await agent.run("Pay.", run_id="r")
    (key,) = waiting.questions
    seen = await agent.result("r")
    assert (seen.stop.kind, list(seen.questions)) == ("waiting", [key])
    going = await agent.resume("r", {key: "yes"}).begun()
    assert (await agent.result("r")).stop.kind == "running"
    going.abort()
    assert (await going).stop.kind == "cancelled"
    for _ in range(3):
        assert (await agent.result("r")).stop.kind == "cancelled"
    assert paid == []
    assert (await agent.journal.runs())[0].status == "cancelled"


async def test_result_of_a_completed_run_is_typed_and_that_of_none_is_an_error():
    agent = Agent(ScriptedModel(["[1, 2]"]), output=list[int], journal="memory")
    await agent.run("go", run_id="r")
    assert (await agent.result("r")).output == [1, 2]
    with pytest.raises(RunNotFound):
        await agent.result("another")


async def test_result_of_an_interrupted_run_is_released():
    agent = paying(policies=[])
    run = agent.run("Pay.", run_id="r").start()
    await run.begun()
    await run.let_go()
    assert (await agent.result("r")).stop.kind == "released"


async def test_begun_raises_what_stands_in_the_way_of_an_answer(caplog):
    agent = paying()
    waiting = await agent.run("Pay.", run_id="r")
    (key,) = waiting.questions
    with pytest.raises(InvalidState, match="there is no open question 'other'"):
        await agent.resume("r", {"other": "yes"}).begun()
    run = await agent.resume("r", {key: "yes"}).detach().begun()
    assert (await run).output == "Paid."
    with pytest.raises(InvalidState, match="already been answered"):
        await agent.resume("r", {key: "no"}).begun()


async def test_detached_run_that_cannot_begin_is_logged(caplog):
    agent = paying()
    await agent.run("Pay.", run_id="r")
    with caplog.at_level(logging.WARNING, "kaname"):
        agent.resume("r", {"other": "yes"}).detach()
        told = "a detached run failed: InvalidState: there is no open question 'other'"
        await until(lambda: told in caplog.text and len(asyncio.all_tasks()) == 1)
        gc.collect()
    assert "never retrieved" not in caplog.text


def test_resume_sync_is_for_code_without_an_event_loop(tmp_path):
    agent = paying(journal=tmp_path / "journal.db")
    waiting = agent.run_sync("Pay.")
    result = agent.resume_sync(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    assert result.output == "Paid."

    async def inside():
        agent.resume_sync(waiting.run_id)

    with pytest.raises(ConfigError, match="inside a running event loop") as told:
        asyncio.run(inside())
    assert told.value.__context__ is None, "no other error is shown before it"


async def test_open_agent_keeps_the_conversations_of_its_users_apart():
    """A server has one open agent for all of them."""
    requests = []

    def model(request):
        requests.append([message.text for message in request.messages])
        return "noted"

    async with Agent(ScriptedModel(model), journal="memory") as agent:
        await agent.run("I am Alice, and this is secret.", user_id="alice")
        await agent.run("I am Bob.", user_id="bob")
        await agent.run("Who am I?", user_id="alice")
        await agent.run("Hello.")
    assert requests[1] == ["I am Bob."]
    assert requests[2] == ["I am Alice, and this is secret.", "noted", "Who am I?"]
    assert requests[3] == ["Hello."]
