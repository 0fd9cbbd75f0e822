"""A run that was left waiting, together with forks, shared sessions, work in the background and another process."""

import asyncio
import json

import pytest

from kaname import Agent, Approve, Meeting, MemoryJournal, ScriptedModel, SqliteJournal, Team, ToolContext, call, tool
from kaname.cli.main import main
from kaname.run.request import SharedSession
from tests.parts import has_heard

SECONDS = 60


def seen(request):
    """What the model was shown of users and tools."""
    shown = [message for message in request.messages if message.role in ("user", "tool")]
    return "\n".join([one.text or str([part.output or part.error for part in one.parts]) for one in shown])


def cashier(journal, replies, paid, requests, **options):
    @tool
    def pay(yen: int) -> str:
        """Pay."""
        paid.append(yen)
        return f"paid {yen} yen"

    def reply(request):
        requests.append(request)
        return replies.pop(0)

    return Agent(ScriptedModel(reply), [pay], policies=[Approve("pay")], journal=journal, **options)


def yes(result):
    return dict.fromkeys(result.questions, "yes")


async def test_fork_of_a_later_turn_hears_what_became_of_the_run_and_its_next_turn_does_not_hear_it_again():
    paid, requests = [], []
    agent = cashier(
        MemoryJournal(), [call("pay", yen=10), "Please wait.", "Paid.", "It was paid.", "As I said."], paid, requests
    )
    first = await agent.run("Pay 10 yen", session_id="s")
    second = await agent.run("How long does it take?", session_id="s")
    await agent.resume(first.run_id, yes(first))
    fork = await agent.fork(second.run_id, user_input="And now?")
    assert "pay: paid 10 yen" in seen(requests[-1])
    await agent.fork(fork.run_id, user_input="Really?")
    assert seen(requests[-1]).count("was continued meanwhile") == 1
    assert (await agent.replay(fork.run_id)).same
    assert paid == [10]


async def test_fork_of_a_waiting_run_with_another_message_hears_what_became_of_it():
    paid, requests = [], []
    agent = cashier(MemoryJournal(), [call("pay", yen=10), "Please wait.", "Paid.", "It was paid."], paid, requests)
    first = await agent.run("Pay 10 yen")
    aside = await agent.fork(first.run_id, user_input="How long does it take?")
    await agent.resume(first.run_id, yes(first))
    await agent.fork(aside.run_id, user_input="And now?")
    assert "pay: paid 10 yen" in seen(requests[-1])
    assert paid == [10]


async def test_fork_that_makes_the_waiting_call_itself_hears_of_nothing():
    paid, requests = [], []
    agent = cashier(MemoryJournal(), [call("pay", yen=10), "Paid here.", "Paid there.", "Fine."], paid, requests)
    first = await agent.run("Pay 10 yen")
    fork = await agent.fork(first.run_id)
    assert (await agent.resume(fork.run_id, yes(fork))).output == "Paid here."
    await agent.resume(first.run_id, yes(first))
    await agent.fork(fork.run_id, user_input="And now?")
    assert "meanwhile" not in seen(requests[-1])


async def test_another_person_of_a_shared_session_hears_what_became_of_the_call():
    paid, requests, journal = [], [], MemoryJournal()
    agent = cashier(journal, [call("pay", yen=10), "Please wait.", "Paid.", "It was paid."], paid, requests, name="clerk")
    meeting = Meeting("desk", [agent], {"ann": "approve", "bob": "speak"})
    first = await meeting.speak("ann", "Pay 10 yen")
    await meeting.speak("bob", "How long does it take?")
    await meeting.answer("ann", first.run_id, yes(first))
    third = await meeting.speak("bob", "And now?")
    assert "pay: paid 10 yen" in seen(requests[-1])
    assert paid == [10]
    assert (await agent.replay(third.run_id)).same


async def test_another_agent_of_a_shared_session_hears_what_became_of_the_call():
    paid, requests, journal = [], [], MemoryJournal()
    clerk = cashier(journal, [call("pay", yen=10), "Paid."], paid, requests, name="clerk")
    guide = cashier(journal, ["Please wait.", "It was paid."], paid, requests, name="guide")
    first = await clerk.run("Pay 10 yen", session_id=SharedSession("desk"), user_id="ann")
    await guide.run("How long?", session_id=SharedSession("desk"), user_id="bob")
    await clerk.resume(first.run_id, yes(first))
    await guide.run("And now?", session_id=SharedSession("desk"), user_id="bob")
    assert "pay: paid 10 yen" in seen(requests[-1])


async def test_call_that_another_process_has_made_is_known(tmp_path):
    """Two agents with a connection each: the second approves, and the first has the conversation in its cache."""
    paid, requests = [], []
    journals = [SqliteJournal(tmp_path / "journal.db") for _ in range(2)]
    replies = [call("pay", yen=10), "Please wait.", "Paid.", "It was paid.", "As I said."]
    here, there = [cashier(one, replies, paid, requests) for one in journals]
    first = await here.run("Pay 10 yen", session_id="s")
    await here.run("How long?", session_id="s")
    await there.resume(first.run_id, yes(first))
    await here.run("And now?", session_id="s")
    assert "pay: paid 10 yen" in seen(requests[-1])
    await there.run("Really?", session_id="s")
    assert seen(requests[-1]).count("was continued meanwhile") == 1
    for journal in journals:
        await journal.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_run_that_waited_for_a_question_of_its_task_is_heard_of(kind, tmp_path):
    """The run has no call of its own that waits: its task asks, and the next turn begins meanwhile."""
    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "journal.db")
    paid, requests = [], []
    clerk = cashier(MemoryJournal(), [call("pay", yen=10), "The clerk has paid."], paid, [], name="clerk")

    @tool
    async def wait(context: ToolContext) -> str:
        """Wait until the run has heard the question of the clerk."""
        async with asyncio.timeout(SECONDS):
            while not has_heard(context):
                await asyncio.sleep(0.01)
        return "ok"

    replies = [call("delegate_to_agent", agent="clerk", task="Pay 10.", background=True), call("wait")]

    def reply(request):
        requests.append(request)
        return replies.pop(0)

    lead = Agent(
        ScriptedModel(reply), [wait], name="lead", team=Team([clerk], transfer=False, background=True), journal=journal
    )
    first = await asyncio.wait_for(lead.run("Have 10 yen paid.", session_id="s"), SECONDS)
    assert [key.endswith("clerk:approve:c1_0") for key in first.questions] == [True]
    replies += ["Please wait.", "The clerk works on it."]
    second = await asyncio.wait_for(lead.run("How long?", session_id="s"), SECONDS)
    assert len(second.questions) <= 1
    replies[:] = [call("tasks", action="collect", task="c1_0"), "The clerk has paid 10 yen."]
    done = await asyncio.wait_for(lead.resume(first.run_id, yes(first)), SECONDS)
    assert (done.output, paid) == ("The clerk has paid 10 yen.", [10])
    replies[:] = ["Paid, as I said.", "Paid, as I said."]
    if second.questions:
        await asyncio.wait_for(lead.resume(second.run_id), SECONDS)
    third = await asyncio.wait_for(lead.run("And now?", session_id="s"), SECONDS)
    assert not third.questions
    assert "The clerk has paid 10 yen." in seen(requests[-1])
    assert paid == [10]
    await journal.close()


PROGRAM = """
from kaname import Agent, Approve, ScriptedModel, Team, call, tool

@tool
def pay(yen: int) -> str:
    "Pay."
    with open("paid.txt", "a") as file:
        file.write(f"{yen} ")
    return f"paid {yen}"

def clerk_says(request):
    return call("pay", yen=int(request.messages[-1].text)) if request.messages[-1].role == "user" else "done"

def lead_says(request):
    last = request.messages[-1]
    return call("delegate_to_agent", agent="clerk", task=last.text, background=True) if last.role == "user" else "later"

clerk = Agent(ScriptedModel(clerk_says), [pay], name="clerk", policies=[Approve("pay")], journal="memory")
lead = Agent(ScriptedModel(lead_says), name="lead", team=Team([clerk], transfer=False, background=True), journal="journal.db")
"""


def test_equal_questions_of_work_in_the_background_are_answered_together(tmp_path, monkeypatch, capsys):
    """The runs have ended; their tasks wait for the same approval. Another one stays open."""
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    for yen in ("5", "5", "6", "5"):
        main(["run", "-a", "program.py:lead", yen])
    capsys.readouterr()
    main(["runs", "--journal", "journal.db", "--json"])
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    first = next(one["run_id"] for one in listed if one["title"] == "5" and "/" not in one["run_id"])
    assert (
        main(["runs", "resume", first, "--answer", "yes", "--equal", "-a", "program.py:lead", "--journal", "journal.db"]) == 0
    )
    assert (tmp_path / "paid.txt").read_text() == "5 5 5 "
