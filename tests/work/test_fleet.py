"""Worker processes that are killed, stopped and drained: no run is lost, none ends twice, and nothing is paid twice."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from kaname.core.events import Resumed, Stopped
from kaname.stores.default import choose
from tests import postgres
from tests.parts import until
from tests.properties import nightly
from tests.work.fleet import Fleet, make_agent


async def completed(journal, count, seconds=180):
    async with asyncio.timeout(seconds):
        while sum([one.runs for one in await journal.count() if one.status == "completed"]) < count:
            await asyncio.sleep(0.1)


async def nothing_is_queued(journal):
    return not await journal.stores.queue.count()


async def check(journal, fleet, count):
    cards = await journal.runs(limit=count + 10)
    assert [card.status for card in cards] == ["completed"] * count
    for card in cards:
        ends = [event async for event in journal.read(card.run_id) if isinstance(event.body, Stopped)]
        assert len(ends) == 1, "no run ends twice"
    assert len(fleet.paid()) == len(set(fleet.paid())) == count, "each is paid once"
    assert dict(await journal.stores.queue.count()) == {}


async def resumed(journal, run_id):
    return any([isinstance(event.body, Resumed) async for event in journal.read(run_id)])


def stands_still(process):
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("kind", ["postgres", *nightly("sqlite", "procrastinate")])
async def test_workers_are_killed_and_drained_and_no_run_is_lost(kind, request, tmp_path, monkeypatch):
    """Four workers: three are killed, one is drained, and PostgreSQL is restarted."""
    monkeypatch.setenv("FLEET_FOLDER", str(tmp_path))
    place = str(tmp_path / "j.db")
    if kind != "sqlite":
        place = request.getfixturevalue("url").replace("ttl=0.6&patience=5", "ttl=1&patience=30")
        place += "&queue=procrastinate" if kind == "procrastinate" else ""
    journal, fleet, count = choose(place), Fleet(place, tmp_path), 40
    agent = make_agent(journal)
    try:
        workers = await asyncio.gather(*[asyncio.to_thread(fleet.start) for _ in range(4)])
        for number in range(count):
            await agent.submit(f"go {number}", session_id=f"s{number % 6}" if number % 3 == 0 else "", run_id=f"r{number}")
        for done, worker in enumerate(workers[:3], 2):
            await completed(journal, done * 2)
            worker.kill()
            await asyncio.to_thread(fleet.start)
        if kind != "sqlite":
            server = request.getfixturevalue("server")
            await asyncio.to_thread(postgres.stop, server)
            await asyncio.to_thread(postgres.start, server)
        workers[3].terminate()
        assert await asyncio.to_thread(workers[3].wait, 60) == 0
        await completed(journal, count)
        await until(lambda: nothing_is_queued(journal))
        await check(journal, fleet, count)
    finally:
        fleet.end()
        await journal.close()


async def test_worker_that_was_stopped_and_wakes_later_is_fenced_off(url, tmp_path, monkeypatch):
    """A is stopped right before a payment; B takes its runs over within twice the time to live, and pays; A wakes; B is killed.

    A pays nothing that B has paid."""
    monkeypatch.setenv("FLEET_FOLDER", str(tmp_path))
    ttl = 1.5
    place = url.replace("ttl=0.6&patience=5", f"ttl={ttl}&patience=30")
    journal, fleet = choose(place), Fleet(place, tmp_path, FLEET_PACE="2")
    agent = make_agent(journal)
    try:
        zombie = await asyncio.to_thread(fleet.start, FLEET_STANDS_STILL="yes")
        for number in range(3):
            await agent.submit(f"go {number}")
        await until(lambda: stands_still(zombie))
        stopped, runs = time.monotonic(), [card.run_id for card in await journal.runs()]
        other = await asyncio.to_thread(fleet.start)
        async with asyncio.timeout(60):
            while sum([await resumed(journal, run) for run in runs]) < len(runs):
                await asyncio.sleep(0.05)
        assert time.monotonic() - stopped < 2 * ttl + 30, "taken over; half a minute is for a busy machine"
        await until(fleet.paid)
        zombie.send_signal(signal.SIGCONT)
        await asyncio.sleep(1.0)
        other.kill()
        await completed(journal, 3)  # the one that was thought dead works on: it is the only one left
        await until(lambda: nothing_is_queued(journal))
        await check(journal, fleet, 3)
        assert zombie.poll() is None
    finally:
        fleet.end()
        await journal.close()
