"""A full or failing disk: the caller gets the disk's error; nothing is lost, and nothing is done twice."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kaname import Agent, RunBusy, ScriptedModel, SqliteJournal
from kaname.core.errors import JournalFull
from kaname.core.events import Event, Noted, Opened
from kaname.core.messages import user
from tests import warm
from tests.parts import SOURCE, add, adding
from tests.properties import nightly

HERE = Path(__file__).parent
NAMES = {"full": "JournalFull", "write": "DiskFailed", "sync": "DiskFailed"}


@pytest.fixture(scope="session")
def faulty(disk_faults):
    """Runs a program on a disk that can be made to fail."""

    def run(folder, fault, moment):
        environment = {**os.environ, "LD_PRELOAD": str(disk_faults), "KANAME_FAULT": str(folder / "fault")}
        command = [sys.executable, HERE / "failing_disk.py", folder, fault, moment]
        return warm.run(command, env=environment, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize("moment", ["start", "pay 1", "reply 2", *nightly("reply 1", "pay 3", "pay 4", "reply 3")])
@pytest.mark.parametrize("fault", ["full", "write", "sync"])
def test_a_disk_that_fails_is_told_and_nothing_is_lost_or_repeated(faulty, tmp_path, fault, moment):
    ended = faulty(tmp_path, fault, moment)
    assert ended.returncode == 0, ended.stderr
    told, stop, output, paid, gapless, damage = json.loads(ended.stdout)
    assert told == [NAMES[fault]] * 2 or (moment == "start" and told in ([NAMES[fault], "RunNotFound"], ["JournalError"] * 2))
    assert (stop, output) == ("completed", "done")
    assert len(paid) == 4
    assert set(paid.values()) == {1}, "a payment was made twice"
    assert gapless
    assert damage == []


@pytest.mark.parametrize("moment", ["start", "pay 1", "reply 2", *nightly("reply 1", "pay 3", "pay 4", "reply 3")])
def test_a_page_that_was_half_written_when_the_machine_stopped(faulty, tmp_path, moment):
    assert faulty(tmp_path, "torn", moment).returncode == -9
    (tmp_path / "fault").write_text("")
    journal_says = faulty(tmp_path, "none", "never")  # takes the run up again, in a new process
    if journal_says.returncode != 0:  # there was a run already: its first life was recorded
        assert "already exists" in journal_says.stderr
    ended = asyncio.run(_finish(tmp_path))
    assert ended == ("completed", "done")
    paid = (tmp_path / "paid.log").read_text().split()
    assert len(paid) == len(set(paid)), "a payment was made twice"


async def _finish(folder):
    from kaname import ToolContext, call, tool

    @tool
    async def pay(yen: int, context: ToolContext) -> str:
        """Pay."""
        with (folder / "paid.log").open("a") as out:
            out.write(f"{context.idempotency_key}\n")
        return f"paid {yen}"

    def script(request):
        replies = sum(message.role == "assistant" for message in request.messages)
        return [[call("pay", yen=1), call("pay", yen=2), call("pay", yen=3)], call("pay", yen=4), "done"][replies]

    journal = SqliteJournal(folder / "journal.db")
    agent = Agent(ScriptedModel(script), [pay], journal=journal)
    result = await agent.resume("r")
    while result.questions:
        result = await agent.resume("r", dict.fromkeys(result.questions, "skip"))
    assert await journal.stores.health.verify() == []
    await journal.close()
    return result.stop.kind, result.output


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_a_disk_without_room_parallel_tools_are_all_told_so_and_go_on_when_there_is_room(small_disk):
    journal = SqliteJournal(small_disk / "journal.db")
    done = []

    async def work(n: int) -> str:
        await asyncio.sleep(0.002 * n)
        done.append(n)
        if done == [1]:
            fill(small_disk)
        return "x" * 20_000

    from kaname import call, tool

    agent = Agent(
        ScriptedModel([[call("work", n=n) for n in range(1, 6)], "all done"]),
        [tool(work, effect="idempotent")],
        journal=journal,
    )
    run = agent.run("go")
    with pytest.raises(JournalFull, match="no space is left"):
        await run
    assert sorted(done) == [1, 2, 3, 4, 5]
    (small_disk / "filler").unlink()
    assert (await agent.resume(run.run_id)).output == "all done"
    await journal.close()


async def test_a_run_that_broke_off_on_a_full_disk_is_free_for_other_processes_when_there_is_room(small_disk):
    journal, other = SqliteJournal(small_disk / "journal.db"), SqliteJournal(small_disk / "journal.db")  # two owners
    await other.runs()

    def script(request):
        fill(small_disk)
        return "x" * 20_000

    run = Agent(ScriptedModel(script), journal=journal).run("go")
    with pytest.raises(JournalFull):
        await run
    (small_disk / "filler").unlink()
    until = time.monotonic() + 60
    while True:
        try:
            result = await Agent(ScriptedModel(["taken up"]), journal=other).resume(run.run_id)
            break
        except RunBusy:
            assert time.monotonic() < until, "its lease was never given back"
            await asyncio.sleep(0.05)
    assert result.output == "taken up"
    await journal.close()
    await other.close()


async def test_journal_that_is_opened_on_a_full_disk_reports_it_as_full_not_as_broken(small_disk):
    journal = SqliteJournal(small_disk / "journal.db")
    await Agent(ScriptedModel(["hi"]), journal=journal).run("go")
    await journal.close()
    fill(small_disk)
    again = SqliteJournal(small_disk / "journal.db")  # SQLite calls it an I/O error: its shared memory cannot grow
    with pytest.raises(JournalFull, match="no space is left .* Free some space"):
        await Agent(ScriptedModel(["hi"]), journal=again).run("go")
    await again.close()


def test_doctor_shows_the_free_space_of_the_journals_disk(small_disk):
    (small_disk / "kaname.yaml").write_text("agents: {desk: {model: local}}\njournal: desk.db\n")
    environment = {**os.environ, "PYTHONPATH": SOURCE, "KANAME_LANG": "en"}
    command = [sys.executable, "-m", "kaname.cli.main", "doctor"]
    done = warm.run(command, cwd=small_disk, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert re.search(rf"✗ disk +[01]\.\d MB free in {small_disk} \(journal\); free some space: at least 100 MB", done.stdout)


def fill(folder):
    with (folder / "filler").open("wb", buffering=0) as out:
        for size in (65536, 4096, 1):
            try:
                while True:
                    out.write(b"x" * size)
            except OSError:
                continue


async def test_whatever_is_written_after_a_failure_gets_the_disks_error_until_the_run_is_claimed_anew(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db", max_bytes=100_000)

    def fact(seq, text):
        return [Event("r", seq, 1.0, "agent", Noted(user(text)))]

    lease = await journal.claim("r")
    await journal.append([Event("r", 1, 1.0, "agent", Opened())], lease.epoch)
    outcomes = await asyncio.gather(
        *[journal.append(fact(seq, "x" * (400_000 if seq == 2 else 1)), lease.epoch) for seq in (2, 3, 4)],
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [JournalFull] * 3, "not a gap, and nobody took it over"
    with pytest.raises(JournalFull):
        await journal.append(fact(5, "small"), lease.epoch)
    again = await journal.claim("r")
    assert again.seq == 1
    await journal.append(fact(2, "small"), again.epoch)
    assert await journal.stores.health.verify() == []
    await journal.close()


async def test_other_runs_go_on_beside_one_that_is_too_large_for_the_quota(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db", max_bytes=200_000)
    with pytest.raises(JournalFull):
        await Agent(ScriptedModel(["x" * 400_000]), journal=journal).run("go")
    assert (await Agent(adding(), [add], journal=journal).run("go")).output == "the sum is 7"
    await journal.close()


async def test_a_slow_disk_does_not_hold_the_event_loop_up(tmp_path):
    """A caller who is alone commits by himself only where commits are known to be quick."""
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.claim("r")

    async def who(usual):
        journal._writer._usual = usual
        return await journal._writer.transact(lambda connection: threading.current_thread().name, alone=True)

    assert await who(1.0) == "kaname-journal-writer"
    assert await who(0.0001) == threading.main_thread().name
    await journal.close()
