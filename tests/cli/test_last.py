"""Commands that read find the journal of the program that `-a` named last in this folder, and say so."""

import json
import sys

import pytest

from kaname.cli.main import DONE, USAGE, WAITING, main

DESK = """
from kaname import Agent, Approve, Budget, ScriptedModel, call, tool

@tool
def pay(yen: int) -> str:
    "Pay."
    return "paid"

desk = Agent(ScriptedModel([call("pay", yen=5), "done"]), [pay], policies=[Approve("pay"), Budget(agent="100 calls/day")],
             name="desk", journal="desk.db")
desk.schedule("daily", "hello", every="1d")
"""
TAKEN = "taken from the last command in this folder: "


@pytest.fixture
def kaname(tmp_path, monkeypatch, capsys):
    (tmp_path / "a_desk.py").write_text(DESK)
    (tmp_path / "script.json").write_text('["hello"]')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KANAME_JOURNAL", raising=False)
    monkeypatch.setattr(sys, "stdin", None)

    def run(*arguments):
        code = main([*arguments])
        told = capsys.readouterr()
        sys.modules.pop("a_desk", None)  # as in the next process
        return code, told.out, told.err

    return run


@pytest.fixture
def used(kaname):
    assert kaname("run", "Pay.", "-a", "a_desk.py:desk")[0] == WAITING
    return kaname


@pytest.mark.parametrize(
    "command",
    ["runs", "sessions", "stats", "budgets", "approvals", "queue", "workers", "learn", "doctor", "eval list", "audit"],
)
def test_journal_of_the_last_program_is_found_and_named(used, tmp_path, command):
    code, out, err = used(*command.split())
    assert code == DONE or command == "doctor"  # which also looks for a model on this machine
    assert f"{TAKEN}--journal {tmp_path}/desk.db" in err
    assert "Pay." in out or command != "runs"
    assert TAKEN not in used(*command.split(), "--journal", "desk.db")[2]


def test_run_is_resumed_without_naming_the_program_again(used):
    run = json.loads(used("runs", "--json")[1].splitlines()[0])["run_id"]
    code, out, err = used("runs", "resume", run, "--answer", '{"args": {"yen": 4}}')
    assert (code, "done" in out) == (DONE, True)
    assert "→ pay(yen=4)" in err
    assert TAKEN in used("runs")[2]


@pytest.mark.parametrize(("command", "shown"), [("schedules", "daily"), ("memory", "")])
def test_schedules_and_memories_of_the_last_program_are_listed(used, tmp_path, command, shown):
    code, out, err = used(command)
    assert (code, shown in out) == (DONE, True)
    assert f"{TAKEN}-a {tmp_path}/a_desk.py:desk" in err


def test_prune_does_not_guess_its_journal(used):
    assert TAKEN not in used("runs", "prune", "--keep", "1d", "-y")[2]
    assert "Pay." in used("runs")[1]


def test_last_run_without_a_program_is_looked_for_in_the_default_journal(used):
    assert used("run", "Hello.", "-m", "scripted/script.json")[0] == DONE
    _, out, err = used("runs")
    assert (TAKEN in err, "Hello." in out, "Pay." in out) == (False, True, False)


def test_file_environment_or_deleted_journal_say_which_journal_it_is(used, tmp_path, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setenv("KANAME_JOURNAL", str(tmp_path / "other.db"))
        assert TAKEN not in used("budgets")[2]
    (tmp_path / "kaname.yaml").write_text("agents: {a: {model: scripted/script.json}}\n")
    assert TAKEN not in used("budgets")[2]
    (tmp_path / "kaname.yaml").unlink()
    assert TAKEN in used("budgets")[2]
    (tmp_path / "desk.db").unlink()
    assert TAKEN not in used("budgets")[2]
    assert used("schedules")[0] == USAGE


def test_other_folder_has_its_own_last_program(used, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert TAKEN not in used("budgets")[2]
