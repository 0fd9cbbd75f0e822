"""Queue of runs in the journal's database: one table, rows that are taken with SKIP LOCKED, the journal's own heartbeat.

Keys are found one after the other along an index, so that a key with very many runs hides no other, and costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.turns import MOST_KEYS, Candidate, choose
from ...kernel.stores import QueuedRun, Wanted, WorkerInfo
from ..queue import COLUMNS, SqlQueue
from .connections import Connection
from .database import PostgresDatabase
from .office import Office
from .owner import alive

_DUE_SECONDS = 0.2
_PUT = """
INSERT INTO kaname.queue (run, agent, "order", session, "user", queue, key, priority, at, seq, thread, state)
SELECT g.*, CASE WHEN g.at > extract(epoch FROM clock_timestamp()) THEN 'delayed' ELSE 'waiting' END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int8[], $9::float8[],
    $10::int8[], $11::text[]) AS g(run, agent, "order", session, "user", queue, key, priority, at, seq, thread)
ON CONFLICT (run) DO UPDATE SET state = 'waiting', seq = EXCLUDED.seq, attempts = 0, reason = ''
WHERE queue.state = 'set_aside' AND queue.seq <> EXCLUDED.seq RETURNING run
"""
_DUE = """
UPDATE kaname.queue SET state = 'waiting' WHERE state = 'delayed' AND at <= extract(epoch FROM clock_timestamp())
"""
_WAITING = """
    SELECT number, run, key, priority FROM kaname.queue AS m
    WHERE m.queue = k.queue AND m.agent = k.agent AND m.key = k.key AND m.state = 'waiting'
        AND (m.thread = '' OR NOT EXISTS (SELECT 1 FROM kaname.queue AS o WHERE o.thread = m.thread AND o.thread <> ''
            AND (o.state = 'taken' OR o.state = 'waiting' AND o.number < m.number)))
    ORDER BY priority DESC, number"""
_FIRST = """
    SELECT key, priority, number, thread FROM kaname.queue
    WHERE queue = {0}.queue AND agent = {1}.agent AND state = 'waiting' AND key {2}
    ORDER BY key, priority DESC, number LIMIT 1"""
# $3: how many runs, and from how many keys: what comes first of all is among the keys whose first run does. $4: keys that are
# executed, and $5 how many runs of each; $6: the limit of a key; $7 to $9: `Turns.served`; $10: `Turns.start`. The row with
# number 0 says where to start the next time, and what the last number in the queue is.
_CANDIDATES = f"""
WITH RECURSIVE keys AS (
    SELECT q.queue, a.agent, f.*, 1 AS n FROM unnest($1::text[]) AS q(queue), unnest($2::text[]) AS a(agent),
        LATERAL ({_FIRST.format("q", "a", ">= $10::text")}) AS f
    UNION ALL SELECT k.queue, k.agent, f.*, n + 1 FROM keys AS k,
        LATERAL ({_FIRST.format("k", "k", "> k.key")}) AS f WHERE n <= {MOST_KEYS}),
first AS (
    SELECT k.queue, k.agent, k.key FROM keys AS k LEFT JOIN unnest($4::text[], $5::int8[]) AS b(key, runs) ON b.key = k.key
    LEFT JOIN unnest($7::text[], $8::int8[], $9::int8[]) AS s(key, last, turn) ON s.key = k.key
    JOIN LATERAL (SELECT k.priority, k.number WHERE k.thread = ''
        UNION ALL SELECT f.priority, f.number FROM ({_WAITING} LIMIT 1) AS f WHERE k.thread <> '') AS w
    ON n <= {MOST_KEYS} AND ($6 = 0 OR b.runs IS NULL OR b.runs < $6)
    ORDER BY w.priority DESC, coalesce(b.runs, 0), greatest(w.number, s.last), coalesce(s.turn, 0), w.number LIMIT $3)
SELECT w.* FROM first AS k JOIN LATERAL ({_WAITING} LIMIT $3) AS w ON true
UNION ALL SELECT 0, '', (SELECT min(key) FROM keys WHERE n > {MOST_KEYS}), (SELECT max(number) FROM kaname.queue)
"""
_BUSY = "SELECT key, count(*) FROM kaname.queue WHERE state = 'taken' AND key <> '' GROUP BY key"
_TAKE = f"""
WITH free AS (SELECT number FROM kaname.queue WHERE number = ANY($1::int8[]) AND state = 'waiting' FOR UPDATE SKIP LOCKED)
UPDATE kaname.queue AS q SET state = 'taken', worker = $2, attempts = attempts + 1 FROM free WHERE q.number = free.number
RETURNING {COLUMNS.replace("run,", "q.run,", 1)}
"""
_WORKERS = """
SELECT w.owner, extract(epoch FROM w.until)::float8 - $1::float8,
    (SELECT count(*) FROM kaname.queue AS q WHERE q.worker = w.owner AND q.state = 'taken')
FROM kaname.owners AS w WHERE w.works AND {alive} ORDER BY 1
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 2))"


class PostgresQueue(SqlQueue):
    def __init__(self, office: Callable[[], Office]) -> None:
        super().__init__(PostgresDatabase(office))
        self._office = office
        self._due = 0.0  # when delayed runs are looked for again

    @property
    def pace(self) -> float:
        return self._office().address.ttl / 4

    async def put(self, items: Sequence[QueuedRun]) -> list[str]:
        office = self._office()
        columns = [list(column) for column in zip(*[(*one[:10], one.thread) for one in items], strict=True)]
        rows: list[Any] = await office.read(lambda connection: connection.fetch(office.sql(_PUT), *columns)) if items else []
        if rows:
            await office.tell_of_work()
        return [row[0] for row in rows]

    async def take(self, wanted: Wanted, count: int) -> list[QueuedRun]:
        office = self._office()

        async def work(connection: Connection) -> list[QueuedRun]:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + _DUE_SECONDS
                await connection.execute(office.sql(_DUE))
            async with connection.transaction():
                busy: Mapping[str, int] = {}
                if wanted.per_key:  # one worker after the other: else two could take the last place of a key
                    await connection.execute(_LOCK, f"{office.sql.schema} queue")
                    busy = dict(await connection.fetch(office.sql(_BUSY)))
                most = count if wanted.per_key else count * 2 + 8  # other workers may be taking the first ones
                values = (list(wanted.queues), list(wanted.agents), most, list(busy), list(busy.values()), wanted.per_key)
                served = [[key, *place] for key, place in self._turns.served.items()]
                columns = [list(column) for column in zip(*served, strict=True)] or [[], [], []]
                found = await connection.fetch(office.sql(_CANDIDATES), *values, *columns, self._turns.start)
                (_, _, start, last), *waiting = sorted(found, key=lambda row: row[0])
                candidates = [Candidate(*row) for row in waiting]
                chosen = choose(candidates, busy, wanted.per_key, count if wanted.per_key else most, self._turns)
                taken = await _take(connection, office, [one.number for one in chosen], count)
            self._turns.start = start or ""
            self._turns.note([one.key for one in taken], last or 0)
            return taken

        await office.begin(works=True)
        office.check_version()
        return await office.read(work)

    async def workers(self) -> list[WorkerInfo]:
        office = self._office()
        query = office.sql(_WORKERS.format(alive=alive("w.owner", office.address.ttl)))
        rows: list[Any] = await office.read(lambda connection: connection.fetch(query, office.address.ttl))
        return [WorkerInfo(*row) for row in rows]


async def _take(connection: Connection, office: Office, numbers: list[int], count: int) -> list[QueuedRun]:
    """Take up to `count` of these runs. Those that other workers are taking at the same moment are passed over."""
    rows: list[Any] = []
    while numbers and len(rows) < count:
        first, numbers = numbers[: count - len(rows)], numbers[count - len(rows) :]
        rows += await connection.fetch(office.sql(_TAKE), first, office.me)
    return [QueuedRun(*row) for row in rows]
