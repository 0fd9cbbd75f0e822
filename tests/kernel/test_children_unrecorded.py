"""A child that the journal cannot record fails its parent's run, which is resumed with it. For the model, nothing has failed."""

import pytest

from kaname import Agent, MemoryJournal, ScriptedModel, call, tool
from kaname.core.errors import JournalError


class FailsOnce(MemoryJournal):
    """A journal that cannot write one fact of a child, once."""

    def __init__(self, seq):
        super().__init__()
        self.seq = seq

    async def append(self, events, epoch, **more):
        if "/" in events[0].run_id and any(event.seq == self.seq for event in events):
            self.seq = 0
            raise JournalError("the disk has failed")
        await super().append(events, epoch, **more)


@tool(effect="idempotent")
async def put(what: str) -> str:
    """Store something."""
    return f"{what} is stored"


@tool(effect="idempotent", background=True)
async def put_later(what: str) -> str:
    """Store something, later."""
    return f"{what} is stored"


async def completed_again(agent, run_id):
    with pytest.raises(JournalError, match="the disk has failed"):
        await agent.run("Go.", run_id=run_id)
    result = await agent.resume(run_id)
    assert result.stop.kind == "completed"
    assert {card.status for card in await agent.journal.runs()} == {"completed"}
    return result


@pytest.mark.parametrize("seq", [1, 3, 4, 6])
async def test_delegated_work_that_could_not_be_recorded_is_resumed_with_its_parent(seq):
    helper = Agent(ScriptedModel([call("put", what="tea"), "The tea is stored."]), [put], name="helper")
    head = ScriptedModel([call("delegate_to_agent", agent="helper", task="Store the tea."), "Stored."])
    result = await completed_again(Agent(head, name="head", team=[helper], journal=FailsOnce(seq)), "r")
    assert [step.observation for step in result.steps if step.action] == ["The tea is stored."]


@pytest.mark.parametrize("seq", [1, 2])
async def test_task_in_the_background_that_could_not_begin_is_started_again_with_its_parent(seq):
    model = ScriptedModel([call("put_later", what="tea"), call("tasks", action="collect", task="c1_0"), "Stored."])
    result = await completed_again(Agent(model, [put_later], journal=FailsOnce(seq)), "r")
    assert result.steps[1].observation == "tea is stored"


@pytest.mark.parametrize("seq", [4, 5])
async def test_task_in_the_background_that_could_not_be_recorded_is_resumed_when_it_is_collected(seq):
    model = ScriptedModel([call("put_later", what="tea"), call("tasks", action="collect", task="c1_0"), "Stored."])
    agent = Agent(model, [put_later], journal=FailsOnce(seq))
    result = await agent.run("Go.", run_id="r")
    assert result.steps[1].observation == "tea is stored"
    assert {card.status for card in await agent.journal.runs()} == {"completed"}
