"""The files around a journal: what happens when somebody removes them, and that none are left behind."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest

from kaname import Agent, JournalError, MemoryJournal, ModelError, RunBusy, ScriptedModel, SqliteJournal
from kaname.core.events import Event, Opened
from kaname.stores.sqlite.owners import Owner
from tests import warm
from tests.parts import add, adding


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
async def test_a_file_that_is_removed_while_in_use_takes_no_more_runs(tmp_path, ending):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(adding(), [add], journal=journal)
    await agent.run("go")
    os.unlink(f"{journal.path}{ending}")
    with pytest.raises(JournalError, match="removed or replaced while it was in use"):
        await agent.run("go")
    with pytest.raises(JournalError, match="removed or replaced"):
        await journal.runs()
    await journal.close()


async def test_a_file_that_is_removed_in_the_middle_of_a_run_ends_it(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")

    async def clean_up() -> str:
        for path in tmp_path.glob("journal.db*"):
            if path.is_file():
                path.unlink()
        await asyncio.sleep(0.05)
        return "cleaned"

    from kaname import call

    with pytest.raises(JournalError, match="removed or replaced while it was in use"):
        await Agent(ScriptedModel([call("clean_up"), "done"]), [clean_up], journal=journal).run("go")
    await journal.close()


async def test_an_owner_whose_file_was_removed_is_alive_again_with_its_next_write(tmp_path):
    path = tmp_path / "journal.db"
    one, other = SqliteJournal(path), SqliteJournal(path)
    lease = await one.claim("r")
    await one.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    for file in (tmp_path / "journal.db-owners").iterdir():
        file.unlink()
    (tmp_path / "journal.db-owners").rmdir()
    seq = 1
    while not (tmp_path / "journal.db-owners").exists():  # it looks once a second
        seq += 1
        await one.append([Event("r", seq, 1.0, "a", Opened())], lease.epoch)
        await asyncio.sleep(0.05)
    with pytest.raises(RunBusy):
        await other.claim("r")
    await one.close()
    with pytest.raises(RunBusy):  # a tool of it may still be at work in a thread
        await other.claim("r")
    await one.release("r", lease.epoch)
    assert (await other.claim("r")).seq == seq
    await other.close()


def test_what_dead_processes_left_behind_is_swept(tmp_path):
    folder = tmp_path / "owners"
    folder.mkdir()
    (folder / ".4711-half-made").write_text("")  # as older versions could leave it
    (folder / "4711-dead").write_text("")
    owner = Owner(folder)
    assert [path.name for path in folder.iterdir()] == [owner.name]
    owner.close()
    assert list(folder.iterdir()) == []


def test_owners_that_come_and_look_at_each_other_all_the_time_are_never_taken_for_dead(tmp_path):
    program = """
        import sys
        from pathlib import Path
        from kaname.stores.sqlite.owners import Owner

        for _ in range(150):
            owner = Owner(Path(sys.argv[1]))
            owner.sweep()
            assert (Path(sys.argv[1]) / owner.name).exists()
            owner.close()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "owners")]
    running = [warm.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process in running:
        _, problem = process.communicate(timeout=180)
        assert process.returncode == 0, problem
    assert list((tmp_path / "owners").iterdir()) == []


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_a_claim_that_comes_to_nothing_leaves_nothing(tmp_path, kind):
    journal = SqliteJournal(tmp_path / "journal.db") if kind == "sqlite" else MemoryJournal()
    for number in range(20):
        claiming = asyncio.create_task(journal.claim(f"r{number}"))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
        if not claiming.cancelled() and claiming.exception() is None:
            await journal.release(f"r{number}", claiming.result().epoch)
    for number in range(20):
        assert (await journal.claim(f"r{number}")).seq == 0, "free"
        await journal.release(f"r{number}", 1)
    assert await journal.runs() == []
    await journal.close()
    if kind == "sqlite":
        connection = sqlite3.connect(tmp_path / "journal.db")
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
        connection.close()


async def test_of_two_processes_that_open_one_run_at_once_one_is_told(tmp_path):
    one, other = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db")
    agents = [Agent(ScriptedModel(["hello"], pace=0.01), journal=journal) for journal in (one, other)]
    outcomes = await asyncio.gather(*[agent.run("go", run_id="r") for agent in agents], return_exceptions=True)
    kinds = sorted(type(outcome).__name__ for outcome in outcomes)
    assert kinds in (["Result", "RunBusy"], ["JournalError", "Result"], ["Result", "RunExists"]), (
        "the last: it came when all was over"
    )
    assert (await one.runs(run_id="r"))[0].status == "completed"
    await one.close()
    await other.close()


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_a_chain_of_1200_runs_is_deleted_in_one_go(tmp_path, kind):
    journal = SqliteJournal(tmp_path / "journal.db") if kind == "sqlite" else MemoryJournal()
    for number in range(1200):
        run, base = f"r{number}", (f"r{number - 1}", 1) if number else None
        lease = await journal.claim(run)
        await journal.append([Event(run, 1, 1.0, "a", Opened("s", "", base))], lease.epoch)
        await journal.release(run, lease.epoch)
    with pytest.raises(JournalError, match="cascade=True"):
        await journal.delete("r0")
    await journal.delete("r0", cascade=True)
    assert await journal.runs() == []
    await journal.close()


@pytest.mark.parametrize("obstacle", ["folder", "read-only"])
async def test_a_place_that_cannot_be_a_journal_is_named(tmp_path, obstacle):
    path = tmp_path / "journal.db"
    if obstacle == "folder":
        path.mkdir()
    elif os.geteuid() == 0:
        path = "/proc/version"
    else:
        path.write_bytes(b"")
        path.chmod(0o400)
    journal = SqliteJournal(path)
    with pytest.raises(JournalError, match="cannot be opened.*KANAME_JOURNAL"):
        await Agent(adding(), [add], journal=journal).run("go")
    await journal.close()


async def test_a_reply_and_what_follows_from_it_are_written_together(tmp_path):
    """A reply, and the intent or the end that follows from it, cost one sync; the reader still sees each after it is safe."""
    journal, batches = SqliteJournal(tmp_path / "journal.db"), []
    append = journal.append

    async def counted(events, epoch):
        batches.append([type(event.body).__name__ for event in events])
        await append(events, epoch)

    journal.append = counted
    assert (await Agent(adding(), [add], journal=journal).run("go")).output == "the sum is 7"
    assert batches == [
        ["Opened", "Received"],
        ["ModelReplied", "ToolStarted"],
        ["ToolFinished"],
        ["ModelReplied", "Stopped"],
    ]
    await journal.close()


async def test_a_reply_is_on_disk_before_a_slow_policy_has_judged_it(tmp_path):
    from kaname import Policy

    journal, other, seen = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db"), []

    class Slow(Policy):
        async def tool(self, call, next, scope):
            await asyncio.sleep(0.05)
            seen.extend([type(event.body).__name__ async for event in other.read(scope.run_id)])
            return await next(call)

    await Agent(adding(), [add], policies=[Slow()], journal=journal).run("go")
    assert seen[-1] == "ModelReplied"
    await journal.close()
    await other.close()


async def test_a_reply_that_cannot_be_written_ends_the_run_before_any_tool(tmp_path):
    acted = []

    async def act() -> str:
        acted.append(1)
        return "acted"

    from kaname import call
    from kaname.core.errors import JournalFull

    journal = SqliteJournal(tmp_path / "journal.db", max_bytes=100_000)
    with pytest.raises(JournalFull):
        await Agent(ScriptedModel([["x" * 200_000, call("act")], "done"]), [act], journal=journal).run("go")
    assert acted == []
    await journal.close()


async def test_a_model_that_fails_after_a_reply_leaves_that_reply(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    script = ScriptedModel(lambda r: "not json" if len(r.messages) == 1 else ModelError("down"))
    run = Agent(script, output=int, journal=journal).run("go")
    with pytest.raises(ModelError):
        await run
    kinds = [type(event.body).__name__ async for event in journal.read(run.run_id)]
    assert kinds == ["Opened", "Received", "ModelReplied", "Noted", "Stopped"]
    await journal.close()


async def test_a_backup_is_a_whole_journal_and_may_be_made_while_others_write(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(adding(), [add], journal=journal)
    result = await agent.run("go", session_id="s")
    running = [agent.run("go") for _ in range(20)]
    await asyncio.gather(journal.backup(tmp_path / "copy.db"), *running)
    assert oct(os.stat(tmp_path / "copy.db").st_mode)[-3:] == "600"
    with pytest.raises(JournalError, match="already exists"):
        await journal.backup(tmp_path / "copy.db")
    copy = SqliteJournal(tmp_path / "copy.db")
    assert await copy.stores.health.verify() == []
    assert (await Agent(adding(), [add], journal=copy).resume(result.run_id)).output == "the sum is 7"
    await copy.close()
    await journal.close()


async def test_lock_is_released_once_by_a_run_that_ends_while_its_journal_is_closed(tmp_path):
    """Closing a descriptor twice could close one that belongs to somebody else by then."""
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.runs()
    place, closing, go_on, closed = journal._place, threading.Event(), threading.Event(), []
    owner = await journal._writer.submit(lambda connection: place.owner)

    class Slow:
        process = owner.process

        def close(self):
            closed.append(True)
            closing.set()
            assert go_on.wait(20)

    place.owner = Slow()
    first = asyncio.create_task(asyncio.to_thread(place.release_owner))
    assert await asyncio.to_thread(closing.wait, 60)
    await asyncio.to_thread(place.release_owner)  # it does not wait, and closes nothing
    go_on.set()
    await first
    assert closed == [True]
    owner.close()
    await journal.close()
