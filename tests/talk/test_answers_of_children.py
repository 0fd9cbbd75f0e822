"""Questions of child runs and of work in the background: who can answer them, until when, and what an answer does."""

import asyncio
import time

import httpx
import pytest

import kaname.serve
from kaname import (
    Agent,
    Approve,
    InvalidState,
    MemoryJournal,
    RunBusy,
    ScriptedModel,
    SqliteJournal,
    Team,
    Worker,
    call,
    max_steps,
    tool,
)
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
        if last.text == "Pay.":
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
    (grant,) = await journal.stores.grants.all()
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


async def test_question_of_a_child_is_asked_anew_if_its_parent_was_stopped_while_another_tool_worked(journal):
    working, blocks = asyncio.Event(), [True]

    @tool(effect="pure")
    async def work() -> str:
        """Work, for long at the first time."""
        working.set()
        if blocks:
            await asyncio.sleep(SECONDS)
        return "done"

    def reply(request):
        last = request.messages[-1]
        if last.text == "Pay.":
            return [call("delegate_to_agent", agent="payer", task="Pay."), call("work")]
        return str([part.output or part.error for part in last.parts])

    team = Team((payer(Approve("pay", expires=0.05, then="approve")),))
    agent = Agent(ScriptedModel(reply), [work], name="lead", journal=journal, team=team)
    run = agent.run("Pay.").start()
    await working.wait()
    child_id = await until(journal, "waiting", "payer")
    run.abort()
    assert (await run).stop.kind == "cancelled"
    (asked,) = (await agent.result(child_id)).questions.values()
    await after(asked.until)
    blocks.clear()
    again = await agent.resume(run.run_id)
    assert again.stop.kind == "waiting"
    assert all(one.until > asked.until for one in again.questions.values())
    said = [event.body async for event in journal.read(child_id) if isinstance(event.body, Answered)]
    assert said == [], "nobody has answered"


async def test_answer_in_time_counts_for_a_child_that_takes_it_later(journal, monkeypatch):
    agent = lead(journal, Approve("pay", expires="1h"))
    asked = await agent.run("Pay.", user_id="ken")
    run = agent.resume(asked.run_id, dict.fromkeys(asked.questions, "yes"), by="mia")
    await run.begun()  # the answer is on disk, and the child has not begun
    now = time.time
    monkeypatch.setattr("kaname.people.answers.time.time", lambda: now() + 7200)
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
    resuming = asyncio.ensure_future(agent.resume(ended.run_id, {key: "yes"}))
    asyncio.get_running_loop().call_later(0.1, rest.set)
    await asyncio.wait_for(resuming, SECONDS)
    await until(journal, "completed", "payer")


async def answers_of(journal, run_id):
    said = [event.body async for event in journal.read(run_id) if isinstance(event.body, Answered)]
    return [one.answer for one in said]


async def test_answer_that_the_task_of_an_ended_run_does_not_accept_is_refused_and_another_one_counts_once(journal):
    agent, ended, key = await in_background(journal, Approve("pay"))
    with pytest.raises(InvalidState, match="changed arguments were not accepted"):
        await agent.resume(ended.run_id, {key: {"args": {"yen": "much"}}})
    assert [*(await agent.result(ended.run_id)).questions] == [key]
    for _ in range(2):  # the second time it changes nothing
        await agent.resume(ended.run_id, {key: {"args": {"yen": 4}}})
        child = await until(journal, "completed", "payer")
    with pytest.raises(InvalidState, match="already been answered"):
        await agent.resume(ended.run_id, {key: "no"})
    assert await answers_of(journal, child) == [{"args": {"yen": 4}}]
    assert (await agent.result(child)).output == "paid 4"


async def test_submitted_answer_to_the_task_of_an_ended_run_is_recorded_and_a_worker_continues_it(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent, ended, key = await in_background(journal, Approve("pay"))
    child = key.partition(":")[0]
    with pytest.raises(InvalidState, match="changed arguments were not accepted"):
        await agent.submit_answers(ended.run_id, {key: {"args": {}}}, by="mia")
    await agent.submit_answers(ended.run_id, {key: "yes"}, by="mia")
    assert await answers_of(journal, child) == ["yes"]
    assert not (await agent.result(child)).completed, "that is the work of a worker"
    worker = Worker([agent])
    working = asyncio.create_task(worker.work())
    await until(journal, "completed", "payer")
    worker.stop()
    await asyncio.wait_for(working, SECONDS)


async def test_of_two_answers_at_once_to_the_task_of_an_ended_run_one_is_refused(journal):
    agent, ended, key = await in_background(journal, Approve("pay"))
    both = [agent.resume(ended.run_id, {key: answer}) for answer in ("yes", "no")]
    told = await asyncio.wait_for(asyncio.gather(*both, return_exceptions=True), SECONDS)
    assert [type(one) for one in told if isinstance(one, Exception)] == [InvalidState], told
    child = await until(journal, "completed", "payer")
    taken = "no" if isinstance(told[0], Exception) else "yes"
    assert await answers_of(journal, child) == [taken]


async def test_task_goes_on_although_another_answer_to_it_is_being_refused_meanwhile(journal):
    agent, ended, key = await in_background(journal, Approve("pay"))
    child, claim, claims = key.partition(":")[0], journal.claim, []
    both_claim, first_has_returned = asyncio.Event(), asyncio.Event()

    async def claimed(run_id, **more):
        if run_id == child:
            claims.append(run_id)
            if len(claims) == 1:
                await both_claim.wait()
            elif len(claims) == 2:
                both_claim.set()
                await first_has_returned.wait()
        return await claim(run_id, **more)

    async def answer(word):
        return await agent.resume(ended.run_id, {key: word})

    journal.claim = claimed
    async with asyncio.timeout(SECONDS):
        both = [asyncio.create_task(answer(word)) for word in ("yes", "no")]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        first_has_returned.set()
        told = await asyncio.gather(*both, return_exceptions=True)
    assert [type(one) for one in told if isinstance(one, Exception)] == [InvalidState], told
    assert await until(journal, "completed", "payer") == child
    assert len(await answers_of(journal, child)) == 1


async def test_task_that_another_holds_for_a_moment_after_its_answer_goes_on(journal):
    agent, ended, key = await in_background(journal, Approve("pay"))
    child, release, held = key.partition(":")[0], journal.release, []

    async def released(run_id, epoch):
        await release(run_id, epoch)
        if run_id == child and not held and await answers_of(journal, child):
            held.append(await journal.claim(child))  # by one whose answer comes too late

    journal.release = released
    await agent.resume(ended.run_id, {key: "yes"})
    await release(child, held[0].epoch)
    assert await until(journal, "completed", "payer") == child
    assert await answers_of(journal, child) == ["yes"]


async def test_task_is_stopped_although_who_held_it_has_not_read_that_it_should_stop(journal):
    agent, ended, key = await in_background(journal, Approve("pay"))
    child, release, held = key.partition(":")[0], journal.release, []

    async def released(run_id, epoch):
        await release(run_id, epoch)
        if run_id == child and not held and await answers_of(journal, child):
            held.append(await journal.claim(child))

    journal.release = released
    await agent.resume(ended.run_id, {key: "yes"})
    assert await agent.stop(ended.run_id)
    await release(child, held[0].epoch)
    assert await until(journal, "cancelled", "payer") == child


async def test_answer_waits_for_the_task_of_an_ended_run_that_another_process_executes(journal, monkeypatch):
    agent, ended, key = await in_background(journal, Approve("pay"))
    child, busy, claim = key.partition(":")[0], asyncio.Event(), journal.claim
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                lease = await claim(child)
                break
            except RunBusy:  # it has asked, and is about to rest
                await asyncio.sleep(0.01)

    async def watched(*given, **how):
        try:
            return await claim(*given, **how)
        except RunBusy:
            busy.set()
            raise

    monkeypatch.setattr("kaname.run.opener._BUSY", SECONDS)
    journal.claim = watched
    resuming = asyncio.ensure_future(agent.resume(ended.run_id, {key: "yes"}))
    await asyncio.wait_for(busy.wait(), SECONDS)
    assert not resuming.done(), "nothing is recorded yet"
    await journal.release(child, lease.epoch)
    await asyncio.wait_for(resuming, SECONDS)
    assert await answers_of(journal, child) == ["yes"]
    await until(journal, "completed", "payer")


@pytest.mark.parametrize("more", [{}, {"background": True}], ids=["waited for", "in the background"])
async def test_question_of_a_childs_child_is_answered_again_after_changed_arguments_were_not_accepted(journal, more):
    def pass_on(request):
        last = request.messages[-1]
        return call("delegate_to_agent", agent="payer", task="Pay.") if last.role == "user" else last.parts[0].output

    def reply(request):
        last = request.messages[-1]
        if last.role == "user":
            return call("delegate_to_agent", agent="middle", task="Pay.", **more)
        return "later" if more else last.parts[0].output

    middle = Agent(ScriptedModel(pass_on), name="middle", team=[payer(Approve("pay"))], journal=MemoryJournal())
    agent = Agent(ScriptedModel(reply), name="lead", journal=journal, team=Team((middle,), background=bool(more)))
    asked = await asyncio.wait_for(agent.run("Pay."), SECONDS)
    seen = set()

    async def question():
        async with asyncio.timeout(SECONDS):
            while not (found := {*(await agent.result(asked.run_id)).questions} - seen):
                await asyncio.sleep(0.01)
        seen.update(found)
        return found.pop()

    for wrong in ({"yen": "much"}, {}):
        await asyncio.wait_for(agent.resume(asked.run_id, {await question(): {"args": wrong}}), SECONDS)
    await asyncio.wait_for(agent.resume(asked.run_id, {await question(): {"args": {"yen": 4}}}), SECONDS)
    child = await until(journal, "completed", "payer")
    assert (await agent.result(child)).output == "paid 4"


async def test_task_that_was_stopped_asks_nothing(journal):
    agent, ended, key = await in_background(journal, Approve("pay"))
    assert await agent.stop(ended.run_id)
    await until(journal, "cancelled", "payer")
    assert not (await agent.result(ended.run_id)).questions
    with pytest.raises(InvalidState, match="no open question"):
        await agent.resume(ended.run_id, {key: "yes"})


async def test_question_of_a_task_that_was_answered_at_an_earlier_run_is_answered_for_the_next_run_too(journal):
    agent, ended, key = await in_background(journal, Approve("pay"))
    second = await asyncio.wait_for(agent.run("And?", session_id="s", user_id="ken"), SECONDS)
    assert [*second.questions] == [key]
    await agent.resume(ended.run_id, {key: "yes"}, by="mia")
    await until(journal, "completed", "payer")
    with pytest.raises(InvalidState, match="already been answered with 'yes'"):
        await agent.resume(second.run_id, {key: "no"})
    assert (await asyncio.wait_for(agent.resume(second.run_id), SECONDS)).output == "later"
    assert await answers_of(journal, second.run_id) == ["yes"]


async def test_answer_to_a_task_leaves_the_later_run_of_its_session_that_reached_a_limit_as_it_is(journal):
    go = asyncio.Event()

    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return "seen"

    def reply(request):
        if request.messages[-1].text == "Pay.":
            return call("delegate_to_agent", agent="payer", task="Pay.", background=True)
        return call("look") if request.tools and len(request.messages) > 4 else "later"

    team = Team((payer(Approve("pay"), go),), background=True)
    agent = Agent(ScriptedModel(reply), [look], name="lead", journal=journal, team=team, stops=max_steps(2))
    await asyncio.wait_for(agent.run("Pay.", session_id="s"), SECONDS)
    second = await asyncio.wait_for(agent.run("Look.", session_id="s"), SECONDS)
    assert second.stop.kind == "max_steps"
    go.set()
    await until(journal, "waiting", "payer")
    (key,) = (await agent.result(second.run_id)).questions
    app = kaname.serve.app(agent, recover=False, mcp=False, a2a=False)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=SECONDS) as http:
        wrong = await http.post(f"/api/runs/{second.run_id}/answers", json={"answers": {f"{key}x": "yes"}})
        assert wrong.status_code == 409
        told = await http.post(f"/api/runs/{second.run_id}/answers", json={"answers": {key: "yes"}, "mode": "wait"})
    assert told.status_code == 200, told.text
    await until(journal, "completed", "payer")
    assert (await agent.result(second.run_id)).attempt == 1, "it was not resumed"
