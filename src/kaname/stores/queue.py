"""Queue of runs in a database: its statements. Waiting runs are handed out in turns (`core/turns.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..core.runs import as_column
from ..core.turns import Turns
from ..kernel.stores import AGAIN, QueuedRun, Wanted, WorkerInfo
from .sql import Database, Steps

COLUMNS = 'run, agent, "order", session, "user", queue, key, priority, at, seq, attempts, state, coalesce(worker, \'\'), reason'
_PUT = """
INSERT INTO kaname.queue (run, agent, "order", session, "user", queue, key, priority, at, seq, thread, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, CASE WHEN $9 > kaname.now() THEN 'delayed' ELSE 'waiting' END)
ON CONFLICT (run) DO UPDATE SET state = 'waiting', seq = excluded.seq, attempts = 0, reason = ''
WHERE queue.state = 'set_aside' AND queue.seq <> excluded.seq RETURNING run
"""
_HAS_GONE_ON = "SELECT 1 FROM kaname.runs WHERE run = $1 AND seq > $2"
_MINE = "WHERE run = $1 AND worker = $2 AND state = 'taken' RETURNING run"
_FINISH = f"DELETE FROM kaname.queue {_MINE}"
_RETRY = f"""
UPDATE kaname.queue SET worker = '', reason = $4, attempts = attempts - ($4 = '')::int, at = kaname.now() + $3::float8,
    state = CASE WHEN $3::float8 > 0 THEN 'delayed' ELSE 'waiting' END {_MINE}
"""
_SET_ASIDE = f"""
UPDATE kaname.queue SET worker = '', state = 'set_aside', reason = $3,
    seq = coalesce((SELECT r.seq FROM kaname.runs AS r WHERE r.run = $1), 0) {_MINE}
"""
_RESCUE = """
UPDATE kaname.queue AS q SET worker = '', state = 'waiting' WHERE state = 'taken'
AND NOT CASE WHEN worker = $1 THEN run = ANY($2::text[]) ELSE kaname.alive(q.worker) END RETURNING run
"""
_WITHDRAW = "DELETE FROM kaname.queue WHERE run = $1 AND state <> 'taken' RETURNING run"
_AGAIN = """
UPDATE kaname.queue SET state = 'waiting', attempts = 0, reason = $2 WHERE run = $1 AND state = 'set_aside' RETURNING run
"""


class SqlQueue(ABC):
    """The queue in the table of a journal. How runs are taken depends on the database."""

    preparing: tuple[str, ...] = ()  # statements before runs are added

    def __init__(self, database: Database) -> None:
        self._database, self._turns = database, Turns()

    @property
    @abstractmethod
    def pace(self) -> float: ...

    @abstractmethod
    async def take(self, wanted: Wanted, count: int) -> list[QueuedRun]: ...

    @abstractmethod
    async def workers(self) -> list[WorkerInfo]: ...

    async def put(self, items: Sequence[QueuedRun]) -> list[str]:
        def work() -> Steps[list[str]]:
            for statement in self.preparing:
                yield (statement,)
            added: list[str] = []
            for one in items:
                if one.seq and (yield _HAS_GONE_ON, one.run_id, one.seq):  # since it was looked at: it may be over by now
                    continue
                added += [row[0] for row in (yield _PUT, *one[:8], float(one.at), one.seq, one.thread)]
            return added

        added = await self._database.write(work)
        if added:
            await self._database.tell_of_work()
        return added

    async def finish(self, run_id: str) -> bool:
        return bool(await self._change(_FINISH, run_id, self._database.me))

    async def retry(self, run_id: str, seconds: float = 0.0, reason: str = "") -> bool:
        changed = await self._change(_RETRY, run_id, self._database.me, float(seconds), as_column(reason))
        if changed and not seconds:
            await self._database.tell_of_work()
        return bool(changed)

    async def set_aside(self, run_id: str, reason: str) -> bool:
        return bool(await self._change(_SET_ASIDE, run_id, self._database.me, as_column(reason)))

    async def rescue(self, executing: Collection[str] = ()) -> list[str]:
        return await self._return_runs(_RESCUE, self._database.me, list(executing))

    async def withdraw(self, run_id: str) -> bool:
        return bool(await self._change(_WITHDRAW, run_id))

    async def again(self, run_id: str) -> bool:
        return bool(await self._return_runs(_AGAIN, run_id, AGAIN))

    async def find(self, run_id: str) -> QueuedRun | None:
        rows = await self._look(f"SELECT {COLUMNS} FROM kaname.queue WHERE run = $1", run_id)
        return QueuedRun(*rows[0]) if rows else None

    async def count(self) -> Mapping[str, int]:
        return dict(await self._look("SELECT state, count(*) FROM kaname.queue GROUP BY state"))

    async def entries(self, state: str, limit: int = 100) -> list[QueuedRun]:
        query = f"SELECT {COLUMNS} FROM kaname.queue WHERE state = $1 ORDER BY number LIMIT $2"
        return [QueuedRun(*row) for row in await self._look(query, state, limit)]

    async def wait(self, seconds: float) -> None:
        await self._database.wait_for_work(seconds)

    async def _return_runs(self, statement: str, *values: Any) -> list[str]:
        """Return runs to those that wait, and tell the workers."""
        runs = await self._change(statement, *values)
        if runs:
            await self._database.tell_of_work()
        return runs

    async def _change(self, statement: str, *values: Any) -> list[str]:
        """Change entries, and return their runs."""

        def work() -> Steps[list[str]]:
            return [row[0] for row in (yield statement, *values)]

        return await self._database.write(work)

    async def _look(self, query: str, *values: Any) -> list[Any]:
        def work() -> Steps[list[Any]]:
            return (yield query, *values)

        return await self._database.read(work)
