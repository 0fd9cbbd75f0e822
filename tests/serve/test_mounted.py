"""The application inside a program's own: mounted in FastAPI, with the program's own users."""

from __future__ import annotations

import httpx
from fastapi import FastAPI

import kaname.serve
from kaname import Agent
from kaname.serve import Caller
from tests.parts import add, adding


def _client(app) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=("127.0.0.1", 1)), base_url="http://localhost")


async def test_application_is_mounted_in_fastapi(tmp_path):
    agents = kaname.serve.app(Agent(adding(), [add], name="desk", journal=tmp_path / "j.db"))
    app = FastAPI(lifespan=agents.lifespan)
    app.mount("/agents", agents)
    async with agents.lifespan(), _client(app) as http:
        answer = await http.post("/agents/api/runs", json={"input": "go"})
        assert answer.json()["output"] == "the sum is 7"
        assert answer.headers["location"].startswith("/agents/api/runs/")
        assert (await http.get(answer.headers["location"])).status_code == 200
        told = await http.post(
            "/agents/v1/chat/completions", json={"model": "nobody", "messages": [{"role": "user", "content": "x"}]}
        )
        assert told.json()["error"]["code"] == "model_not_found"
        assert (await http.get("/agents/healthz")).json() == {"status": "ok"}
        card = (await http.get("/agents/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0]["url"] == "http://localhost/agents/a2a/desk"


async def test_application_asks_the_program_who_it_is(tmp_path):
    def who(scope):
        names = [value.decode() for name, value in scope["headers"] if name == b"x-user"]
        return Caller(names[0], frozenset(["read", "talk"])) if names else None

    agents = kaname.serve.app(Agent(adding(), [add], name="desk", journal=tmp_path / "j.db"), who=who, hosts=["agents.example"])
    async with agents.lifespan(), _client(agents) as http:
        own = {"x-user": "ann", "host": "agents.example"}
        assert (await http.get("/api/runs")).status_code == 401
        run = (await http.post("/api/runs", json={"input": "go"}, headers=own)).json()
        assert run["user_id"] == "ann"
        assert (await http.get(f"/api/runs/{run['run_id']}", headers={"x-user": "bob"})).status_code == 404


async def test_without_users_another_machine_is_not_answered(tmp_path):
    agents = kaname.serve.app(Agent(adding(), [add], name="desk", journal=tmp_path / "j.db"), hosts=["*"])
    transport = httpx.ASGITransport(agents, client=("192.0.2.7", 1))
    async with agents.lifespan(), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        answer = await http.get("/api/runs")
        assert answer.status_code == 403
        assert "only its own machine" in answer.json()["detail"]
