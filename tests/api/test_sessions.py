"""`Sessions`: which conversations there are, and what can be done with them."""

import pytest

from kaname import Agent, Compact, ConfigError, RunNotFound, ScriptedModel, Sessions, SharedSession
from kaname.core.messages import ModelReply, assistant


@pytest.fixture(params=["memory", "j.db"])
async def journal(request, tmp_path):
    agent = Agent(ScriptedModel(lambda r: f"You said {r.messages[-1].text}"), name="helper", journal=_place(request, tmp_path))
    other = Agent(ScriptedModel(lambda r: "fine"), name="other", journal=agent.journal)
    await agent.run("I keep bees.", session_id="a", user_id="ken")
    await agent.run("They make honey.", session_id="a", user_id="ken")
    await agent.run("Hello from Mika", session_id="a", user_id="mika")
    await other.run("蜂について", session_id="b", user_id="ken")
    await agent.run("no session")
    await agent.run("Good morning", session_id=SharedSession("team"), user_id="ken")
    await other.run("Good evening", session_id=SharedSession("team"), user_id="mika")
    yield agent.journal
    await agent.journal.close()


def _place(request, tmp_path):
    return "memory" if request.param == "memory" else tmp_path / request.param


async def test_sessions_are_told_apart_by_agent_and_user(journal):
    listed = await Sessions(journal).all()
    told = [(one.id, one.agent, one.user, len(one.runs), one.title) for one in listed]
    assert told == [
        ("shared/team", "other", "mika", 2, "Good morning"),
        ("b", "other", "ken", 1, "蜂について"),
        ("a", "helper", "mika", 1, "Hello from Mika"),
        ("a", "helper", "ken", 2, "I keep bees."),
    ]
    assert [one.id for one in await Sessions(journal).all(user="ken", agent="helper")] == ["shared/team", "a"]


async def test_a_session_is_found_by_its_beginning_and_doubt_is_told(journal):
    sessions = Sessions(journal)
    assert (await sessions.get("shared")).id == "shared/team"
    assert (await sessions.get("I keep")).user == "ken"
    with pytest.raises(ConfigError, match=r"'a' matches several sessions: a \(helper, mika\), a \(helper, ken\)"):
        await sessions.get("a")
    assert (await sessions.get("a", user="ken")).title == "I keep bees."
    with pytest.raises(ConfigError, match="there is no session 'zebra'"):
        await sessions.get("zebra")


async def test_a_session_is_renamed_and_goes_on(journal):
    sessions = Sessions(journal)
    await sessions.rename(await sessions.get("a", user="ken"), "All about\nbees")
    assert (await sessions.get("a", user="ken")).title == "All about bees"
    agent = Agent(ScriptedModel(lambda r: str(len(r.messages))), name="helper", journal=journal)
    assert (await agent.run("and?", session_id="a", user_id="ken")).output == "5"
    assert (await sessions.get("a", user="ken")).title == "All about bees"
    with pytest.raises(ConfigError, match="title must not be empty"):
        await sessions.rename(await sessions.get("b"), "  ")


async def test_sessions_are_searched_in_what_was_said(journal):
    found = await Sessions(journal).search("honey")
    assert [(session.id, session.user) for session, _ in found] == [("a", "ken")]
    assert found[0][1][0].text in ("They make honey.", "You said They make honey.")
    assert [session.id for session, _ in await Sessions(journal).search("蜂について")] == ["b"]
    assert [session.id for session, _ in await Sessions(journal).search("蜂")] == ["b"]
    assert await Sessions(journal).search("zeppelin") == []


async def test_an_export_has_all_that_was_said_also_what_was_summed_up():
    class Summary:
        name = "summary"

        async def reply(self, request, emit):
            return ModelReply(assistant("short"))

    agent = Agent(ScriptedModel(lambda r: "fine " * 40), context=Compact(200, 60, model=Summary()), journal="memory")
    for number in range(5):
        await agent.run(f"Number {number} " * 20, session_id="s")
    sessions = Sessions(agent.journal)
    exported = await sessions.export(await sessions.get("s"))
    assert [one["role"] for one in exported["messages"]] == ["user", "assistant"] * 5
    assert exported["messages"][0]["content"].startswith("Number 0")
    assert len({one["run"] for one in exported["messages"]}) == 5


async def test_a_deleted_session_is_gone_and_others_stay(journal):
    sessions = Sessions(journal)
    doomed = await sessions.get("a", user="ken")
    await sessions.delete(doomed)
    assert [(one.id, one.user) for one in await sessions.all()] == [("shared/team", "mika"), ("b", "ken"), ("a", "mika")]
    with pytest.raises(RunNotFound):
        await Agent(ScriptedModel([]), name="helper", journal=journal).result(doomed.runs[0])


async def test_a_shared_session_is_shown_and_deleted_whole_whoever_asks(journal):
    sessions = Sessions(journal)
    (shared,) = [one for one in await sessions.all(user="ken") if one.id == "shared/team"]
    assert len(shared.runs) == 2


async def test_a_new_title_is_no_news(journal):
    sessions = Sessions(journal)
    before = await sessions.get("b")
    await sessions.rename(before, "Bees")
    assert (await sessions.get("b")).updated == before.updated
