"""Run the statements of `stores/sql.py` in a PostgreSQL database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from ...core.runs import SHARED, RunInfo
from ..rows import ERASED_TEXT
from ..sql import Lock, Many, Steps
from .arrivals import INBOX
from .connections import Connection
from .media import remove_media
from .office import Office
from .owner import alive, describe_owner
from .procrastinate import TASK
from .writer import Settlement

T = TypeVar("T")
CARD_COLUMNS = ", ".join([f'r."{name}"' for name in ("run", *RunInfo.__match_args__[1:])])
_EXECUTES = re.compile(r"kaname\.executes\((\w+)\)")
_ALIVE = re.compile(r"kaname\.alive\(([\w.]+)\)")
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_ANONYMOUS = """
UPDATE kaname.runs SET "user" = $2, title = $3, session = CASE WHEN starts_with(session, $4) THEN session ELSE '' END
WHERE run = ANY($1::text[])
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(name, $2)) FROM unnest($1::text[]) AS name"


async def run(connection: Connection, office: Office, work: Callable[[], Steps[T]]) -> T:
    """Do the work on a connection, and return its result."""
    steps = work()
    try:
        step = next(steps)
        while True:
            rows: list[Any] = []
            if isinstance(step, Lock):
                await connection.fetch(_LOCK, [f"{office.sql.schema} {name}" for name in sorted(step.names)], step.space)
            elif isinstance(step, Many):
                await connection.executemany(office.sql(step.statement), step.rows)
            else:
                rows = await connection.fetch(*_for_postgres(office, *step))
            step = steps.send(rows)
    except StopIteration as done:
        return cast(T, done.value)


def _for_postgres(office: Office, statement: str, *values: Any) -> tuple[Any, ...]:
    """Return a statement for this schema, with the conditions in it that only this process can express."""
    if (found := _EXECUTES.search(statement)) is not None:
        row, me, held = found[1], f"${len(values) + 1}", f"${len(values) + 2}::text[]"
        lives = (
            f"CASE WHEN {row}.owner = {me} THEN {row}.run = ANY({held}) ELSE {alive(f'{row}.owner', office.address.ttl)} END"
        )
        statement = _EXECUTES.sub(f"({row}.owner IS NOT NULL AND {lives})", statement)
        values = (*values, office.me, office.held_runs())
    if "kaname.alive" in statement:
        statement = _ALIVE.sub(lambda match: alive(match[1], office.address.ttl), statement)
    return office.sql(statement.replace("kaname.now()", _NOW)), *values


class PostgresDatabase:
    card_columns = CARD_COLUMNS
    changed_since = "(r.ended >= {0} OR r.ended IS NULL AND r.status IN ('running', 'waiting'))"
    day = "floor((r.created - {}) / 86400)::int8"

    def __init__(self, office: Callable[[], Office]) -> None:
        self._office = office

    @property
    def me(self) -> str:
        return self._office().me

    async def read(self, work: Callable[[], Steps[T]], *, whole: bool = False) -> T:
        office = self._office()

        async def go(connection: Connection) -> T:
            if not whole:
                return await run(connection, office, work)
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await run(connection, office, work)

        return await office.read(go)

    async def write(self, work: Callable[[], Steps[T]]) -> T:
        office = self._office()

        async def go(connection: Connection) -> T:
            async with connection.transaction():
                return await run(connection, office, work)

        return await office.read(go)

    async def begin(self) -> None:
        await self._office().begin()

    def settle(self, holder: str, spent: Mapping[str, float]) -> None:
        """Write the settlement with the next facts, or before them. It is retried if the server is away."""
        self._office().put(Settlement(holder, dict(spent)))

    def card(self, row: Sequence[Any]) -> RunInfo:
        return RunInfo(*row)

    def describe(self, owner: str) -> str:
        return describe_owner(owner)

    def forget(self, runs: Sequence[str]) -> Steps[None]:
        yield from remove_media(runs)

    def erase_own(self, user: str, alias: str, needed: Sequence[str]) -> Steps[None]:
        yield _ANONYMOUS, list(needed), alias, ERASED_TEXT, SHARED
        yield from remove_media(needed)
        if (yield ("SELECT 1 FROM pg_class WHERE oid = to_regclass('procrastinate_jobs')",)):
            yield "DELETE FROM procrastinate_jobs WHERE task_name = $1 AND args->>'user' = $2", TASK, user

    def seal(self, user: str, text: str, place: str, run: str = "") -> str:
        return text

    def open(self, text: str, place: str, run: str = "") -> str:
        return text

    def plain_body(self, run: str, seq: int, kind: str, body: str) -> str | None:
        return body

    def stored_body(self, run: str, seq: int, kind: str, plain: str, before: str) -> str:
        return plain

    async def version(self) -> int:
        return 0

    async def tell_of_message(self, run_id: str) -> None:
        office = self._office()
        await office.ask(lambda: office.arrivals.tell_of_message(run_id))

    async def wait_for_message(self, run_id: str, last: int, version: int) -> None:
        office = self._office()
        await office.ask(lambda: office.arrivals.wait(INBOX + run_id, last), gives_up=True)

    async def tell_of_work(self) -> None:
        await self._office().tell_of_work()

    async def wait_for_work(self, seconds: float) -> None:
        office = self._office()
        await office.ask(lambda: office.arrivals.wait_for_work(seconds), gives_up=True)
