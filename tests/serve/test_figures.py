"""Figures of many runs, of which some have no digest yet, and of a run in place of another one."""

import httpx
import pytest

from kaname import Agent, ScriptedModel, SqliteJournal
from kaname.serve import app
from kaname.serve.page import figures


@pytest.fixture
async def agent(tmp_path):
    agent = Agent(ScriptedModel(lambda request: "done"), name="desk", journal=SqliteJournal(tmp_path / "journal.db"))
    yield agent
    await agent.journal.close()


async def counted(agent):
    transport = httpx.ASGITransport(app=app(agent, recover=False, mcp=False), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
        found = (await http.get("/api/figures")).json()
    return found["read"], sum(one["calls"] for one in found["models"])


async def test_figures_never_fall_while_runs_without_a_digest_are_read(agent, monkeypatch):
    monkeypatch.setattr(figures, "_NEW", 4)
    for _ in range(4):
        await agent.run("go")
    assert await counted(agent) == (4, 4)
    for _ in range(6):
        await agent.run("go")
    assert [(await counted(agent))[1] for _ in range(3)] == [8, 10, 10]


async def test_digest_is_not_that_of_another_run_of_the_same_id(agent):
    digests = agent.journal.stores.digests
    await agent.run("go", run_id="daily")
    assert await counted(agent) == (1, 1)
    (old,) = await digests.of(["daily"])
    await agent.journal.delete("daily")
    await agent.run("go", run_id="daily")
    await digests.put([old._replace(text=old.text.replace('"scripted"', '"another"'))])
    assert await counted(agent) == (1, 1)
    (new,) = await digests.of(["daily"])
    assert '"another"' not in new.text, "it was made again"
