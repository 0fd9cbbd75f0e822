"""Schedules: each tick is executed once, whatever the clocks, the processes and the times without any process do."""

import asyncio
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kaname import Agent, ConfigError, ScriptedModel, Worker
from kaname.agent.work.overview import list_schedules, steer_schedule
from kaname.agent.work.schedule import make_schedule
from kaname.agent.work.scheduler import Scheduler
from kaname.core.events import Stopped
from kaname.stores.default import choose
from kaname.stores.transfer import copy_journal
from kaname.testing.journal_lists import write
from tests import warm
from tests.parts import until
from tests.properties import nightly
from tests.work.test_fleet import completed, nothing_is_queued

ROOT = Path(__file__).parents[2]


def at(text):
    return datetime.fromisoformat(text).timestamp()


def make(cron="", tz="UTC", every=None, once=None, missed="one"):
    return make_schedule("clerk", "s", "Go", cron, tz, every, once, missed)


def ticks(schedule, since, count):
    found = schedule.ticks_after(at(since))
    return [f"{datetime.fromtimestamp(next(found), UTC):%dT%H:%M}" for _ in range(count)]


def test_names_can_have_letters_of_any_language():
    assert (
        make_schedule("店", "毎朝レポート", "Go", "0 9 * * *", "UTC", None, None, "one").run_id(0)
        == "毎朝レポート@店@19700101T000000Z"
    )
    for name in ("a b", "a@b", "a/b", "a:b", ""):
        with pytest.raises(ConfigError, match="name of a schedule"):
            make_schedule("clerk", name, "Go", "0 9 * * *", "UTC", None, None, "one")


def test_cron_in_a_time_zone_keeps_the_local_time():
    weekdays = make("0 9 * * 1-5", "Asia/Tokyo")
    assert ticks(weekdays, "2026-11-20T00:00:01+00:00", 2) == ["23T00:00", "24T00:00"], "Friday is over; Monday, Tuesday"


def test_time_that_the_clocks_skip_or_repeat_is_due_once():
    night = make("30 2 * * *", "Europe/Berlin")
    assert ticks(night, "2026-03-28T12:00+00:00", 2) == ["29T01:00", "30T00:30"], (
        "02:30 does not exist: the moment of the change"
    )
    assert ticks(night, "2026-10-24T12:00+00:00", 2) == ["25T00:30", "26T01:30"], "the first 02:30 of two"
    assert ticks(night, "2026-10-25T01:00+00:00", 1) == ["26T01:30"], "seen from between them: it is over"
    quarter = make("*/30 * * * *", "Europe/Berlin")
    assert ticks(quarter, "2026-10-25T00:00+00:00", 4) == ["25T00:30", "25T01:00", "25T01:30", "25T02:00"]


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Australia/Lord_Howe", "2026-04-04T15:00+00:00"),  # back by half an hour
        ("Australia/Lord_Howe", "2026-10-03T15:30+00:00"),
        ("America/Santiago", "2026-09-06T04:00+00:00"),  # there is no midnight
        ("America/Santiago", "2026-04-05T03:00+00:00"),
        ("America/Havana", "2026-03-08T05:00+00:00"),
        ("Asia/Beirut", "2026-03-28T22:00+00:00"),
        ("Europe/Berlin", "2026-10-25T01:00+00:00"),
    ],
)
@pytest.mark.parametrize(
    ("cron", "fits"),
    [
        ("30 * * * *", lambda here: here.minute == 30),
        ("0 */2 * * *", lambda here: here.minute == 0 and here.hour % 2 == 0),
        ("*/15 2 * * *", lambda here: here.minute % 15 == 0 and here.hour == 2),
        ("*/20 0 * * *", lambda here: here.minute % 20 == 0 and here.hour == 0),
        ("*/10 0 * * 0", lambda here: here.minute % 10 == 0 and here.hour == 0 and here.isoweekday() == 7),
    ],
)
def test_cron_with_a_star_is_due_at_each_moment_that_fits_the_clock_on_the_wall(zone, change, cron, fits):
    moment = int(at(change))
    minutes = range(moment - 2 * 86_400 + 60, moment + 2 * 86_400, 60)
    expected = [tick for tick in minutes if fits(datetime.fromtimestamp(tick, ZoneInfo(zone)))]
    schedule = make(cron, zone)
    found = list(takewhile(lambda tick: tick < minutes[-1] + 60, schedule.ticks_after(minutes[0] - 60)))
    assert found == expected
    for near in range(moment - 7_200, moment + 7_200, 600):  # seen from anywhere, the next one is the same
        later = [one for one in expected if one > near + 0.5]
        assert not later or schedule.next_tick(near + 0.5) == later[0]


def test_one_time_that_the_clocks_skip_is_an_hour_later_and_one_that_they_repeat_is_the_first():
    (skipped,) = make(once="2026-03-29T02:30", tz="Europe/Berlin").ticks_after(0.0)
    assert skipped == at("2026-03-29T03:30+02:00"), "02:30 does not exist: counted from before the change"
    (repeated,) = make(once="2026-10-25T02:30", tz="Europe/Berlin").ticks_after(0.0)
    assert repeated == at("2026-10-25T02:30+02:00"), "the first 02:30 of two"
    (exact,) = make(once="2026-10-25T02:30+01:00", tz="Europe/Berlin").ticks_after(0.0)
    assert exact == repeated + 3600


def test_interval_is_the_same_on_all_machines_and_one_time_is_one_time():
    assert ticks(make(every="6h"), "2026-01-01T05:00+00:00", 2) == ["01T06:00", "01T12:00"]
    once = make(once="2026-12-01T09:00", tz="Asia/Tokyo")
    assert list(once.ticks_after(at("2026-11-01T00:00+00:00"))) == [at("2026-12-01T00:00+00:00")]
    assert once.next_tick(at("2026-12-01T00:00+00:00")) is None


@pytest.mark.parametrize(
    "given",
    [
        {"cron": "every day"}, {"cron": "0 0 9 * * 1"}, {"cron": "0 0 31 2 *"}, {"cron": "0 9 * * *", "tz": "Mars/Olympus"}, {},
        {"cron": 5}, {"cron": ["0 9 * * *"]}, {"every": "1h", "tz": None}, {"every": "1h", "tz": 9}, {"every": [1]},
        {"cron": "0 9 * * *", "every": "1h"}, {"every": "0.5s"}, {"every": 1e18}, {"once": "tomorrow"}, {"every": "1h", "missed": "some"},
    ],
)  # fmt: skip
def test_wrong_schedule_is_refused(given):
    with pytest.raises(ConfigError):
        make(**given)
    with pytest.raises(ConfigError):
        make_schedule("clerk", "a b", "Go", "", "UTC", "1h", None, "one")


@pytest.mark.parametrize(("missed", "expected"), [("skip", []), ("one", ["08:00"]), ("all", ["06:00", "07:00", "08:00"])])
def test_missed_ticks_are_skipped_or_made_up_for(missed, expected):
    hourly = make("0 * * * *", missed=missed)
    found = hourly.due(at("2026-01-01T05:30+00:00"), at("2026-01-01T08:30+00:00"))
    assert [f"{datetime.fromtimestamp(tick, UTC):%H:%M}" for tick in found] == expected
    late = hourly.due(at("2026-01-01T05:30+00:00"), at("2026-01-01T06:00:30+00:00"))
    assert len(late) == 1, "half a minute late is not missed"


def test_all_missed_ticks_are_at_most_a_hundred_and_quickly_found():
    begun = time.process_time()
    found = make("* * * * *", missed="all").due(at("2020-01-01T00:00+00:00"), at("2026-01-01T00:00:30+00:00"))
    assert len(found) == 101
    assert time.process_time() - begun < 5
    yearly = make("0 0 1 1 *", missed="one").due(at("2024-12-31T00:00+00:00"), at("2025-12-31T00:00+00:00"))
    assert yearly == [at("2025-01-01T00:00+00:00")], "a year ago"


def make_agent(journal, **schedule):
    agent = Agent(ScriptedModel(lambda request: "done"), name="clerk", journal=journal)
    agent.schedule("hourly", "Go", **{"cron": "0 * * * *", **schedule})
    return agent


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    return str(tmp_path / "j.db") if request.param == "sqlite" else request.getfixturevalue("url")


async def test_ticks_while_nobody_was_alive_are_made_up_for_by_the_next_process(place):
    agent = make_agent(place, missed="all")
    await agent.journal.stores.marks.raise_to({"hourly: 0 * * * * UTC": at("2026-01-01T01:30+00:00")})  # of an earlier build
    await Scheduler([agent], lambda: at("2026-01-01T05:30+00:00")).check()
    assert dict(await agent.journal.stores.queue.count()) == {}, "a schedule counts from when it is first seen"
    later = Scheduler([agent], lambda: at("2026-01-01T08:30+00:00"))
    await later.check()
    await later.check()
    assert dict(await agent.journal.stores.queue.count()) == {"waiting": 3}
    assert (await agent.journal.stores.queue.find("hourly@clerk@20260101T070000Z")).state == "waiting"
    await agent.journal.close()


async def test_paused_schedule_drops_its_ticks_in_every_process_until_it_is_resumed(place):
    agent = make_agent(place, every="1s", cron="", missed="all")
    clock = [time.time() - 100]
    scheduler = Scheduler([agent], lambda: clock[0])
    await scheduler.check()
    await steer_schedule([agent], "pause", "hourly")
    clock[0] += 50
    await scheduler.check()
    (told,) = await list_schedules([agent])
    assert told["paused"]
    assert told["next"] is None
    assert dict(await agent.journal.stores.queue.count()) == {}
    run_id = await steer_schedule([agent], "run", "hourly")
    assert run_id.startswith("hourly@clerk@")
    assert (await agent.journal.stores.queue.find(run_id)).state == "waiting", "also while it is paused"
    await steer_schedule([agent], "resume", "hourly")
    clock[0] = time.time() + 2
    await scheduler.check()
    assert 2 <= (await agent.journal.stores.queue.count())["waiting"] <= 5, "only the ticks after it was resumed"
    assert not (await list_schedules([agent]))[0]["paused"]
    await agent.journal.close()


async def test_last_runs_of_a_schedule_are_its_own_and_not_those_inside_them(place):
    agent = make_agent(place)
    for number in range(3):
        await write(agent.journal, f"hourly@clerk@{number}")
        for inner in range(3):
            await write(agent.journal, f"hourly@clerk@{number}/{inner}", parent=f"hourly@clerk@{number}")
    (told,) = await list_schedules([agent])
    assert [one["run_id"] for one in told["runs"]] == [f"hourly@clerk@{number}" for number in (2, 1, 0)]
    await agent.journal.close()


async def test_pause_ends_in_a_copy_of_the_journal_when_it_was_ended_in_the_original(tmp_path):
    agent, copied = make_agent(tmp_path / "a.db"), choose(tmp_path / "b.db")
    await steer_schedule([agent], "pause", "hourly")
    await copied.stores.marks.raise_to({"other@clerk: paused": 1.0})
    await copy_journal(agent.journal, copied)
    assert "hourly@clerk: paused" in await copied.stores.marks.all()
    await steer_schedule([agent], "resume", "hourly")
    await copy_journal(agent.journal, copied)
    assert sorted(await copied.stores.marks.all()) == ["hourly@clerk: 0 * * * * UTC", "other@clerk: paused"]
    await agent.journal.close()
    await copied.close()


def test_schedule_without_an_input_is_refused():
    with pytest.raises(ConfigError):
        Agent(ScriptedModel([])).schedule("n", None, every=1)


async def test_schedule_with_another_time_begins_anew_and_one_that_was_removed_stops(tmp_path):
    journal = choose(tmp_path / "j.db")
    await Scheduler([make_agent(journal, missed="all")], lambda: at("2026-01-01T05:30+00:00")).check()
    changed = make_agent(journal, cron="30 * * * *", missed="all")
    clock = [at("2026-01-05T00:00+00:00")]
    scheduler = Scheduler([changed], lambda: clock[0])
    await scheduler.check()
    assert dict(await journal.stores.queue.count()) == {}, "nothing is made up for"
    assert len(await journal.stores.marks.all()) == 1, "the old one is forgotten"
    changed.schedules = {}
    clock[0] += 86_400
    await scheduler.check()
    assert dict(await journal.stores.queue.count()) == {}
    await journal.close()


async def test_schedules_of_two_agents_with_the_same_name_have_their_own_runs_and_pauses(place):
    """Two programs share a journal."""
    one = make_agent(place)
    other = Agent(ScriptedModel(lambda request: "done"), name="buyer", journal=one.journal)
    other.schedule("hourly", "Buy", cron="0 * * * *")
    clock = [at("2026-01-01T05:30+00:00")]
    programs = [Scheduler([agent], lambda: clock[0]) for agent in (one, other)]
    for scheduler in programs:
        await scheduler.check()
    clock[0] += 3600
    for scheduler in programs:
        await scheduler.check()
    queued = {item.run_id: item.agent for item in await one.journal.stores.queue.entries("waiting")}
    assert queued == {"hourly@clerk@20260101T060000Z": "clerk", "hourly@buyer@20260101T060000Z": "buyer"}
    await steer_schedule([other], "pause", "hourly")
    assert [(await list_schedules([agent]))[0]["paused"] for agent in (one, other)] == [False, True]
    await one.journal.close()


async def test_schedule_that_was_removed_and_added_again_has_missed_nothing(place):
    agent = make_agent(place, missed="all")
    schedules, clock = agent.schedules, [at("2026-01-01T05:30+00:00")]
    await Scheduler([agent], lambda: clock[0]).check()
    await steer_schedule([agent], "pause", "hourly")
    executes = Agent(ScriptedModel([]), name="clerk", journal=agent.journal)
    await Scheduler([executes], lambda: clock[0]).check()
    assert schedules["hourly"].mark in await agent.journal.stores.marks.all(), (
        "a worker that only executes runs removes nothing"
    )
    agent.schedules = {}
    await Scheduler([agent], lambda: clock[0]).check()
    clock[0] += 5 * 3600
    agent.schedules = schedules
    (told,) = await list_schedules([agent])
    assert told["paused"], "a pause stays in force"
    await agent.journal.stores.marks.remove([schedules["hourly"].paused_mark])
    again = Scheduler([agent], lambda: clock[0])
    await again.check()
    assert dict(await agent.journal.stores.queue.count()) == {}
    agent.schedules = {}
    await again.check()
    clock[0] += 5 * 3600
    agent.schedules = schedules
    await again.check()
    assert dict(await agent.journal.stores.queue.count()) == {}, "also in one process"
    clock[0] += 3600
    await again.check()
    assert dict(await agent.journal.stores.queue.count()) == {"waiting": 1}
    await agent.journal.close()


async def test_process_with_a_clock_in_the_future_does_not_stop_the_others(tmp_path):
    agent = make_agent(tmp_path / "j.db")
    clock = [at("2026-01-01T05:30+00:00")]
    scheduler = Scheduler([agent], lambda: clock[0])
    await scheduler.check()
    await Scheduler([agent], lambda: at("2030-01-01T00:00:01+00:00")).check()
    clock[0] = at("2026-01-01T06:00:01+00:00")
    await scheduler.check()
    assert await agent.journal.stores.queue.find("hourly@clerk@20260101T060000Z") is not None
    await agent.journal.close()


@pytest.mark.parametrize("ahead", [30.0, 3700.0, *nightly(3000.0, 1e8)])
@pytest.mark.parametrize("restarted", [False, True])
async def test_clock_that_was_ahead_and_is_set_right_loses_no_later_tick(place, ahead, restarted, caplog):
    agent = make_agent(place, cron="", every="1m")
    right, clock = at("2026-01-01T05:30:05+00:00"), [at("2026-01-01T05:30:05+00:00")]
    scheduler = Scheduler([agent], lambda: clock[0])
    await scheduler.check()
    clock[0] += ahead
    await scheduler.check()
    clock[0] = right
    scheduler = Scheduler([agent], lambda: clock[0]) if restarted else scheduler
    await scheduler.check()
    assert ("a clock was wrong" in caplog.text) == (ahead > 60)
    for minute in range(60):
        clock[0] = right + 60 * (minute + 1)
        await scheduler.check()
        assert await agent.journal.stores.queue.find(
            f"hourly@clerk@20260101T{5 + (31 + minute) // 60:02}{(31 + minute) % 60:02}00Z"
        )
    assert max((await agent.journal.stores.marks.all()).values()) == clock[0], "the mark in the journal is right, too"
    await agent.journal.close()


async def test_schedule_that_cannot_be_queued_does_not_keep_others_from_their_runs(tmp_path, caplog):
    journal = choose(tmp_path / "journal.db")
    agent = Agent(ScriptedModel(lambda request: "done"), name="clerk", journal=journal)
    agent.schedules = {"bad": make_schedule("clerk", "bad", {"no": "input"}, "", "UTC", "10s", None, "one")}
    agent.schedule("good", "Go", every="10s")
    now = 1_000_000.0
    scheduler = Scheduler([agent], clock=lambda: now)
    await scheduler.check()
    now += 10
    await scheduler.check()
    assert [one.run_id.partition("@")[0] for one in await journal.stores.queue.entries("waiting")] == ["good"]
    assert "schedule bad: no run is queued" in caplog.text
    with pytest.raises(ConfigError, match="is not a time"):
        agent.schedule("never", "Go", at=1e300)
    with pytest.raises(ConfigError, match="session_id must be a string"):
        agent.schedule("never", "Go", every="1h", session_id=5)
    for wrong in ({"priority": "high"}, {"at": float("nan")}, {"at": 10**400}, {"at": 1e300}, {"key": 5}):
        with pytest.raises(ConfigError, match="priority must be a whole number"):
            await agent.submit("Go", **wrong)
    with pytest.raises(ConfigError, match="key must be a string that can be encoded"):
        agent.schedule("never", "Go", every="1h", key="\ud800")
    await journal.close()


async def test_worker_executes_the_runs_of_a_schedule(tmp_path):
    agent = make_agent(tmp_path / "j.db", every="1s", cron="")
    worker = Worker([agent])
    working = asyncio.create_task(worker.work())
    await completed(agent.journal, 2)
    worker.stop()
    await working
    (told,) = await list_schedules([agent])
    assert {run["status"] for run in told["runs"]} == {"completed"}
    assert told["when"] == "every 1s"
    await agent.journal.close()


def test_two_agents_cannot_have_the_same_schedule(tmp_path):
    journal = choose(tmp_path / "j.db")
    one, other = make_agent(journal), Agent(ScriptedModel([]), name="other", journal=journal)
    other.schedule("hourly", "Go", every="1h")
    with pytest.raises(ConfigError, match="hourly"):
        Worker([one, other])


NIGHTS = {
    "sqlite": ("2026-03-28T22:00+00:00", "2026-03-29T06:00+00:00", "nightly@clerk@20260329T010000Z"),
    "postgres": ("2026-10-24T22:00+00:00", "2026-10-25T06:00+00:00", "nightly@clerk@20261025T003000Z"),
}


async def test_night_with_a_change_of_clocks_and_three_processes_executes_each_tick_once(place, request, tmp_path):
    """Two more processes die: one before it queues a run, and one before it says that it has."""
    begin, end, by_night = NIGHTS[request.node.callspec.params["place"]]
    place = place.replace("ttl=0.6", "ttl=30")  # a busy machine is not a dead process
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "NIGHT_CALLS": str(tmp_path / "calls")}

    def start(step, dies=""):
        command = [sys.executable, "-m", "tests.work.night", place, str(at(begin)), str(at(end)), str(step)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
        return warm.Popen(command, env={**environment, "NIGHT_DIES": dies}, **pipes)

    async def go(one):
        one.stdin.write("go\n")
        one.stdin.flush()
        return await asyncio.to_thread(one.stdout.readline)

    started = [start(300, "before"), start(500, "after"), start(420), start(601), start(1111)]
    assert [await asyncio.to_thread(one.stdout.readline) for one in started] == ["up\n"] * 5
    for one in started[:2]:
        assert await go(one) == "", "it dies"
    assert await asyncio.gather(*[go(one) for one in started[2:]]) == ["over\n"] * 3
    half = {f"half@clerk@{datetime.fromtimestamp(at(begin) + 1800 * n, UTC):%Y%m%dT%H%M%SZ}" for n in range(1, 17)}
    quarter = {f"quarter@clerk@{datetime.fromtimestamp(at(begin) + 900 * n, UTC):%Y%m%dT%H%M%SZ}" for n in range(1, 33)}
    journal = choose(place)
    await completed(journal, 49, 120)
    await until(lambda: nothing_is_queued(journal))  # who comes late queues a tick again, and a worker finds it done
    for one in started[2:]:
        await asyncio.to_thread(one.communicate, "end\n")
    assert [one.wait(60) for one in started] == [9, 9, 0, 0, 0]
    for one in started[:2]:
        one.stdin.close()
        one.stdout.close()
    cards = await journal.runs(limit=200)
    assert {card.run_id for card in cards} == {by_night, *half, *quarter}
    assert len(cards) == 49
    for card in cards:
        assert len([event async for event in journal.read(card.run_id) if isinstance(event.body, Stopped)]) == 1
    assert (tmp_path / "calls").read_text().count("called") == 49
    assert dict(await journal.stores.queue.count()) == {}
    await journal.close()
