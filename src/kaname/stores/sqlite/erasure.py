"""Erase a user from the files of a journal: the file itself, its media, and the copies that `backup` made of it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.encryption.database import open_database
from ...core.encryption.keys import key_for
from ...core.encryption.user_keys import UserKeys
from ...core.errors import AgentError
from ..erasing import Erased, erase, find_user
from .copies import copies_of, forget_copy
from .database import SqliteContent, run_steps
from .errors import explain
from .file import add_functions, connect, disconnect
from .media import MediaFile, media_of
from .schema import APPLICATION, MIGRATIONS

if TYPE_CHECKING:
    from .journal import SqliteJournal

_PATIENCE, _TRIES, _PAUSE = 5.0, 20, 0.1  # seconds, times, seconds


async def erase_user_from(journal: SqliteJournal, user: str) -> Erased:
    """Erase a user from a journal, and from the copies that were made of it. It can be repeated after an interruption.

    The rows and the user's key are gone in one transaction; then the files are rewritten, so that deleted text is in none.

    Raises:
        RunBusy: A process executes a run of the user. Nothing was erased.
    """
    database = journal.database
    runs = (await database.write(partial(find_user, database, user))).runs
    made = await database.transact(copies_of)
    await asyncio.to_thread(_erase_media, journal.path, made, runs)  # before the runs: after a crash, they are still found

    def work(connection: sqlite3.Connection) -> tuple[Erased, list[Path]]:
        done = run_steps(connection, partial(erase, database, user))
        copies = copies_of(connection)
        for path in [path for path in copies if not path.exists()]:
            forget_copy(connection, path)
        if database.keys is not None:
            database.keys.destroy(user)  # before the commit: no run of this user can begin meanwhile with the old key
        return done, [path for path in copies if path.exists()]

    done, copies = await database.transact(work)

    def finish() -> dict[str, str]:
        pending = dict(_rewrite(journal.path))
        for path in copies:
            pending |= dict(_erase_copy(path, journal.path, user, database.keys))
        return pending

    pending = await asyncio.to_thread(finish)
    reached = tuple([str(path) for path in copies if str(path) not in pending])
    return done._replace(copies=reached, pending=tuple(pending.items()))


def _erase_media(journal: Path, copies: Sequence[Path], runs: Sequence[str]) -> None:
    """Erase the pictures and other media of runs, next to the journal and next to its copies."""
    media_of(journal).remove(runs)
    for path in copies:
        beside = MediaFile(path, key_for(journal))
        try:
            beside.remove(runs)
        finally:
            beside.close()


def _rewrite(path: Path) -> Iterable[tuple[str, str]]:
    """Rewrite the file without what was deleted, and empty its log. Yield the file and the reason, if that is not possible."""
    connection = connect(path, patience=_PATIENCE)
    try:
        yield from vacuum(connection, path)
    finally:
        disconnect(connection, path)


def vacuum(connection: sqlite3.Connection, path: Path) -> Iterable[tuple[str, str]]:
    """Rewrite a file without its deleted content, and empty its log. Yield the file and the reason, if that is not possible."""
    try:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("VACUUM")
        for _ in range(_TRIES):
            (busy, *_rest) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return
            time.sleep(_PAUSE)
        yield str(path), "in use"
    except sqlite3.OperationalError as problem:
        yield str(path), str(problem)


def _erase_copy(path: Path, journal: Path, user: str, keys: UserKeys | None) -> Iterable[tuple[str, str]]:
    """Erase the user from a copy of the journal."""
    try:
        with closing(open_database(path, timeout=_PATIENCE, key=key_for(journal))) as connection:
            marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            if marks != [APPLICATION, len(MIGRATIONS)]:
                yield str(path), json.dumps(marks)
                return
            connection.execute("PRAGMA secure_delete = ON")
            add_functions(connection, executes=lambda run, owner: False, alive=lambda owner: False)
            connection.execute("BEGIN IMMEDIATE")
            run_steps(connection, partial(erase, SqliteContent(journal, keys), user))
            connection.execute("COMMIT")
            yield from vacuum(connection, path)
    except AgentError as problem:
        yield str(path), str(problem)
    except (sqlite3.Error, OSError) as problem:
        yield str(path), str(explain(problem, path))
