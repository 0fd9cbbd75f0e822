"""Recorded runs of agents with tool servers as tests: replayed without the servers, and without the machine they were made on."""

import json
import sys

import pytest

from kaname import Agent, Approve, ReplayDiverged, ScriptedModel, call, load_config, tool
from kaname.core.events import Opened
from kaname.kernel.load import read_whole
from kaname.serve.page.frozen import as_test
from kaname.testing import agent_of, freeze, save_run
from tests.tools.test_mcp_in_use import raw

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
TOOLS = json.dumps(
    [
        {"name": "t", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
        {"name": "u", "inputSchema": {"type": "object"}},
    ]
)
SCRIPT = [call("t", n="7"), call("t", m=1), [call("u"), call("double", n=2)], "done"]


@tool(effect="pure")
def double(n: int) -> int:
    """Double."""
    return n * 2


def made(servers, journal="memory", *, instructions="Be brief.", tools=(double,)):
    policies = [Approve("t")]
    return Agent(
        ScriptedModel(SCRIPT), tools, mcp_servers=servers, policies=policies, instructions=instructions, journal=journal
    )


@pytest.fixture
async def ran():
    """An agent whose run used the tools of a real server, was asked about one, and sent another wrong arguments."""
    async with made({"s": raw("tools", TOOLS)}) as agent:
        result = await agent.run("go")
        while result.questions:
            result = await agent.resume(result.run_id, dict.fromkeys(result.questions, "yes"))
        assert result.output == "done"
        yield agent, result


ABSENT = {"s": {"command": "no-such-command-anywhere"}}


async def test_a_run_with_a_tool_server_is_frozen_and_replayed_without_the_server(ran, tmp_path):
    agent, result = ran
    path = await save_run(agent.journal, result.run_id, tmp_path / "run.jsonl")
    freeze(path, lambda: made(ABSENT))()
    other = made(ABSENT, agent.journal)
    assert (await other.replay(result.run_id)).same
    assert other.servers.problems == {}, "nothing was started"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"instructions": "Be long."}, ["a different prompt", "-Be brief.", "+Be long."]),
        ({"tools": ()}, ["double"]),
    ],
    ids=["prompt", "tool"],
)
async def test_a_frozen_run_with_a_tool_server_notices_a_change(ran, tmp_path, change, told):
    agent, result = ran
    path = await save_run(agent.journal, result.run_id, tmp_path / "run.jsonl")
    with pytest.raises(ReplayDiverged) as raised:
        freeze(path, lambda: made(ABSENT, **change))()
    for part in told:
        assert part in str(raised.value)


OTHER = {"other": {"command": "no-such-command-either"}}


@pytest.mark.parametrize(
    "servers",
    [
        OTHER,
        {**OTHER, "s": {**ABSENT["s"], "disabled": True}},
        {"s": {**ABSENT["s"], "exclude_tools": ["u"]}},
        {"s": {**ABSENT["s"], "tools": ["t"]}},
    ],
    ids=["another server", "disabled", "tool excluded", "tool no longer listed"],
)
async def test_a_frozen_run_notices_a_tool_that_the_configured_servers_no_longer_offer(ran, tmp_path, servers):
    agent, result = ran
    path = await save_run(agent.journal, result.run_id, tmp_path / "run.jsonl")
    freeze(path, lambda: made({**OTHER, **ABSENT}))()
    frozen = made(servers)
    with pytest.raises(ReplayDiverged, match="tool u of the server 's' no longer exists"):
        freeze(path, lambda: frozen)()
    assert frozen.servers.problems == {}, "nothing was started"


async def test_a_frozen_run_notices_that_the_server_of_a_tool_it_did_not_use_is_gone(tmp_path):
    unused = json.dumps([{"name": "v", "inputSchema": {"type": "object"}}])
    servers = {"used": raw("tools", TOOLS), "spare": raw("tools", unused)}
    async with Agent(ScriptedModel([call("u"), "done"]), mcp_servers=servers, journal="memory") as agent:
        result = await agent.run("go")
        path = await save_run(agent.journal, result.run_id, tmp_path / "run.jsonl")
    gone = {"used": ABSENT["s"]}
    freeze(path, lambda: Agent(ScriptedModel([]), mcp_servers={**gone, "spare": ABSENT["s"]}, journal="memory"))()
    with pytest.raises(ReplayDiverged, match="tool v of the server 'spare' no longer exists"):
        freeze(path, lambda: Agent(ScriptedModel([]), mcp_servers=gone, journal="memory"))()


async def test_an_agent_without_the_servers_at_all_is_noticed(ran, tmp_path):
    agent, result = ran
    path = await save_run(agent.journal, result.run_id, tmp_path / "run.jsonl")
    with pytest.raises(ReplayDiverged):
        freeze(path, lambda: made(None))()


async def test_a_test_of_a_run_holds_no_absolute_path_and_finds_its_agent_from_where_it_stands(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "tests" / "runs").mkdir(parents=True)
    (project / "conf").mkdir()
    script = [{"calls": [{"name": "t", "args": {"n": 7}}]}, "done"]
    (project / "conf" / "script.json").write_text(json.dumps(script))
    server = json.dumps(raw("tools", TOOLS))
    (project / "conf" / "kaname.yaml").write_text(
        f"agents: {{desk: {{model: scripted/script.json}}}}\nmcp_servers: {{s: {server}}}\njournal: memory\n"
    )
    agent = Agent.from_config(load_config(project / "conf" / "kaname.yaml"))
    agent.origin = {"folder": str(project), "config": [str(project / "conf" / "kaname.yaml")], "agent": "desk"}
    async with agent:
        result = await agent.run("go")
        (card,) = await agent.journal.runs()
        events = await read_whole(agent.journal, result.run_id)
    assert str(project) in str(next(one.body for one in events if isinstance(one.body, Opened)).recipe)
    name, text = as_test(card, events)
    assert str(tmp_path) not in text
    assert sys.prefix not in text
    assert str(tmp_path) not in (await save_run(agent.journal, result.run_id, tmp_path / "run.jsonl")).read_text("utf-8")
    moved = project.rename(tmp_path / "elsewhere")
    file = moved / "tests" / "runs" / name
    file.write_text(text, encoding="utf-8")
    monkeypatch.chdir(moved / "tests")
    held = {"__file__": str(file)}
    exec(compile(text, str(file), "exec"), held)
    next(test for label, test in held.items() if label.startswith("test_"))()


def test_an_agent_is_found_by_a_program_near_the_test(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    (tmp_path / "near_by_desk.py").write_text(
        "from kaname import Agent, ScriptedModel\nagents = [Agent(ScriptedModel([]), name=n) for n in ('a', 'b')]\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    for place in ("near_by_desk.py:agents", "near_by_desk:agents"):
        assert agent_of(place, "b", near=tmp_path / "tests" / "test_x.py").name == "b"
        sys.modules.pop("near_by_desk", None)
