"""Run the statements of `stores/sql.py` in the journal's SQLite file."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...core.runs import RunInfo
from ..media import MARK
from ..news import News
from ..rows import CARD, ERASED_TEXT, row_sum
from ..sql import Lock, Many, Steps
from .file import JournalFile
from .media import media_of
from .reading import CARD_ROW, SEALED, SELECT_CARD, at_one_moment, card_of, open_text
from .schema import ON_DEMAND
from .thread import SqliteThread

if TYPE_CHECKING:
    from ...core.encryption.user_keys import UserKeys

T = TypeVar("T")
_REWRITTEN = (
    (re.compile(r"<> ALL\((\$\d+)::text\[\]\)"), r"NOT IN (SELECT value FROM json_each(\1))"),
    (re.compile(r"= ANY\((\$\d+)::text\[\]\)"), r"IN (SELECT value FROM json_each(\1))"),
    (re.compile(r"kaname\.executes\((\w+)\)"), r"executes(\1.run, \1.owner)"),
    (re.compile(r"\bkaname\.| FOR UPDATE|::\w+"), ""),
    (re.compile(r"/\*\+\*/"), "+"),
    (re.compile(r"\bgreatest\("), "max("),
    (re.compile(r"\$(\d)"), r"?\1"),
)


@cache
def for_sqlite(statement: str) -> str:
    """Return a statement as SQLite understands it."""
    for pattern, text in _REWRITTEN:
        statement = pattern.sub(text, statement)
    return statement


def run_steps(connection: sqlite3.Connection, work: Callable[[], Steps[T]]) -> T:
    """Do the work on a connection, and return its result."""
    steps, rows = work(), list[Any]()
    try:
        step = next(steps)
        while True:
            if isinstance(step, Many):
                rows = _on_demand(connection, step.statement, lambda text, many=step: connection.executemany(text, many.rows))  # type: ignore[misc]
            elif not isinstance(step, Lock):
                values = [json.dumps(value) if isinstance(value, list) else value for value in step[1:]]
                rows = _on_demand(connection, step[0], lambda text, given=values: connection.execute(text, given))  # type: ignore[misc]
            step = steps.send(rows)
    except StopIteration as done:
        return cast(T, done.value)


def _on_demand(connection: sqlite3.Connection, statement: str, execute: Callable[[str], sqlite3.Cursor]) -> list[Any]:
    """Execute a statement. A table that not every journal needs is created with its first row, and empty before."""
    text = for_sqlite(statement)
    try:
        return execute(text).fetchall()
    except sqlite3.OperationalError as problem:
        missing = str(problem).rpartition("no such table: ")[2].removeprefix("main.")
        if missing not in ON_DEMAND:
            raise
    if not text.lstrip().startswith("INSERT"):
        return []
    for script in ON_DEMAND[missing]:
        connection.execute(script)
    return execute(text).fetchall()


def rewrite_card(run: str, **changes: str) -> Steps[None]:
    """Change columns of a run's entry. One that does not match its checksum stays as it is."""
    for row in (yield f"{SELECT_CARD} WHERE run = $1", run):
        if row_sum(*row[:-1]) == row[-1]:
            values = dict(zip((*CARD, "place"), row[:-1], strict=True)) | changes
            names = ", ".join([f"{name} = ${number}" for number, name in enumerate([*changes, "sum"], 2)])
            yield f"UPDATE runs SET {names} WHERE run = $1", run, *changes.values(), row_sum(*values.values())


class SqliteContent:
    """The content of a journal's file, or of a copy of it. `keys`: of the users, if the file is encrypted."""

    card_columns = ", ".join([f"r.{name}" for name in CARD_ROW.split(", ")])
    changed_since = (
        "r.run IN (SELECT run FROM runs WHERE updated >= {} AND status NOT IN ('running', 'waiting') "
        "UNION ALL SELECT run FROM runs WHERE status IN ('running', 'waiting'))"
    )
    day = "cast((r.created - {}) / 86400 AS INTEGER)"

    def __init__(self, path: Path, keys: UserKeys | None) -> None:
        self.path, self._keys = path, keys

    @property
    def keys(self) -> UserKeys | None:
        return self._keys

    def card(self, row: Sequence[Any]) -> RunInfo:
        return card_of(tuple(row), self.path)

    def describe(self, owner: str) -> str:
        process = owner.split("-")[0]
        return "this process" if process == str(os.getpid()) else f"process {process}"

    def forget(self, runs: Sequence[str]) -> Steps[None]:
        """Delete the moves of these runs. The very last one stays, without its run, so that its number is not used again."""
        ((top,),) = yield ("SELECT coalesce(max(place), 0) FROM moves",)
        for run in runs:
            ((place, seq),) = yield "SELECT place, seq FROM kaname.runs WHERE run = $1", run
            reached = "SELECT place FROM moves WHERE place >= $1 AND run = $2 AND last = $3 ORDER BY place LIMIT 1"
            until = f"coalesce(({reached}), $4)"
            yield f"DELETE FROM moves WHERE place BETWEEN $1 AND {until} AND run = $2 AND place <> $4", place, run, seq, top
            yield "UPDATE moves SET run = '' WHERE place = $1 AND run = $2", top, run

    def erase_own(self, user: str, alias: str, needed: Sequence[str]) -> Steps[None]:
        for run in needed:
            yield from rewrite_card(run, user=alias, title=ERASED_TEXT)

    def seal(self, user: str, text: str, place: str, run: str = "") -> str:
        key = self.keys.of(user) if self.keys is not None and user else None
        if run and MARK in text:
            text = media_of(self.path).detach(run, text, key)
        return text if key is None else key.seal(text, place)

    def open(self, text: str, place: str, run: str = "") -> str:
        return open_text(self.path, run, text, place)

    def plain_body(self, run: str, seq: int, kind: str, body: str) -> str | None:
        if self.keys is None or not body.startswith(SEALED):
            return body
        return open_text(self.path, "", body, f"{run} {seq} {kind}") or None

    def stored_body(self, run: str, seq: int, kind: str, plain: str, before: str) -> str:
        if self.keys is None or not before.startswith(SEALED):
            return plain
        return self.keys.seal_like(before, plain, f"{run} {seq} {kind}")


class SqliteDatabase(SqliteContent):
    """`is_alone`: returns True if no other run of this process writes to the journal."""

    def __init__(
        self, writer: SqliteThread, reader: SqliteThread, place: JournalFile, news: News, is_alone: Callable[[], bool]
    ) -> None:
        self._writer, self._reader, self._place, self._news, self._is_alone = writer, reader, place, news, is_alone
        self.path = place.path

    @property
    def keys(self) -> UserKeys | None:
        return self._place.keys

    @property
    def me(self) -> str:
        """Return the name of this process in the file; "" before the thread that writes has entered it."""
        return "" if self._place.owner is None else self._place.owner.name

    async def read(self, work: Callable[[], Steps[T]], *, whole: bool = False) -> T:
        def go(connection: sqlite3.Connection) -> T:
            with at_one_moment(connection) if whole else nullcontext():
                return run_steps(connection, work)

        done: T = await self._reader.transact(go)
        return done

    async def write(self, work: Callable[[], Steps[T]]) -> T:
        done: T = await self._writer.transact(lambda connection: run_steps(connection, work), alone=self._is_alone())
        return done

    async def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work of this database alone, in a transaction."""
        done: T = await self._writer.transact(work)
        return done

    async def begin(self) -> None:
        """Do nothing: the thread that writes has entered this process."""

    def settle(self, holder: str, spent: Mapping[str, float]) -> None:
        """Write the settlement with the next fact, or before it. It is retried if the disk cannot write now."""

        def work() -> Steps[None]:
            yield "DELETE FROM kaname.reservations WHERE holder = $1", holder
            add = "INSERT INTO kaname.accounts VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET spent = spent + excluded.spent"
            yield Many(add, list(spent.items()))

        self._writer.submit(lambda connection: run_steps(connection, work), insisting=True, joins=True)

    async def version(self) -> int:
        return await self._news.version()

    async def tell_of_message(self, run_id: str) -> None:
        """Do nothing: a change of the file is news."""

    async def wait_for_message(self, run_id: str, last: int, version: int) -> None:
        await self._news.wait(version)

    async def tell_of_work(self) -> None:
        self._news.tell()

    async def wait_for_work(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait(await self._news.version())
