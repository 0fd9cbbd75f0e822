"""The agents as tools of an MCP server, used by FastMCP's own client."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress

import pytest

from kaname import SqliteJournal
from kaname.core.errors import ConfigError
from kaname.serve.dialects.mcp import server_key
from kaname.serve.users import Users
from tests.parts import Later
from tests.serve.serving import PROTOCOLS, client, serving

fastmcp = Later("fastmcp")
elicitation = Later("fastmcp.client.elicitation")
transports = Later("fastmcp.client.transports")
exceptions = Later("fastmcp.exceptions")
mcp_exceptions = Later("mcp.shared.exceptions")
mcp_types = Later("mcp_types")
ALSO = PROTOCOLS

PRESENT = "2026-07-28"  # of the protocol; with "auto" a client that waits for long takes the server for an old one


def _client(served, token: str = "", **more):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return fastmcp.Client(transports.StreamableHttpTransport(f"{served.url}/mcp", headers=headers), **more)


async def test_agents_are_tools(served):
    async with _client(served) as mcp:
        assert {tool.name for tool in await mcp.list_tools()} == {"desk", "cashier", "worker", "lead"}
        result = await mcp.call_tool("desk", {"task": "please add"})
        assert result.content[0].text == "the sum is 7"
        told = await mcp.call_tool("desk", {"task": "history", "session_id": "m"})
        assert "user: history" in told.content[0].text
        again = await mcp.call_tool("desk", {"task": "history once more", "session_id": "m"})
        assert again.content[0].text.count("user:") > told.content[0].text.count("user:")
        with pytest.raises(exceptions.ToolError, match="the key is wrong"):
            await mcp.call_tool("desk", {"task": "fail"})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_question_is_asked_by_the_client_in_the_way_of_its_protocol(served, mode, answer):
    asked = []

    async def elicit(message, response_type, params, context):
        asked.append(message)
        return {"answer": answer} if mode == "auto" else {"value": answer}

    paid = served.folder / "paid.txt"
    before = paid.read_text() if paid.exists() else ""
    async with _client(served, mode=mode, elicitation_handler=elicit) as mcp:
        result = await mcp.call_tool("cashier", {"task": "go"})
    assert result.content[0].text == "it is done"
    assert asked == ['Run pay({"amount": 5})?']
    after = paid.read_text() if paid.exists() else ""
    assert len(after) - len(before) == (2 if answer == "yes" else 0)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_unclear_answer_of_a_client_is_asked_for_once_more(served, mode):
    """An accepted form without a clear answer pays nothing."""
    asked = []

    async def elicit(message, response_type, params, context):
        asked.append(message)
        name = "answer" if mode == "auto" else "value"
        return elicitation.ElicitResult(action="accept", content=[{}, {"other": "yes"}, {name: "no"}][len(asked) - 1])

    paid = served.folder / "paid.txt"
    before = paid.read_text() if paid.exists() else ""
    async with _client(served, mode=mode, elicitation_handler=elicit) as mcp:
        with (
            suppress(exceptions.ToolError) if mode == "legacy" else nullcontext()
        ):  # the older protocol refuses a form that does not fit
            result = await mcp.call_tool("cashier", {"task": "go"})
            assert result.content[0].text == "it is done"
    assert (paid.read_text() if paid.exists() else "") == before
    if mode == "auto":
        assert len(asked) == 3
        assert "is empty" in asked[1]


async def test_state_of_a_question_is_of_no_use_to_another_user(tmp_path):
    users = Users(tmp_path / "users.json")
    ann, bob = users.add("ann", ["read", "talk", "approve"]), users.add("bob", ["read", "talk", "approve"])
    with serving(tmp_path, "--users", str(tmp_path / "users.json"), also=PROTOCOLS) as served:
        with client(served, ann) as http:
            run = http.post("/api/runs", json={"input": "go", "agent": "cashier"}).json()
        async with _client(served, bob) as mcp:
            with pytest.raises(Exception, match="no run|Invalid|request.state|requestState"):
                await mcp.session.call_tool("cashier", {"task": "x"}, request_state=run["run_id"], input_responses={})
        with client(served, ann) as http:
            assert http.get(f"/api/runs/{run['run_id']}").json()["status"] == "waiting"


async def test_who_may_not_approve_cannot_do_so_by_elicitation(tmp_path):
    users = Users(tmp_path / "users.json")
    tom = users.add("tom", ["talk"])

    async def elicit(message, response_type, params, context):
        return {"value": "yes"}

    with serving(tmp_path, "--users", str(tmp_path / "users.json"), also=PROTOCOLS) as served:
        async with _client(served, tom, mode="legacy", elicitation_handler=elicit) as mcp:
            with pytest.raises(exceptions.ToolError, match="this request needs the role 'approve'"):
                await mcp.call_tool("cashier", {"task": "go"})
    assert not (tmp_path / "paid.txt").exists()


async def _asked(served, token: str = "") -> tuple[str, str]:
    """Call the cashier, and return the sealed state that its question comes with."""
    async with _client(served, token, mode=PRESENT, elicitation_handler=_never) as mcp:
        asked = await mcp.session.call_tool("cashier", {"task": "go"}, allow_input_required=True)
        assert isinstance(asked, mcp_types.InputRequiredResult), asked
        return asked.request_state, next(iter(asked.input_requests))


async def _answered(served, state: str, key: str) -> str:
    async with _client(served, mode=PRESENT, elicitation_handler=_never) as mcp:
        given = {key: mcp_types.ElicitResult(action="accept", content={"answer": "yes"})}
        done = await mcp.session.call_tool("cashier", {"task": "go"}, request_state=state, input_responses=given)
        return done.content[0].text


async def _never(message, response_type, params, context):
    raise AssertionError("the test answers itself")


@pytest.mark.nightly
async def test_question_is_answered_at_other_workers_than_those_that_asked(tmp_path):
    with serving(tmp_path, "--workers", "2") as served:
        asked = [await _asked(served) for _ in range(2)]
    with serving(tmp_path, "--workers", "2") as served:
        assert [await _answered(served, *one) for one in asked] == ["it is done"] * 2
        log = served.log.read_text()
    key = tmp_path / "server.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text() not in log
    assert (tmp_path / "paid.txt").read_text().split() == ["5"] * 2


def test_key_of_the_servers_is_made_once_however_many_begin_at_the_same_time(tmp_path, monkeypatch):
    monkeypatch.delenv("KANAME_SERVER_KEY", raising=False)
    journal = SqliteJournal(tmp_path / "journal.db")
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: server_key(journal), range(32)))
    assert len(keys) == 1
    assert sorted(one.name for one in tmp_path.iterdir() if "key" in one.name) == ["server.key"]
    monkeypatch.setenv("KANAME_SERVER_KEY", "the same on all machines, and long enough")
    assert server_key(journal) == b"the same on all machines, and long enough"
    monkeypatch.setenv("KANAME_SERVER_KEY", "short")
    with pytest.raises(ConfigError, match="fewer than 32 bytes") as refused:
        server_key(journal)
    assert "short" not in str(refused.value).replace("KANAME_SERVER_KEY", "")


@pytest.mark.parametrize("mode", [PRESENT, "legacy"])
async def test_client_that_cannot_ask_its_user_gets_the_error_of_the_protocol_and_the_run(served, http, mode):
    async with _client(served, mode=mode) as mcp:
        with pytest.raises(mcp_exceptions.MCPError) as refused:
            await mcp.call_tool("cashier", {"task": "go"})
    told = refused.value.error
    assert told.code == mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert told.data["requiredCapabilities"] == {"elicitation": {"form": {}}}
    assert told.data["runId"] in told.message
    assert "Run pay" in told.message
    assert http.get(f"/api/runs/{told.data['runId']}").json()["status"] == "waiting"
