"""A run that an administrator starts for a user: the administrator is not "another person" there."""

from __future__ import annotations

import httpx
import pytest

import kaname.serve
from kaname import Agent, Approve, MemoryJournal, ScriptedModel, SqliteJournal, call, tool
from kaname.core.errors import InvalidState
from kaname.core.events import Opened
from kaname.serve.users import Users
from kaname.stores.sqlite.protection.erasure import erase_user_from
from tests.parts import facts


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    return MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")


ROLES = {"ann": ["talk", "approve"], "boss": ["admin"], "mia": ["approve:all"]}


@tool
def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"


def _payer(journal, **more) -> Agent:
    def reply(request):
        last = request.messages[-1]
        return call("pay", yen=10) if last.role == "user" else last.parts[0].output

    return Agent(ScriptedModel(reply), [pay], name="payer", policies=[Approve("pay", by="other", **more)], journal=journal)


def _client(app, token: str) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers)


@pytest.mark.parametrize("forked", [False, True])
async def test_administrator_who_starts_a_run_for_another_cannot_approve_it(tmp_path, forked):
    users = Users(tmp_path / "users.json")
    tokens = {name: users.add(name, roles) for name, roles in ROLES.items()}
    agent = _payer(tmp_path / "j.db")
    app = kaname.serve.app(agent, users=users, mcp=False, a2a=False)
    boss, mia, ann = [_client(app, tokens[name]) for name in ("boss", "mia", "ann")]
    async with app.lifespan(), boss, mia, ann:
        started = (await (ann if forked else boss).post("/api/runs", json={"input": "go", "user_id": "ann"})).json()
        if forked:
            started = (await boss.post(f"/api/runs/{started['run_id']}/fork", json={"input": "go again"})).json()
        assert (started["user_id"], started["status"]) == ("ann", "waiting")
        place, answers = f"/api/runs/{started['run_id']}/answers", {started["questions"][0]["key"]: "yes"}
        for person, name in ((boss, "boss"), (ann, "ann")):
            refused = await person.post(place, json={"answers": answers})
            assert refused.status_code == 409
            assert f"another person than '{name}'" in refused.json()["detail"]
        assert (await mia.post(place, json={"answers": answers})).status_code == 202
        if (run := app.service.run_here(started["run_id"])) is not None:
            await run.wait()
        assert (await ann.get(f"/api/runs/{started['run_id']}")).json()["output"] == "paid 10"
        own = (await ann.post("/api/runs", json={"input": "go"})).json()
        place, answers = f"/api/runs/{own['run_id']}/answers", {own["questions"][0]["key"]: "yes"}
        assert (await boss.post(place, json={"answers": answers})).status_code == 202, "for ann's own run boss is another"


async def test_lasting_approval_of_the_person_who_starts_a_run_does_not_count_there(journal):
    agent = _payer(journal)
    own = await agent.run("go", user_id="ann")
    lasting = {key: {"approved": True, "for": "always"} for key in own.questions}
    assert (await agent.resume(own.run_id, lasting, by="boss")).completed
    assert (await agent.run("go", user_id="ann")).completed, "it holds for ann's runs"
    asked = await agent.run("go", user_id="ann", by="boss")
    assert asked.questions
    with pytest.raises(InvalidState, match="another person than 'boss'"):
        await agent.resume(asked.run_id, dict.fromkeys(asked.questions, "yes"), by="boss")


async def test_person_who_starts_a_run_for_another_is_recorded_until_erased(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    agent = _payer(journal)
    runs = [await agent.run("go", user_id="ann", by=by) for by in ("boss", "ann", "")]

    async def named() -> list[str]:
        return [event.body.by for run in runs for event in await facts(agent, run.run_id) if isinstance(event.body, Opened)]

    assert await named() == ["boss", "", ""]
    await erase_user_from(journal, "boss")
    assert (await named())[1:] == ["", ""]
    assert "boss" not in str(await named())
