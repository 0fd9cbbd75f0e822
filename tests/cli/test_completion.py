"""Completion with Tab: what the parser knows, agents and runs; in a real bash, and in zsh and fish where they are installed."""

import asyncio
import json
import os
import shutil
import subprocess
import sys

import pytest

from kaname import Agent, ScriptedModel
from kaname.cli.main import main
from kaname.cli.parser import parser
from tests import warm
from tests.cli.parsers import actions, subcommands
from tests.parts import SOURCE, typed_into

YAML = "agents: {clerk: {model: scripted/x, tools: [nowhere.py]}, cook: {model: scripted/x}}\njournal: runs.db\n"


# argcomplete answers at file descriptors of the process: it is asked in one of its own
ASK = """
import io, json, os, sys
from kaname.cli.completion import complete
from kaname.cli.parser import parser
os.environ |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash", "_ARGCOMPLETE_IFS": "\\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
answers = []
for typed in json.load(sys.stdin):
    line = " ".join(["kaname", *typed])
    os.environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line.encode()))}
    made = io.StringIO()
    complete(parser(), exit_method=lambda code: None, output_stream=made)
    answers.append([word for word in made.getvalue().split("\\n") if word])
print(json.dumps([answers, [*sys.modules]]))
"""


def ask(*queries, start=subprocess.run):
    """What a shell gets for each of these, and the modules that were loaded for it."""
    done = start([sys.executable, "-c", ASK], input=json.dumps(queries), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def words(*typed):
    return ask(typed, start=warm.run)[0][0]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kaname.yaml").write_text(YAML)
    agent = Agent(ScriptedModel(lambda request: "hi"), name="clerk", journal=str(tmp_path / "runs.db"))

    async def two():
        ids = [(await agent.run(text, session_id="letters")).run_id for text in ("first", "second")]
        await agent.journal.close()
        return ids

    return asyncio.run(two())


def commands(of, path=()):
    """Every command of the parser, with its words."""
    yield path, of
    for name, inner in subcommands(of).items():
        yield from commands(inner, (*path, name))


def test_every_command_option_and_choice_of_the_parser_is_offered():
    expected = {("runs", "re"): {"resume", "replay"}, ("workflow", "show", "--form", "m"): {"mermaid"}}
    for path, command in commands(parser()):
        if path:
            expected[(*path[:-1], path[-1])] = {path[-1]}
        for action in actions(command):
            if action.option_strings:
                expected[(*path, "-")] = expected.get((*path, "-"), set()) | {*action.option_strings}
            if action.option_strings and action.choices:
                expected[(*path, action.option_strings[-1], "")] = {*action.choices}
    answers, _ = ask(*expected)
    for typed, answer in zip(expected, answers, strict=True):
        assert expected[typed] <= {*answer}, typed


def test_agents_and_runs_and_sessions_are_offered_and_nothing_is_loaded_for_it(project):
    first, second = project
    assert words("run", "-a", "") == ["clerk", "cook"]
    assert words("chat", "--agent", "co") == ["cook"]
    assert words("runs", "show", "") == ["last", second, first]
    assert words("runs", "resume", first[:-1]) == [first]
    assert words("runs", "diff", first, "") == ["last", second, first]
    assert words("runs", "rate", first, "") == ["good", "bad"]
    assert words("workflow", "resume", "l") == ["last"]
    assert "runs.db" in words("workflow", "run", ""), "files"
    assert words("chat", "-s", "") == ["letters"]
    assert "nowhere" not in sys.modules


def test_what_is_not_there_or_cannot_be_read_offers_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words("run", "-a", "") == []
    assert words("runs", "--journal", "none.db", "--before", "") == ["last"]
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "kaname.yaml").write_text("agents: [")
    assert words("run", "-a", "") == []
    assert words("nonsense", "") == words("")


def test_completing_loads_little():
    _, modules = ask(["stats", "--js"])
    assert not {"asyncio", "pydantic", "aiohttp", "msgspec", "prompt_toolkit", "sqlite3", "yaml"} & {*modules}


@pytest.fixture
def command(tmp_path):
    """`kaname` as a shell finds it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kaname").write_text(f'#!/bin/sh\nexec {sys.executable} -m kaname.cli.main "$@"\n')
    (folder / "kaname").chmod(0o755)
    return {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": SOURCE,
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "PS1": "ready>",
        "LANG": "C.UTF-8",
        "KANAME_LANG": "en",
    }


def test_bash_completes_a_command_an_agent_and_a_run(project, command, tmp_path):
    _, second = project
    feed = [
        ("ready>", 'eval "$(kaname completion bash)"; echo "load""ed"\r'),
        ("loaded", "kaname sess\t"),
        ("kaname sessions ", "\x15kaname run -a coo\t"),
        ("run -a cook ", f"\x15echo kaname; kaname runs show {second[:-2]}\t"),
        (f"runs show {second} ", "\x15exit\r"),
    ]
    code, shown = typed_into([shutil.which("bash"), "--norc", "-i"], command, tmp_path, feed, 120)
    assert code == 0, shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_valid_for_its_shell(shell, tmp_path, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here: its script was NOT tried")
    assert main(["completion", shell]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_completion_asks_for_the_shell_alone(capsys):
    with pytest.raises(SystemExit):
        main(["completion"])
    assert capsys.readouterr().err.endswith("required: shell\n")
