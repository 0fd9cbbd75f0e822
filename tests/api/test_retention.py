"""Retention: which runs are deleted, which stay, and where it is said."""

import asyncio
import json
import time

import httpx
import pytest

from kaname import Agent, Config, ConfigError, Keep, MemoryJournal, ScriptedModel, SqliteJournal, load_config, prune
from kaname.core.events import Event, Opened
from kaname.memory import retention
from kaname.serve import app
from kaname.testing.journal_lists import ids, write

DAY = 86_400.0
NOW = 1_000 * DAY


@pytest.fixture(params=["memory", "file"])
async def journal(request, tmp_path):
    made = MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")
    yield made
    await made.close()


async def old(journal, run, days, **more):
    await write(journal, run, time=NOW - days * DAY, **more)


async def test_runs_are_kept_by_agent_and_by_how_they_ended(journal):
    for agent in ("desk", "clerk", "other"):
        for end in ("completed", "failed", "cancelled"):
            for days in (5, 20, 50):
                await old(journal, f"{agent} {end} {days}", days, agent=agent, end=end)
    clerk = Keep(by_status={"failed": "forever", "cancelled": "1d"})
    keep = Keep("30d", {"failed": "10d"}, {"desk": Keep("forever"), "clerk": clerk})
    pruned = await prune(journal, keep, now=NOW)
    expected = {"other completed 50", "other failed 20", "other failed 50", "other cancelled 50", "clerk completed 50"}
    expected |= {f"clerk cancelled {days}" for days in (5, 20, 50)}
    assert set(pruned.runs) == expected
    assert pruned.by_kind[("clerk", "cancelled")] == 3
    assert len(await ids(journal)) == 27 - len(expected)


async def test_what_is_under_way_or_still_needed_stays(journal):
    await old(journal, "turn 1", 100, session="s")
    await old(journal, "turn 2", 50, session="s", base="turn 1")
    await old(journal, "turn 3", 1, session="s", base="turn 2")
    await old(journal, "waits", 100, end=None)
    await old(journal, "forked", 100)
    await old(journal, "fork of it that waits", 100, base="forked", end=None)
    await old(journal, "outer", 1)
    await old(journal, "inner", 100, parent="outer")
    lease = await journal.claim("interrupted")
    await journal.append([Event("interrupted", 1, NOW - 100 * DAY, "agent", Opened())], lease.epoch)
    await journal.release("interrupted", lease.epoch)
    before = await ids(journal)
    assert (await prune(journal, Keep("30d"), now=NOW)).runs == ()
    assert await ids(journal) == before
    assert (await journal.lineage("turn 3")).events[0].run_id == "turn 1"
    later = await prune(journal, Keep("30d"), now=NOW + 40 * DAY)
    assert set(later.runs) == {"turn 1", "turn 2", "turn 3", "outer", "inner"}, "a session goes as a whole"


async def test_dry_run_reports_what_goes_and_deletes_nothing(journal):
    for number in range(130):  # more than a page that is deleted at once
        await old(journal, f"r{number:03}", 100, session=f"s{number % 7}", base=f"r{number - 7:03}" if number >= 7 else "")
    told = await prune(journal, Keep("30d"), dry_run=True, now=NOW)
    assert len(await ids(journal, limit=1_000)) == 130
    done = await prune(journal, Keep("30d"), now=NOW)
    assert (done.runs, done.by_kind) == (told.runs, told.by_kind)
    assert await ids(journal) == []


@pytest.mark.parametrize(
    ("keep", "agent", "expected"),
    [
        ("keep: 90d", "", {"desk completed": 90, "desk failed": 90}),
        ("keep: {runs: 90d, failed: 1h}", "", {"desk completed": 90, "desk failed": 1 / 24}),
        ("keep: 90d", "keep: {failed: 7d}", {"desk completed": 90, "desk failed": 7, "other failed": 90}),
        ("keep: {runs: 90d, failed: 1d}", "keep: forever", {"desk failed": float("inf"), "other failed": 1}),
        ("", "keep: 7d", {"desk completed": 7, "other completed": float("inf")}),
    ],
)
def test_file_says_how_long_runs_are_kept(tmp_path, keep, agent, expected):
    path = tmp_path / "kaname.yaml"
    path.write_text(f"agents:\n  desk: {{model: scripted/x, {agent}}}\n  other: {{model: scripted/x}}\n{keep}\n")
    kept = load_config(path).keep
    assert {name: kept.seconds(*name.split()) / DAY for name in expected} == expected


def test_file_that_says_nothing_keeps_everything(tmp_path):
    path = tmp_path / "kaname.yaml"
    path.write_text("agents: {desk: {model: scripted/x}}\n")
    assert load_config(path).keep is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("keep: soon", "keep: 'soon' is not a duration"),
        ("keep: 0", "keep: 0 is not a"),
        ("keep: 90", "keep: 90 is not a valid retention time"),
        ("keep: 3m", "is not a valid retention time"),
        ("keep: {failed: -1d}", "keep.failed: '-1d' is not a duration"),
        ("keep: {faild: 1d}", "did you mean 'failed'"),
        ("keep: {waiting: 1d}", "keep.waiting: unknown key"),
        ("keep: true", "keep: expected"),
        ("keep: [90d]", "keep: expected"),
    ],
)
def test_mistake_in_keep_is_told_with_its_line(tmp_path, line, words):
    path = tmp_path / "kaname.yaml"
    path.write_text(f"agents: {{desk: {{model: scripted/x}}}}\n{line}\n")
    with pytest.raises(ConfigError) as told:
        load_config(path)
    assert words in str(told.value)
    assert f"{path}:2" in str(told.value)


@pytest.mark.parametrize("given", [{"runs": "soon"}, {"by_status": {"running": "1d"}}, {"by_status": {"failed": 0}}])
def test_keep_that_cannot_be_meant_is_refused(given):
    with pytest.raises(ConfigError):
        Keep(**given)


async def test_server_deletes_what_is_too_old(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "_FIRST", 0.0)
    (tmp_path / "script.json").write_text(json.dumps(["fine"]))
    path = tmp_path / "kaname.yaml"
    path.write_text("agents: {desk: {model: scripted/script.json}}\nkeep: 30d\njournal: journal.db\n")
    journal = SqliteJournal(tmp_path / "journal.db")
    await write(journal, "old", agent="desk", time=time.time() - 31 * DAY)
    await write(journal, "new", agent="desk", time=time.time() - 29 * DAY)
    config = load_config(path)
    assert isinstance(config, Config)
    served = app(config)
    async with served.lifespan(), httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://localhost") as http:
        async with asyncio.timeout(30):
            while [one["run_id"] for one in (await http.get("/api/runs")).json()["runs"]] != ["new"]:
                await asyncio.sleep(0.02)
        assert (await http.get("/api/runs/old")).status_code == 404
    await journal.close()


async def test_server_keeps_everything_unless_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "_FIRST", 0.0)
    swept = asyncio.Event()
    monkeypatch.setattr(retention, "prune", lambda *_: swept.set())
    journal = SqliteJournal(tmp_path / "journal.db")
    await write(journal, "old", agent="desk", time=1.0)
    async with app(Agent(ScriptedModel([]), name="desk", journal=journal)).lifespan():
        for _ in range(20):
            await asyncio.sleep(0)
    assert not swept.is_set()
