"""The cache file: size, age, several processes, a killed writer, a damaged file; and one computation for many callers."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

from kaname.policies.reuse.flights import Flights
from kaname.policies.reuse.store import CacheStore
from tests import warm
from tests.parts import SOURCE


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_cache_entry_is_used_until_its_time_is_over(tmp_path):
    clock = Clock()
    store = CacheStore(tmp_path / "c.db", 10_000, clock)
    assert store.get("a") is None
    store.put("a", "one", ttl=60)
    store.put("b", "two")
    clock.now += 59.9
    assert store.get("a").value == "one"
    clock.now += 0.1
    assert store.get("a") is None
    clock.now += 10**9
    assert store.get("b") == ("two", 1000.0)


def test_cache_removes_the_oldest_entries(tmp_path):
    clock = Clock()
    store = CacheStore(tmp_path / "c.db", 4_000, clock)
    for name in "abca":  # a is stored once more, so that b is the oldest
        clock.now += 1
        store.put(name, "x" * 1000)
    store.put("d", "x" * 1000)
    assert [name for name in "abcd" if store.get(name)] == ["a", "c", "d"]
    assert store.figures().bytes <= 4_000
    store.put("e", "x" * 5_000)  # larger than the whole cache
    assert store.get("e") is None
    assert store.figures().entries == 3


def test_cache_removes_expired_entries_before_others(tmp_path):
    clock = Clock()
    store = CacheStore(tmp_path / "c.db", 2_500, clock)
    store.put("old", "x" * 1000)
    clock.now += 1
    store.put("short", "x" * 1000, ttl=5)
    clock.now += 6
    store.put("new", "x" * 1000)
    assert [name for name in ("old", "short", "new") if store.get(name)] == ["old", "new"]


def test_cache_stays_within_its_size_over_many_values(tmp_path):
    store = CacheStore(tmp_path / "c.db", 50_000)
    for number in range(500):
        store.put(f"k{number % 90}", "y" * (number * 37 % 2000))
    entries, held, on_disk = store.figures()
    db = sqlite3.connect(tmp_path / "c.db")
    assert db.execute("SELECT count(*), sum(size) FROM entries").fetchone() == (entries, held)
    assert held <= 50_000
    assert on_disk < 150_000
    db.close()
    store.clear()
    assert store.figures()[:2] == (0, 0)
    assert store.figures().on_disk < on_disk


@pytest.mark.skipif(os.name == "nt", reason="file modes")
def test_cache_file_can_be_read_by_its_owner_only(tmp_path):
    CacheStore(tmp_path / "folder" / "c.db", 10_000).put("a", "said in confidence")
    assert (tmp_path / "folder" / "c.db").stat().st_mode & 0o077 == 0


_WRITER = """
import sys
from kaname.policies.reuse.store import CacheStore
store = CacheStore(sys.argv[1], 200_000)
print("ready", flush=True)
sys.stdin.readline()
for number in range(300):
    key = f"k{number % 50}"
    found = store.get(key)
    assert found is None or found.value == key * 100, found
    store.put(key, key * 100)
print("done", flush=True)
"""


def start(code: str, path, **more) -> subprocess.Popen[str]:
    return warm.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        **more,
    )


def test_four_processes_use_one_cache_file(tmp_path):
    writers = [start(_WRITER, tmp_path / "c.db") for _ in range(4)]
    for one in writers:
        assert one.stdout.readline() == "ready\n"
    for one in writers:
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in writers:
        told, _ = one.communicate(timeout=180)
        assert told == "done\n"
        assert one.returncode == 0
    store = CacheStore(tmp_path / "c.db", 200_000)
    assert store.figures().entries == 50
    assert all(store.get(f"k{n}").value == f"k{n}" * 100 for n in range(50))


_ENDLESS = """
import sys
from kaname.policies.reuse.store import CacheStore
store = CacheStore(sys.argv[1], 400_000)
number = 0
while True:
    key = f"k{number % 40}"
    store.put(key, key * 3000)
    if number == 20:
        print("writing", flush=True)
    number += 1
"""


def test_cache_file_survives_a_writer_that_is_killed(tmp_path):
    for _ in range(3):
        writer = start(_ENDLESS, tmp_path / "c.db")
        assert writer.stdout.readline() == "writing\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait(timeout=30)
        writer.stdout.close()
        writer.stdin.close()
        store = CacheStore(tmp_path / "c.db", 400_000)
        found = [(n, store.get(f"k{n}")) for n in range(40)]
        assert any(one for _, one in found)
        assert all(one.value == f"k{n}" * 3000 for n, one in found if one is not None)
        store.put("after", "it")
        assert store.get("after").value == "it"
        entries, held, _ = store.figures()
        store.close()
        db = sqlite3.connect(tmp_path / "c.db")
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*), sum(size) FROM entries").fetchone() == (entries, held)
        db.close()


async def test_hundred_callers_wait_for_one_computation():
    flights, computed, go = Flights(), [], asyncio.Event()

    async def compute():
        computed.append(1)
        await go.wait()
        return "value"

    callers = [asyncio.create_task(flights.share("k", compute, bool)) for _ in range(100)]
    await asyncio.sleep(0)
    go.set()
    landed = await asyncio.gather(*callers)
    assert len(computed) == 1
    assert {one.value for one in landed} == {"value"}
    assert sum(one.shared for one in landed) == 99
    flights.release("k")
    assert not (await flights.share("k", compute, bool)).shared


async def test_next_caller_computes_when_the_first_is_cancelled():
    flights, computed, begun, go = Flights(), [], asyncio.Event(), asyncio.Event()

    async def compute():
        computed.append(1)
        begun.set()
        await go.wait()
        return "value"

    first = asyncio.create_task(flights.share("k", compute, bool))
    await begun.wait()
    others = [asyncio.create_task(flights.share("k", compute, bool)) for _ in range(10)]
    await asyncio.sleep(0)
    begun.clear()
    others[0].cancel()  # a caller who only waits takes nothing away from the others
    first.cancel()
    await begun.wait()
    go.set()
    landed = await asyncio.gather(*others[1:])
    assert len(computed) == 2
    assert {one.value for one in landed} == {"value"}


async def test_failure_is_not_shared_and_nobody_waits_for_more_than_two():
    flights, computed = Flights(), []

    async def compute():
        computed.append(1)
        await asyncio.sleep(0)
        raise OSError("down")

    told = await asyncio.gather(*[flights.share("k", compute, bool) for _ in range(20)], return_exceptions=True)
    assert all(isinstance(one, OSError) for one in told)
    assert len(computed) == 20


async def test_computation_that_needs_itself_does_not_wait_for_itself():
    flights = Flights()

    async def inner():
        return "inner"

    async def outer():
        return (await asyncio.create_task(flights.share("k", inner, bool))).value + " in outer"

    async with asyncio.timeout(60):
        assert (await flights.share("k", outer, bool)).value == "inner in outer"


def test_threads_share_one_computation():
    flights, computed, go, told = Flights(), [], threading.Event(), []

    def compute():
        computed.append(1)
        go.wait(60)
        return 42

    threads = [threading.Thread(target=lambda: told.append(flights.share_now("k", compute).value)) for _ in range(8)]
    for one in threads:
        one.start()
    go.set()
    for one in threads:
        one.join()
    assert told == [42] * 8
    assert len(computed) == 1
