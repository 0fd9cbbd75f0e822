"""Kill a server again and again while it works, and look at what became of the work.

python -m tests.serve.killing 50 100 0.4     # kills, runs, seconds that a piece of work takes
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from tests.serve.serving import Served

_BETWEEN = (0.05, 0.4)  # seconds that a server lives under load


class Follower:
    """One that reads a run and comes back, whatever happens, from where it was."""

    def __init__(self, run_id: str) -> None:
        self.run_id, self.seen, self.last, self.over = run_id, [], "", False

    async def follow(self, url: str) -> None:
        async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as http:
            while not self.over:
                headers = {"last-event-id": self.last} if self.last else {}
                try:
                    async with http.stream("GET", f"/api/runs/{self.run_id}/events", headers=headers) as answer:
                        self.over = answer.status_code == 204
                        async for line in answer.aiter_lines():
                            if line.startswith("id: "):
                                self.last = line[4:]
                                self.seen.append(self.last)
                            self.over = self.over or '"status":"stopped"' in line
                except httpx.HTTPError:
                    await asyncio.sleep(0.1)


async def start(url: str, run_id: str) -> None:
    """Until it is there: a client that was not answered asks again, with the same id."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as http:
        while True:
            try:
                asked = {"input": "work", "agent": "worker", "run_id": run_id, "mode": "detach"}
                if (await http.post("/api/runs", json=asked)).status_code in (202, 409):
                    return
            except httpx.HTTPError:
                await asyncio.sleep(0.1)


async def ready(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60) as http:
        while True:
            try:
                if (await http.get("/readyz")).status_code == 200:
                    return
            except httpx.HTTPError:
                await asyncio.sleep(0.02)


async def killing(folder: Path, kills: int, runs: int, pace: float = 0.05) -> dict[str, object]:
    served = await asyncio.to_thread(Served, folder, KANAME_TEST_PACE=str(pace))
    names = [f"run-{number}" for number in range(runs)]
    followers = [Follower(name) for name in names]
    began, done = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(start(served.url, name))
        following = [group.create_task(one.follow(served.url)) for one in followers]
        for _ in range(kills):
            await ready(served.url)
            await asyncio.sleep(random.uniform(*_BETWEEN))
            if all(task.done() for task in following):
                break
            served.kill()
            done += 1
            served = await asyncio.to_thread(Served, folder, port=served.port, KANAME_TEST_PACE=str(pace))
    async with httpx.AsyncClient(base_url=served.url, trust_env=False, verify=False) as http:
        listed = (await http.get("/api/runs", params={"limit": 10_000})).json()["runs"]
    await asyncio.to_thread(served.end)
    ledger = Counter((folder / "ledger.txt").read_text().split())
    booked = Counter((folder / "booked.txt").read_text().split())
    return {
        "kills": done,
        "seconds": round(time.monotonic() - began, 1),
        "runs": len(listed),
        "statuses": dict(Counter(run["status"] for run in listed)),
        "transfers": sum(ledger.values()),
        "transfers twice": sum(count > 1 for count in ledger.values()),
        "bookings": len(booked),
        "bookings tried again with their key": sum(count - 1 for count in booked.values()),
        "events twice": sum(len(one.seen) - len(set(one.seen)) for one in followers),
        "followers to the end": sum(one.over for one in followers),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        told = asyncio.run(killing(Path(place), int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
    for name, value in told.items():
        print(f"{name:40} {value}")
