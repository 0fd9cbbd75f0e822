"""The application inside a program's own: mounted in FastAPI, with the program's own users."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

import kaname.serve
from kaname import Agent
from kaname.serve import Caller, Users
from kaname.serve.users import users_file
from tests import warm
from tests.parts import Later, add, adding
from tests.serve.serving import ROOT

fastapi = Later("fastapi")
RELAYED = (
    {"x-forwarded-for": "203.0.113.5"},
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-for": ""},
    {"X-Forwarded-For": "::1, 127.0.0.1"},
    {"x-forwarded-host": "agents.example"},
    {"x-forwarded-proto": "https"},
    {"x-real-ip": "127.0.0.1"},
    {"forwarded": "for=127.0.0.1;proto=https"},
    {"via": "1.1 proxy"},
    {"cf-connecting-ip": "203.0.113.5"},
    {"host": "agents.example"},
)


def _client(app, address="127.0.0.1") -> httpx.AsyncClient:
    client = (address, 1) if address else None
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=client), base_url="http://localhost")


def _desk(folder) -> Agent:
    return Agent(adding(), [add], name="desk", journal=folder / "j.db")


@asynccontextmanager
async def _uvicorn(app, **how):
    """The application under uvicorn as somebody starts it, with its own defaults."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", **how))
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()
    finally:
        server.should_exit = True
        await running


async def test_application_is_mounted_in_fastapi(tmp_path):
    agents = kaname.serve.app(Agent(adding(), [add], name="desk", journal=tmp_path / "j.db"))
    app = fastapi.FastAPI(lifespan=agents.lifespan)
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


async def test_mounted_application_knows_the_users_of_its_journal(tmp_path, monkeypatch):
    monkeypatch.delenv("KANAME_TOKEN", raising=False)
    token = Users(tmp_path / "users.json").add("ann", ["talk"])
    agents = kaname.serve.app([_desk(tmp_path)])
    async with agents.lifespan(), _client(agents) as http:
        assert (await http.get("/api/runs")).status_code == 401
        own = {"authorization": f"Bearer {token}"}
        assert (await http.get("/api/me", headers=own)).json()["name"] == "ann"
        relayed = {**own, "x-forwarded-for": "203.0.113.5", "via": "1.1 proxy"}
        assert (await http.get("/api/me", headers=relayed)).json()["name"] == "ann", "with a token it may come through a proxy"
        assert (await http.get("/api/me", headers={**own, "authorization": "Bearer x"})).status_code == 401


async def test_mounted_application_asks_for_tokens_from_the_moment_that_a_user_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv("KANAME_TOKEN", raising=False)
    agents = kaname.serve.app(_desk(tmp_path))
    async with agents.lifespan(), _client(agents) as http:
        assert (await http.get("/api/runs")).status_code == 200
        Users(tmp_path / "users.json").add("ann", ["talk"])
        assert (await http.get("/api/runs")).status_code == 401
        (tmp_path / "users.json").unlink()
        assert (await http.get("/api/runs")).status_code == 401


async def test_mounted_application_takes_the_token_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KANAME_TOKEN", "a-long-token-of-an-administrator")
    agents = kaname.serve.app(_desk(tmp_path))
    async with agents.lifespan(), _client(agents) as http:
        assert (await http.get("/api/runs")).status_code == 401
        own = {"authorization": "Bearer a-long-token-of-an-administrator"}
        assert (await http.get("/api/runs", headers=own)).status_code == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", ""])
@pytest.mark.parametrize("headers", RELAYED)
async def test_request_that_a_proxy_passed_on_is_not_this_machines(tmp_path, monkeypatch, headers, address):
    """The proxy's address is this machine's; over a Unix socket there is none at all."""
    monkeypatch.delenv("KANAME_TOKEN", raising=False)
    agents = kaname.serve.app(_desk(tmp_path), hosts=["*"])
    async with agents.lifespan(), _client(agents, address) as http:
        assert (await http.get("/api/runs")).status_code == 200
        answer = await http.get("/api/runs", headers=headers)
        assert answer.status_code == 403
        assert "kaname serve users add" in answer.json()["detail"]
        assert (await http.get("/healthz", headers=headers)).status_code == 200


@pytest.mark.parametrize("address", ["192.0.2.7", "::ffff:192.0.2.7", "10.0.0.1", "fe80::1%eth0", "testclient", "0.0.0.0"])
async def test_address_that_is_not_loopback_is_not_this_machine(tmp_path, monkeypatch, address):
    monkeypatch.delenv("KANAME_TOKEN", raising=False)
    agents = kaname.serve.app(_desk(tmp_path), hosts=["*"])
    async with agents.lifespan(), _client(agents, address) as http:
        assert (await http.get("/api/runs")).status_code == 403


@pytest.mark.parametrize("how", ["tcp", "unix"])
async def test_uvicorn_of_ones_own_takes_no_forwarded_request_for_this_machine(tmp_path, monkeypatch, how):
    """By default it believes what a proxy on this machine says of the client's address."""
    monkeypatch.delenv("KANAME_TOKEN", raising=False)
    agents = kaname.serve.app(_desk(tmp_path), hosts=["*"])
    socket = str(tmp_path / "s")
    async with _uvicorn(agents, **({"port": 0} if how == "tcp" else {"uds": socket, "forwarded_allow_ips": "*"})) as place:
        base = f"http://localhost:{place[1]}" if how == "tcp" else "http://localhost"
        transport = None if how == "tcp" else httpx.AsyncHTTPTransport(uds=socket)
        async with httpx.AsyncClient(base_url=base, transport=transport, trust_env=False) as http:
            assert (await http.get("/api/runs")).status_code == 200
            for headers in RELAYED:
                assert (await http.get("/api/runs", headers=headers)).status_code == 403, headers
        reader, writer = await (
            asyncio.open_connection("127.0.0.1", place[1]) if how == "tcp" else asyncio.open_unix_connection(socket)
        )
        writer.write(b"GET /api/runs HTTP/1.0\r\nhost: localhost\r\nconnection: close\r\n\r\n")  # nginx, told nothing else
        assert b" 403 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


def _made_by_the_command(folder, *options, **environment) -> dict:
    """The users of a file that `kaname serve users add` has written, by its path."""
    command = [sys.executable, "-m", "kaname.cli.main", "serve", "users", "add", "ann", *options]
    own = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "LANG": "C.UTF-8", **environment}
    warm.run(command, cwd=folder, env=own, check=True, capture_output=True, timeout=180)
    found = [path for path in folder.rglob("*.json") if "ann" in json.loads(path.read_text())]
    return {path: path.read_text() for path in found}


@pytest.mark.parametrize(
    ("config", "options", "place"),
    [
        ("", [], ".kaname/users.json"),
        ("journal: data/runs.db\n", [], "data/users.json"),
        ("serve: {users: who.json}\n", [], "who.json"),
        ("", ["--journal", "other/x.db"], "other/users.json"),
    ],
)
async def test_command_and_application_mean_the_same_users(tmp_path, monkeypatch, config, options, place):
    monkeypatch.delenv("KANAME_TOKEN", raising=False)
    monkeypatch.delenv("KANAME_JOURNAL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    project = tmp_path / "project"
    project.mkdir()
    for folder in (".kaname", "data", "other"):
        (project / folder).mkdir()
    (project / "kaname.yaml").write_text(f"agents: {{desk: {{model: openai/gpt-x}}}}\n{config}")
    assert list(_made_by_the_command(project, *options)) == [project / place]
    monkeypatch.chdir(tmp_path)  # the program runs somewhere else
    journal = project / options[1] if options else None
    agents = kaname.serve.app(project / "kaname.yaml", journal=journal, recover=False)
    assert not agents.open
    async with agents.lifespan(), _client(agents) as http:
        assert (await http.get("/api/runs")).status_code == 401


def test_users_belong_to_the_file_that_a_link_leads_to(tmp_path, monkeypatch):
    monkeypatch.delenv("KANAME_JOURNAL", raising=False)
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "j.db")
    assert users_file(tmp_path / "link.db") == users_file(_desk(tmp_path / "real").journal)
    assert users_file(Agent(adding(), journal="memory").journal) == users_file("memory")


def test_users_whose_folder_cannot_be_read_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("KANAME_TOKEN", raising=False)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere" / "users.json")
    assert Users.from_environment(tmp_path / "gone.json").requires_token, "a link that leads nowhere now"
    assert Users.from_environment(tmp_path / ("x" * 300)).requires_token, "a name that cannot be looked up"
    assert not Users.from_environment(tmp_path / "users.json").requires_token


async def test_agents_share_a_journal_in_memory(tmp_path):
    agents = kaname.serve.app([Agent(adding(), [add], name=name) for name in ("desk", "till")], journal="memory", audit=False)
    async with agents.lifespan(), _client(agents) as http:
        for name in ("desk", "till"):
            assert (await http.post("/api/runs", json={"input": "go", "agent": name})).json()["output"] == "the sum is 7"
        assert {one["agent"] for one in (await http.get("/api/runs")).json()["runs"]} == {"desk", "till"}


_PLACES = {
    "/api/runs": '{"input": [{"role": "user", "content": [%s]}]}',
    "/v1/chat/completions": '{"model": "desk", "messages": [{"role": "user", "content": [%s]}]}',
    "/v1/responses": '{"model": "desk", "input": [{"role": "user", "content": [%s]}]}',
    "/ag-ui": '{"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": [%s]}]}',
    "/vercel": '{"messages": [{"role": "user", "parts": [%s]}]}',
}


@pytest.mark.parametrize("place", _PLACES)
async def test_request_that_is_refused_is_not_echoed_at_length(tmp_path, place):
    agents, json_ = kaname.serve.app(_desk(tmp_path)), {"content-type": "application/json"}
    long = "x" * 3_500_000
    async with agents.lifespan(), _client(agents) as http:
        for part in ({"type": "video", "data": long}, {"type": long}, {long: 1}, long):
            answer = await http.post(place, content=_PLACES[place] % json.dumps(part), headers=json_)
            assert answer.status_code == 400 or place == "/vercel"
            assert len(answer.content) < 20_000


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("levels", [300, 900, 990, 100_000])
async def test_request_that_is_nested_deeply_is_refused(tmp_path, place, levels):
    agents, json_ = kaname.serve.app(_desk(tmp_path)), {"content-type": "application/json"}
    async with agents.lifespan(), _client(agents) as http:
        for opened, closed in ("[]", ('{"a":', "}")):
            body = _PLACES[place] % (opened * levels + "1" + closed * levels)
            answer = await http.post(place, content=body, headers=json_)
            assert answer.status_code == 400, answer.text[:500]
        near = "[" * 100 + "1" + "]" * 100
        assert (await http.post(place, content=_PLACES[place] % near, headers=json_)).status_code < 500


async def test_user_named_admin_does_not_see_the_runs_of_the_token_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KANAME_TOKEN", "a-long-token-of-an-administrator")
    users = Users(tmp_path / "users.json")
    token = users.add("admin", ["read", "talk"])
    with pytest.raises(kaname.ConfigError, match="KANAME_TOKEN"):
        users.add("KANAME_TOKEN", ["read"])
    agents = kaname.serve.app(_desk(tmp_path))
    async with agents.lifespan(), _client(agents) as http:
        own, other = ({"authorization": f"Bearer {one}"} for one in ("a-long-token-of-an-administrator", token))
        run = (await http.post("/api/runs", json={"input": "go"}, headers=own)).json()
        assert run["user_id"] == (await http.get("/api/me", headers=own)).json()["name"] == "KANAME_TOKEN"
        assert (await http.get("/api/runs", headers=other)).json()["runs"] == []
        assert (await http.get(f"/api/runs/{run['run_id']}", headers=other)).status_code == 404
        (tmp_path / "users.json").write_text((tmp_path / "users.json").read_text("utf-8").replace('"admin"', '"KANAME_TOKEN"'))
        assert (await http.get("/api/runs", headers=other)).status_code == 503, "nor in a file that was edited by hand"
