"""Queue of runs in the tables of Procrastinate 3.10, so that its tools show them. Its functions are called on our connection.

Four things are ours: a job is ended only by the worker that has it; jobs of silent workers are returned to the queue; runs that
were interrupted outside of the queue are put into it by the worker; and a delayed job does not hold up its conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...core.errors import ConfigError
from ...core.install import install_command
from ...core.runs import as_column
from ...kernel.stores import AGAIN, QueuedRun, QueueState, Wanted, WorkerInfo
from .connections import Connection
from .office import Office

TASK = "kaname:run"
_THERE = """
SELECT (SELECT 1 FROM pg_proc WHERE proname = 'procrastinate_fetch_job_v2' LIMIT 1),
    (SELECT 1 FROM pg_class WHERE relname = 'procrastinate_jobs' LIMIT 1)
"""
_INDEX = """
CREATE INDEX IF NOT EXISTS kaname_locks ON procrastinate_jobs (lock, status, priority DESC, id)
WHERE status IN ('todo', 'doing') AND lock IS NOT NULL
"""
_PUT = """
SELECT procrastinate_defer_jobs_v1(ARRAY[ROW($1::varchar, $2::varchar, $3::int,
    CASE WHEN $7::float8 > 0 THEN $5 ELSE $4::text END, $5::text, $6::jsonb,
    CASE WHEN $7::float8 > 0 THEN to_timestamp($7::float8) END)::procrastinate_job_to_defer_v1])
WHERE NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = $5 AND task_name = $2
    AND status IN ('todo', 'doing', 'failed'))
"""
_AGAIN = """
UPDATE procrastinate_jobs SET status = 'todo', attempts = 0, args = args || jsonb_build_object('seq', $3::int8, 'reason', '')
WHERE queueing_lock = $1 AND task_name = $2 AND status = 'failed' AND (args->>'seq')::int8 <> $3::int8 RETURNING id
"""
_MINE = f"WHERE queueing_lock = $1 AND worker_id = $2 AND status = 'doing' AND task_name = '{TASK}'"
_RETRY = f"""
UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, attempts = attempts + ($4 <> '')::int,
    args = args || jsonb_build_object('reason', $4::text), lock = CASE WHEN $3::float8 > 0 THEN $1 ELSE args->>'thread' END,
    scheduled_at = CASE WHEN $3::float8 > 0 THEN clock_timestamp() + $3::float8 * interval '1 second' END {_MINE}
"""
_SET_ASIDE = f"""
UPDATE procrastinate_jobs SET status = 'failed', worker_id = NULL,
    args = args || jsonb_build_object('reason', $3::text, 'seq',
        coalesce((SELECT seq FROM kaname.runs WHERE run = args->>'run_id'), 0)) {_MINE}
"""
_RESCUE = f"""
UPDATE procrastinate_jobs AS j SET status = 'todo', worker_id = NULL, attempts = attempts + 1, scheduled_at = NULL
WHERE task_name = '{TASK}' AND status = 'doing' AND starts_with(queue_name, $1) AND CASE WHEN worker_id = $2
    THEN args->>'run_id' <> ALL($3::text[]) ELSE NOT EXISTS (SELECT 1 FROM procrastinate_workers AS w WHERE w.id = j.worker_id
        AND w.last_heartbeat > now() - $4::float8 * interval '1 second') END RETURNING args->>'run_id'
"""
_STATE = """
CASE WHEN status = 'todo' AND scheduled_at > now() THEN 'delayed' WHEN status = 'todo' THEN 'waiting'
    WHEN status = 'doing' THEN 'taken' ELSE 'set_aside' END
"""
_WORKERS = """
SELECT id::text, extract(epoch FROM last_heartbeat)::float8, (SELECT count(*) FROM procrastinate_jobs AS j
    WHERE j.worker_id = w.id AND j.status = 'doing' AND starts_with(j.queue_name, $1))
FROM procrastinate_workers AS w WHERE last_heartbeat > now() - $2::float8 * interval '1 second' ORDER BY id
"""
_JOB = f"args::text, queue_name, priority, attempts, coalesce(worker_id::text, ''), {_STATE}"


class ProcrastinateQueue:
    def __init__(self, office: Callable[[], Office]) -> None:
        self._office = office
        self._worker = 0
        self._is_ready = False

    @property
    def pace(self) -> float:
        return self._office().address.ttl / 4

    def _prefix(self) -> str:
        return f"kaname/{self._office().sql.schema}/"

    def _name(self, queue: str, agent: str) -> str:
        return f"{self._prefix()}{queue}/{agent}"[:128]

    async def _do(self, work: Callable[[Connection], Any]) -> Any:
        """Do the work. The tables are created before the first."""

        async def go(connection: Connection) -> Any:
            if not self._is_ready:
                await _prepare(connection)
                self._is_ready = True
            return await work(connection)

        return await self._office().read(go)

    async def put(self, items: Sequence[QueuedRun]) -> list[str]:
        async def work(connection: Connection) -> list[str]:
            return [one.run_id for one in items if await self._put(connection, one)]

        added: list[str] = await self._do(work)
        if added:
            await self._office().tell_of_work()
        return added

    async def _put(self, connection: Connection, one: QueuedRun) -> bool:
        import asyncpg

        lock, thread = self._prefix() + one.run_id, self._prefix() + (one.thread or one.run_id)
        if await connection.fetchval(_AGAIN, lock, TASK, one.seq) is not None:
            return True
        args = json.dumps({**one._asdict(), "thread": thread})
        values = (self._name(one.queue, one.agent), TASK, one.priority, thread, lock, args, one.at)
        try:
            return bool(await connection.fetchval(_PUT, *values))
        except asyncpg.UniqueViolationError:  # another process has queued it in this moment
            return False

    async def take(self, wanted: Wanted, count: int) -> list[QueuedRun]:
        if wanted.per_key:
            raise ConfigError.of("queue.no_keys", "the queue of Procrastinate has no limits per key (per_key)")
        names = [self._name(queue, agent) for queue in wanted.queues for agent in wanted.agents]

        self._office().check_version()

        async def work(connection: Connection) -> list[QueuedRun]:
            worker = await self._beat(connection)
            found: list[QueuedRun] = []
            while len(found) < count:
                row = await connection.fetchrow(
                    f"SELECT {_JOB} FROM procrastinate_fetch_job_v2($1, $2) WHERE id > 0", names, worker
                )
                if row is None:
                    break
                found.append(_item(row))
            return found

        return list(await self._do(work))

    async def _beat(self, connection: Connection) -> int:
        """Renew the heartbeat of this worker, and return its number. A worker that was removed as dead registers again."""
        alive = "UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = $1 RETURNING id"
        if not self._worker or await connection.fetchval(alive, self._worker) is None:
            self._worker = await connection.fetchval("SELECT worker_id FROM procrastinate_register_worker_v1()")
        return self._worker

    async def finish(self, run_id: str) -> bool:
        return await self._change(f"DELETE FROM procrastinate_jobs {_MINE}", run_id)

    async def retry(self, run_id: str, seconds: float = 0.0, reason: str = "") -> bool:
        changed = await self._change(_RETRY, run_id, float(seconds), as_column(reason))
        if changed and not seconds:
            await self._office().tell_of_work()
        return changed

    async def set_aside(self, run_id: str, reason: str) -> bool:
        return await self._change(self._office().sql(_SET_ASIDE), run_id, as_column(reason))

    async def _change(self, statement: str, run_id: str, *values: Any) -> bool:
        """Change the job of a run, if it is still this worker's."""

        async def work(connection: Connection) -> bool:
            return str(await connection.execute(statement, self._prefix() + run_id, self._worker, *values)).endswith(" 1")

        return bool(await self._do(work))

    async def rescue(self, executing: Collection[str] = ()) -> list[str]:
        ttl, ours = self._office().address.ttl, self._prefix()

        async def work(connection: Connection) -> list[str]:
            worker = await self._beat(connection)
            return [row[0] for row in await connection.fetch(_RESCUE, ours, worker, list(executing), ttl)]

        found: list[str] = await self._do(work)
        if found:
            await self._office().tell_of_work()
        return found

    async def withdraw(self, run_id: str) -> bool:
        query = f"DELETE FROM procrastinate_jobs WHERE queueing_lock = $1 AND task_name = '{TASK}' "
        query += "AND status IN ('todo', 'failed') RETURNING id"
        return await self._do(lambda connection: connection.fetchval(query, self._prefix() + run_id)) is not None

    async def find(self, run_id: str) -> QueuedRun | None:
        query = f"SELECT {_JOB} FROM procrastinate_jobs WHERE queueing_lock = $1 AND task_name = '{TASK}'"
        row = await self._do(lambda connection: connection.fetchrow(query, self._prefix() + run_id))
        return None if row is None else _item(row)

    async def count(self) -> Mapping[str, int]:
        query = f"SELECT {_STATE}, count(*) FROM procrastinate_jobs WHERE starts_with(queue_name, $1) GROUP BY 1"
        return dict(await self._do(lambda connection: connection.fetch(query, self._prefix())))

    async def again(self, run_id: str) -> bool:
        statement = "UPDATE procrastinate_jobs SET status = 'todo', attempts = 0, args = args || jsonb_build_object('reason', "
        statement += f"$2::text) WHERE queueing_lock = $1 AND task_name = '{TASK}' AND status = 'failed' RETURNING id"
        found = await self._do(lambda connection: connection.fetchval(statement, self._prefix() + run_id, AGAIN))
        if found is not None:
            await self._office().tell_of_work()
        return found is not None

    async def entries(self, state: str, limit: int = 100) -> list[QueuedRun]:
        query = f"SELECT {_JOB} FROM procrastinate_jobs WHERE starts_with(queue_name, $1) AND {_STATE} = $2 "
        query += "ORDER BY id LIMIT $3"
        rows = await self._do(lambda connection: connection.fetch(query, self._prefix(), state, limit))
        return [_item(row) for row in rows]

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers of the database: Procrastinate does not say which journal they serve."""
        ttl = self._office().address.ttl
        rows = await self._do(lambda connection: connection.fetch(_WORKERS, self._prefix(), ttl))
        return [WorkerInfo(*row) for row in rows]

    async def wait(self, seconds: float) -> None:
        office = self._office()
        await office.ask(lambda: office.arrivals.wait_for_work(seconds), gives_up=True)


def _item(row: Any) -> QueuedRun:
    args, _, priority, attempts, worker, state = row
    given: dict[str, Any] = {name: value for name, value in json.loads(args).items() if name in QueuedRun._fields}
    named: QueueState = state
    return QueuedRun(
        **{**given, "priority": priority, "attempts": attempts + (state == "taken"), "worker": worker, "state": named}
    )


async def _prepare(connection: Connection) -> None:
    """Create the tables of Procrastinate, if they are missing, and check that they are of the version that is known here."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('kaname procrastinate', 0))")
        fetches, jobs = await connection.fetchrow(_THERE)
        if jobs is None:
            try:
                from procrastinate.schema import SchemaManager
            except ImportError as problem:
                command = install_command("cluster")
                raise ConfigError.of(
                    "queue.extra", "procrastinate is not installed. Install it with: {command}", command=command
                ) from problem
            await connection.execute(SchemaManager.get_schema())
        elif fetches is None:
            raise ConfigError.of("queue.procrastinate", "the tables of Procrastinate in this database are not of version 3.10")
        await connection.execute(_INDEX)
