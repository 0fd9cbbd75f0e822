"""What a program makes, named by its place (`-a FILE.py:NAME`): an agent, a workflow or an orchestrator, with its neighbours."""

import asyncio
import json
import subprocess
import sys

import pytest

from kaname import Agent, Approve, ScriptedModel, call, serve, tool
from kaname.cli.main import DONE, FAILED, USAGE, WAITING, main
from tests import warm

TOOLS = '''
from kaname import tool

@tool(effect="pure")
def label(item: str, count: int) -> str:
    """Write a label."""
    return f"{count} x {item}"
'''
DESK = '''
from kaname import Agent, AgentOrchestrator, ExecutionMonitor, ScriptedModel, TaskPlanner, Workflow
from desk_tools import label

desk = Agent(ScriptedModel(["hello"]), [label], name="desk")

order = Workflow("order", params={"item": {"type": "string"}, "count": 2})
written = order.task(label, item=order.param("item"), count=order.param("count"))
order.promise({"label": written, "said": order.ask("Send it?", ["yes", "no"])})

stock = Workflow("stock")
stock.task(label, item="cup", count=7)

PLAN = """{"steps": [{"name": "one", "tool": "ask_person", "arguments": {"question": "Which?"}}]}"""
planner = AgentOrchestrator(TaskPlanner(ScriptedModel([PLAN] * 3), [label]), ExecutionMonitor(judge=False))
lost = AgentOrchestrator(TaskPlanner(ScriptedModel(["no plan"] * 9), [label], max_revisions=1), ExecutionMonitor(judge=False))
'''


@pytest.fixture
def kaname(tmp_path, monkeypatch, capsys):
    """Run a command in a folder with a program and its neighbour; returns the code and both outputs."""
    (tmp_path / "desk_tools.py").write_text(TOOLS)
    (tmp_path / "desk_of_tests.py").write_text(DESK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KANAME_JOURNAL", str(tmp_path / "journal.db"))
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    monkeypatch.setattr(sys, "stdin", None)

    def run(*arguments):
        code = main([*arguments])
        told = capsys.readouterr()
        for name in ("desk_tools", "desk_of_tests"):  # as in the next process
            sys.modules.pop(name, None)
        return code, told.out, told.err

    return run


@pytest.mark.parametrize("place", ["desk_of_tests.py", "desk_of_tests"])
def test_a_program_finds_its_neighbour(kaname, place):
    assert kaname("run", "-q", "-a", f"{place}:desk", "hi") == (DONE, "hello\n", "")


def test_a_file_of_tools_finds_its_neighbour(kaname, tmp_path):
    (tmp_path / "script.json").write_text(json.dumps([{"calls": [{"name": "label", "args": {"item": "x", "count": 1}}]}, "ok"]))
    code, out, told = kaname("run", "-m", "scripted/script.json", "-t", "desk_of_tests.py", "hi")
    assert (code, out) == (DONE, "ok\n")
    assert "← 1 x x" in told


def test_a_file_in_another_folder_finds_its_neighbour(kaname, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert kaname("run", "-q", "-a", "../desk_of_tests.py:desk", "hi")[:2] == (DONE, "hello\n")


def test_a_workflow_is_run_answered_and_resumed(kaname):
    code, _, told = kaname("run", "-a", "desk_of_tests.py:order", '{"item": "cup"}')
    assert (code, "? Send it?" in told) == (WAITING, True)
    code, _, told = kaname("runs", "resume", "last", "--answer", "perhaps")
    assert (code, 'Answer with "yes", "no"' in told) == (FAILED, True)
    code, out, _ = kaname("runs", "resume", "last", "--answer", "yes")
    assert (code, json.loads(out)) == (DONE, {"label": "2 x cup", "said": "yes"})


def test_a_workflows_input_is_its_parameters(kaname):
    code, _, told = kaname("run", "-a", "desk_of_tests.py:order", "two cups")
    assert (code, "JSON object" in told) == (USAGE, True)
    code, _, told = kaname("run", "-a", "desk_of_tests.py:order", '{"thing": 1}')
    assert (code, "'item' is missing" in told) == (USAGE, True)
    assert kaname("run", "-q", "-a", "desk_of_tests.py:stock")[:2] == (DONE, "7 x cup\n"), "it needs none"


def test_a_workflow_of_a_program_is_checked_shown_run_and_resumed_as_one_of_a_file(kaname):
    code, out, _ = kaname("workflow", "check", "-a", "desk_of_tests.py:order")
    assert (code, "2 tasks, no errors" in out) == (DONE, True)
    assert "asks a person" in kaname("workflow", "show", "-a", "desk_of_tests.py:order")[1]
    assert kaname("workflow", "run", "-q", "-a", "desk_of_tests.py:order", "-p", "item=cup", "-p", "count=3")[0] == WAITING
    code, out, _ = kaname("workflow", "resume", "last", "--answer", "no")
    assert (code, json.loads(out)) == (DONE, {"label": "3 x cup", "said": "no"})


@pytest.fixture
def in_japanese(monkeypatch):
    monkeypatch.setenv("KANAME_LANG", "ja")


@pytest.mark.parametrize("form", ["terminal", "mermaid", "svg"])
def test_a_graph_is_drawn_in_japanese(kaname, in_japanese, form):
    _, out, _ = kaname("workflow", "show", "--form", form, "-a", "desk_of_tests.py:order")
    assert ("人に確認" in out, "asks a person" in out) == (True, False)
    _, _, told = kaname("workflow", "run", "-a", "desk_of_tests.py:order", "-p", "item=cup")
    assert ("人に確認" in told, "asks a person" in told) == (True, False)


def test_a_replay_is_told_in_japanese(kaname, in_japanese, tmp_path):
    kaname("run", "-q", "-a", "desk_of_tests.py:desk", "hi")
    code, out, _ = kaname("runs", "replay", "last", "-a", "desk_of_tests.py:desk")
    assert (code, "判断は同じです" in out) == (DONE, True)
    (tmp_path / "desk_of_tests.py").write_text(DESK.replace('name="desk"', 'name="desk", instructions="Be brief."'))
    code, out, _ = kaname("runs", "replay", "last", "-a", "desk_of_tests.py:desk")
    assert (code, "プロンプトが変わりました" in out, "+++ 現在の指示" in out) == (FAILED, True, True)


def test_a_plan_that_cannot_be_made_is_told_in_japanese_and_not_as_a_failure_of_a_step(kaname, in_japanese):
    _, _, told = kaname("run", "-a", "desk_of_tests.py:lost", "x")
    assert ("計画を実行できません" in told, "the plan cannot" in told) == (True, False)
    assert ("計画し直すには" in told, "失敗の前から" in told) == (True, False)


def test_an_orchestrator_is_run_answered_and_resumed(kaname):
    code, _, told = kaname("run", "-a", "desk_of_tests.py:planner", "choose")
    assert (code, "? Which?" in told) == (WAITING, True)
    code, out, _ = kaname("runs", "resume", "last", "--answer", "the blue one")
    assert (code, out) == (DONE, "the blue one\n")


def test_plan_uses_the_orchestrator_that_is_named_and_asks_first(kaname):
    code, _, told = kaname("plan", "-a", "desk_of_tests.py:planner", "choose")
    assert (code, "Run this plan?" in told) == (WAITING, True)
    code, _, told = kaname("plan", "-y", "-a", "desk_of_tests.py:planner", "choose")
    assert (code, "? Which?" in told) == (WAITING, True)


def test_a_plan_that_cannot_be_made_has_failed_and_was_not_interrupted(kaname):
    code, _, told = kaname("run", "-a", "desk_of_tests.py:lost", "x")
    assert (code, "no plan reached the goal" in told, "runs fork" in told, "runs resume" in told) == (FAILED, True, True, False)
    assert kaname("plan", "-y", "-a", "desk_of_tests.py:lost", "--max-revisions", "0", "x")[0] == FAILED
    assert kaname("runs", "resume", "last")[0] == FAILED


def test_what_is_neither_is_told(kaname):
    code, _, told = kaname("run", "-a", "desk_of_tests.py:label", "hi")
    assert (code, "not an Agent, a Workflow or an AgentOrchestrator" in told) == (USAGE, True)


def test_an_orchestrator_is_served(kaname, tmp_path):
    from kaname import AgentOrchestrator, TaskPlanner

    other = Agent(ScriptedModel(["hi"]), name="other", journal="memory")
    planner = AgentOrchestrator(TaskPlanner(ScriptedModel([])), state_manager=other.journal, name="planner")
    assert list(serve.app([other, planner]).service.agents) == ["other", "planner"]


def test_follow_of_a_run_that_waits_says_so_and_ends(kaname):
    kaname("run", "-a", "desk_of_tests.py:order", '{"item": "cup"}')
    code, _, told = kaname("runs", "follow", "last")
    assert (code, "? Send it?" in told) == (WAITING, True)
    assert "waiting for an answer; to continue:" in told.splitlines()[-1]
    assert kaname("runs", "follow", "last", "--json")[0] == WAITING


async def test_follow_goes_on_while_something_else_is_under_way(tmp_path):
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        begun.set()
        await go_on.wait()
        return "seen"

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    script, journal = ScriptedModel([[call("look"), call("pay")], "done"]), str(tmp_path / "journal.db")
    agent = Agent(script, [look, pay], policies=[Approve("pay")], journal=journal)
    run = agent.run("go").start()
    await begun.wait()
    while not (cards := await agent.journal.runs(status="waiting")):
        await asyncio.sleep(0.01)
    command = [sys.executable, "-m", "kaname.cli.main", "runs", "follow", cards[0].run_id, "--journal", journal]
    with warm.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as following:
        shown = ""
        while "? Run pay" not in shown:
            shown += await asyncio.to_thread(following.stderr.readline)
            assert following.poll() is None, shown
        go_on.set()
        shown += await asyncio.to_thread(following.stderr.read)
    assert following.returncode == WAITING
    assert "seen" in shown
    await run
    await agent.journal.close()
