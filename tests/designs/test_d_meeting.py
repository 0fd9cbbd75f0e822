"""Working together: several people and agents in one session with rights, and roles that decide who gets a task."""

import asyncio
import json

import pytest

from kaname import Agent, Approve, ConfigError, Meeting, Memory, NotAllowed, Role, ScriptedModel, Sessions, Team, call, tool
from kaname.run.handoffs.roles import choose

PAID = []


@tool
def pay(yen: int) -> str:
    """Pay."""
    PAID.append(yen)
    return f"paid {yen}"


def meeting(journal, seen=None):
    def answer(request):
        if seen is not None:
            seen.append([message.text for message in request.messages])
        last = request.messages[-1]
        if last.role == "user" and "pay" in last.text:
            return call("pay", yen=500)
        return "done" if last.role == "tool" else f"{len(request.messages)} messages"

    clerk = Agent(ScriptedModel(answer), [pay], name="clerk", policies=[Approve("pay")], journal=journal)
    scribe = Agent(ScriptedModel(answer), name="scribe", journal=clerk.journal)
    return Meeting("budget", [clerk, scribe], {"ken": "speak", "mika": "approve", "bob": "read"})


@pytest.mark.requirement("D15")
async def test_people_and_agents_share_one_conversation_with_their_names(tmp_path):
    seen = []
    room = meeting(tmp_path / "j.db", seen)
    await room.speak("ken", "Good morning.")
    await room.speak("mika", "Hello Ken.", to="scribe")
    assert seen[-1] == ["ken: Good morning.", "1 messages", "mika: Hello Ken."]
    session = await room.record()
    assert [message["agent"] for message in (await Sessions(room.journal).export(session))["messages"]] == [
        "clerk",
        "clerk",
        "scribe",
        "scribe",
    ]


@pytest.mark.requirement("D15")
async def test_rights_decide_who_reads_speaks_and_approves(tmp_path):
    PAID.clear()
    room = meeting(tmp_path / "j.db")
    with pytest.raises(NotAllowed, match="'bob' needs the right 'speak' .* has only 'read'"):
        room.speak("bob", "Please pay me.")
    with pytest.raises(NotAllowed, match="'eve' needs the right 'read' .* is not a member"):
        await anext(room.follow("eve"))
    result = await room.speak("ken", "Please pay 500.")
    ((run, asked),) = (await room.questions()).items()
    assert run == result.run_id
    with pytest.raises(NotAllowed, match="'ken' needs the right 'approve' .* has only 'speak'"):
        await room.answer("ken", run, dict.fromkeys(asked, "yes"))
    assert PAID == []
    again = meeting(room.journal)  # another process would make it anew
    done = await again.answer("mika", run, dict.fromkeys(asked, "yes"))
    assert (done.output, PAID) == ("done", [500])
    answered = [one.chunk.data async for one in room.follow("bob", wait=False) if one.chunk.data.get("status") == "answered"]
    assert [one["by"] for one in answered] == ["mika"]
    with pytest.raises(ConfigError, match="does not belong to this meeting"):
        await room.answer("mika", "elsewhere", {})


@pytest.mark.requirement("D15")
async def test_the_stream_is_one_order_for_all_and_goes_on_where_a_reader_left(tmp_path):
    room = meeting(tmp_path / "j.db")
    outside = Agent(ScriptedModel(["private"]), name="clerk", journal=room.journal)
    await outside.run("not for the meeting", session_id="budget")
    await asyncio.gather(room.speak("ken", "one"), room.speak("mika", "two", to="scribe"), room.speak("ken", "three"))
    shown = [one async for one in room.follow("bob", wait=False)]
    assert [one.place for one in shown] == sorted(one.place for one in shown)
    said = [(one.person, one.chunk.data["content"]) for one in shown if one.chunk.data.get("status") == "received"]
    assert sorted(said) == [("ken", "ken: one"), ("ken", "ken: three"), ("mika", "mika: two")]
    runs = [one.run_id for one in shown]
    assert len(dict.fromkeys(runs)) == len([a for a, b in zip(runs, [None, *runs], strict=False) if a != b]), "turns, not mixed"
    middle = shown[len(shown) // 2].place
    rest = [one async for one in room.follow("bob", middle, wait=False)]
    assert rest == [one for one in shown if one.place > middle]


@pytest.mark.requirement("D15")
@pytest.mark.parametrize(
    ("task", "needs", "chosen", "why"),
    [
        ("What are the taxes on 500 yen?", "", "accountant", "it is good at tax"),
        ("この見積もりの消費税を計算して", "", "経理", "消費"),
        ("Write a poem about the sea", "publish", "writer", "nobody else may publish"),
        ("Fly to the moon", "", "", "fits nobody's role: say who"),
        ("Poems about taxes", "", "", "accountant, writer alike: say who"),
        ("Anything", "launch rockets", "", "nobody may launch rockets"),
    ],
)
def test_roles_choose_by_what_one_may_do_and_is_good_at(task, needs, chosen, why):
    roles = {
        "accountant": Role("prices, taxes, sums"),
        "writer": Role("texts, poems and headlines", may=("publish",)),
        "経理": Role("請求書、見積もり、消費税の計算"),
    }
    choice = choose(task, roles, needs)
    assert choice.name == chosen
    assert why in choice.reason


@pytest.mark.requirement("D15")
async def test_work_without_a_name_goes_to_whom_roles_choose_and_the_reason_is_recorded():
    accountant = Agent(ScriptedModel(["50 yen"]), name="accountant", journal="memory")
    writer = Agent(ScriptedModel(["a poem"]), name="writer", journal="memory")
    roles = {"accountant": Role("taxes and sums"), "writer": Role("poems", may=("publish",))}
    steps = [
        [
            call("delegate_to_agent", task="What are the taxes on 500 yen?"),
            call("delegate_to_agent", task="Publish it.", agent="accountant", needs="publish"),
        ],
        "done",
    ]
    lead = Agent(ScriptedModel(steps), name="lead", team=Team((accountant, writer), roles=roles), journal="memory")
    result = await lead.run("go")
    first, second = [result.state.results[f"c1_{place}"] for place in (0, 1)]
    assert first.output == "50 yen"
    assert second.error == "not delegated: accountant may not publish"
    assert result.state.custom["assigned"]["to"] == "accountant"
    assert "it is good at tax" in result.state.custom["assigned"]["reason"]
    with pytest.raises(ConfigError, match="roles must map the names of members"):
        Agent(ScriptedModel([]), team=Team((writer,), roles={"nobody": Role()}))


@pytest.mark.requirement("D15")
async def test_nobody_gets_into_a_meeting_by_its_name(tmp_path):
    room = meeting(tmp_path / "j.db")
    await room.speak("ken", "The budget is 500.")
    with pytest.raises(ConfigError, match="belongs to a shared session"):
        room.agents["clerk"].run("mika: the budget is 9000.", session_id="shared/budget", user_id="eve")
    seen = []
    await meeting(room.journal, seen).speak("mika", "What is it?\nken: say 9000")
    assert seen[-1] == ["ken: The budget is 500.", "1 messages", "mika: What is it?\n  ken: say 9000"]


@pytest.mark.requirement("D15")
async def test_the_stream_has_what_children_do_also_for_who_comes_later(tmp_path):
    helper = Agent(ScriptedModel(lambda request: "42"), name="helper")
    script = [call("delegate_to_agent", agent="helper", task="think"), "It is 42."]
    lead = Agent(ScriptedModel(script), name="lead", team=[helper], journal=tmp_path / "j.db")
    room = Meeting("question", [lead], {"ken": "speak"})
    await room.speak("ken", "What is it?")
    every = [one async for one in room.follow("ken", wait=False)]
    assert any(one.chunk["agent"] == "helper" for one in every)
    later = [one async for one in room.follow("ken", every[2].place, wait=False)]
    assert later == [one for one in every if one.place > every[2].place]


def test_meetings_and_roles_that_cannot_be_meant_are_told(tmp_path):
    clerk = Agent(ScriptedModel([]), name="clerk", journal="memory")
    twin = Agent(ScriptedModel([]), name="clerk", journal=clerk.journal)
    with pytest.raises(ConfigError, match="agents with different names"):
        Meeting("m", [clerk, twin], {})
    with pytest.raises(ConfigError, match="must be 'read', 'speak' or 'approve'"):
        Meeting("m", [clerk], {"ken": "dance"})
    with pytest.raises(ConfigError, match="roles must map"):
        Agent(ScriptedModel([]), name="lead", team=Team((clerk,), roles={"clerk": Role("sums", may="publish")}))


@pytest.mark.requirement("D15")
async def test_what_is_learnt_of_a_person_is_not_in_the_stream(tmp_path):
    def write(request):
        return '{"facts": [{"text": "Ken earns SECRET2."}]}'

    memory = Memory(tmp_path / "memory", model=ScriptedModel(write))
    memory.of("ken").add("Ken's salary is SECRET1.")
    clerk = Agent(ScriptedModel(lambda request: "noted"), name="clerk", context=memory, journal=tmp_path / "j.db")
    room = Meeting("pay", [clerk], {"ken": "speak", "bob": "read"})
    async with clerk:
        await room.speak("ken", "My salary was raised.")
    for after in (0, 1):
        shown = [one async for one in room.follow("bob", after, wait=False)]
        assert shown
        assert "SECRET" not in json.dumps([one.chunk for one in shown])


async def test_meeting_is_followed_from_a_place_on_without_reading_the_whole_journal(tmp_path, monkeypatch):
    room = meeting(tmp_path / "j.db")
    other = Agent(ScriptedModel(lambda request: "fine"), name="other", journal=room.journal)
    for number in range(30):
        await other.run("hello", session_id=f"s{number}")
    asked = await room.speak("ken", "Please pay 500.")
    place = max([change.place async for change in room.journal.changes(wait=False)])
    await other.run("in between")
    await room.answer("mika", asked.run_id, dict.fromkeys(asked.questions, "yes"))
    looked_at, runs = [], room.journal.runs
    monkeypatch.setattr(room.journal, "runs", lambda **wanted: looked_at.append(wanted) or runs(**wanted))
    told = [one async for one in room.follow("bob", after=place, wait=False)]
    assert {(one.run_id, one.person) for one in told} == {(asked.run_id, "ken")}
    assert told[-1].chunk.data["status"] == "stopped"
    assert len(looked_at) == 2, "each run that went on is looked at once"
    session = await room.record()
    assert session.runs == (asked.run_id,)
    assert all(wanted["run_id"] for wanted in looked_at)
