"""Write runs into a journal, fact by fact, as if agents had made them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kaname import SqliteJournal
from kaname.core.events import Event


def write_runs(
    folder: Path, runs: dict[str, list], *, agent: str = "travel", begun: float = 1_790_000_000.0, pace: float = 0.5
):
    """`runs`: the facts of each, by its id."""

    async def write() -> None:
        journal = SqliteJournal(folder / "journal.db")
        for number, (run, bodies) in enumerate(runs.items()):
            lease = await journal.claim(run)
            events = [Event(run, seq, begun + number + seq * pace, agent, body) for seq, body in enumerate(bodies, 1)]
            for place in range(0, len(events), 500):
                await journal.append(events[place : place + 500], lease.epoch)
            await journal.release(run, lease.epoch)
        await journal.close()

    with ThreadPoolExecutor(1) as thread:  # the browser's driver has the loop of this one
        thread.submit(lambda: asyncio.run(write())).result()
