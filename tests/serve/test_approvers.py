"""People who can answer the questions of others' runs: they see what the agent shows, and nothing else of the run."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import kaname.serve
from kaname import Agent, Approve, ConfigError, MemoryJournal, ScriptedModel, call, tool
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

    app = kaname.serve.app(agent, who=who, recover=False, mcp=False)
    app.service.shown = {"clerk": shown} if shown else {}
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
    (tmp_path / "kaname.yaml").write_text("agents:\n  clerk: {model: openai/gpt-5.4-mini, approvers_see: all}\n")
    with pytest.raises(ConfigError, match="approvers_see"):
        kaname.serve.app(tmp_path / "kaname.yaml", recover=False, mcp=False)
