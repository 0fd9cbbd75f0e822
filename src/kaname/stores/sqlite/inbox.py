"""Inbox in the journal's SQLite file. Its table is created with the first message."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any, cast

from ...core.codec import decode_body, encode_body
from ...core.errors import RunNotFound
from ...core.events import Interjected
from ...kernel.inbox.port import Sent, run_is_over
from ..news import News
from .file import JournalFile
from .reading import open_text
from .thread import SqliteThread

_TABLE = """
    CREATE TABLE IF NOT EXISTS inbox (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, thread TEXT, body TEXT NOT NULL
    )
"""
_INDEX = "CREATE INDEX IF NOT EXISTS inbox_by_run ON inbox (run)"
_LAST = "SELECT run, status FROM runs WHERE thread = ? ORDER BY place DESC LIMIT 1"
_UNDER_WAY = "status IN ('running', 'waiting')"  # as the file says it: an interrupted run is a running one without an owner
_LETTERS = f"""
    SELECT id, run, body FROM inbox AS letter WHERE run = :run OR (
        thread = (SELECT thread FROM runs WHERE run = :run)
        AND NOT EXISTS (SELECT 1 FROM runs AS other WHERE other.run = letter.run AND other.{_UNDER_WAY}))
    ORDER BY number
"""


class SqliteInbox:
    """`news`: tells when another process has written to the file."""

    def __init__(self, writer: SqliteThread, reader: SqliteThread, place: JournalFile, news: News) -> None:
        self._writer, self._reader, self._place, self._news = writer, reader, place, news

    async def put(self, run_id: str, said: Interjected) -> Sent:
        _, body = encode_body(said)

        def work(connection: sqlite3.Connection) -> Sent | None:
            row = connection.execute(f"SELECT thread, {_UNDER_WAY} FROM runs WHERE run = ?", (run_id,)).fetchone()
            if row is None:
                raise RunNotFound(run_id)
            thread, under_way = row
            if not under_way and thread is None:
                return None
            to = run_id
            if not under_way:
                to, status = connection.execute(_LAST, (thread,)).fetchone()
                under_way = status in ("running", "waiting")
            connection.execute(_TABLE)
            connection.execute(_INDEX)
            values = (said.id, to, thread, self._place.stored_text(connection, to, body, said.id))
            connection.execute("INSERT OR IGNORE INTO inbox (id, run, thread, body) VALUES (?, ?, ?, ?)", values)
            return Sent(to, bool(under_way))

        sent: Sent | None = await self._writer.submit(work)
        if sent is None:
            raise run_is_over(run_id)
        return sent

    async def letters(self, run_id: str, known: Collection[str] = (), *, wait: bool = False) -> list[Interjected]:
        def work(connection: sqlite3.Connection) -> list[Any]:
            return connection.execute(_LETTERS, {"run": run_id}).fetchall() if _exists(connection) else []

        while True:
            version = await self._news.version() if wait else 0
            rows = await self._reader.transact(work)
            texts = [open_text(self._place.path, run, body, id) for id, run, body in rows if id not in known]
            found = [cast(Interjected, decode_body(Interjected.__name__, text)) for text in texts if text]
            if found or not wait:
                return found
            await self._news.wait(version)


def _exists(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'inbox'").fetchone() is not None


def remove_messages(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    """Remove messages, because the same transaction records them."""
    if _exists(connection):
        connection.executemany("DELETE FROM inbox WHERE id = ?", [(one,) for one in ids])


def remove_letters(connection: sqlite3.Connection, runs: Sequence[str]) -> None:
    """Delete the messages to these runs."""
    if _exists(connection):
        connection.executemany("DELETE FROM inbox WHERE run = ?", [(one,) for one in runs])
