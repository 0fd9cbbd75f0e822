"""People who can answer the questions of others' runs: they see what the agent shows, and nothing else of the run."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, Approve, ConfigError, Media, MemoryJournal, ScriptedModel, ToolResult, call, tool
from kaname.serve.questions import same_question
from kaname.serve.users import Caller

PEOPLE = {"ann": ["talk", "approve"], "boss": ["approve:clerk"], "other": ["approve:hr"], "bob": ["talk", "approve"]}


@tool
def pay(yen: int) -> str:
    """Pay."""
    return "paid"


async def desk(shown: str | None) -> tuple[Any, str]:
    def script(request: Any) -> Any:
        return "hello" if request.messages[-1].text != "pay the bill" else call("pay", yen=40711990712)

    agent = Agent(ScriptedModel(script), [pay], policies=[Approve("pay")], name="clerk", journal=MemoryJournal())

    def who(scope: Any) -> Caller:
        name = dict(scope["headers"])[b"x-me"].decode()
        return Caller(name, frozenset(PEOPLE[name]))

    app = kaname.serve.app(agent, who=who, recover=False, mcp=False, approvers_see=shown)
    await agent.run("my earlier words", session_id="s", user_id="ann")
    waiting = await agent.run("pay the bill", session_id="s", user_id="ann")
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app, client=("127.0.0.1", 1)), base_url="http://localhost")
    return lambda me, path: http.get(path, headers={"x-me": me}), waiting.run_id


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("nothing", []),
        ("call", ["40711990712"]),
        (None, ["40711990712"]),
        ("turn", ["40711990712", "pay the bill"]),
        ("run", ["40711990712", "pay the bill", "my earlier words"]),
    ],
)
async def test_approver_sees_what_the_agent_declares(shown, seen):
    get, run_id = await desk(shown)
    for path in ("/api/questions", f"/api/runs/{run_id}"):
        text = (await get("boss", path)).text
        assert [word for word in ("40711990712", "pay the bill", "my earlier words") if word in text] == seen, path
        assert '"name":"pay"' in text
    for what in ("messages", "facts", "story", "state", "events"):
        assert (await get("boss", f"/api/runs/{run_id}/{what}")).status_code == 404


async def test_people_who_cannot_answer_still_find_no_run():
    get, run_id = await desk("run")
    for me in ("other", "bob"):
        answer = await get(me, f"/api/runs/{run_id}")
        assert answer.status_code == 404
        assert answer.json() == (await get("bob", "/api/runs/none")).json() | {
            **{name: value for name, value in answer.json().items() if run_id in str(value)}
        }
    assert (await get("ann", f"/api/runs/{run_id}")).json()["title"] == "pay the bill"


async def test_file_declares_what_approvers_see_and_who_is_notified(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "kaname.yaml").write_text(
        "journal: j.db\n"
        "agents:\n  clerk: {model: openai/gpt-5.4-mini, approvers_see: turn}\n"
        "notify:\n  boss: {command: ['true'], link: 'https://kaname.example.com', agents: [clerk], every: 2h}\n"
    )
    made = kaname.serve.app(tmp_path / "kaname.yaml", recover=False, mcp=False)
    assert made.service.shown == {"clerk": "turn"}
    made = kaname.serve.app(tmp_path / "kaname.yaml", recover=False, mcp=False, approvers_see={"clerk": "nothing"})
    assert made.service.shown_by("clerk") == "nothing"  # the program's word counts
    (tmp_path / "kaname.yaml").write_text("agents:\n  clerk: {model: openai/gpt-5.4-mini, approvers_see: all}\n")
    with pytest.raises(ConfigError, match="approvers_see"):
        kaname.serve.app(tmp_path / "kaname.yaml", recover=False, mcp=False)


@pytest.mark.parametrize("wrong", ["all", {"clerk": "everything"}, {"nobody": "turn"}])
async def test_approvers_see_is_one_of_the_four_values_for_served_agents(wrong):
    with pytest.raises(ConfigError, match="approvers_see must be one of nothing, call, turn, run"):
        await desk(wrong)


async def test_agent_that_is_not_served_shows_nothing_to_approvers():
    agent = Agent(ScriptedModel([]), name="clerk", journal=MemoryJournal())
    app = kaname.serve.app(agent, recover=False, mcp=False)
    assert (app.service.shown_by("clerk"), app.service.shown_by("another")) == ("call", "nothing")


async def test_questions_are_the_same_if_they_ask_about_equal_calls_for_equal_reasons():
    def script(request: Any) -> Any:
        name, args = json.loads(request.messages[-1].text)
        return call(name, **args)

    @tool
    def send(to: str, password: str = "") -> str:
        """Send."""
        return "sent"

    def clerk(name: str) -> Agent[Any]:
        return Agent(ScriptedModel(script), [pay, send], policies=[Approve()], name=name, journal=MemoryJournal())

    async def same(agent: Agent[Any], name: str, **args: Any) -> str:
        waiting = await agent.run(json.dumps([name, args]))
        return same_question(waiting.state, *waiting.questions.values())

    one, other = clerk("clerk"), clerk("another")
    first = await same(one, "pay", yen=500)
    assert first == await same(one, "pay", yen="500")  # the tool receives the same
    different = [await same(one, "pay", yen=501), await same(other, "pay", yen=500), await same(one, "send", to="a")]
    assert len({first, *different}) == 4
    assert await same(one, "send", to="<EMAIL_1>") == ""  # a pseudonym stands for another value in each run
    assert await same(one, "send", to="a", password="****") == ""


async def test_files_of_the_same_name_make_two_questions():
    @tool(effect="pure")
    def draw(what: str) -> ToolResult:
        """Draw."""
        return ToolResult("made", media=(Media.of(b"\x89PNG\r\n\x1a\n" + what.encode(), name="bar.png"),))

    @tool
    def send(file: str) -> str:
        """Send."""
        return "sent"

    async def same(what: str) -> str:
        model = ScriptedModel([call("draw", what=what), call("send", file="bar.png"), "sent"])
        waiting = await Agent(model, [draw, send], policies=[Approve("send")], journal=MemoryJournal()).run("go")
        return same_question(waiting.state, *waiting.questions.values())

    assert await same("a") == await same("a") != await same("b")


async def test_question_whose_call_is_not_shown_does_not_show_that_it_equals_another():
    get, _ = await desk("nothing")
    assert [one["same"] for one in (await get("boss", "/api/questions")).json()["questions"]] == [""]
    assert all(one["same"] for one in (await get("ann", "/api/questions")).json()["questions"])
