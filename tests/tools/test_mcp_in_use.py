"""Tool servers: cases that people who tried them cold have found. Real servers, real processes, real terminals."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kaname import (
    Agent,
    AgentOrchestrator,
    Approve,
    ConfigError,
    ExecutionMonitor,
    Flow,
    InvalidState,
    ScriptedModel,
    StateManager,
    TaskPlanner,
    call,
    tool,
)
from kaname.policies.content.guardrails.policy import Guardrails
from kaname.policies.content.guardrails.tool_rules import ToolRule
from kaname.policies.failure.tool_fallback import FallbackStrategy
from kaname.tools.arguments.schema import problems
from kaname.tools.mcp.config import entries
from kaname.tools.tool_search import MOST_LISTED
from tests import warm
from tests.mcp_servers.asking import asking_server
from tests.mcp_servers.everyday import make
from tests.parts import Later, add, typed_into, wait_until
from tests.tools.test_mcp import BARE, STDIO, agent, alive, answers

fastmcp = Later("fastmcp")
base = Later("fastmcp.tools.base")
mcp_types = Later("mcp_types")
CLIENT = "fastmcp.client"  # what a warm process has imported beside kaname

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

RAW = """
import json, os, sys, time, threading
def out(m): sys.stdout.write(json.dumps(m) + "\\n"); sys.stdout.flush()
mode, given = sys.argv[1], sys.argv[2:]
TOOLS = [{"name": "t", "inputSchema": {"type": "object"}}]
if mode == "tools": TOOLS = json.loads(given[0])
if mode in ("pid", "mute") and given: open(given[0], "a").write(f"{os.getpid()}\\n")
if mode == "slow": time.sleep(float(given[0]))
if mode == "flag" and not os.path.exists(given[0]): sys.exit("the database is down")
for line in sys.stdin:
    m = json.loads(line); method, i = m.get("method"), m.get("id")
    if method == "initialize" and mode != "mute":
        able = {"tools": {}, "resources": {}} if mode == "no_resources" else {"tools": {}}
        about = {"name": "raw", "version": "1"}
        out({"jsonrpc": "2.0", "id": i, "result": {"protocolVersion": "2025-06-18", "capabilities": able, "serverInfo": about}})
    elif method == "tools/list" and mode != "no_list":
        out({"jsonrpc": "2.0", "id": i, "result": {"tools": TOOLS}})
        if mode == "deaf": os.close(0); time.sleep(60)
    elif method == "tools/call":
        args = m["params"].get("arguments") or {}
        if mode == "refuse" and not args.get("wait"):
            out({"jsonrpc": "2.0", "id": i, "error": {"code": -32000, "message": "rate limit exceeded"}}); continue
        if mode == "signal": os.kill(os.getpid(), 40); time.sleep(9)
        if mode in ("hang", "pid"): continue
        text = {"type": "text", "text": f"ok {json.dumps(args)}"}
        def say(i=i, text=text, wait=args.get("wait", 0)):
            time.sleep(wait); out({"jsonrpc": "2.0", "id": i, "result": {"content": [text]}})
        threading.Thread(target=say).start()
        if mode == "once": time.sleep(0.2); os._exit(3)
    elif method == "server/discover" and mode == "fragile":
        open(given[0], "a").write("died of the probe\\n"); sys.exit(1)
    elif method == "server/discover" and mode == "brittle":
        out({"jsonrpc": "2.0", "id": i, "error": {"code": -32601, "message": "Method not found"}}); os._exit(0)
    elif method == "server/discover" and mode != "mute":
        out({"jsonrpc": "2.0", "id": i, "error": {"code": -32601, "message": "Method not found"}})
if mode == "pid":
    while True: time.sleep(1)
"""


def raw(mode, *given, **more):
    return {"command": sys.executable, "args": ["-c", RAW, mode, *map(str, given)], **more}


def told(results):
    return [(one.name, one.error or one.output) for one in results]


# Many tools


def many(*names):
    server = fastmcp.FastMCP("many")
    for number in range(MOST_LISTED + 5):
        server.tool(lambda: "done", name=f"tool_{number}", description=f"Number {number}.")
    for name in names:
        server.tool(lambda: f"PAID {name}", name=name, description="Send money.")
    return server


async def test_a_hidden_tool_is_judged_by_its_own_name():
    hidden = {"many": many("pay")}
    async with agent([call("use_tool", name="pay", args={}), "x"], hidden, policies=[Approve("pay")]) as made:
        result = await made.run("go")
        assert result.stop.kind == "waiting"
        (asked,) = result.questions.values()
        assert asked.prompt.startswith("Run pay(")
        result = await made.resume(result.run_id, {"approve:c1_0": "yes"})
        assert told(result.state.results.values()) == [("pay", "PAID pay")]
        assert (await made.replay(result.run_id)).same
    rules = [Guardrails(tools=[ToolRule("pay", allowed=False)])]
    async with agent([call("use_tool", name="pay", args="{}"), call("pay"), "x"], hidden, policies=rules) as made:
        assert ["is not allowed" in text for _, text in told(await answers(made))] == [True, True]


async def test_a_hidden_tool_is_not_listed_and_can_be_called_by_its_name():
    script = [
        *[call("use_tool", name=f"tool_{n}", args={}) for n in range(7)],
        call("tool_9"),
        call("use_tool", name="add"),
        "x",
    ]
    async with agent(script, {"many": many()}, [add]) as made:
        assert {one["name"] for one in made.available_tools} == {"add", "find_tools", "use_tool"}
        assert "tool_9" in made.tools
        names = [name for name, _ in told(await answers(made))]
        assert names == [*[f"tool_{n}" for n in range(7)], "tool_9", "add"]  # more than five, and not one of them use_tool


async def test_time_limits_hold_for_hidden_tools():
    listed = json.dumps([{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(MOST_LISTED + 1)])
    slow = {"command": sys.executable, "args": ["-c", RAW.replace('"hang"', '"tools"'), "tools", listed], "timeout": 0.3}
    async with agent([call("use_tool", name="t1", args={}), "x"], {"s": slow}) as made:
        ((name, late),) = told(await answers(made))
    assert name == "t1"
    assert "timed out after 0.3 s" in late


async def test_crossing_the_limit_in_the_middle_of_a_run():
    server = make()

    @server.tool()
    async def burst(ctx: fastmcp.Context) -> str:
        for number in range(MOST_LISTED):
            server.tool(lambda: "new", name=f"new_{number}")
        await ctx.send_notification(mcp_types.ToolListChangedNotification())
        return "ok"

    async with agent([call("burst"), call("slow", seconds=0.3), call("add", a=1, b=2), "x"], {"s": server}) as made:
        assert (await answers(made))[-1].output == 3
        assert {one["name"] for one in made.available_tools} == {"find_tools", "use_tool"}


async def test_looking_for_tools_in_any_script():
    server = many("getWeather", "погода", "météo", "天気")
    words = ["weather", "погода", "meteo", "天気", "Ψ"]
    async with agent([*[call("find_tools", query=word) for word in words], "x"], {"s": server}, stops=[]) as made:
        *found, nothing = [one.output for one in await answers(made)]
        names = [one[0]["name"] + " " + one[0]["description"] for one in found]
    assert names[0].startswith("getWeather")
    assert "погода" in names[1]
    assert "météo" in names[2]
    assert "天気" in names[3]
    assert "nothing fits" in nothing
    assert "tool_0" in nothing


# Names


async def test_a_name_once_given_stays():
    bank, other = fastmcp.FastMCP("bank"), make("other")
    bank.tool(lambda: "PAID", name="pay")
    script = [call("grow", name="pay"), call("slow", seconds=0.3), call("pay"), "x"]
    async with agent(script, {"bank": bank, "other": other}, policies=[Approve("pay"), Flow("off")]) as made:
        assert (await made.run("go")).stop.kind == "waiting"
        assert {"pay", "other__pay"} <= set(made.tools)


async def test_own_tools_are_never_replaced():
    def mine(name):
        return tool(lambda: "MINE", name=name, description="Mine.")

    own = [mine(name) for name in ("find_tools", "get_time", "s__add", "add", "read_resource")]
    server = many("get.time", "add", "天気")
    async with agent(["x"], {"s": server}, own) as made:
        assert all(made.tools[one.name] is one for one in own)
        assert {"s__get_time", "s__add_2", "find_more_tools", "use_tool", "s_tool_1"} <= set(made.tools)
        assert made.tools["s_tool_1"].description.startswith("天気: ")
    async with agent(["x"], {"s": {"server": make(), "library": True}}, own) as made:
        assert made.tools["read_resource"] is own[-1]
        assert {"mcp_read_resource", "list_resources", "list_prompts", "get_prompt"} <= set(made.tools)


@pytest.mark.parametrize(
    "policy",
    [Approve("ad"), Guardrails(tools=[ToolRule("ad")]), FallbackStrategy(fallback={"add": "ad"})],
    ids=lambda one: type(one).__name__,
)
async def test_a_name_that_is_no_tools_guards_nothing(policy):
    async with agent(["x"], {"s": make()}, policies=[policy]) as made:
        with pytest.raises(ConfigError, match=r"no tool named 'ad'.*did you mean 'add'"):
            await made.run("go")
    with pytest.raises(ConfigError, match="no tool named 'ad'"):
        await Agent(ScriptedModel(["x"]), [add], policies=[policy], journal="memory").run("go")
    missing = {"s": make(), "gone": {"command": "no-such-command"}}  # of which nobody knows the tools
    async with agent(["x"], missing, policies=[policy]) as made:
        assert (await made.run("go")).completed


# Dying and hanging


async def test_an_error_code_of_a_live_server_is_the_tools_error():
    async with agent([[call("t"), call("t", wait=0.5)], call("t"), "x"], {"s": raw("refuse")}) as made:
        pid = made.servers.servers[0].pid
        assert told(await answers(made)) == [
            ("t", "rate limit exceeded"),
            ("t", 'ok {"wait": 0.5}'),
            ("t", "rate limit exceeded"),
        ]
        assert made.servers.servers[0].pid == pid


async def test_starting_has_one_limit_for_all_of_it():
    for mode in ("mute", "no_list"):
        begun = time.monotonic()
        async with agent(["x"], {"s": raw(mode, start_timeout=0.5)}) as made:
            assert "did not answer within 0.5 s" in made.servers.problems["s"]
            assert "SIGKILL" not in made.servers.problems["s"]
        assert time.monotonic() - begun < 40


async def test_listing_has_a_limit(caplog):
    async with agent(["x"], {"s": raw("no_resources", start_timeout=1)}) as made:
        assert await made.servers.library() == []
    assert "no answer within 1 s" in caplog.text


async def test_half_a_character_is_refused_and_nothing_is_sent():
    async with agent([call("t", text="\ud83d"), call("t", n=1), "x"], {"s": raw("plain")}) as made:
        (_, refused), fine = told(await answers(made))
    assert "cannot be sent" in refused
    assert fine == ("t", 'ok {"n": 1}')


@pytest.mark.parametrize(("mode", "words"), [("signal", "signal 40"), ("deaf", "no longer responds")])
async def test_deaths_of_other_kinds(mode, words, caplog):
    async with agent([call("t"), "x"], {"s": raw(mode, timeout=5)}) as made:
        server = made.servers.servers[0]
        pid = server.pid
        await asyncio.sleep(0.3)
        ((_, died),) = told(await answers(made))
        assert words in died
        await server.connection()
        assert server.pid != pid


async def test_a_slow_starter_comes_back_after_a_death():
    code = "import time; time.sleep(1.5)\n" + RAW
    entry = {"command": sys.executable, "args": ["-c", code, "once"], "timeout": 1.0}
    async with agent([call("t", n=1), call("t", n=2), "x"], {"s": entry}) as made:
        await made.tools["t"].act({}, _context())
        while made.servers.servers[0].connected:
            await asyncio.sleep(0.05)
        result = await made.tools["t"].act({"n": 2}, _context())
        assert result.output == 'ok {"n": 2}'


class _context:
    async def progress(self, text):
        pass


async def test_what_was_not_sent_says_so(tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    async with agent([call("t"), "x"], {"s": raw("flag", flag)}) as made:
        flag.unlink()
        os.killpg(made.servers.servers[0].pid, signal.SIGKILL)
        await asyncio.sleep(0.3)
        result = await made.tools["t"].act({}, _context())
    assert "the database is down; the call to t was not sent" in result.error


async def test_first_runs_share_one_attempt_and_the_next_run_tries_again(tmp_path):
    note = tmp_path / "note"
    made = agent(["x"] * 5, {"s": raw("mute", note, start_timeout=3)})
    await asyncio.gather(*[made.run("go") for _ in range(5)])
    await made.close()
    assert len(note.read_text().split()) == 1
    flag = tmp_path / "flag"
    async with agent(["x", call("t"), "x"], {"s": raw("flag", flag)}) as made:
        assert "the database is down" in made.servers.problems["s"]
        flag.touch()
        await made.run("go")
        await asyncio.sleep(1.1)
        assert (await answers(made))[-1].output == "ok {}"
        assert made.servers.problems == {}


def test_two_threads_get_a_clear_word():
    shared = agent(lambda request: "x" if request.messages[-1].role == "tool" else call("t", wait=0.5), {"s": raw("slow", 0.3)})
    outcomes = []

    def work():
        try:
            outcomes.append(shared.run_sync("go").completed)
        except InvalidState as problem:
            outcomes.append(str(problem))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(map(str, outcomes))[0] == "True"
    assert "in use in another event loop" in sorted(map(str, outcomes))[1]
    assert shared.run_sync("again").completed  # one loop after the other is fine


async def test_nothing_starts_after_the_end(tmp_path):
    made = agent(["x"], {"s": {**BARE, "args": [*BARE["args"], "hours"]}})
    assert [one.name for one in await made.servers.library()] == ["hours"]  # before the first run it starts
    pid = made.servers.servers[0].pid
    await made.close()
    with pytest.raises(InvalidState, match="closed"):
        await made.servers.read_resource("shop://hours")
    assert not alive(pid)
    assert made.servers.servers[0].pid == pid


async def test_closed_in_the_middle_of_a_call_it_does_not_claim_to_know():
    made = agent([call("t"), "x"], {"s": raw("hang")})
    run = made.run("go").start()
    while made.servers.servers[0].calls_under_way == 0:
        await asyncio.sleep(0.02)
    await made.close()
    ((_, error),) = told((await run).state.results.values())
    assert "not known whether the call took effect" in error


async def test_an_http_server_that_was_restarted_is_met_again():
    import uvicorn

    async def serve(port):
        served = uvicorn.Server(uvicorn.Config(make().http_app(), host="127.0.0.1", port=port, log_level="error"))
        task = asyncio.create_task(served.serve())
        while not served.started:
            await asyncio.sleep(0.02)
        return served, task, served.servers[0].sockets[0].getsockname()[1]

    async def end(served, task):
        served.should_exit = served.force_exit = True
        await task

    first, task, port = await serve(0)
    async with agent([], {"web": {"url": f"http://127.0.0.1:{port}/mcp"}}) as made:
        assert (await made.tools["add"].act({"a": 1, "b": 1}, _context())).output == 2
        await end(first, task)
        second, task, _ = await serve(port)
        assert (await made.tools["add"].act({"a": 1, "b": 2}, _context())).output == 3
        await end(second, task)
        gone = await made.tools["add"].act({"a": 1, "b": 3}, _context())
        assert gone.error


# Schemas and results


def test_schemas_that_would_take_for_ever():
    node = {"anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}, {"type": "string"}]}
    begun = time.monotonic()
    problems({"a": 5}, {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}})
    problems("a" * 40 + "!", {"pattern": "^(a+)+$"})
    problems("a" * 9000, {"pattern": "a*a*a*a*b"})
    problems("a" * 30, {"pattern": "(a|a){1,30}$b"})
    assert time.monotonic() - begun < 30
    assert problems("x", {"pattern": "^[0-9]{3}-[a-z]+$"})
    assert not problems("123-abc", {"pattern": "^[0-9]{3}-[a-z]+$"})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}, {"x-a": "1"}),
        ({"properties": {"p": {"prefixItems": [{"type": "number"}], "items": False}}}, {"p": [1]}),
        ({"properties": {"p": {"items": [{"type": "number"}], "additionalItems": False}}}, {"p": [1]}),
        ({"properties": {"a": {"type": None}}}, {"a": 1}),
        ({"properties": {"a": {"type": ["weird", {}]}}}, {"a": 1}),
        ({"properties": {"a": {"type": "string", "nullable": True}}}, {"a": None}),
        ({"properties": None, "required": "name", "anyOf": {"x": 1}}, {"a": 1}),
        ({"properties": {"a": {"$ref": "#/$defs/l/0"}}, "$defs": {"l": [{"type": "string"}]}}, {"a": "s"}),
    ],
)
def test_odd_schemas_refuse_nothing_that_is_right(schema, value):
    assert not problems(value, schema)


def test_odd_schemas_still_refuse_what_is_wrong():
    assert problems({"y": 1}, {"patternProperties": {"^x-": {}}, "additionalProperties": False})
    assert problems({"x-a": 1}, {"patternProperties": {"^x-": {"type": "string"}}})
    assert problems([1, 2], {"prefixItems": [{"type": "number"}], "items": False})


async def test_json_in_a_text_is_unpacked():
    listed = [
        {
            "name": "t",
            "inputSchema": {"type": "object", "properties": {"l": {"$ref": "#/$defs/l"}}, "$defs": {"l": {"type": "array"}}},
        }
    ]
    async with agent([call("t", l="[1, 2]"), "x"], {"s": raw("tools", json.dumps(listed))}) as made:
        assert (await answers(made))[0].output == 'ok {"l": [1, 2]}'


async def test_results_lose_nothing():
    server = fastmcp.FastMCP("r")
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server.tool(lambda: base.ToolResult(content="stale!", structured_content={"rows": [1]}), name="both")
    server.tool(lambda: base.ToolResult(content='{"result": "ok"}', structured_content={"result": "ok"}), name="wrapped")
    server.tool(lambda: base.ToolResult(content="text", structured_content={"n": "x"}), name="broken", output_schema=number)
    inside = mcp_types.EmbeddedResource(
        type="resource", resource=mcp_types.TextResourceContents(uri="file:///a", text="inside")
    )
    blocks = [mcp_types.ResourceLink(type="resource_link", name="r", uri="file:///x", description="big"), inside]
    server.tool(lambda: base.ToolResult(content=[*blocks, mcp_types.TextContent(type="text", text="end")]), name="links")
    async with agent([[call("both"), call("wrapped"), call("broken"), call("links")], "x"], {"s": server}) as made:
        both, wrapped, broken, links = [one.output for one in await answers(made)]
    assert both == {"text": "stale!", "data": {"rows": [1]}}
    assert wrapped == {"result": "ok"}
    assert broken["result"] == {"text": "text", "data": {"n": "x"}}
    assert "the call was made" in broken["note"]
    assert links == "[r: file:///x (big)]\n[file:///a]\ninside\nend"


# Resources, prompts, entries, replay


async def test_two_servers_with_the_same_are_told_apart():
    one, other = ({"server": make(), "library": True} for _ in range(2))
    script = [call("list_prompts"), call("get_prompt", name="greet", arguments={"name": "Ann"}, server="b"), "x"]
    async with agent(script, {"a": one, "b": other}) as made:
        listed, prompt = [one.output for one in await answers(made)]
        assert [(one["server"], one["name"]) for one in listed] == [("a", "greet"), ("b", "greet")]
        assert prompt == "Greet Ann kindly."
        assert (await made.servers.read_resource("shop://hours", "b")).output == "10 to 18"
        assert "no tool server named 'c'" in (await made.servers.read_resource("shop://hours", "c")).error
        assert await made.servers.get_prompt("greet", "b", name="Ann", server="x") == "Greet Ann kindly."


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"command": "a", "env": ["A=1"]}, r"mcp_servers\.s\.env must be a mapping"),
        ({"command": "a", "env": {"A": None}}, r"mcp_servers\.s\.env\.A"),
        ({"command": ["npx"]}, r"mcp_servers\.s\.command must be a string"),
        ({"command": "a", "disabled": "false"}, r"disabled must be true or false"),
        ({"command": "a", "timeout": "soon"}, r"mcp_servers\.s\.timeout: 'soon'"),
        ({"command": "a", "type": "http"}, "type http needs url"),
        ({"url": "http://a", "type": "ssse"}, "unknown type 'ssse'; did you mean 'sse'"),
        ({"url": "ftp://me:secret@a"}, r"http://.*me:\*\*\*@a"),
        (None, "a server must be"),
        (5, "a server must be"),
    ],
)
def test_entries_that_are_none(given, words):
    with pytest.raises(ConfigError, match=words):
        entries({"s": given})


async def test_passwords_and_statuses_in_messages():
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def locked(request):
        return Response(status_code=401)

    app = Starlette(routes=[Route("/mcp", locked, methods=["GET", "POST", "DELETE"])])
    served = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    task = asyncio.create_task(served.serve())
    while not served.started:
        await asyncio.sleep(0.02)
    port = served.servers[0].sockets[0].getsockname()[1]
    servers = {"web": {"url": f"http://me:secret@127.0.0.1:{port}/mcp"}, "odd": object(), "fine": make()}
    async with agent(["x"], servers) as made:
        assert "401" in made.servers.problems["web"]
        assert "headers" in made.servers.problems["web"]
        assert "secret" not in made.servers.problems["web"]
        assert "odd" in made.servers.problems
        assert "add" in made.tools
    served.should_exit = True
    await task


async def test_a_replay_knows_the_tools_of_servers(tmp_path):
    async with Agent(ScriptedModel([call("add", a=1, b=2), "3"]), mcp_servers={"s": make()}, journal=tmp_path / "j.db") as made:
        run = (await made.run("go")).run_id
    later = Agent(ScriptedModel([]), mcp_servers={"s": make()}, journal=tmp_path / "j.db")
    assert (await later.replay(run)).same
    await later.close()


async def test_replay_of_a_plan_knows_the_tools_of_servers(tmp_path):
    def orchestrator(*replies):
        planner = TaskPlanner(ScriptedModel([*replies]))
        monitor = ExecutionMonitor(judge=False)
        return AgentOrchestrator(planner, monitor, StateManager(tmp_path / "tasks.db"), mcp_servers={"s": make()})

    step = {"name": "sum", "tool_name": "add", "arguments": {"a": 1, "b": 2}}
    async with orchestrator(json.dumps({"description": "add", "steps": [step]})).agent as made:
        result = await made.run("go")
    assert (result.stop.kind, result.output) == ("completed", 3)
    later = orchestrator().agent
    assert (await later.replay(result.run_id)).same
    await later.close()


async def test_an_abort_while_servers_start_is_quick():
    stop = asyncio.Event()
    made = agent(["x"], {"s": raw("slow", 600)})
    run = made.run("go", abort_event=stop).start()
    while made.servers.servers[0].pid is None:
        await asyncio.sleep(0.05)
    begun = time.monotonic()
    stop.set()
    result = await run
    assert time.monotonic() - begun < 60, "the server takes ten minutes; a busy machine takes its time"
    assert result.stop.kind == "cancelled"
    pid = made.servers.servers[0].pid
    await made.close()
    assert not alive(pid)


# What servers ask


async def test_a_persons_time_is_not_the_calls():
    async def slowly(server, question, schema):
        await asyncio.sleep(1)
        return {"date": "today", "seats": 2}

    limited = {"form": {"server": asking_server(), "protocol": "legacy", "timeout": 0.5}}
    async with agent([call("book"), "x"], limited, elicit=slowly) as made:
        assert (await answers(made))[0].output.startswith("accept date='today' seats=2")
    async with agent([call("book"), "x"], limited) as made:
        assert (await answers(made))[0].is_error  # the server knows that nobody can be asked

    async def wrongly(server, question, schema):
        raise RuntimeError("broken")

    async with agent([call("book"), "x"], limited, elicit=wrongly) as made:
        assert (await answers(made))[0].output.startswith("cancel")


_FORM = {
    "command": sys.executable,
    "args": ["-m", "tests.mcp_servers.asking"],
    "cwd": os.getcwd(),
    "protocol": "legacy",
}


def kaname(tmp_path, script, servers, *command):
    (tmp_path / "s.json").write_text(json.dumps(script))
    (tmp_path / "kaname.yaml").write_text(json.dumps({"agents": {"a": {"model": "scripted/s.json"}}, "mcp_servers": servers}))
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "KANAME_JOURNAL": str(tmp_path / "j.db"), "LANG": "C.UTF-8"}
    return [sys.executable, "-m", "kaname.cli.main", *command], environment


def in_terminal(tmp_path, script, servers, feed):
    return typed_into(*kaname(tmp_path, script, servers, "run", "go"), tmp_path, feed, also=CLIENT)


BOOK = [{"calls": [{"name": "book"}]}, "fin"]


@pytest.mark.nightly
def test_a_form_in_the_terminal(tmp_path):
    feed = [("Date (as", "2026-01-01\r"), ("Seats", "many\r"), ("a whole number", "2\r"), ("Window [y/n], Enter for no", "\r")]
    code, shown = in_terminal(tmp_path, BOOK, {"form": _FORM}, [*feed, ("Enter for fish", "\r")])
    assert code == 0
    assert "accept date='2026-01-01' seats=2 window=False meal='fish'" in shown


@pytest.mark.nightly
def test_ctrl_c_ends_a_question(tmp_path):
    code, shown = in_terminal(tmp_path, BOOK, {"form": _FORM}, [("Date (as", signal.SIGINT)])
    assert code == 130
    assert "to continue" in shown


# Signals

T = [{"calls": [{"name": "t"}]}, "fin"]


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGTERM], 143), ([signal.SIGHUP], 129), ([signal.SIGKILL], -9), ([signal.SIGINT] * 2, None)],
    ids=["TERM", "HUP", "KILL", "twice"],
)
def test_no_server_outlives_us(tmp_path, signals, code):
    note = tmp_path / "pid"
    command, environment = kaname(tmp_path, T, {"s": raw("pid", note)}, "run", "go")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    running = warm.Popen(command, cwd=tmp_path, env=environment, also=CLIENT, **pipes)
    seen = b""
    while b"t()" not in seen:
        seen += os.read(running.stdout.fileno(), 1000)
    for number in signals:
        running.send_signal(number)
        if number != signals[-1]:
            time.sleep(0.3)
    ended = running.wait(60)
    running.stdout.close()
    assert code in (None, ended)
    pid = int(note.read_text())
    wait_until(lambda: not alive(pid))


def test_ctrl_c_while_servers_start_offers_nothing_to_go_on_with(tmp_path):
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    command, environment = kaname(tmp_path, T, {"s": {"command": sys.executable, "args": ["-c", code]}}, "run", "go")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    running = warm.Popen(command, cwd=tmp_path, env=environment, also=CLIENT, text=True, **pipes)
    while not (note.exists() and note.read_text()):
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    shown = running.communicate(timeout=180)[0]
    assert running.returncode == 130
    assert "resume" not in shown
    assert not alive(int(note.read_text()))


@pytest.mark.nightly
def test_kaname_tools_lists_all_and_tells_each_problem_once(tmp_path):
    listed = json.dumps([{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(MOST_LISTED + 5)])
    servers = {"many": raw("tools", listed), "everyday": STDIO, "gone": {"command": "no-such-command"}}
    command, environment = kaname(tmp_path, T, servers, "tools")
    done = warm.run(command, cwd=tmp_path, env=environment, also=CLIENT, capture_output=True, text=True, timeout=180)
    assert f"t{MOST_LISTED + 4}()" in done.stdout
    assert "prompt greet(name) (everyday)" in done.stdout
    assert "resource shop://hours (everyday)" in done.stdout
    assert (done.stdout + done.stderr).count("the tool server 'gone'") == 1
    assert done.returncode == 1


# Servers that end on a method that they do not know


@pytest.mark.parametrize("mode", ["fragile", "brittle"])
async def test_a_server_that_ends_when_it_is_asked_for_its_protocol_is_started_the_old_way(mode, tmp_path):
    note = tmp_path / "note"
    async with agent(lambda asked: call("t") if asked.messages[-1].role == "user" else "ok", {"s": raw(mode, note)}) as made:
        assert told(await answers(made)) == [("t", "ok {}")]
        assert made.servers.problems == {}
        (server,) = made.servers.servers
        os.kill(server.pid, signal.SIGKILL)
        while server.connected:
            await asyncio.sleep(0.01)
        assert told(await answers(made))[-1] == ("t", "ok {}")
    if mode == "fragile":
        assert note.read_text() == "died of the probe\n", "asked once; a restart is in the old way at once"


async def test_a_server_that_cannot_start_is_told_once_with_its_own_words(tmp_path):
    made = agent(["ok"], {"s": raw("flag", tmp_path / "missing")})
    async with made:
        assert "the database is down" in made.servers.problems["s"]


async def test_a_server_that_did_not_start_is_told_to_the_model_and_to_the_readers_of_the_run(tmp_path):
    seen = []

    def model(request):
        seen.append(request.messages[0].text)
        return "I have no such tool."

    servers = {"gone": raw("flag", tmp_path / "missing"), "late": raw("mute", start_timeout=0.2), "there": raw("list")}
    async with agent(model, servers, instructions="Be brief.") as made:
        chunks = [chunk async for chunk in made.run("go")]
    told_readers = [chunk.data["content"] for chunk in chunks if chunk.data.get("status") == "warning"]
    assert len(told_readers) == 1
    assert "'gone' are not available in this run: the server did not start" in told_readers[0]
    assert "'late' are not available in this run: the server did not answer within 0.2 s" in told_readers[0]
    assert "`start_timeout`" in told_readers[0]
    assert "database is down" not in told_readers[0], "what a server says itself is for its owner"
    assert "there" not in told_readers[0]
    assert seen[0].startswith("Be brief.")
    assert seen[0].endswith("Missing servers: 'gone', 'late'")
    assert "start_timeout" in made.servers.problems["late"]


async def test_runs_of_an_agent_whose_servers_are_there_warn_of_nothing():
    async with agent(["ok"], {"there": raw("list")}) as made:
        assert not [chunk async for chunk in made.run("go") if chunk.data.get("status") == "warning"]


async def test_a_finished_run_is_not_warned_again(tmp_path):
    made = agent(["ok"], {"gone": raw("flag", tmp_path / "missing")})
    result = await made.start_or_resume("r1", "go")
    again = await made.start_or_resume("r1", "go")
    assert (again.output, again.state.seq) == ("ok", result.state.seq)
    await made.close()
