"""The journals: their contract, and what SQLite's troubles look like to a user."""

import asyncio
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from kaname import Agent, ConfigError, JournalError, MemoryJournal, ModelError, RunBusy, ScriptedModel, SqliteJournal
from kaname.core.errors import JournalCorrupt, JournalFull, JournalLocked, RunSuperseded
from kaname.core.events import Event, Opened
from kaname.stores.default import choose
from kaname.stores.sqlite import file
from kaname.stores.sqlite.owners import is_alive
from kaname.testing import JournalContract
from tests import warm
from tests.parts import add, adding, until


class TestMemoryJournal(JournalContract):
    def make(self):
        return MemoryJournal()


class TestSqliteJournal(JournalContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def make(self):
        return SqliteJournal(self.folder / "journal.db")

    def reopen(self, journal):
        return SqliteJournal(journal.path)


@pytest.fixture
async def journal(tmp_path):
    made = SqliteJournal(tmp_path / "journal.db", patience=0.2)
    yield made
    await made.close()


async def test_commits_survive_a_power_cut(journal):
    await Agent(adding(), [add], journal=journal).run("go")
    connection = file.connect(journal.path, patience=1)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    connection.close()
    assert oct(os.stat(journal.path).st_mode)[-3:] == "600"


async def test_a_full_disk_loses_nothing_and_the_run_goes_on_when_there_is_room(tmp_path):
    path = tmp_path / "journal.db"
    small = SqliteJournal(path, max_bytes=120_000)

    def script(request):
        return "x" * 200_000 if len(request.messages) == 1 else "short"

    run = Agent(ScriptedModel(script), journal=small).run("go")
    with pytest.raises(JournalFull, match="no space is left.*all earlier facts are safe"):
        await run
    await small.close()
    roomy = SqliteJournal(path)
    assert [e.seq async for e in roomy.read(run.run_id)] == [1, 2]
    result = await Agent(ScriptedModel(["there is room now"]), journal=roomy).resume(run.run_id)
    assert result.output == "there is room now"
    await roomy.close()


async def test_one_runs_trouble_is_not_the_others(tmp_path):
    small = SqliteJournal(tmp_path / "journal.db", max_bytes=200_000)

    def script(request):
        return "x" * 400_000 if "big" in request.messages[0].text else "small"

    agent = Agent(ScriptedModel(script), journal=small)
    runs = [agent.run("big" if n == 3 else f"small {n}") for n in range(10)]
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    assert isinstance(outcomes[3], JournalFull)
    assert [o.output for n, o in enumerate(outcomes) if n != 3] == ["small"] * 9
    await small.close()


async def test_in_the_same_process_a_run_that_broke_off_can_be_taken_up(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db", max_bytes=120_000)
    script = ScriptedModel(lambda r: "x" * 200_000 if huge else "fine")
    agent, huge = Agent(script, journal=journal), True
    run = agent.run("go")
    with pytest.raises(JournalFull):
        await run
    huge = False
    assert (await agent.resume(run.run_id)).output == "fine"
    await journal.close()


async def test_a_file_that_stays_locked(journal):
    await Agent(adding(), [add], journal=journal).run("go")
    holder = sqlite3.connect(journal.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalLocked, match="is locked by another program"):
        await Agent(adding(), [add], journal=journal).run("go")
    holder.execute("ROLLBACK")
    holder.close()
    assert (await Agent(adding(), [add], journal=journal).run("go")).completed


async def test_reading_while_another_program_writes(journal):
    result = await Agent(adding(), [add], journal=journal).run("go")
    holder = sqlite3.connect(journal.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert len([event async for event in journal.read(result.run_id)]) == 7
    assert len(await journal.runs()) == 1
    holder.execute("ROLLBACK")
    holder.close()


@pytest.mark.parametrize("content", [b"this is not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 8000])
async def test_a_damaged_file_is_named_and_left_alone(tmp_path, content):
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    journal = SqliteJournal(path)
    with pytest.raises(JournalCorrupt, match="damaged or not a journal.*recover"):
        await Agent(adding(), [add], journal=journal).run("go")
    await journal.close()
    assert path.read_bytes() == content


async def test_a_damaged_fact_is_told(journal):
    result = await Agent(adding(), [add], journal=journal).run("go")
    connection = sqlite3.connect(journal.path)
    connection.execute("UPDATE facts SET body = '{\"mess' WHERE seq = 3")
    connection.commit()
    connection.close()
    with pytest.raises(JournalCorrupt, match=f"fact 3 of run {result.run_id} does not match its checksum"):
        await Agent(adding(), [add], journal=journal).resume(result.run_id)


async def test_a_place_that_cannot_be_written():
    journal = SqliteJournal("/proc/kaname/journal.db")
    with pytest.raises(JournalError, match=r"cannot be opened.*KANAME_JOURNAL"):
        await Agent(adding(), [add], journal=journal).run("go")
    await journal.close()


def test_which_journal_is_used(tmp_path, monkeypatch):
    assert isinstance(choose("memory"), MemoryJournal)
    first = choose(tmp_path / "a.db")
    assert choose(str(tmp_path / "a.db")) is first, "one writer thread a file"
    monkeypatch.chdir(tmp_path)
    own = choose(None).path
    assert (own.name, own.parents[2]) == ("journal.db", tmp_path / "state" / "kaname"), "the program's own"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert choose(None).path != own
    (tmp_path / "other" / tmp_path.name).mkdir()
    monkeypatch.chdir(tmp_path / "other" / tmp_path.name)
    assert choose(None).path != own, "a folder of the same name is another one"
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "other" / "kaname.yaml").write_text("agents: {}")
    assert choose(None).path == tmp_path / "other" / ".kaname" / "journal.db"
    assert (tmp_path / "other" / ".kaname" / ".gitignore").read_text() == "*\n"
    monkeypatch.setenv("KANAME_JOURNAL", str(tmp_path / "b.db"))
    assert choose(None).path == tmp_path / "b.db"
    monkeypatch.setenv("KANAME_JOURNAL", "memory")
    assert isinstance(choose(None), MemoryJournal)
    with pytest.raises(ConfigError):
        choose(object())


async def test_a_journal_serves_several_event_loops(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(adding(), [add], journal=journal)
    results = await asyncio.gather(*[asyncio.to_thread(agent.run_sync, "go") for _ in range(4)])
    assert [r.output for r in results] == ["the sum is 7"] * 4
    await journal.close()
    gc.collect()


WORKER = """
    import asyncio, sys
    from kaname import Agent, ScriptedModel, RunBusy
    path, run = sys.argv[1:]
    slow = ScriptedModel(["x" * 4000], pace=0.01)
    async def main():
        try:
            async for chunk in Agent(slow, journal=path).resume(run):
                print("holding", flush=True)
                await asyncio.sleep(30)
        except RunBusy as busy:
            print("told:", busy, flush=True)
    asyncio.run(main())
"""


async def test_two_processes_resume_one_run_one_wins_the_other_is_told(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    agent = Agent(ScriptedModel(lambda r: "done" if ready else ModelError("down")), journal=journal)
    ready = False
    run = agent.run("go")
    with pytest.raises(ModelError):
        await run
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(path), run.run_id]
    winner = warm.Popen(command, stdout=subprocess.PIPE, text=True)
    assert (await asyncio.to_thread(winner.stdout.readline)).strip() == "holding"
    loser = await asyncio.to_thread(warm.run, command, capture_output=True, text=True, timeout=180)
    assert "told:" in loser.stdout
    assert f"being executed by process {winner.pid}" in loser.stdout
    with pytest.raises(RunBusy):
        await agent.resume(run.run_id)
    winner.kill()
    winner.wait()
    ready = True
    assert (await agent.resume(run.run_id)).output == "done", "the dead one's lock is gone with it"
    winner.stdout.close()
    await journal.close()


async def test_who_was_thought_dead_and_comes_back_cannot_write(tmp_path):
    path = tmp_path / "journal.db"
    one, other = SqliteJournal(path), SqliteJournal(path)
    event = asyncio.Event()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            await event.wait()
            return await ScriptedModel(["too late"]).reply(request, emit)

    sleeping = Agent(Slow(), journal=one).run("go").start()
    while not await other.runs():
        await asyncio.sleep(0.01)
    result = await Agent(ScriptedModel(["taken over"]), journal=other).resume(sleeping.run_id, takeover=True)
    assert result.output == "taken over"
    event.set()
    with pytest.raises(JournalError, match="taken over by another process"):
        await sleeping
    assert (await Agent(Slow(), journal=one).resume(sleeping.run_id)).output == "taken over"
    await one.close()
    await other.close()


async def test_another_programs_database_is_left_alone(tmp_path):
    path = tmp_path / "notes.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (miles INTEGER)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    journal = SqliteJournal(path)
    with pytest.raises(JournalError, match="database of another program"):
        await Agent(adding(), [add], journal=journal).run("go")
    await journal.close()
    assert path.read_bytes() == before


async def test_a_file_that_is_removed_while_in_use(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(adding(), [add], journal=journal)
    await agent.run("go")
    (tmp_path / "journal.db").unlink()
    with pytest.raises(JournalError, match="removed or replaced while it was in use"):
        await agent.run("go")
    with pytest.raises(JournalError, match="removed or replaced"):
        await journal.runs()
    await journal.close()


async def test_one_file_by_two_names(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "journal.db")
    one, other = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "link.db")
    lease = await one.claim("r")
    await one.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    with pytest.raises(RunBusy):
        await other.claim("r")
    await one.close()
    await other.close()


async def test_the_next_run_of_a_session_and_a_delete_at_once(tmp_path):
    journal, other = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db")
    for number in range(15):
        session = f"s{number}"
        agent = Agent(ScriptedModel(lambda r: "fine"), journal=journal)
        first = await agent.run("one", session_id=session)
        await asyncio.gather(agent.run("two", session_id=session), other.delete(first.run_id), return_exceptions=True)
        assert (await agent.run("three", session_id=session)).completed
    await journal.close()
    await other.close()


async def test_a_run_that_is_called_off_while_it_begins_is_recorded_as_such(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db")
    agent = Agent(ScriptedModel(["never mind"]), journal=journal)
    await agent.run("warm")
    for number in range(60):
        run = agent.run("go").start()
        for _ in range(number % 6):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0002 * (number % 5))
        run.abort()
        await run
    assert await journal.runs(status="running") == []
    await journal.close()


async def test_a_run_that_broke_off_on_a_locked_file_is_free_when_the_lock_is_gone(tmp_path):
    journal = SqliteJournal(tmp_path / "journal.db", patience=0.2)
    event = asyncio.Event()

    class Slow:
        name = "slow"

        async def reply(self, request, emit):
            await event.wait()
            return await ScriptedModel(["done"]).reply(request, emit)

    run = Agent(Slow(), journal=journal).run("go").start()
    while not await journal.runs():
        await asyncio.sleep(0.005)
    holder = sqlite3.connect(journal.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    event.set()
    with pytest.raises(JournalLocked):
        await run
    holder.execute("ROLLBACK")
    holder.close()
    other = SqliteJournal(tmp_path / "journal.db")

    async def taken_up():
        try:
            return await Agent(ScriptedModel(["taken up"]), journal=other).resume(run.run_id)
        except RunBusy:
            return None

    assert (await until(taken_up)).output == "taken up"
    await journal.delete(run.run_id)
    await journal.close()
    await other.close()


async def test_an_orphan_does_not_keep_its_dead_parent_alive(tmp_path):
    code = """
import os, sys, time
from pathlib import Path
from kaname.stores.sqlite.owners import Owner
owner = Owner(Path(sys.argv[1]))
heard, tell = os.pipe()
if os.fork() == 0:
    os.write(tell, b"!")  # it is there, and has let go of what it inherited
    time.sleep(120)
    os._exit(0)
os.read(heard, 1)
print(owner.name, flush=True)
time.sleep(120)
"""
    folder = tmp_path / "owners"
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, str(folder)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    name = (await asyncio.to_thread(parent.stdout.readline)).strip()
    assert is_alive(folder / name)
    parent.kill()
    parent.wait()
    assert not is_alive(folder / name)
    os.killpg(parent.pid, signal.SIGKILL)
    parent.stdout.close()


async def test_a_stale_owner_is_refused_even_before_the_new_one_has_written_anything(tmp_path):
    stale, new = SqliteJournal(tmp_path / "journal.db"), SqliteJournal(tmp_path / "journal.db")
    lease = await stale.claim("r")
    await stale.append([Event("r", 1, 1.0, "a", Opened())], lease.epoch)
    await new.claim("r", takeover=True)
    with pytest.raises(RunSuperseded):
        await stale.append([Event("r", 2, 2.0, "a", Opened())], lease.epoch)
    assert [event.seq async for event in new.read("r")] == [1]
    await stale.close()
    await new.close()


async def test_a_project_folder_that_cannot_be_made_is_told_as_the_journal(tmp_path, monkeypatch):
    (tmp_path / "kaname.yaml").write_text("agents: {}")
    (tmp_path / ".kaname").write_text("a file, where the folder should be")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JournalError, match="cannot be opened"):
        await Agent(adding(), [add]).run("go")
