"""Tool servers: real ones, in memory, over stdio and over HTTP; started, killed, hanging, asking, changing."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from kaname import Agent, AgentConnectionError, ConfigError, ScriptedModel, call
from kaname.tools.mcp.config import entries
from kaname.tools.tool_search import MOST_LISTED
from tests.mcp_servers.everyday import make
from tests.parts import add, chunks, until
from tests.properties import nightly

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

STDIO = {"command": sys.executable, "args": ["-m", "tests.mcp_servers.everyday"], "cwd": os.getcwd()}
BARE = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "mcp_servers" / "bare.py")]}  # starts in 30 ms


def agent(script, servers, tools=(), **more):
    return Agent(ScriptedModel(script), tools, mcp_servers=servers, journal="memory", **more)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().split()[2] != "Z"


async def answers(agent, *, of=None):
    result = await agent.run("go")
    outcomes = [part for message in result.history if message.role == "tool" for part in message.parts]  # in the calls' order
    return [outcome for outcome in outcomes if of is None or outcome.name == of]


@pytest.mark.parametrize("server", [make, *nightly(lambda: STDIO)], ids=["memory", "stdio"])
async def test_connected_on_entry_used_and_gone_on_exit(server):
    async with agent([call("add", a=1, b=2), call("process"), "3"], {"everyday": server()}) as made:
        assert {"add", "slow", "nested"} <= {tool["name"] for tool in made.available_tools}
        first, second = await answers(made)
        assert first.output == 3
        pid = second.output
        assert alive(pid)
    if server is not make:
        assert not alive(pid)


async def test_schemas_come_through_as_they_are_and_are_kept_to():
    async with agent([call("nested", root={"name": "x", "colour": "green"}), "no"], {"everyday": make()}) as made:
        (shown,) = [tool["parameters"] for tool in made.available_tools if tool["name"] == "nested"]
        assert shown["$defs"]["Colour"]["enum"] == ["red", "blue"]
        assert "$ref" in str(shown)
        (refused,) = await answers(made)
        assert "green" in refused.error
        assert made.tools["nested"].effect == "pure"
        assert made.tools["add"].effect == "irreversible"


async def test_names_are_unique_and_prefixed_only_where_needed():
    async with agent(["hi"], {"one": make("one"), "two": make("two"), "odd name!": make("x")}, [add]) as made:
        names = {tool["name"] for tool in made.available_tools}
    assert {"add", "one__add", "two__add", "odd_name___add"} <= names
    async with agent(["hi"], {"one": make()}, []) as made:
        assert "add" in {tool["name"] for tool in made.available_tools}


async def test_results_keep_errors_pictures_and_data():
    script = [[call("fail"), call("picture"), call("add", a=1, b=1)], "ok"]
    async with agent(script, {"everyday": make()}) as made:
        failed, picture, added = await answers(made)
    assert "it failed on purpose" in failed.error
    assert picture.media[0].mime == "image/png"
    assert added.output == 2


async def test_one_that_does_not_start_is_named_and_the_rest_works(caplog):
    broken = {
        "missing": {"command": "no-such-command-anywhere"},
        "dying": {"command": sys.executable, "args": ["-c", "import sys; sys.exit('I have no key')"]},
        "elsewhere": {"url": "http://127.0.0.1:1/mcp"},
    }
    with caplog.at_level(logging.WARNING, "kaname"):
        async with agent([call("add", a=1, b=2), "3"], {**broken, "everyday": make()}) as made:
            assert set(made.servers.problems) == set(broken)
            assert "No such file" in made.servers.problems["missing"]
            assert "exit code 1; I have no key" in made.servers.problems["dying"]
            assert (await answers(made))[0].output == 3
    assert "the tool server 'missing'" in caplog.text
    with pytest.raises(AgentConnectionError, match="the tool server 'missing'"):
        async with agent(["hi"], {"missing": {"command": "no-such-command-anywhere", "required": True}}):
            pass


async def test_one_that_never_answers_is_given_up():
    silent = {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"], "start_timeout": 0.5}
    async with agent(["hi"], {"silent": silent}) as made:
        assert "silent" in made.servers.problems


async def test_killed_in_the_middle_of_a_call_and_started_again(caplog):
    script = [call("slow", seconds=30), call("add", a=1, b=2), "3"]
    async with agent(script, {"everyday": BARE}) as made:
        server = made.servers.servers[0]
        first = server.pid

        async def kill():
            while not (handle.run_id and any(chunk == "tool_started" for chunk in seen)):
                await asyncio.sleep(0.02)
            os.kill(first, signal.SIGKILL)

        seen = []
        handle = made.run("go")
        killer = asyncio.create_task(kill())
        async for chunk in handle:
            seen.append(chunk.data.get("status"))
        await killer
        killed, added = (await handle).state.results.values()
        assert "stopped while slow was running (SIGKILL" in killed.error
        assert "is not known" in killed.error
        assert added.output == 3
        assert server.pid != first
        assert alive(server.pid)
    assert not alive(server.pid)


async def test_a_call_that_hangs_times_out_and_the_server_stays():
    hasty = {**BARE, "timeout": 0.5}
    async with agent([call("slow", seconds=30), call("add", a=1, b=2), "3"], {"everyday": hasty}) as made:
        late, added = await answers(made)
        assert "0.5" in late.error
        assert added.output == 3


async def test_a_changed_list_is_followed():
    def script(request):
        called = [one.name for message in request.messages for one in message.calls]
        if "fresh" in called:
            return "seen"
        if "fresh" in [tool.name for tool in request.tools]:
            return call("fresh")
        return call("slow", seconds=0.1) if "grow" in called else call("grow", name="fresh")

    async with agent(script, {"everyday": make()}) as made:
        results = await answers(made)
        assert "fresh" in {tool["name"] for tool in made.available_tools}
        assert results[-1].output == "new"


async def test_what_a_server_asks_reaches_the_user():
    asked = []

    async def elicit(server, question, schema):
        asked.append((server, question, list(schema["properties"])))
        return {"name": "Ann"} if len(asked) == 1 else None

    legacy = {"server": make(), "protocol": "legacy"}
    async with agent([call("ask"), call("ask"), "ok"], {"everyday": legacy}, elicit=elicit) as made:
        first, second = await answers(made)
    assert (first.output, second.output) == ("accept: Ann", "decline")
    assert asked[0] == ("everyday", "Who are you?", ["name"])


async def test_progress_is_shown():
    async with agent([call("slow", seconds=0.3), "ok"], {"everyday": make()}) as made:
        seen = await chunks(made.run("go"))
    assert [chunk for chunk in seen if chunk.type == "progress"]


async def test_our_keys_are_not_handed_on(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with_one = {**BARE, "env": {"FOR_YOU": "1"}}
    async with agent([call("environment"), "ok"], {"everyday": with_one}) as made:
        (given,) = await answers(made)
    assert "FOR_YOU" in given.output
    assert "PATH" in given.output
    assert "OPENAI_API_KEY" not in given.output


@pytest.mark.parametrize("more", [20, *nightly(200)])
async def test_many_tools_are_looked_for(more):
    from fastmcp import FastMCP

    server = FastMCP("many")

    def made(number):
        def one(amount: int) -> int:
            return amount * number

        return one

    for number in range(MOST_LISTED + more):
        server.tool(made(number), name=f"convert_{number}", description=f"Convert currency {number} into yen.")
    server.tool(made(7), name="exchange_rate", description="The exchange rate of the dollar. 為替レート")
    script = [
        call("find_tools", query="dollar exchange rate"),
        call("use_tool", name="exchange_rate", args={"amount": 6}),
        "42",
    ]
    async with agent(script, {"many": server}, [add]) as many:
        assert {tool["name"] for tool in many.available_tools} == {"add", "find_tools", "use_tool"}
        found, used = await answers(many)
    assert found.output[0]["name"] == "exchange_rate"
    assert used.output == 42
    wrong = [call("use_tool", name="exchange_rat", args={}), call("use_tool", name="exchange_rate", args={"amount": "x"}), "no"]
    async with agent(wrong, {"many": server}) as many:
        unknown, bad = await answers(many)
    assert "exchange_rate" in unknown.error
    assert "amount" in bad.error


async def test_resources_and_prompts():
    entry = {"server": make(), "library": True}
    script = [call("list_resources"), call("read_resource", uri="shop://hours"), call("read_resource", uri="shop://no"), "ok"]
    async with agent(script, {"everyday": entry}) as made:
        assert {(one.kind, one.name) for one in await made.servers.library()} == {("resource", "hours"), ("prompt", "greet")}
        assert await made.servers.get_prompt("greet", name="Ann") == "Greet Ann kindly."
        with pytest.raises(AgentConnectionError, match="is not available"):
            await made.servers.get_prompt("no")
        listed, read, missing = await answers(made)
    assert listed.output[0]["uri"] == "shop://hours"
    assert read.output == "10 to 18"
    assert "cannot be read" in missing.error


async def test_over_http():
    import uvicorn

    config = uvicorn.Config(make().http_app(), host="127.0.0.1", port=0, log_level="error")
    served = uvicorn.Server(config)
    task = asyncio.create_task(served.serve())
    while not served.started:
        await asyncio.sleep(0.02)
    port = served.servers[0].sockets[0].getsockname()[1]
    async with agent([call("add", a=1, b=2), "3"], {"web": {"url": f"http://127.0.0.1:{port}/mcp"}}) as made:
        assert (await answers(made))[0].output == 3
    served.should_exit = True
    await task


async def test_a_cancelled_run_leaves_no_process():
    made = agent([call("slow", seconds=30), "x"], {"everyday": BARE})
    task = asyncio.ensure_future(made.run("go").start())
    server = made.servers.servers[0]
    while server.pid is None or not server.tools:
        await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait([task])
    pid = server.pid
    await made.close()
    assert not alive(pid)


@pytest.mark.nightly
def test_many_rounds_leave_nothing():
    """Connect and disconnect: no process, no open file, no warning."""

    async def rounds():
        pids = []
        for _ in range(50):
            async with agent(["hi"], {"mini": {"command": sys.executable, "args": ["-c", MINI]}}) as made:
                assert not made.servers.problems
                pids.append(made.servers.servers[0].pid)
        return pids

    before = len(os.listdir("/proc/self/fd"))
    pids = asyncio.run(rounds(), debug=False)
    assert not [pid for pid in pids if alive(pid)]
    assert len(os.listdir("/proc/self/fd")) <= before + 2


MINI = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "mini", "version": "1"}}
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "nothing", "inputSchema": {"type": "object"}}]}
    elif "id" in message and "silent" not in sys.argv:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "what?"}}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_a_server_that_does_not_know_the_newest_protocol_is_greeted_in_the_old_way():
    for more in ([], ["silent"]):
        mini = {"command": sys.executable, "args": ["-c", MINI, *more], "start_timeout": 5}
        async with agent(["hi"], {"mini": mini}) as made:
            assert not made.servers.problems
            assert list(made.tools) == ["nothing"]


async def test_a_servers_helpers_go_with_it(tmp_path):
    helper = tmp_path / "helper"
    start = f"import subprocess; open({str(helper)!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid))\n"
    async with agent(["hi"], {"mini": {"command": sys.executable, "args": ["-c", start + MINI]}}) as made:
        assert not made.servers.problems
        pid = int(helper.read_text())
        assert alive(pid)
    await until(lambda: not alive(pid))


def test_mistakes_in_the_entries():
    for given, told in (
        ({"x": {"comand": "npx"}}, r"mcp_servers\.x: unknown key 'comand'.*'command'"),
        ({"x": {}}, "exactly one of command and url"),
        ({"x": {"command": "a", "url": "http://b"}}, "exactly one of command and url"),
        ({"x": {"command": "a", "args": "b"}}, r"mcp_servers\.x\.args must be a list"),
        (["x"], "must be a mapping"),
    ):
        with pytest.raises(ConfigError, match=told):
            entries(given)
    assert entries({"x": {"command": "a", "disabled": True}}) == []
    assert entries({"x": {"command": "a", "env": {"N": 1}, "timeout": "2m"}})[0].timeout == 120


def test_a_clear_word_without_fastmcp(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastmcp", None)
    monkeypatch.setitem(sys.modules, "fastmcp.client", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[mcp\]'"):
        asyncio.run(agent(["hi"], {"x": {"command": "a"}}).servers.start())
