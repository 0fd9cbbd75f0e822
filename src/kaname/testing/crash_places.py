"""Where the journals of a crash check are: a SQLite file for each run, or a schema in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from ..core.codec import encode
from ..core.errors import RunBusy
from ..stores.default import choose
from ..stores.places import is_server
from ..stores.sqlite import reading

T = TypeVar("T")
_PATIENCE, _PAUSE = 30.0, 0.05  # seconds
_SCHEMA = "crash_check"


def place_for(order: dict[str, Any], folder: Path) -> str:
    """Return the place of the journal for the runs of that folder."""
    if not order.get("journal"):
        return str(folder / "journal.db")
    name = re.sub(r"\W", "_", f"{_SCHEMA}_{Path(order['folder']).name[-8:]}_{folder.name}".lower())[:40]
    return f"{order['journal']}{'&' if '?' in order['journal'] else '?'}schema={name}"


def facts_at(place: str, run_id: str) -> list[str]:
    """Return the facts of a run. The connection is closed again, because this process must be able to fork."""
    if is_server(place):
        return list(in_child(lambda: asyncio.run(_read(place, run_id))))
    file = Path(place)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone():
            return []
        last = reading.last_fact(connection, run_id, file)
        return [encode(event) for event in reading.facts(connection, run_id, 0, last, file)]


async def _read(place: str, run_id: str) -> list[str]:
    journal = choose(place)
    try:
        return [encode(event) async for event in journal.read(run_id)]
    finally:
        await journal.close()


async def when_free(place: str, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work. In a database a killed process counts as alive for a while: wait until its run is free."""
    until = time.monotonic() + (_PATIENCE if is_server(place) else 0.0)
    while True:
        try:
            return await work()
        except RunBusy:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(_PAUSE)


def in_child(work: Callable[[], Any]) -> Any:
    """Do the work in a child process and return its result. Threads and event loops would keep this process from forking."""
    answer, told = os.pipe()
    if (child := os.fork()) == 0:
        try:
            with os.fdopen(told, "w") as file:
                json.dump(work(), file)
        finally:
            os._exit(0)
    os.close(told)
    with os.fdopen(answer) as file:
        said = file.read()
    os.waitpid(child, 0)
    return json.loads(said)


def drop_schemas(order: dict[str, Any]) -> None:
    """Remove the schemas that the check has created in the database."""
    if order.get("journal"):
        in_child(lambda: asyncio.run(_drop(order["journal"], f"{_SCHEMA}_{Path(order['folder']).name[-8:]}_".lower())))


async def _drop(url: str, starting: str) -> None:
    import asyncpg

    from ..stores.postgres.address import parse_address

    connection = await asyncpg.connect(parse_address(url).url)
    try:
        for (name,) in await connection.fetch("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, $1)", starting):
            await connection.execute(f'DROP SCHEMA "{name}" CASCADE')
    finally:
        await connection.close()
