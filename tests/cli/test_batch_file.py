"""`kaname run --batch FILE.jsonl`: one result for each line, written once, also when the process is killed."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from kaname.cli.main import DONE, FAILED, INTERRUPTED, USAGE, WAITING, main
from tests import warm
from tests.parts import SOURCE
from tests.properties import nightly

PROGRAM = '''
import asyncio, os, signal
from pathlib import Path
from kaname import Agent, Approve, ScriptedModel, call, tool
from kaname.core.messages import ModelReply, Usage, assistant

class Echo:
    """Answers with the question, and ends the process at the reply of the number END with the signal SIGNAL."""
    name = "echo"
    left = int(os.environ.get("END", 0))
    async def reply(self, request, emit):
        text = request.messages[-1].text
        Echo.left -= 1
        if Echo.left == 0:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
            await asyncio.sleep(60)
        if text == "fail":
            raise ValueError("boom")
        return ModelReply(assistant(f"re: {text}"), "end_turn", Usage(10, 5, cost=0.01))

@tool(effect="irreversible")
def pay(yen: int) -> str:
    """Pay."""
    return f"paid {yen}"

desk = Agent(Echo(), journal="runs.db")
cashier = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay")], journal="runs.db")
'''


@pytest.fixture(autouse=True)
def _program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.py").write_text(PROGRAM)


def write(*lines):
    Path("in.jsonl").write_text("".join([(line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines]))


def results(name="in.results.jsonl"):
    return {told["id"]: told for told in map(json.loads, Path(name).read_text().splitlines())}


def run(*more, agent="desk.py:desk"):
    return main(["run", "--batch", "in.jsonl", "-a", agent, *more])


def test_batch_file_each_line_is_a_run_with_a_result(capsys):
    write('"one"', {"input": "two", "id": "second", "session": "s", "user": "ken"}, "", '"fail"')
    assert run() == FAILED
    told = results()
    fields = ["output", "stop", "usage", "cost", "error", "run_id"]
    assert list(told["second"]) == ["id", "input", "user", *fields]
    assert list(told["1"]) == ["id", "input", *fields]
    assert (told["1"]["output"], told["second"]["output"]) == ("re: one", "re: two")
    assert (told["1"]["stop"], told["1"]["cost"], told["1"]["error"]) == ("completed", 0.01, None)
    assert told["1"]["usage"] == {"input": 10, "output": 5, "cached": 0, "reasoning": 0}
    assert (told["4"]["stop"], told["4"]["error"]["type"]) == ("failed", "UnexpectedError")
    assert "3 of 3 results" in capsys.readouterr().err
    before = Path("in.results.jsonl").read_text()
    assert run() == FAILED
    assert Path("in.results.jsonl").read_text() == before


def test_batch_file_a_bad_line_is_told_with_its_number_before_anything_runs(capsys):
    write('"one"', "no JSON", {"id": 1}, {"input": "x", "of": 1}, {"input": 5}, {"input": "again", "id": "1"})
    assert run() == USAGE
    told = capsys.readouterr().err
    for number in (2, 3, 4, 5, 6):
        assert f"in.jsonl:{number}: " in told
    assert "in.jsonl:1: " not in told
    assert not Path("in.results.jsonl").exists()
    assert main(["run", "a task", "--batch", "in.jsonl", "-a", "desk.py:desk"]) == USAGE
    assert main(["run", "--batch", "nowhere.jsonl", "-a", "desk.py:desk"]) == USAGE


def test_batch_file_another_input_with_the_same_id_needs_another_file(capsys):
    write('"one"')
    assert run() == DONE
    write('"other"')
    assert run() == USAGE
    assert "another --out" in capsys.readouterr().err
    assert run("--out", "second.jsonl") == DONE
    assert results("second.jsonl")["1"]["output"] == "re: other"


def test_batch_file_a_torn_last_line_is_mended_and_another_file_is_not_touched():
    write('"one"', '"two"')
    assert run() == DONE
    whole = Path("in.results.jsonl").read_text()
    for end in (1, 30, len(whole.splitlines()[-1]) // 2):
        Path("in.results.jsonl").write_text(whole[:-end])
        assert run() == DONE
        assert sorted(results()) == ["1", "2"]
        assert Path("in.results.jsonl").read_text().count("\n") == 2
    for notes in ("my notes\n", "my notes"):
        Path("notes.txt").write_text(notes)
        assert run("--out", "notes.txt") == USAGE
        assert Path("notes.txt").read_text() == notes


def test_batch_file_a_question_is_told_and_its_answer_makes_the_result(capsys):
    write('"go"')
    assert run(agent="desk.py:cashier") == WAITING
    told = capsys.readouterr().err
    assert "runs resume" in told
    assert results() == {}
    run_id = next(word for word in told.split() if word.startswith("in-"))
    assert terminal("runs", "resume", run_id, "--answer", "yes", "-a", "desk.py:cashier").returncode == DONE
    assert run(agent="desk.py:cashier") == DONE
    assert results()["1"]["output"] == "done"


def terminal(*words, **more):
    env = {"PYTHONPATH": SOURCE, "PATH": os.environ["PATH"], **more}
    return warm.run([sys.executable, "-m", "kaname.cli.main", *words], capture_output=True, text=True, env=env)


def in_process(end, number, *more):
    """Run in a process that is ended at its reply of that number, or not."""
    return terminal("run", "--batch", "in.jsonl", "-a", "desk.py:desk", *more, END=str(number), SIGNAL=str(int(end)))


@pytest.mark.parametrize(("count", "replies"), [(300, (40, 90, 120)), *nightly((10_000, (500, 2_500, 1, 3_000, 1_500)))])
def test_batch_file_killed_several_times_has_each_result_once(count, replies):
    write(*[json.dumps(f"q{n}") for n in range(count)])
    for number in replies:
        assert in_process(signal.SIGKILL, number, "--at-once", "16").returncode == -signal.SIGKILL
    done = in_process(signal.SIGKILL, 0, "--at-once", "16")
    assert done.returncode == DONE, done.stderr
    told = [json.loads(line) for line in Path("in.results.jsonl").read_text().splitlines()]
    assert sorted([int(one["id"]) for one in told]) == list(range(1, count + 1))
    assert all(one["output"] == f"re: q{int(one['id']) - 1}" for one in told)
    assert len({one["run_id"] for one in told}) == count


def test_batch_file_ctrl_c_leaves_everything_resumable():
    write(*[json.dumps(f"q{n}") for n in range(20)])
    done = in_process(signal.SIGINT, 7)
    assert done.returncode in (INTERRUPTED, -signal.SIGINT), done.stderr
    assert "the same command again continues" in done.stderr
    assert "Traceback" not in done.stderr
    listed = terminal("runs", "-n", "50", "--journal", "runs.db").stdout
    assert "interrupted" in listed
    assert "cancelled" not in listed
    assert in_process(signal.SIGINT, 0).returncode == DONE
    assert len(results()) == 20
