"""`kaname workers`, `kaname queue` and `kaname schedules`, in English and Japanese."""

import asyncio
import json

import pytest

from kaname import SqliteJournal
from kaname.agent.work.order import encode_reason
from kaname.cli.main import DONE, FAILED, USAGE, main
from kaname.cli.messages import catalogue
from kaname.core.notices import notice
from kaname.stores.queue import QueuedRun, Wanted

CONFIG = """
journal: journal.db
agents: {desk: {model: "scripted/script.json"}}
schedules:
  daily: {input: Write the report, cron: "0 9 * * 1-5", tz: Asia/Tokyo}
"""


@pytest.fixture
def kaname(tmp_path, monkeypatch, capsys):
    (tmp_path / "kaname.yaml").write_text(CONFIG)
    (tmp_path / "script.json").write_text("[]")
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main(words)
        told = capsys.readouterr()
        return code, told.out + told.err

    return run


async def fill(path):
    journal = SqliteJournal(path / "journal.db")
    await journal.queue.put([QueuedRun("stuck", "nobody"), QueuedRun("first", "desk")])
    await journal.queue.take(Wanted(("nobody",)), 1)
    told = notice("worker.deaths", "its process died {died} times without any progress of the run", died=10)
    await journal.queue.set_aside("stuck", encode_reason(told))
    await journal.close()


def test_queue_is_shown_and_a_run_that_was_set_aside_is_retried(kaname, tmp_path, monkeypatch):
    assert kaname("queue")[1].startswith("the queue is empty\nlooked in ")
    asyncio.run(fill(tmp_path))
    code, told = kaname("queue")
    assert code == DONE
    assert "stuck  nobody  set aside  its process died 10 times without any progress of the run\n" in told
    monkeypatch.setenv("KANAME_LANG", "ja")
    assert "stuck  nobody  除外  " + catalogue()["worker.deaths"].format(died=10) in kaname("queue")[1]
    monkeypatch.delenv("KANAME_LANG")
    assert "first  desk  waiting\n" in told
    code, told = kaname("queue", "retry", "first")
    assert (code, told.endswith("kaname: run first is not set aside\n")) == (USAGE, True)
    assert kaname("queue", "retry", "stuck") == (DONE, "stuck is queued again\n")
    assert json.loads(kaname("queue", "--json")[1])["counts"] == {"waiting": 2}
    monkeypatch.setenv("KANAME_LANG", "ja")
    assert "first  desk  待機中" in kaname("queue")[1]
    assert "stuck  nobody  待機中  手動で再試行" in kaname("queue")[1]
    assert kaname("queue", "retry", "first")[1].endswith("kaname: 実行 first は除外されていません\n")


def test_workers_are_the_processes_that_live(kaname, tmp_path):
    assert kaname("workers")[1].startswith("no process executes runs of this journal\nlooked in ")

    async def look():
        journal = SqliteJournal(tmp_path / "journal.db")
        await journal.queue.put([QueuedRun("first", "desk")])
        await journal.queue.take(Wanted(("desk",)), 1)
        told = await journal.queue.workers()
        await journal.close()
        return told

    (one,) = asyncio.run(look())
    assert one.executing == 1
    assert kaname("workers")[1].startswith("no process executes runs of this journal\nlooked in "), "it has ended"


def test_schedules_are_shown_paused_resumed_and_run(kaname, monkeypatch):
    code, told = kaname("schedules")
    assert code == DONE
    assert told.startswith("daily  desk  0 9 * * 1-5 Asia/Tokyo  next 20")
    assert kaname("schedules", "pause", "daily") == (DONE, "daily: done\n")
    assert "paused" in kaname("schedules")[1]
    assert kaname("schedules", "resume", "daily")[0] == DONE
    code, run_id = kaname("schedules", "run", "daily")
    assert run_id.startswith("daily@desk@")
    assert [one["run_id"] for one in json.loads(kaname("queue", "--json")[1])["runs"]] == [run_id.strip()]
    code, told = kaname("schedules", "pause", "dialy")
    assert (code, "did you mean 'daily'" in told.lower()) == (USAGE, True), told
    assert kaname("schedules", "pause")[0] == USAGE
    monkeypatch.setenv("KANAME_LANG", "ja")
    assert "次回 20" in kaname("schedules")[1]


def test_a_queued_run_and_one_that_was_set_aside_are_stopped_by_their_ids(kaname, tmp_path):
    asyncio.run(fill(tmp_path))
    for name in ("first", "stuck"):
        assert kaname("runs", "stop", name) == (DONE, f"stopped {name}\n")
    assert kaname("queue")[1].startswith("the queue is empty\nlooked in ")
    assert "has already ended: cancelled" in kaname("runs", "stop", "first")[1]
    assert kaname("runs", "stop", "nobody")[0] == FAILED
