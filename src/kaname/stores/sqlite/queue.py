"""Queue of runs in the journal's SQLite file. Its table is created when a run is first queued."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from ..news import News
from ..queue import AGAIN, MOST_KEYS, Candidate, QueuedRun, Turns, Wanted, WorkerInfo, choose_runs
from .file import JournalFile
from .thread import SqliteThread

_COLUMNS = QueuedRun._fields[1:]
_SELECT = f"SELECT run, {', '.join([f'{chr(34)}{name}{chr(34)}' for name in _COLUMNS])} FROM queue"
_TABLE = """
    CREATE TABLE IF NOT EXISTS queue (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, "order" TEXT NOT NULL, session TEXT NOT NULL,
        user TEXT NOT NULL, queue TEXT NOT NULL, key TEXT NOT NULL, priority INTEGER NOT NULL, at REAL NOT NULL,
        seq INTEGER NOT NULL, thread TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL,
        worker TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT ''
    )
"""
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS queue_ready ON queue (queue, agent, key, priority DESC, number) WHERE state = 'waiting'",
    "DROP INDEX IF EXISTS queue_waiting",  # of older versions
    "CREATE INDEX IF NOT EXISTS queue_delayed ON queue (at) WHERE state = 'delayed'",
    "CREATE INDEX IF NOT EXISTS queue_taken ON queue (worker) WHERE state = 'taken'",
    "CREATE INDEX IF NOT EXISTS queue_threads ON queue (thread, number) WHERE thread <> ''",
)
_PUT = """
    INSERT INTO queue (run, agent, "order", session, user, queue, key, priority, at, seq, thread, state)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, iif(? > ?, 'delayed', 'waiting'))
    ON CONFLICT (run) DO UPDATE SET state = 'waiting', seq = excluded.seq, attempts = 0, reason = ''
    WHERE queue.state = 'set_aside' AND queue.seq <> excluded.seq
"""
_KEYS = "SELECT min(key) FROM queue WHERE queue = :queue AND agent = :agent AND state = 'waiting' AND key"
_CANDIDATES = """
    SELECT number, run, key, priority FROM queue AS m
    WHERE queue = :queue AND agent = :agent AND key = :key AND state = 'waiting' AND (thread = '' OR NOT EXISTS (
        SELECT 1 FROM queue AS o WHERE o.thread = m.thread AND o.thread <> ''
        AND (o.state = 'taken' OR o.state = 'waiting' AND o.number < m.number)))
    ORDER BY priority DESC, number LIMIT :most
"""
_MINE = "WHERE run = :run AND worker = :me AND state = 'taken'"


class SqliteQueue:
    pace = 5.0

    def __init__(self, writer: SqliteThread, reader: SqliteThread, place: JournalFile, news: News) -> None:
        self._writer, self._reader, self._place, self._news = writer, reader, place, news
        self._turns = Turns()

    async def put(self, items: Sequence[QueuedRun]) -> list[str]:
        def work(connection: sqlite3.Connection) -> list[str]:
            for statement in (_TABLE, *_INDEXES):
                connection.execute(statement)
            now = time.time()
            rows = [(*one[:10], one.thread, one.at, now) for one in items]
            return [row[0] for row in rows if connection.execute(_PUT, row).rowcount]

        added: list[str] = await self._writer.submit(work)
        self._news.tell()
        return added

    async def take(self, wanted: Wanted, count: int) -> list[QueuedRun]:
        if not self._place.works:
            await self._writer.submit(lambda connection: self._place.begin_work())
        if not await self._reader.transact(_is_due):
            return []

        def work(connection: sqlite3.Connection) -> list[QueuedRun]:
            connection.execute("UPDATE queue SET state = 'waiting' WHERE state = 'delayed' AND at <= ?", (time.time(),))
            busy = dict(connection.execute("SELECT key, count(*) FROM queue WHERE state = 'taken' GROUP BY key"))
            found = _candidates(connection, wanted, count, self._turns)
            chosen = choose_runs(found, busy, wanted.per_key, count, self._turns)
            self._turns.note([one.key for one in chosen], connection.execute("SELECT max(number) FROM queue").fetchone()[0])
            update = "UPDATE queue SET state = 'taken', worker = ?, attempts = attempts + 1 WHERE number = ?"
            connection.executemany(update, [(self._me(), one.number) for one in chosen])
            rows = [connection.execute(f"{_SELECT} WHERE number = ?", (one.number,)).fetchone() for one in chosen]
            return [QueuedRun(*row) for row in rows]

        return list(await self._writer.submit(work))

    def _me(self) -> str:
        assert self._place.owner is not None
        return self._place.owner.name

    async def finish(self, run_id: str) -> bool:
        return await self._change(f"DELETE FROM queue {_MINE}", run_id)

    async def retry(self, run_id: str, seconds: float = 0.0, reason: str = "") -> bool:
        state = "delayed" if seconds > 0 else "waiting"
        again = "state = :state, at = :at, reason = :reason, attempts = attempts - (:reason = '')"
        statement = f"UPDATE queue SET worker = '', {again} {_MINE}"
        return await self._change(statement, run_id, state=state, at=time.time() + seconds, reason=reason)

    async def set_aside(self, run_id: str, reason: str) -> bool:
        seq = "ifnull((SELECT seq FROM runs WHERE run = :run), 0)"
        statement = f"UPDATE queue SET worker = '', state = 'set_aside', reason = :reason, seq = {seq} {_MINE}"
        return await self._change(statement, run_id, reason=reason)

    async def _change(self, statement: str, run_id: str, **values: Any) -> bool:
        """Change the entry of a run, if it is still this worker's."""

        def work(connection: sqlite3.Connection) -> bool:
            return connection.execute(statement, {"run": run_id, "me": self._me(), **values}).rowcount == 1

        changed = bool(await self._writer.submit(work))
        self._news.tell()
        return changed

    async def rescue(self, executing: Collection[str] = ()) -> list[str]:
        taken = await self._look(lambda connection: connection.execute(f"{_SELECT} WHERE state = 'taken'").fetchall())

        def work(connection: sqlite3.Connection) -> list[str]:
            found: list[str] = []
            for one in [QueuedRun(*row) for row in taken]:
                lives = one.run_id in executing if one.worker == self._me() else self._place.is_alive(one.worker)
                statement = "UPDATE queue SET state = 'waiting', worker = '' WHERE run = ? AND worker = ? AND state = 'taken'"
                if not lives and connection.execute(statement, (one.run_id, one.worker)).rowcount:
                    found.append(one.run_id)
            return found

        return list(await self._writer.submit(work)) if taken else []

    async def withdraw(self, run_id: str) -> bool:
        if await self.find(run_id) is None:
            return False
        statement = "DELETE FROM queue WHERE run = ? AND state <> 'taken'"
        return bool(await self._writer.submit(lambda connection: connection.execute(statement, (run_id,)).rowcount))

    async def find(self, run_id: str) -> QueuedRun | None:
        rows = await self._look(lambda connection: connection.execute(f"{_SELECT} WHERE run = ?", (run_id,)).fetchall())
        return QueuedRun(*rows[0]) if rows else None

    async def count(self) -> Mapping[str, int]:
        query = "SELECT state, count(*) FROM queue GROUP BY state"
        return dict(await self._look(lambda connection: connection.execute(query).fetchall()))

    async def again(self, run_id: str) -> bool:
        if await self.find(run_id) is None:
            return False
        statement = "UPDATE queue SET state = 'waiting', attempts = 0, reason = ? WHERE run = ? AND state = 'set_aside'"
        changed = await self._writer.submit(lambda connection: connection.execute(statement, (AGAIN, run_id)).rowcount)
        self._news.tell()
        return bool(changed)

    async def entries(self, state: str, limit: int = 100) -> list[QueuedRun]:
        query = f"{_SELECT} WHERE state = ? ORDER BY number LIMIT ?"
        return [
            QueuedRun(*row) for row in await self._look(lambda connection: connection.execute(query, (state, limit)).fetchall())
        ]

    async def workers(self) -> list[WorkerInfo]:
        query = "SELECT worker, count(*) FROM queue WHERE state = 'taken' GROUP BY worker"
        busy = dict(await self._look(lambda connection: connection.execute(query).fetchall()))
        return [WorkerInfo(name, executing=busy.get(name, 0)) for name in await asyncio.to_thread(self._place.workers)]

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait(await self._news.version())

    async def _look(self, work: Callable[[sqlite3.Connection], list[Any]]) -> list[Any]:
        return list(await self._reader.transact(lambda connection: work(connection) if _is_there(connection) else []))


def _is_there(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'queue'").fetchone() is not None


def _is_due(connection: sqlite3.Connection) -> bool:
    """Return True if there is a run to take."""
    query = (
        "SELECT 1 FROM queue WHERE state = 'waiting' UNION ALL SELECT 1 FROM queue WHERE state = 'delayed' AND at <= ? LIMIT 1"
    )
    return _is_there(connection) and connection.execute(query, (time.time(),)).fetchone() is not None


def _candidates(connection: sqlite3.Connection, wanted: Wanted, count: int, turns: Turns) -> list[Candidate]:
    """Return the first runs of each key. The keys are found along the index, one after the other."""
    found, left = list[Candidate](), list[str]()
    for queue, agent in product(wanted.queues, wanted.agents):
        given: dict[str, Any] = {"queue": queue, "agent": agent, "key": turns.start, "most": count}
        (given["key"],) = connection.execute(f"{_KEYS} >= :key", given).fetchone()
        for _ in range(MOST_KEYS):
            if given["key"] is None:
                break
            found += [Candidate(*row) for row in connection.execute(_CANDIDATES, given)]
            (given["key"],) = connection.execute(f"{_KEYS} > :key", given).fetchone()
        left += [given["key"]] if given["key"] is not None else []
    turns.start = min(left, default="")
    return found
