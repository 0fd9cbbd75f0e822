"""`kaname runs follow` and `stop`, on a run that another process executes."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests import warm
from tests.parts import wait_until
from tests.properties import nightly
from tests.serve.serving import client, serving

PROGRAM = """
    import asyncio
    from kaname import Agent, ScriptedModel, call, max_steps, per_tool, tool

    @tool(effect="pure")
    async def nap(n: int) -> str:
        \"\"\"Nap.\"\"\"
        await asyncio.sleep(0.05)
        return f"napped {n}"

    def script(request):
        return call("nap", n=len(request.messages)) if len(request.messages) < TURNS else "well rested"

    async def main():
        agent = Agent(ScriptedModel(script), [nap], stops=max_steps(10_000) | per_tool(None))
        print((await agent.run("sleep")).stop)

    asyncio.run(main())
"""


@pytest.fixture
def elsewhere(tmp_path):
    environment = {**os.environ, "KANAME_JOURNAL": str(tmp_path / "journal.db"), "KANAME_LANG": "en", "COLUMNS": "80"}

    def kaname(*arguments, **more):
        command = [sys.executable, "-m", "kaname.cli.main", *arguments]
        return warm.run(command, capture_output=True, text=True, timeout=180, env={**environment, **more}, cwd=tmp_path)

    def start(turns):
        program = textwrap.dedent(PROGRAM).replace("TURNS", str(turns))
        started = warm.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
        wait_until(lambda: "sleep" in kaname("runs").stdout)
        return started

    kaname.start = start
    return kaname


def test_follow_shows_a_run_of_another_process_to_its_end(elsewhere):
    other = elsewhere.start(turns=20)
    shown = elsewhere("runs", "follow", "last")
    assert shown.returncode == 0
    assert shown.stdout.strip() == "well rested"
    assert "napped 1" in shown.stderr
    as_json = elsewhere("runs", "follow", "last", "--json").stdout.splitlines()
    assert json.loads(as_json[-1])["data"]["output"] == "well rested"
    assert "completed" in other.communicate()[0]


def test_stop_ends_a_run_of_another_process(elsewhere):
    other = elsewhere.start(turns=100_000)
    asked = elsewhere("runs", "stop", "last")
    assert asked.returncode == 0
    assert "stop requested" in asked.stderr
    assert "stopped with `kaname runs stop`" in other.communicate(timeout=180)[0]
    again = elsewhere("runs", "stop", "last", KANAME_LANG="ja")
    assert again.returncode == 1
    assert "終了しています" in again.stderr


def test_a_fact_of_ones_own_is_no_trouble_for_the_terminal():
    from kaname.cli.terminal.chunks import Show
    from kaname.cli.terminal.screen import Screen
    from kaname.core.chunks import Chunk

    for name in ("line", "write", "held", "live", "plan"):
        Show(Screen()).take(Chunk(0.0, "agent", name, {"value": 1}))


def test_runs_of_a_process_that_was_killed_are_interrupted_and_say_how_to_go_on(elsewhere):
    other = elsewhere.start(turns=100_000)
    assert "running" in elsewhere("runs").stdout
    other.kill()
    other.communicate()
    listed = elsewhere("runs")
    run_id = json.loads(elsewhere("runs", "--json").stdout)["run_id"]
    assert "interrupted" in listed.stdout
    assert f"kaname runs resume {run_id}" in listed.stderr
    assert f"kaname runs resume {run_id}" in elsewhere("runs", "show", "last").stderr
    assert "中断" in elsewhere("runs", KANAME_LANG="ja").stdout


DESK = """
from kaname import Agent, Approve, ScriptedModel, call, tool

@tool
def pay(yen: int) -> str:
    \"\"\"Pay.\"\"\"
    return f"paid {yen}"

desk = Agent(ScriptedModel([call("pay", yen=5), "Paid."]), [pay], policies=[Approve("pay")], journal="desk.db")
if __name__ == "__main__":
    desk.run_sync("Pay the rent.")
"""


def test_runs_of_a_program_are_gone_on_with_by_its_own_agent(elsewhere, tmp_path):
    (tmp_path / "desk.py").write_text(DESK)
    warm.run([sys.executable, "desk.py"], cwd=tmp_path, check=True)
    listed = elsewhere("runs", "--journal", "desk.db")
    assert "waiting for an answer; to continue: " in listed.stderr
    assert "--answer … -a FILE.py:AGENT --journal desk.db" in listed.stderr
    refused = elsewhere("runs", "resume", "last", "--journal", "desk.db", "--answer", "yes")
    assert "pass its agent (-a FILE.py:NAME)" in refused.stderr
    assert "not an Agent" in elsewhere("runs", "resume", "last", "-a", "desk.py:pay", "--journal", "desk.db").stderr
    assert "Pay the rent." in elsewhere("runs", "-a", "desk.py:desk").stdout
    done = elsewhere("runs", "resume", "last", "--answer", "yes", "-a", "desk.py:desk")
    assert (done.returncode, done.stdout) == (0, "Paid.\n"), done.stderr
    forked = elsewhere("runs", "fork", "last", "-a", "desk.py:desk", "--at", "2", "And the gas.")
    assert forked.returncode == 3, "what follows an option is read too, and it asks again"


HELPER = """
agents:
  helper:
    model: scripted/script.json
"""


def test_run_of_a_program_is_not_taken_up_by_the_agent_of_the_folders_file(elsewhere, tmp_path):
    """It had no such tool, and the approval was used up."""
    (tmp_path / "desk.py").write_text(DESK)
    (tmp_path / "kaname.yaml").write_text(HELPER)
    (tmp_path / "script.json").write_text('["Hello."]')
    warm.run([sys.executable, "desk.py"], cwd=tmp_path, check=True)
    refused = elsewhere("runs", "resume", "last", "--journal", "desk.db", "--answer", "yes")
    assert (refused.returncode, "started by a program" in refused.stderr) == (2, True)
    done = elsewhere("runs", "resume", "last", "--answer", "yes", "-a", "desk.py:desk")
    assert (done.returncode, done.stdout) == (0, "Paid.\n"), done.stderr


def test_run_of_a_programs_agent_is_gone_on_with_from_any_folder(elsewhere, tmp_path):
    (tmp_path / "desk.py").write_text(DESK)
    asked = elsewhere("run", "-a", "desk.py:desk", "Pay the rent.")
    assert asked.returncode == 3
    assert "--answer yes -a desk.py:desk --journal" in asked.stderr
    (tmp_path / "other").mkdir()
    command = [sys.executable, "-m", "kaname.cli.main", "runs", "resume", "last", "--answer", "yes", "--journal", "../desk.db"]
    done = warm.run(command, cwd=tmp_path / "other", capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout) == (0, "Paid.\n"), done.stderr


SPENDER = """
from kaname import Agent, ScriptedModel, Usage, call, tool

@tool(effect="pure")
def look(n: int) -> int:
    \"\"\"Look.\"\"\"
    return n

def script(request):
    return call("look", n=len(request.messages)) if request.tools else "That is all."

spender = Agent(ScriptedModel(script, usage=Usage(10, 5, cost=0.1)), [look], name="spender", journal="own.db")
"""


def test_limit_option_keeps_the_other_limits_of_the_configuration(elsewhere, tmp_path):
    (tmp_path / "looks.py").write_text("def look(n: int) -> int:\n    'Look.'\n    return n\n")
    script = [{"calls": [{"name": "look", "args": {"n": n}}]} for n in range(9)]
    (tmp_path / "script.json").write_text(json.dumps(script))
    stops = "    stops: {max_steps: 3, per_tool: 2}\n"
    (tmp_path / "kaname.yaml").write_text(f"agents:\n  a:\n    model: scripted/script.json\n    tools: [looks.py]\n{stops}")
    limited = elsewhere("run", "--max-steps", "50", "look around")
    assert "more than 2 times" in limited.stderr


def test_options_go_over_what_a_programs_agent_says(elsewhere, tmp_path):
    (tmp_path / "spender.py").write_text(SPENDER)
    poor = elsewhere("run", "-a", "spender.py:spender", "--cost", "$0.25", "look around")
    assert "budget: the limit of $0.25 was reached ($0.3000 spent)" in poor.stderr
    short = elsewhere("run", "-a", "spender.py:spender", "--max-steps", "2", "--journal", "mine.db", "look around")
    assert "step limit: the limit of 2 steps" in short.stderr
    assert "--journal mine.db" in short.stderr
    assert "look around" in elsewhere("runs", "--journal", "mine.db").stdout
    (tmp_path / "script.json").write_text('["I am another."]')
    assert elsewhere("run", "-a", "spender.py:spender", "-m", "scripted/script.json", "hi").stdout == "I am another.\n"
    nobody = elsewhere("run", "-a", "nobody", "hi")
    assert (nobody.returncode, "no kaname.yaml here defines the agent 'nobody'" in nobody.stderr) == (2, True)


SLOW_DESK = """
import asyncio
from kaname import Agent, ScriptedModel, call, tool

@tool
async def pay(yen: int) -> str:
    \"\"\"Pay.\"\"\"
    print("paying", flush=True)
    await asyncio.sleep(600)
    return "paid"

desk = Agent(ScriptedModel([call("pay", yen=5), "Paid."]), [pay], journal="desk.db")
"""


def test_interrupt_in_the_middle_of_a_payment_says_that_it_may_have_happened(tmp_path):
    (tmp_path / "desk.py").write_text(SLOW_DESK)
    command = [sys.executable, "-m", "kaname.cli.main", "run", "-a", "desk.py:desk", "Pay the rent."]
    environment = {**os.environ, "KANAME_LANG": "en"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with warm.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as going:
        assert going.stdout.readline() == "paying\n"
        going.send_signal(signal.SIGINT)
        _, told = going.communicate(timeout=180)
    assert "pay was running and may have taken effect" in told


FILED = """
journal: desk.db
agents:
  desk:
    model: scripted/script.json
    tools: [tools.py:pay]
    approve: [pay]
"""


def test_run_of_a_program_with_the_files_agent_is_gone_on_with_by_that_agent(elsewhere, tmp_path):
    (tmp_path / "kaname.yaml").write_text(FILED)
    (tmp_path / "tools.py").write_text(DESK.split("desk = ")[0])
    (tmp_path / "script.json").write_text('[{"calls": [{"name": "pay", "args": {"yen": 5}}]}, "Paid."]')
    program = "from kaname import Agent, load_config; Agent.from_config(load_config('kaname.yaml')).run_sync('Pay the rent.')"
    warm.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    done = elsewhere("runs", "resume", "last", "--answer", "yes")
    assert (done.returncode, done.stdout) == (0, "Paid.\n"), done.stderr


def test_tools_beside_a_programs_agent_are_remembered_with_their_folder(elsewhere, tmp_path):
    (tmp_path / "desk.py").write_text(DESK)
    (tmp_path / "more.py").write_text("def look(n: int) -> int:\n    'Look.'\n    return n\n")
    assert elsewhere("run", "-a", "desk.py:desk", "-t", "more.py", "Pay the rent.").returncode == 3
    (tmp_path / "other").mkdir()
    command = [sys.executable, "-m", "kaname.cli.main", "runs", "resume", "last", "--answer", "yes", "--journal", "../desk.db"]
    done = warm.run(command, cwd=tmp_path / "other", capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout) == (0, "Paid.\n"), done.stderr


def test_another_model_can_be_chosen_twice_for_a_programs_agent(tmp_path, monkeypatch):
    """As `/model` does in a chat: the tools beside it are registered once."""
    import argparse

    from kaname.cli.agent import agent_from
    from kaname.cli.terminal.screen import Screen

    monkeypatch.chdir(tmp_path)
    (tmp_path / "chatty.py").write_text(DESK)
    (tmp_path / "script.json").write_text('["Hello."]')
    given = argparse.Namespace(agent="chatty.py:desk", tool=["calculator"], model=None, journal=None, config=None)
    first = agent_from(given, Screen())
    given.model = "scripted/script.json"
    assert set(agent_from(given, Screen()).tools) == set(first.tools) == {"pay", "calculator"}


@pytest.mark.parametrize("several", [True, *nightly(False)])
def test_run_of_a_served_program_is_gone_on_with_by_its_own_agent(elsewhere, tmp_path, several):
    """It was taken up by another agent, which had no such tool, and the approval was used up."""
    (tmp_path / "desk.py").write_text(DESK + "\nagents = [desk]\n")
    with serving(tmp_path, agents=f"{tmp_path}/desk.py:{'agents' if several else 'desk'}") as served, client(served) as http:
        started = http.post("/api/runs", json={"agent": "agent", "input": "Pay the rent.", "mode": "wait"})
        assert "waiting" in started.text, started.text
    resumed = elsewhere("runs", "resume", "last", "--journal", "desk.db", "--answer", "yes")
    if several:
        assert (resumed.returncode, "started by a program" in resumed.stderr) == (2, True), resumed.stderr
        resumed = elsewhere("runs", "resume", "last", "--answer", "yes", "-a", "desk.py:desk")
    assert (resumed.returncode, resumed.stdout) == (0, "Paid.\n"), resumed.stderr


def test_run_of_a_worker_is_gone_on_with_by_its_own_agent(elsewhere, tmp_path):
    (tmp_path / "desk.py").write_text(DESK)
    submitting = "import asyncio; from desk import desk; asyncio.run(desk.submit('Pay the rent.', run_id='rent'))"
    warm.run([sys.executable, "-c", submitting], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "kaname.cli.main", "worker", "-a", "desk.py:desk"]
    worker = warm.Popen(command, cwd=tmp_path)
    try:
        wait_until(lambda: "to continue" in elsewhere("runs", "--journal", "desk.db").stderr)
    finally:
        worker.terminate()
        worker.wait(60)
    resumed = elsewhere("runs", "resume", "rent", "--journal", "desk.db", "--answer", "yes")
    if "started by a program" in resumed.stderr:  # it was opened by the program that submitted it
        resumed = elsewhere("runs", "resume", "rent", "--answer", "yes", "-a", "desk.py:desk")
    assert (resumed.returncode, resumed.stdout) == (0, "Paid.\n"), resumed.stderr
