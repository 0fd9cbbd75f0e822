"""The command line, as a user types it: real processes, pipes and signals."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from kaname.cli.parser import parser
from kaname.cli.terminal.screen import pad, truncate, width
from tests import warm
from tests.cli.parsers import subcommands
from tests.parts import SOURCE

TOOLS = """
import time
from kaname import Approve, tool

@tool(effect="pure")
def add(a: int, b: int) -> int:
    "Add."
    return a + b

@tool(effect="pure")
def wait(seconds: float) -> str:
    "Wait."
    time.sleep(seconds)
    return "waited"
"""
DEFINED = """
pay = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object", "properties": {}}}}
"""


@pytest.fixture
def terminal(tmp_path):
    (tmp_path / "mytools.py").write_text(TOOLS)
    (tmp_path / "defined.py").write_text(DEFINED)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": SOURCE,
        "HOME": str(tmp_path),
        "KANAME_JOURNAL": str(tmp_path / "journal.db"),
        "KANAME_CACHE": str(tmp_path / "cache"),
        "LANG": "C.UTF-8",
        "COLUMNS": "80",
        "KANAME_NEARBY": "",
    }

    def script(*steps):
        path = tmp_path / f"script-{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps(steps))
        return f"scripted/{path}"

    def run(*arguments, stdin="", **env):
        return warm.run(
            [sys.executable, "-m", "kaname.cli.main", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
            cwd=tmp_path,
            env={**environment, **env},
            check=False,
        )

    run.script, run.environment, run.folder = script, environment, tmp_path
    return run


def uses(name, **args):
    return {"calls": [{"name": name, "args": args}]}


def test_a_task_its_tools_and_its_answer(terminal):
    done = terminal("run", "-m", terminal.script(uses("add", a=1, b=2), "それは 3 です"), "-t", "mytools.py", "1 + 2 は?")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "それは 3 です\n", "the answer alone goes to a pipe"
    assert "→ add(a=1, b=2)" in done.stderr
    assert "← 3" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout, "no colours where nobody sees them"
    quiet = terminal("run", "-q", "-m", terminal.script("hi"), "hello")
    assert (quiet.stdout, quiet.stderr) == ("hi\n", "")


def test_from_standard_input_and_as_json(terminal):
    done = terminal("run", "--json", "-m", terminal.script("hi"), stdin="hello")
    chunks = [json.loads(line) for line in done.stdout.splitlines()]
    assert [set(chunk) for chunk in chunks] == [{"time", "agent", "type", "data", "seq"}] * len(chunks)
    assert "".join(chunk["data"]["content"] for chunk in chunks if chunk["type"] == "delta") == "hi"
    first = chunks[0]["seq"]
    assert [chunk["seq"] for chunk in chunks] == list(range(first, first + len(chunks))), "no gaps"


def test_exit_codes(terminal):
    assert terminal("run", "-m", terminal.script("x"), stdin="").returncode == 2
    assert terminal("run", "--nonsense").returncode == 2
    assert terminal().returncode == 2
    failed = terminal("run", "-m", "openai/gpt-4o", "hi")
    assert (failed.returncode, "OPENAI_API_KEY" in failed.stderr) == (2, True)
    limited = terminal(
        "run", "-m", terminal.script(*[uses("add", a=1, b=n) for n in range(9)]), "-t", "mytools:add", "--max-steps", "2", "go"
    )
    assert limited.returncode == 1
    assert "step limit" in limited.stderr
    waiting = terminal("run", "-m", terminal.script(uses("pay"), "paid"), "-t", "defined.py:pay", "pay it")
    assert waiting.returncode == 3
    assert "kaname runs resume" in waiting.stderr


def test_what_was_asked_is_answered_later(terminal):
    model = terminal.script(uses("pay"), "paid")
    terminal("run", "-m", model, "-t", "defined.py:pay", "pay it")
    assert "waiting" in terminal("runs").stdout
    done = terminal("runs", "resume", "last", "-m", model, "-t", "defined.py:pay", "--answer", "ok")
    assert (done.returncode, done.stdout) == (0, "paid\n"), done.stderr
    assert "completed" in terminal("runs").stdout


def test_runs_are_listed_shown_and_deleted(terminal):
    assert "no runs yet" in terminal("runs").stderr
    terminal(
        "run", "-m", terminal.script(uses("add", a=1, b=2), "三です"), "-t", "mytools.py", "一たす二は、いくつになりますか" * 5
    )
    listed = terminal("runs").stdout
    assert "一たす二は" in listed
    assert all(width(line) <= 80 for line in listed.splitlines()), "double-width letters are counted as two"
    name = listed.split()[0]
    shown = terminal("runs", "show", name)
    assert "三です" in shown.stdout
    assert "→ add(a=1, b=2)" in shown.stdout
    assert len(terminal("runs", "show", name, "--json").stdout.splitlines()) > 4
    assert terminal("runs", "show", "nonesuch").returncode == 1
    assert terminal("runs", "delete", "last").returncode == 0
    assert "no runs yet" in terminal("runs").stderr


def test_runs_diff_starts_at_the_fork(terminal):
    model = terminal.script(uses("add", a=1, b=2), "three")
    terminal("run", "-m", model, "-t", "mytools.py", "1 + 2?")
    first = terminal("runs").stdout.split()[0]
    assert terminal("runs", "fork", first, "--at", "5", "-m", terminal.script("", "four"), "-t", "mytools.py").returncode == 0
    different = terminal("runs", "diff", first, "last")
    assert different.stdout.splitlines()[3:] == ["-three", "+four"]
    assert "diverge after fact 5" in different.stderr


def test_runs_show_has_parallel_results_beside_their_calls(terminal):
    both = {"calls": [{"name": "add", "args": {"a": 1, "b": 2}}, {"name": "add", "args": {"a": 3, "b": 4}}]}
    done = terminal("run", "-m", terminal.script(both, "3 and 7"), "-t", "mytools.py", "both?")
    assert "← add(a=1, b=2): 3" in done.stderr
    assert "← add(a=3, b=4): 7" in done.stderr
    lines = [line.split(maxsplit=1)[1].split("  ")[0] for line in terminal("runs", "show", "last").stdout.splitlines()[1:]]
    assert lines == ["> both?", "→ add(a=1, b=2)", "← 3", "→ add(a=3, b=4)", "← 7", "3 and 7"]


def test_fork_replay_and_diff(terminal):
    model = terminal.script(uses("add", a=1, b=2), "three")
    terminal("run", "-m", model, "-t", "mytools.py", "1 + 2?")
    same = terminal("runs", "replay", "last", "-m", model, "-t", "mytools.py")
    assert same.returncode == 0, same.stdout + same.stderr
    first = terminal("runs").stdout.split()[0]
    other = terminal.script("", "", "four")
    forked = terminal("runs", "fork", first, "and one more?", "-m", other, "-t", "mytools.py")
    assert forked.returncode == 0, forked.stderr
    different = terminal("runs", "diff", first, "last")
    assert different.returncode == 1
    assert "+> and one more?" in different.stdout
    assert "diverge after fact 7 of" in different.stderr
    assert "1 + 2?" not in different.stdout, "what they have in common is no difference"
    assert terminal("runs", "diff", first, first).returncode == 0


def test_a_server_next_door_is_found(terminal):
    import http.server
    import threading

    class Ollama(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b'{"data": [{"id": "qwen3"}]}' if self.path == "/v1/models" else b"?"
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ollama)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = terminal("models", KANAME_NEARBY=f"Ollama={server.server_port},nobody=1")
    assert f"OPENAI_BASE_URL=http://127.0.0.1:{server.server_port}/v1, --model openai/qwen3" in found.stdout
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_order(terminal, sent):
    command = ["run", "-m", terminal.script(uses("wait", seconds=600), "x"), "-t", "mytools.py", "go"]
    process = warm.Popen(
        [sys.executable, "-m", "kaname.cli.main", *command],
        cwd=terminal.folder,
        env=terminal.environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "→ wait" in process.stderr.readline()
    process.send_signal(sent)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 128 + sent
    assert "stopped" in err
    assert "cancelled" in terminal("runs").stdout


def test_sigterm_ends_a_command_that_a_script_has_put_into_the_background():
    program = (
        "import asyncio; from kaname.cli.terminal.signals import run_to_the_end\n"
        "async def work(ending): print('at work', flush=True); await asyncio.sleep(600)\n"
        "raise SystemExit(run_to_the_end(work))"
    )
    started = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", program]  # as `kaname … &` in a script
    process = subprocess.Popen(started, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGINT)  # ignored
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


def test_mistakes_are_told_with_the_nearest_name(terminal):
    assert "did you mean 'add'" in terminal("run", "-m", terminal.script("x"), "-t", "mytools.py:ad", "hi").stderr
    assert "does not exist" in terminal("run", "-m", terminal.script("x"), "-t", "nowhere.py", "hi").stderr
    assert "the module" in terminal("run", "-m", terminal.script("x"), "-t", "nowhere:x", "hi").stderr


def test_slip_in_a_limit_is_told_before_a_model_is_fetched(terminal):
    done = terminal("run", "--deadline", "soon", "hi")
    assert done.returncode == 2
    assert done.stderr.startswith("kaname: 'soon' is not a duration")


def test_in_japanese(terminal):
    done = terminal("doctor", KANAME_LANG="ja")
    assert "まだありません" in done.stdout
    assert done.returncode == 1, "there is no model"
    told = terminal("run", "--help", KANAME_LANG="ja").stdout
    assert told.startswith("使い方: kaname run")
    assert not re.search("usage|arguments|options:|exit", told)
    assert "この引数はありません: --nothing" in terminal("run", "--nothing", KANAME_LANG="ja").stderr
    assert "'all' は選べません。使えるもの: " in terminal("runs", "all", KANAME_LANG="ja").stderr
    assert "必要な引数がありません: 操作" in terminal("docs", KANAME_LANG="ja").stderr
    assert "モジュール 'nope' が見つかりません" in terminal("run", "-t", "nope:x", "hi", KANAME_LANG="ja").stderr
    assert terminal("doctor", KANAME_MODEL=terminal.script("x")).returncode == 0
    assert "sk-x" not in terminal("models", OPENAI_API_KEY="sk-x").stdout


def test_a_conversation_over_a_pipe(terminal):
    model = terminal.script("one", "two")
    done = terminal(
        "chat", "-m", model, "-t", "mytools.py", stdin="hello\n/tools\n/cost\n/nonsense\n/save talk.md\n/undo\n/help\nquit\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("one\n")
    assert "add: Add." in done.stdout
    assert "unknown command /nonsense" in done.stderr
    assert (terminal.folder / "talk.md").read_text() == "## hello\n\none\n\n"
    assert "deleted: hello" in done.stderr
    assert "kaname chat --session chat-" in done.stderr


def test_help_is_quick_and_loads_little(terminal):
    code = "import sys; from kaname.cli.parser import parser; parser().format_help(); heavy = {'asyncio', 'pydantic', 'aiohttp', 'msgspec', 'prompt_toolkit', 'sqlite3'} & set(sys.modules); assert not heavy, heavy"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_widths():
    assert (width("abc"), width("日本"), width("e\u0301")) == (3, 4, 1)
    assert truncate("日本語です", 7) == "日本語…"
    assert pad("日本", 6) == "日本  "
    joined, toned, drawn, flag = "👩\u200d💻", "👍🏽", "☀\ufe0f", "🇯🇵"
    assert [width(one) for one in (joined, toned, drawn, flag, "☀", "a\u200bb", "각")] == [2, 2, 2, 2, 1, 2, 2]
    assert truncate(f"{joined}{joined}{joined}", 5) == f"{joined}{joined}…"


@pytest.mark.nightly
def test_lists_keep_to_their_columns_in_japanese(terminal):
    """A list that is wider than the terminal wraps, and its columns no longer stand under each other."""
    title = "お茶を一杯ください、それから👩\u200d💻にも" * 5
    for name in ("a", "日本語の会話"):
        done = terminal("run", title, "-m", terminal.script("はい"), "-s", name, KANAME_LANG="ja")
        assert done.returncode == 0, done.stderr
    for command in (["runs"], ["sessions"]):
        for columns in ("60", "80", "120"):
            shown = terminal(*command, KANAME_LANG="ja", COLUMNS=columns)
            rows = shown.stdout.splitlines()
            assert len(rows) == 2
            assert max(map(width, rows)) < int(columns), (command, columns, rows)
            head = shown.stderr.splitlines()[0]
            status = width(head[: head.index("状態")]) if "状態" in head else 0
            for row in rows if status else ():
                assert width(row[: row.index("完了")]) == status, (head, row)


def test_what_is_piped_in_goes_with_the_task(terminal, tmp_path):
    (tmp_path / "echo.json").write_text('["done"]')
    (tmp_path / "note.txt").write_text("tea: 300 yen\n")
    command = [sys.executable, "-m", "kaname.cli.main", "run", "-m", "scripted/echo.json", "--json", "Summarise this"]
    with (tmp_path / "note.txt").open() as note:
        done = warm.run(command, stdin=note, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    listed = warm.run(
        [*command[:3], "runs", "show", "last", "--json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "Summarise this" in listed.stdout
    assert "tea: 300 yen" in listed.stdout
    done = warm.run(command, input=b"\xff\xfe", cwd=tmp_path, capture_output=True, timeout=180, check=False)
    assert (done.returncode, b"not text" in done.stderr) == (2, True)


def test_help_keeps_to_its_columns_in_japanese(monkeypatch):
    monkeypatch.setenv("KANAME_LANG", "ja")
    monkeypatch.setenv("COLUMNS", "80")
    made = parser()
    commands = subcommands(made)
    for name, command in {"kaname": made, **commands}.items():
        lines = command.format_help().splitlines()
        assert [line for line in lines if width(line) >= 80 and re.search(r"[ぁ-んァ-ヶ一-龠]", line)] == [], name
        begins = [re.match(r"  (-.*\S)  +(?=\S)", line) for line in lines]
        assert len({width(one[0]) for one in begins if one}) <= 1, (name, lines)


@pytest.mark.parametrize(
    ("typed", "meant", "japanese"),
    [
        (["rum", "hi"], "'rum' does not exist; did you mean 'run'?", "'rum' はありません。'run' のことですか?"),
        (["runs", "lst"], "'lst' does not exist; did you mean 'list'?", "'list' のことですか?"),
        (["runs", "--jornal", "x"], "--jornal; did you mean --journal?", "--jornal。--journal のことですか?"),
        (["eval", "comapre", "a", "b"], "did you mean 'compare'?", "'compare' のことですか?"),
        (["memory", "ad", "tea"], "did you mean 'add'?", "'add' のことですか?"),
        (["run", "--modle", "local", "hi"], "--modle; did you mean --model?", "--modle。--model のことですか?"),
        (["run", "-m", "gpt-5", "hi"], "did you mean 'openai/gpt-5'?", "'openai/gpt-5' のことですか?"),
        (["run", "-m", "claude-opus", "hi"], "did you mean 'anthropic/claude-opus-", "'anthropic/claude-opus-"),
        (
            ["run", "-f", "chart.png", "hi"],
            "the file {here}/chart.png does not exist",
            "ファイル {here}/chart.png がありません",
        ),
        (["run", "-f", ".", "hi"], ". is not a file that can be read", "読み込めるファイルではありません"),
    ],
)
def test_word_that_was_mistyped_is_named_as_it_is_written(terminal, tmp_path, typed, meant, japanese):
    given = [*typed, "-m", terminal.script("done")] if "-f" in typed else typed
    for language, expected in (("en", meant), ("ja", japanese)):
        done = terminal(*given, KANAME_LANG=language)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert expected.format(here=tmp_path) in done.stderr
        assert "Errno" not in done.stderr


def test_call_that_failed_is_reported_once(terminal):
    address = {"OPENAI_BASE_URL": "http://127.0.0.1:9", "OPENAI_API_KEY": "sk-none"}
    done = terminal("run", "-m", "openai/gpt-5.4-mini", "--deadline", "1s", "hi", **address)
    told = [line for line in done.stderr.splitlines() if "reached" in line]
    assert [line.split(":")[0] for line in told[:1]] == ["warning"], "one line for the try that failed"
    assert done.stderr.count("Connect call failed") <= 1, done.stderr


_EVERY_LIST = ["eval list", "learn", "budgets", "queue", "workers", "runs", "sessions", "stats", "approvals"]


@pytest.mark.parametrize("command", [*_EVERY_LIST, "eval compare one two", "runs show last", "queue retry r"])
def test_command_that_finds_nothing_says_in_which_journal_it_looked(terminal, command):
    done = terminal(*command.split(), "--journal", "empty.db")
    shown = [line for line in done.stderr.splitlines() if "empty.db" in line]
    assert len(shown) == 1, done.stderr
    assert "looked in empty.db; for another journal: -a FILE.py:NAME" in shown[0] or "empty.db does not exist" in shown[0]


def test_schedules_without_an_agent_say_how_to_name_one(terminal):
    done = terminal("schedules")
    assert (done.returncode, "-a FILE.py:NAME" in done.stderr, "model: local" in done.stderr) == (2, True, False)


def test_evaluations_are_found_in_the_journal_of_the_agent_that_evals_yaml_names(terminal):
    desk = 'from kaname import Agent, ScriptedModel\ndesk = Agent(ScriptedModel(lambda request: "tea"), journal="desk.db")\n'
    (terminal.folder / "desk.py").write_text(desk)
    (terminal.folder / "evals.yaml").write_text("agent: desk.py:desk\ncases:\n  - {input: hi, contains: tea}\n")
    for label in ("before", "after"):
        assert terminal("eval", "--label", label, "--fresh").returncode == 0
    done = terminal("eval", "compare", "before", "after")
    assert done.returncode == 0, done.stderr
    assert "before" in terminal("eval", "list").stdout
