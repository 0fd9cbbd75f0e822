"""Take runs from the queue in the journal's SQLite file."""

from __future__ import annotations

import asyncio
from itertools import product

from ...core.turns import MOST_KEYS, Candidate, Turns, choose
from ...kernel.stores import QueuedRun, Wanted, WorkerInfo
from ..queue import COLUMNS, SqlQueue
from ..sql import Steps
from .database import SqliteDatabase
from .file import JournalFile
from .schema import ON_DEMAND

_KEYS = "SELECT min(key) FROM kaname.queue WHERE queue = $1 AND agent = $2 AND state = 'waiting' AND key"
_CANDIDATES = """
    SELECT number, run, key, priority FROM kaname.queue AS m
    WHERE queue = $1 AND agent = $2 AND key = $3 AND state = 'waiting' AND (thread = '' OR NOT EXISTS (
        SELECT 1 FROM kaname.queue AS o WHERE o.thread = m.thread AND o.thread <> ''
        AND (o.state = 'taken' OR o.state = 'waiting' AND o.number < m.number)))
    ORDER BY priority DESC, number LIMIT $4
"""
_DUE = """
SELECT 1 FROM kaname.queue WHERE state = 'waiting'
UNION ALL SELECT 1 FROM kaname.queue WHERE state = 'delayed' AND at <= kaname.now() LIMIT 1
"""


class SqliteQueue(SqlQueue):
    pace = 5.0
    preparing = ON_DEMAND["queue"]  # a file of an older version has other indexes

    def __init__(self, database: SqliteDatabase, place: JournalFile) -> None:
        super().__init__(database)
        self._place = place

    async def take(self, wanted: Wanted, count: int) -> list[QueuedRun]:
        if not self._place.works:
            await self._begin_work()
        if not await self._look(_DUE):
            return []

        def work() -> Steps[list[QueuedRun]]:
            yield ("UPDATE kaname.queue SET state = 'waiting' WHERE state = 'delayed' AND at <= kaname.now()",)
            busy = dict((yield ("SELECT key, count(*) FROM kaname.queue WHERE state = 'taken' GROUP BY key",)))
            found = yield from _candidates(wanted, count, self._turns)
            chosen = choose(found, busy, wanted.per_key, count, self._turns)
            ((last,),) = yield ("SELECT max(number) FROM kaname.queue",)
            self._turns.note([one.key for one in chosen], last)
            taken: list[QueuedRun] = []
            for one in chosen:
                update = "UPDATE kaname.queue SET state = 'taken', worker = $1, attempts = attempts + 1 WHERE number = $2"
                rows = yield f"{update} RETURNING {COLUMNS}", self._database.me, one.number
                taken += [QueuedRun(*row) for row in rows]
            return taken

        return await self._database.write(work)

    async def _begin_work(self) -> None:
        def work() -> Steps[None]:
            yield ("SELECT 1",)
            self._place.begin_work()

        await self._database.write(work)

    async def workers(self) -> list[WorkerInfo]:
        busy = dict(await self._look("SELECT worker, count(*) FROM kaname.queue WHERE state = 'taken' GROUP BY worker"))
        return [WorkerInfo(name, executing=busy.get(name, 0)) for name in await asyncio.to_thread(self._place.workers)]


def _candidates(wanted: Wanted, count: int, turns: Turns) -> Steps[list[Candidate]]:
    """Return the first runs of each key. The keys are found along the index, one after the other."""
    found, left = list[Candidate](), list[str]()
    for queue, agent in product(wanted.queues, wanted.agents):
        ((key,),) = yield f"{_KEYS} >= $3", queue, agent, turns.start
        for _ in range(MOST_KEYS):
            if key is None:
                break
            found += [Candidate(*row) for row in (yield _CANDIDATES, queue, agent, key, count)]
            ((key,),) = yield f"{_KEYS} > $3", queue, agent, key
        left += [key] if key is not None else []
    turns.start = min(left, default="")
    return found
