"""Pictures, sounds and files of runs: stored once by their SHA-256, in a SQLite file next to the journal.

A run can read only what it has stored itself: a hash that stands in its facts proves nothing.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ...core.encryption.database import SET_KEY, open_database
from ...core.encryption.keys import MasterKey, files_of, key_for
from ...core.encryption.user_keys import ErasedKey, UserKey, UserKeys, user_keys
from ...core.project import write_ahead
from ..media import Medium, StoredMedium, attach_media, detach_media

if TYPE_CHECKING:
    from typing import Any

_OURS = 0x6B6E6D64  # the application_id of these files
_ORPHANED = 86_400.0  # seconds after which a medium whose run never came into the journal is removed
_SCHEMA = (
    "CREATE TABLE media (id TEXT PRIMARY KEY, sealed INTEGER NOT NULL, content BLOB NOT NULL)",
    "CREATE TABLE uses (run TEXT NOT NULL, hash TEXT NOT NULL, id TEXT NOT NULL, mime TEXT NOT NULL, name TEXT NOT NULL, "
    "size INTEGER NOT NULL, time REAL NOT NULL, PRIMARY KEY (run, hash)) WITHOUT ROWID",
    "CREATE INDEX uses_by_id ON uses (id)",
)


class MediaFile:
    """The media of one journal. Several threads and processes can use it. The file is created with the first medium.

    `key`: the master key (default: the one that is set for the file).
    """

    def __init__(self, journal: Path, key: MasterKey | None = SET_KEY) -> None:
        self.journal, self.path, self._key = journal, files_of(journal)[2], key
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._process = 0
        self.max_bytes: int | None = None

    def detach(self, run: str, text: str, key: UserKey | None = None) -> str:
        """Store the media in a text, and return the text with their hashes instead. They are on disk when it returns.

        `key`: the key of the user, if the journal is encrypted.
        """
        changed, found = detach_media(text)
        if found:
            self._store(run, found, key)
        return changed

    def _store(self, run: str, found: Sequence[Medium], key: UserKey | None) -> None:
        with self._lock:
            db = self._open(create=True)
            assert db is not None
            db.execute("BEGIN IMMEDIATE")
            try:
                for hash, content, mime, name in found:
                    id = hash if key is None else f"{key.id}:{hash}"  # a user's media are sealed, and so stored for each user
                    if db.execute("SELECT 1 FROM media WHERE id = ?", (id,)).fetchone() is None:
                        held = content if key is None else _seal(key, content, id)
                        db.execute("INSERT INTO media VALUES (?, ?, ?)", (id, int(key is not None), held))
                    values = (run, hash, id, mime, name, len(content), time.time())
                    db.execute("INSERT OR IGNORE INTO uses VALUES (?, ?, ?, ?, ?, ?, ?)", values)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite has ended it when the file is full
                    db.execute("ROLLBACK")
                raise

    def attach(self, run: str, text: str) -> str:
        """Return the text with the media of the run in the places of their hashes. A medium that is gone becomes empty."""

        return attach_media(text, lambda hash: self.read(run, hash))

    def read(self, run: str, hash: str) -> bytes | None:
        """Return the content of a medium that the run has stored; None if it is not there, or its user was erased."""
        query = "SELECT id, sealed, content FROM media WHERE id = (SELECT id FROM uses WHERE run = ? AND hash = ?)"
        with self._lock:
            db = self._open()
            row = None if db is None else db.execute(query, (run, hash)).fetchone()
        if row is None or not row[1]:
            return None if row is None else bytes(row[2])
        try:
            return _unseal(user_keys(self.journal), bytes(row[2]), row[0])
        except ErasedKey:
            return None

    def of_run(self, run: str) -> list[StoredMedium]:
        """Return the media of a run."""
        with self._lock:
            db = self._open()
            query = "SELECT hash, mime, name, size FROM uses WHERE run = ? ORDER BY time, hash"
            return [] if db is None else [StoredMedium(*row) for row in db.execute(query, (run,))]

    def remove(self, runs: Iterable[str]) -> int:
        """Remove the media of these runs that no other run uses, and return the bytes. Removed content is overwritten."""
        with self._lock:
            db = self._open()
            if db is None:
                return 0
            db.execute("BEGIN IMMEDIATE")
            try:
                db.executemany("DELETE FROM uses WHERE run = ?", [(run,) for run in runs])
                unused = "FROM media WHERE id NOT IN (SELECT id FROM uses)"
                (freed,) = db.execute(f"SELECT ifnull(sum(length(content)), 0) {unused}").fetchone()
                if freed:
                    db.execute(f"DELETE {unused}")
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
            if freed:
                db.executescript("PRAGMA incremental_vacuum")  # `execute` would free a single page
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return int(freed)

    async def clear(self, runs: Sequence[str]) -> None:
        """Remove the media of deleted runs. After a crash before this, `sweep` removes them."""
        if runs and self.path.exists():
            await asyncio.to_thread(self.remove, runs)

    def sweep(self, exists: sqlite3.Connection) -> int:
        """Remove what a crash has left: media of runs that are not in the journal, which `exists` reads, after a day."""
        with self._lock:
            db = self._open()
            if db is None:
                return 0
            old = db.execute("SELECT DISTINCT run FROM uses WHERE time < ?", (time.time() - _ORPHANED,)).fetchall()
        known = "SELECT 1 FROM runs WHERE run = ?"
        gone = [run for (run,) in old if exists.execute(known, (run,)).fetchone() is None]
        return self.remove(gone) if gone else 0

    def copy(self, target: Path) -> None:
        """Copy the file, as it is at one moment, next to a copy of the journal."""
        with self._lock:
            db = self._open()
            if db is not None:
                place = files_of(target)[2]
                place.unlink(missing_ok=True)  # left over from a copy that was removed
                with open_database(place, create=True, key=key_for(self.path)) as other:
                    db.backup(other)
                other.close()

    def close(self) -> None:
        with self._lock:
            if self._db is not None and self._process == os.getpid():
                self._db.close()
            self._db = None

    __del__ = close

    def _open(self, *, create: bool = False) -> sqlite3.Connection | None:
        if self._db is not None and self._process == os.getpid() and self.path.exists():
            return self._db
        if not create and not self.path.exists():
            return None
        db = open_database(self.path, timeout=30.0, create=True, key=self._key)
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA secure_delete = ON")
        write_ahead(db, 30.0)
        db.execute("PRAGMA synchronous = FULL")
        _create(db)
        if self.max_bytes is not None:
            (page,) = db.execute("PRAGMA page_size").fetchone()
            db.execute(f"PRAGMA max_page_count = {max(1, self.max_bytes // page)}")
        self._db, self._process = db, os.getpid()
        return db


def _create(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {_OURS}")
    finally:
        db.execute("COMMIT")


def _seal(key: UserKey, content: bytes, place: str) -> bytes:
    return key.seal(b64encode(content).decode(), place).encode()


def _unseal(keys: UserKeys, held: bytes, place: str) -> bytes:
    return b64decode(keys.unseal(held.decode(), place))


def unseal_media(connection: sqlite3.Connection, keys: UserKeys) -> None:
    """Decrypt what is sealed with the keys of users, before a journal is stored without encryption."""
    for (id,) in connection.execute("SELECT id FROM media WHERE sealed").fetchall():
        (held,) = connection.execute("SELECT content FROM media WHERE id = ?", (id,)).fetchone()
        try:
            content: Any = _unseal(keys, bytes(held), id)
        except ErasedKey:
            connection.execute("DELETE FROM uses WHERE id = ?", (id,))
            connection.execute("DELETE FROM media WHERE id = ?", (id,))
            continue
        plain = id.partition(":")[2]
        connection.execute("INSERT OR IGNORE INTO media VALUES (?, 0, ?)", (plain, content))
        connection.execute("UPDATE uses SET id = ? WHERE id = ?", (plain, id))
        connection.execute("DELETE FROM media WHERE id = ?", (id,))


def seal_media(connection: sqlite3.Connection, keys: UserKeys, owners: dict[str, str]) -> None:
    """Seal the media of users' runs with their keys. `owners`: the users, by their runs."""
    uses = connection.execute("SELECT run, hash, id FROM uses").fetchall()
    for run, hash, id in uses:
        if not (user := owners.get(run, "")) or ":" in id:
            continue
        key = keys.of(user)
        sealed = f"{key.id}:{hash}"
        (held,) = connection.execute("SELECT content FROM media WHERE id = ?", (id,)).fetchone()
        content = _seal(key, bytes(held), sealed)
        connection.execute("INSERT OR IGNORE INTO media VALUES (?, 1, ?)", (sealed, content))
        connection.execute("UPDATE uses SET id = ? WHERE run = ? AND hash = ?", (sealed, run, hash))
    connection.execute("DELETE FROM media WHERE id NOT IN (SELECT id FROM uses)")


_shared: WeakValueDictionary[str, MediaFile] = WeakValueDictionary()
_sharing = threading.Lock()


def media_of(journal: Path) -> MediaFile:
    """Return the media of a journal: one object a file."""
    place = os.path.realpath(journal)
    with _sharing:
        found = _shared.get(place)
        if found is None:
            found = _shared[place] = MediaFile(Path(place))
        return found
