"""Lists, metrics and retention at the terminal, on journals with more runs than one page shows."""

import asyncio
import json
import shlex
import sqlite3
import time
from contextlib import closing

import pytest

from kaname import Agent, ScriptedModel, SqliteJournal
from kaname.cli import doctor
from kaname.testing.journal_lists import write
from tests.cli.test_commands import terminal as terminal

DAY = 86_400.0


@pytest.fixture
def recorded(terminal):
    """Thirty runs: ten of them old, in sessions of three, one in ten failed."""

    async def make():
        journal = SqliteJournal(terminal.environment["KANAME_JOURNAL"])
        for number in range(30):
            whose = {"session": f"s{number // 3}", "agent": "desk" if number % 2 else "clerk"}
            when = time.time() - (100 if number < 10 else 1) * DAY
            await write(journal, f"run-{number:02}", **whose, end="failed" if number % 10 == 5 else "completed", time=when)
        await journal.close()

    asyncio.run(make())
    return terminal


def listed(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_runs_are_listed_a_page_at_a_time_and_the_next_command_is_printed(recorded):
    first = recorded("runs")
    assert "run-29" in first.stdout
    assert "run-09" not in first.stdout
    command = first.stderr.partition("… and more: ")[2].splitlines()[0]
    second = recorded(*shlex.split(command)[1:])
    assert "run-09" in second.stdout
    assert "run-10" not in second.stdout
    assert "more" not in second.stderr
    assert [one["run_id"] for one in listed(recorded("runs", "-n", "2", "--before", "run-05", "--json"))] == [
        "run-04",
        "run-03",
    ]


@pytest.mark.parametrize("width", ["60", "80", "140"])
def test_list_shows_the_task_also_of_runs_with_long_ids(terminal, width):
    ids = [f"nightly-report@desk@2026111{day}T000000Z" for day in (8, 9)]  # as schedules name them

    async def make():
        journal = SqliteJournal(terminal.environment["KANAME_JOURNAL"])
        for one in ids:
            await Agent(ScriptedModel(["done"]), journal=journal).run("Count the teacups", run_id=one)
        await journal.close()

    asyncio.run(make())
    shown = terminal("runs", COLUMNS=width).stdout
    assert [one in shown for one in ids] == [True, True], "they can be copied"
    assert shown.count("Count the teacups") == 2
    assert max(map(len, shown.splitlines())) < int(width)


def test_sessions_are_listed_a_page_at_a_time_and_the_next_command_is_printed(recorded):
    seen, command = [], ["sessions", "-n", "7", "-a", "desk"]
    for _ in range(5):
        done = recorded(*command)
        seen += [line.split()[0] for line in done.stdout.splitlines()]
        printed = done.stderr.partition("… and more: ")[2]
        if not printed:
            break
        command = [*shlex.split(printed.splitlines()[0])[1:], "-n", "7", "-a", "desk"]
    assert seen == [f"s{number}" for number in reversed(range(10))]


def test_stats_count_all_runs_and_say_how_many_were_read(recorded):
    told = recorded("stats", "-n", "4").stdout
    assert "all runs: 30 (completed 27, failed 3)" in told
    assert "of these, read in full: 4 (completed 4)" in told
    counted = json.loads(recorded("stats", "-n", "4", "--json").stdout)
    assert (counted["recorded"]["runs"], counted["runs"]) == (30, 4)


def test_old_runs_are_pruned_after_a_look_and_a_question(recorded):
    wanted = recorded("runs", "prune")
    assert (wanted.returncode, "--keep 90d" in wanted.stderr) == (2, True)
    look = recorded("runs", "prune", "--keep", "90d", "--dry-run")
    assert "10 runs would be deleted" in look.stderr
    assert recorded("runs", "prune", "--keep", "90d").returncode == 1, "there is no terminal to ask in"
    assert len(listed(recorded("runs", "-n", "100", "--json"))) == 30
    done = recorded("runs", "prune", "--keep", "90d", "-y")
    assert (done.returncode, "deleted 10 runs" in done.stderr) == (0, True)
    assert {one["run_id"] for one in listed(recorded("runs", "-n", "100", "--json"))} == {f"run-{n:02}" for n in range(10, 30)}
    assert "there are no runs to delete" in recorded("runs", "prune", "--keep", "90d", "-y").stderr


def test_old_runs_are_pruned_as_the_file_says(recorded):
    (recorded.folder / "kaname.yaml").write_text(
        "agents:\n  desk: {model: scripted/x, keep: forever}\nkeep: {runs: 90d, failed: 1h}\n"
    )
    done = recorded("runs", "prune", "-y")
    assert "deleted 5 runs" in done.stderr, "the old ones of the clerk; failed are only the desk's"
    recorded("runs", "prune", "-y", "--keep", "1h", "-a", "desk")
    assert {one["agent"] for one in listed(recorded("runs", "-n", "100", "--json"))} == {"clerk"}


def test_doctor_reads_a_large_journal_in_part_and_says_how_long_the_whole_takes(recorded, monkeypatch, capsys):
    path = recorded.environment["KANAME_JOURNAL"]
    told = recorded("doctor", "--journal", path).stdout
    assert f"{path}: 30 runs, no damage found" in told
    monkeypatch.setattr(doctor, "_BYTES_A_SECOND", 1_000.0)
    given = doctor.argparse.Namespace(journal=path, agent=None, config=None, whole=True)
    ((_, fine, found),) = doctor.check_journal(given)
    assert fine is True
    assert "30 runs, no damage found" in found
    assert "takes about" in capsys.readouterr().err
    monkeypatch.setattr(doctor, "_FACTS", 10)
    given.whole = False
    ((_, fine, found),) = doctor.check_journal(given)
    assert fine is True
    assert "30 runs, no damage found in the newest 10 facts; check all with:" in found
    with closing(sqlite3.connect(path)) as file, file:
        places = [place for (place,) in file.execute("SELECT place FROM runs ORDER BY place")]
        change = "UPDATE facts SET agent = 'another' WHERE run = (SELECT run FROM runs WHERE place = ?)"
        file.execute(change, (places[0],))
    assert doctor.check_journal(given)[0][1] is True, "the oldest run was not read"
    given.whole = True
    assert doctor.check_journal(given)[0][1] is False
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(change, (places[-1],))
    given.whole = False
    assert doctor.check_journal(given)[0][1] is False, "the newest was"
