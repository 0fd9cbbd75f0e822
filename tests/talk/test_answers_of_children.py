"""Questions of child runs and of work in the background: who can answer them, until when, and what an answer does."""

import asyncio
import time

import pytest

from kaname import Agent, Approve, InvalidState, MemoryJournal, ScriptedModel, SqliteJournal, Team, call, tool
from kaname.core.events import Answered
from kaname.core.messages import Message, ModelReply, assistant

from .test_background import SECONDS, until
from .test_lasting_approvals import after


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    return MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")


class Paying:
    """A model that pays once, when it is let go, and answers with the result."""

    name = "paying"

    def __init__(self, go):
        self.go = go

    async def reply(self, request, emit):
        await self.go.wait()
        last = request.messages[-1]
        if last.role == "user":
            return ModelReply(Message("assistant", (call("pay", yen=10),)))
        return ModelReply(assistant(last.parts[0].output or last.parts[0].error))


def payer(policy, go=None):
    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return f"paid {yen}"

    if go is None:
        go = asyncio.Event()
        go.set()
    return Agent(Paying(go), [pay], name="payer", policies=[policy], journal=MemoryJournal())


def lead(journal, policy, go=None, **more):
    """An agent that lets the payer pay, and answers with what it says."""

    def reply(request):
        last = request.messages[-1]
        if last.role == "user":
            return call("delegate_to_agent", agent="payer", task="Pay.", **more)
        return "later" if more else last.parts[0].output

    team = Team((payer(policy, go),), background=bool(more))
    return Agent(ScriptedModel(reply), name="lead", journal=journal, team=team)


async def test_question_of_a_child_is_answered_by_another_person_whose_name_is_recorded(journal):
    agent = lead(journal, Approve("pay", by="other"))
    asked = await agent.run("Pay.", user_id="ken")
    (key,) = asked.questions
    for by in ("", "ken"):
        with pytest.raises(InvalidState, match="another person than 'ken'"):
            await agent.resume(asked.run_id, {key: "yes"}, by=by)
    result = await agent.resume(asked.run_id, {key: "yes"}, by="mia")
    assert result.output == "paid 10"
    (child,) = await journal.runs(agent="payer")
    said = [event.body async for event in journal.read(child.run_id) if isinstance(event.body, Answered)]
    assert [(one.answer, one.by) for one in said] == [("yes", "mia")]


async def test_lasting_approval_of_a_childs_call_names_the_person_who_gave_it(journal):
    agent = lead(journal, Approve("pay", by="other"))
    asked = await agent.run("Pay.", user_id="ken")
    always = {key: {"approved": True, "for": "always"} for key in asked.questions}
    assert (await agent.resume(asked.run_id, always, by="mia")).completed
    (grant,) = await journal.grants.all()
    assert (grant.agent, grant.user, grant.by) == ("payer", "ken", "mia")
    assert (await agent.run("Pay.", user_id="ken")).output == "paid 10", "nobody is asked"


@pytest.mark.parametrize(("then", "told"), [("approve", "paid 10"), ("refuse", "the question was not answered in time")])
async def test_question_of_a_child_that_expires_is_decided_by_its_own_rule(journal, then, told):
    agent = lead(journal, Approve("pay", by="other", expires=0.05, then=then))
    asked = await agent.run("Pay.", user_id="ken")
    (key,) = asked.questions
    await after(asked.questions[key].until)
    with pytest.raises(InvalidState, match="has expired"):
        await agent.resume(asked.run_id, {key: "yes"}, by="mia")
    result = await agent.resume(asked.run_id)
    assert told in result.output
    (child,) = await journal.runs(agent="payer")
    said = [event.body async for event in journal.read(child.run_id) if isinstance(event.body, Answered)]
    assert [one.by for one in said] == [""], "nobody has answered"


async def test_answer_in_time_counts_for_a_child_that_takes_it_later(journal, monkeypatch):
    agent = lead(journal, Approve("pay", expires="1h"))
    asked = await agent.run("Pay.", user_id="ken")
    run = agent.resume(asked.run_id, dict.fromkeys(asked.questions, "yes"), by="mia")
    await run.begun()  # the answer is on disk, and the child has not begun
    now = time.time
    monkeypatch.setattr("kaname.agent.opening.answers.time.time", lambda: now() + 7200)
    assert (await run).output == "paid 10"


async def in_background(journal, policy):
    """Return the lead, its run that has ended, and the question of the task that it has left behind."""
    go = asyncio.Event()
    agent = lead(journal, policy, go, background=True)
    ended = await asyncio.wait_for(agent.run("Pay.", user_id="ken", session_id="s"), SECONDS)
    assert ended.output == "later"
    go.set()
    return agent, ended, f"{await until(journal, 'waiting', 'payer')}:approve:c1_0"


async def test_question_of_a_task_whose_run_has_ended_is_listed_and_checked_like_any_other(journal):
    agent, ended, key = await in_background(journal, Approve("pay", by="other"))
    (asked,) = (await agent.result(ended.run_id)).questions.values()
    assert (asked.key, asked.about.args) == (key, {"yen": 10})
    for answer, by, why in [("yes", "ken", "another person"), ("yes", "", "another person"), (7, "mia", "not clear")]:
        with pytest.raises(InvalidState, match=why):
            await agent.resume(ended.run_id, {key: answer}, by=by)
    with pytest.raises(InvalidState, match="no open question"):
        await agent.resume(ended.run_id, {f"{key}x": "yes"}, by="mia")
    await agent.resume(ended.run_id, {key: "yes"}, by="mia")
    await until(journal, "completed", "payer")
    assert not (await agent.result(ended.run_id)).questions


async def test_question_of_a_task_that_expires_after_its_run_has_ended_is_decided_by_its_rule(journal):
    agent, ended, key = await in_background(journal, Approve("pay", expires=0.3, then="approve"))
    (asked,) = (await agent.result(ended.run_id)).questions.values()
    await after(asked.until)
    with pytest.raises(InvalidState, match="has expired"):
        await agent.resume(ended.run_id, {key: "no"}, by="mia")
    await agent.resume(ended.run_id)
    child = await until(journal, "completed", "payer")
    assert (await agent.result(child)).output == "paid 10"


async def test_an_answer_that_differs_in_how_long_it_holds_is_another_answer(journal):
    agent = payer(Approve("pay"))
    asked = await agent.run("Pay.")
    (key,) = asked.questions
    await agent.resume(asked.run_id, {key: {"approved": True, "for": "run"}})
    with pytest.raises(InvalidState, match="already been answered"):
        await agent.resume(asked.run_id, {key: {"approved": True}})


async def test_answer_reaches_a_task_that_is_still_at_work_when_it_is_given(journal):
    go, rest, asked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    release = journal.release

    async def rest_late(*given):
        asked.set()
        await rest.wait()
        await release(*given)

    agent = lead(journal, Approve("pay"), go, background=True)
    ended = await asyncio.wait_for(agent.run("Pay."), SECONDS)
    journal.release = rest_late
    go.set()
    key = f"{await until(journal, 'waiting', 'payer')}:approve:c1_0"
    await asyncio.wait_for(asked.wait(), SECONDS)
    resuming = asyncio.ensure_future(agent.resume(ended.run_id, {key: "yes"})._result())
    asyncio.get_running_loop().call_later(0.1, rest.set)
    await asyncio.wait_for(resuming, SECONDS)
    await until(journal, "completed", "payer")
