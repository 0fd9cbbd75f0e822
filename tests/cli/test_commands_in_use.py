"""The command line and its file: cases that people who tried them cold have found."""

import json
import re

import pytest

from kaname import Agent, ConfigError, load_config
from tests.cli.test_commands import terminal as terminal
from tests.cli.test_commands import uses


def write(folder, text, name="kaname.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder, text):
    with pytest.raises(ConfigError) as told:
        load_config(write(folder, text)).check()
    return str(told.value)


def test_a_mistyped_name_removes_no_gate(tmp_path):
    write(tmp_path, "from kaname import tool\n@tool\ndef pay(): 'Pay.'\n", "bank.py")
    told = mistakes(tmp_path, "agents:\n  a:\n    model: scripted/x.json\n    tools: [bank.py]\n    approve: [pya]\n")
    assert "kaname.yaml:5: agents.a.approve: there is no tool 'pya'; did you mean 'pay'?" in told


def test_all_that_a_file_names_is_looked_for_and_told_at_once(tmp_path):
    write(tmp_path, "def f(:\n", "broken.py")
    write(tmp_path, "1/0\n", "failing.py")
    write(tmp_path, "raise SystemExit(5)\n", "leaving.py")
    told = mistakes(
        tmp_path,
        """
agents:
  a:
    model: scripted/none.json
    tools: [nowhere:f, broken.py, failing.py, leaving.py, missing.py, math:sine]
    policies: [math:pi]
    guardrails: {blocked_patterns: ["("]}
""",
    )
    for words in (
        "kaname.yaml:5: agents.a.tools.0: the module 'nowhere' was not found",
        "agents.a.tools.1: broken.py cannot be loaded: SyntaxError",
        "agents.a.tools.2: failing.py cannot be loaded: ZeroDivisionError",
        "agents.a.tools.3: leaving.py cannot be loaded: SystemExit",
        "agents.a.tools.4: the file",
        "agents.a.tools.5: math has no 'sine'; did you mean 'sin",
        "kaname.yaml:6: agents.a.policies.0: math:pi is not a policy",
        "kaname.yaml:7: agents.a.guardrails: the pattern",
        "kaname.yaml:4: agents.a.model: ",
    ):
        assert words in told, (words, told)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agents: {a: {model: local, stops: {max_steps: 0}}}", "stops.max_steps: max_steps must be an integer of at least 1"),
        ("agents: {a: {}}\nmodels: {openai: {tool_mode: nativ}}", "did you mean 'native'"),
        ("agents: {a: {}}\nmodels: {opnai: {api_key: x}}", "unknown provider 'opnai'; did you mean 'openai'"),
        ("agents: {a: {}}\nmcp_servers: {web: {url: blah}}", "the URL must start with http"),
        ("agents: {a: {mcp_servers: [fiels]}}\nmcp_servers: {files: {command: x}}", "no server 'fiels'; did you mean 'files'"),
        ("agents: {a: {}}\nmcp_servers: {x: {command: x, timeout: -5}}", "mcp_servers.x.timeout"),
        ("", "add 'agents' or 'llm'"),
        ("agents: &a\n  b: *a\n", "contains itself"),
        ("agents: {a: {instructions: '${NOT_SET_ANYWHERE}'}}", "NOT_SET_ANYWHERE is not set"),
        ("agents: {a: {instructions: '${1x}'}}", "is not a variable"),
        ("agents: {a: {instructions: '${OPEN'}}", "has no closing"),
    ],
)
def test_mistakes(tmp_path, text, words):
    told = mistakes(tmp_path, text)
    assert words in told
    assert "kaname.yaml:" in told


def test_a_bomb_of_anchors_is_refused(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "more than 20,000 values" in mistakes(tmp_path, "\n".join(lines))


def test_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPS", "7")
    monkeypatch.setenv("EMPTY", "")
    text = """
agents:
  a:
    instructions: "${GREETING:-${NOTHING:-hello}} ${EMPTY}$${LITERAL}"
    model: "scripted/${STEPS}"
    stops:
      max_steps: ${STEPS}
      per_tool: ${NOTHING:-4}
"""
    config = load_config(write(tmp_path, text)).agent()
    assert config.instructions == "hello ${LITERAL}"
    assert config.model == "scripted/7"
    assert config.value["stops"] == {"max_steps": 7, "per_tool": 4}


def test_an_anchor_is_merged(tmp_path):
    config = load_config(
        write(tmp_path, "agents:\n  a: &a {model: local, instructions: one}\n  b:\n    <<: *a\n    instructions: two\n")
    )
    assert (config.agent("b").model, config.agent("b").instructions) == ("local", "two")


def test_paths_are_seen_from_the_file(tmp_path, monkeypatch):
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    other.mkdir()
    monkeypatch.chdir(other)
    write(home, '["hi"]', "s.json")
    config = load_config(write(home, "journal: my.db\nagents: {a: {model: scripted/s.json}}"))
    parts = config.agent().parts()
    assert parts["journal"] == str(home / "my.db")
    assert Agent(config, journal="memory").run_sync("?").output == "hi"


CONFIGURED = """
journal: own.db
agents:
  first: {model: scripted/first.json}
  second: {model: scripted/second.json, tools: [mytools.py], approve: [add]}
"""


def test_a_run_is_gone_on_with_as_it_was_begun(terminal):
    write(terminal.folder, CONFIGURED)
    write(terminal.folder, json.dumps(["I am the first"]), "first.json")
    write(terminal.folder, json.dumps([uses("add", a=1, b=2), "three"]), "second.json")
    asked = terminal("run", "-a", "second", "1 + 2")
    assert asked.returncode == 3
    assert "? Run add" in asked.stderr
    assert "--answer yes" in asked.stderr
    run = asked.stderr.rpartition("runs resume ")[2].split()[0]
    assert run in terminal("runs", "--json").stdout, "in the file's own journal"
    done = terminal("runs", "resume", run, "--answer", "yes")
    assert (done.returncode, done.stdout) == (0, "three\n"), done.stderr
    again = terminal("runs", "resume", run)
    assert (again.returncode, again.stdout) == (0, "three\n"), "a completed run gives its result again"
    refused = terminal("runs", "resume", run, "--answer", "yes")
    assert (refused.returncode, "is not waiting for an answer" in refused.stderr) == (2, True)


def test_other_arguments_can_be_the_answer(terminal):
    write(terminal.folder, CONFIGURED)
    write(terminal.folder, json.dumps([uses("add", a=1, b=2), "done"]), "second.json")
    asked = terminal("run", "-a", "second", "--json", "1 + 2")
    run = json.loads(asked.stdout.splitlines()[0])["data"]["run_id"]
    done = terminal("runs", "resume", run, "--answer", '{"args": {"a": 5, "b": 5}}')
    assert "← 10" in done.stderr


def test_a_run_of_a_program_is_not_guessed_at(terminal, tmp_path):
    import asyncio

    from kaname import Agent, ScriptedModel, SqliteJournal, max_steps

    async def make():
        journal = SqliteJournal(terminal.environment["KANAME_JOURNAL"])
        agent = Agent(ScriptedModel(["x"]), journal=journal, stops=max_steps(1))
        result = await agent.run("hi")
        await journal.close()
        return result.run_id

    run = asyncio.run(make())
    refused = terminal("runs", "fork", run, "and now?")
    assert (refused.returncode, "started by a program" in refused.stderr) == (2, True)


def test_errors_are_told_and_never_swallowed(terminal):
    write(terminal.folder, "no database", "corrupt.db")
    told = terminal("run", "-m", terminal.script("x"), "--journal", "corrupt.db", "hi")
    assert (told.returncode, "corrupt" in told.stderr.lower() or "database" in told.stderr) == (1, True)
    done = terminal("run", "-m", terminal.script("x"), "hi")
    run = done.stderr.rpartition("; ")[2].strip("]\n")
    assert "there is no fact" in (bad := terminal("runs", "fork", run, "--at", "999")).stderr or bad.stderr
    assert bad.returncode in (1, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "-m", "nope/x", "hi"),
        ("run", "-a", "nobody", "hi"),
        ("run", "--cost", "much", "hi"),
        ("run", "--max-steps", "0", "hi"),
        ("run", "-t", ".", "hi"),
        ("run", "-t", "", "hi"),
        ("runs", "show"),
        ("doctor", "-c", "nope.yaml"),
    ],
)
def test_bad_usage_is_exit_code_2_or_a_finding(terminal, arguments):
    write(terminal.folder, "agents: {a: {model: scripted/s.json}}")
    write(terminal.folder, '["x"]', "s.json")
    terminal("run", "hi")
    told = terminal(*arguments)
    assert told.returncode == (1 if arguments[0] == "doctor" else 2), told.stderr
    assert "Traceback" not in told.stderr


def test_a_pipe_gets_the_answer_alone(terminal):
    script = terminal.script({"text": "Let me look.", "calls": [{"name": "add", "args": {"a": 1, "b": 2}}]}, "It is 3.")
    for options in ([], ["-q"]):
        done = terminal("run", "-m", script, "-t", "mytools.py", *options, "1 + 2?")
        assert done.stdout == "It is 3.\n"
    assert "Let me look." in terminal("run", "-m", script, "-t", "mytools.py", "1 + 2?").stderr


def test_a_chat_is_taken_up_whole(terminal):
    script = terminal.script("one", "two", "three")
    said = terminal("chat", "-m", script, "-s", "talk", stdin="first\nsecond\nquit\n")
    assert "one" in said.stdout
    again = terminal("chat", "-s", "talk", stdin="third\n/cost\n/save\n/undo\n/undo\n/save other.md\nquit\n")
    assert "three" in again.stdout, again.stderr
    assert "> first" in again.stderr
    saved = (terminal.folder / "conversation.md").read_text()
    assert saved.startswith("## first\n\none\n")
    assert "## third\n\nthree" in saved
    assert "deleted: third" in again.stderr
    assert (terminal.folder / "other.md").read_text() == "## first\n\none\n\n"


def test_the_story_of_a_run(terminal):
    done = terminal("run", "-m", terminal.script(uses("wait", seconds=0.3), "done"), "-t", "mytools.py", "wait")
    run = done.stderr.rpartition("; ")[2].strip("]\n")
    story = terminal("runs", "show", run).stdout
    assert "> wait" in story
    assert "   3  → wait(seconds=0.3)" in story
    assert re.search(r"← waited  \d+\.\d s", story), story
    forked = terminal("runs", "fork", run, "again?")
    assert forked.returncode == 1, "the script has no more"
    assert "continues" in terminal("runs", "show", "last").stdout


def test_secrets_are_not_shown(terminal):
    write(terminal.folder, "agents: {a: {model: openai/x}}\nmodels: {openai: {api_key: '${KEY}', headers: {x-auth: abc}}}")
    shown = terminal("config", "show", KEY="sk-very-secret").stdout
    assert "very-secret" not in shown
    assert "abc" not in shown
    assert "openai/x" in shown


def test_version_and_closed_streams(terminal):
    assert terminal("--version").stdout.startswith("kaname 0.")
    import subprocess
    import sys

    command = f"{sys.executable} -m kaname.cli.main run -m {terminal.script('x')} hi"
    for ending, code in ((">&-", 0), ("2>&-", 0), ("> /dev/full", 1)):
        done = subprocess.run(
            f"{command} {ending}",
            shell=True,
            cwd=terminal.folder,
            env=terminal.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, ending
        assert done.returncode == code, (ending, done.stderr)


def test_the_printed_command_works_as_it_stands(terminal):
    """With a journal of the file's own, and an agent that is not the first."""
    import shlex
    import shutil

    elsewhere = terminal.folder / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere, CONFIGURED)
    write(elsewhere, json.dumps([uses("add", a=1, b=2), "three"]), "second.json")
    (elsewhere / "mytools.py").write_text((terminal.folder / "mytools.py").read_text())
    asked = terminal("run", "-c", "elsewhere/kaname.yaml", "-a", "second", "1 + 2")
    program, *command = shlex.split(asked.stderr.rpartition("to continue: ")[2].strip().rstrip("]"))
    assert shutil.which(program)
    done = terminal(*command)
    assert (done.returncode, done.stdout) == (0, "three\n"), done.stderr
    again = terminal("run", "-c", "elsewhere/kaname.yaml", "-a", "second", "1 + 2")
    run = again.stderr.rpartition("runs resume ")[2].split()[0]
    named = terminal("runs", "resume", run, "-c", "elsewhere/kaname.yaml", "--answer", "yes")
    assert named.stdout == "three\n", "the agent is remembered although the file is named"


def test_what_cannot_be_taken_back_stays_in_the_record(terminal):
    write(terminal.folder, "from kaname import tool\n@tool\ndef pay(): 'Pay.'\n", "bank.py")
    script = terminal.script(uses("pay"), "Paid.", "hello")
    said = terminal("chat", "-m", script, "-t", "bank.py", "-s", "x", stdin="pay now\n/undo\nhi\n/undo\n/cost\nquit\n")
    assert "pay cannot be undone" in said.stderr
    assert "deleted: hi" in said.stderr
    assert "45 tokens" in said.stderr, "what was spent stays spent"


def test_all_mistakes_at_once_also_of_different_kinds(tmp_path):
    told = mistakes(
        tmp_path, "agents:\n  a:\n    tools: [nosuch:f, calculater]\n    mcp_server: {}\n    stops: {max_steps: '${N:-5}'}\n"
    )
    assert "unknown key; did you mean 'mcp_servers'" in told
    assert "module 'nosuch' was not found" in told
    assert "did you mean 'calculator'" in told
    assert told.count("kaname.yaml:") == 3, "a number from the environment is one, in quotes too"


PLANNER = '''
import json
from pathlib import Path
from kaname import Agent, Approve, ScriptedModel, SqliteJournal, tool

HERE = Path(__file__).parent

@tool
def pay(yen: int) -> str:
    """Pay."""
    with (HERE / "paid.txt").open("a") as file:
        file.write(f"{yen}\\n")
    return "paid"

PLAN = {"description": "pay it", "steps": [{"name": "step1", "tool_name": "pay", "arguments": {"yen": 5}}]}
VERDICT = {"is_successful": True, "should_retry": False, "answer": "it is paid"}

def script(request):
    judged = any("paid" in message.text for message in request.messages if message.role != "system")
    return json.dumps(VERDICT if judged else PLAN)

planner = Agent(ScriptedModel(script), [pay], name="planner", journal=SqliteJournal(HERE / "j.db"))
'''


def _paid(folder):
    place = folder / "paid.txt"
    return place.read_text().split() if place.exists() else []


@pytest.mark.parametrize("named", [True, False])
def test_plan_of_a_programs_agent_is_resumed_as_a_plan(terminal, tmp_path, named):
    write(tmp_path, PLANNER, "ag.py")
    asked = terminal("plan", "pay it", "-a", "ag.py:planner")
    assert "Run this plan?" in asked.stdout + asked.stderr
    whose = ["-a", "ag.py:planner"] if named else ["--journal", "j.db"]
    done = terminal("runs", "resume", "last", "--answer", "yes", *whose)
    assert _paid(tmp_path) == ["5"], done.stdout + done.stderr
    assert "it is paid" in done.stdout
    assert "step1" not in done.stdout


def test_plan_is_not_resumed_by_an_agent_that_does_not_plan(terminal, tmp_path):
    write(tmp_path, PLANNER, "ag.py")
    terminal("plan", "pay it", "-a", "ag.py:planner")
    write(tmp_path, "import asyncio\nfrom ag import planner\nfrom kaname import InvalidState\n"
          "async def main():\n"
          "    (run,) = await planner.journal.runs()\n"
          "    for going in (lambda: planner.resume(run.run_id), lambda: planner.fork(run.run_id)):\n"
          "        try:\n"
          "            await going()\n"
          "        except InvalidState as problem:\n"
          "            print(problem)\n"
          "asyncio.run(main())\n", "other.py")  # fmt: skip
    import subprocess
    import sys

    told = subprocess.run([sys.executable, "other.py"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert told.count("was started with the strategy 'Orchestrate', but this agent uses 'React'") == 2
    done = terminal("runs", "fork", "last", "-a", "ag.py:planner")
    assert _paid(tmp_path) == []
    assert "Run this plan?" in done.stdout + done.stderr
    done = terminal("runs", "resume", "last", "--answer", "yes", "-a", "ag.py:planner")
    assert _paid(tmp_path) == ["5"], done.stdout + done.stderr
