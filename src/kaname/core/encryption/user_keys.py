"""The key of each user: it encrypts what the journal records of them. Erasing a user destroys the key.

The keys are in a file of their own next to the journal, which is encrypted with the master key. Copies of the journal do not
contain them: without its key, what a copy holds of an erased user cannot be read any more.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ..errors import EncryptionError
from .database import SET_KEY, open_database
from .keys import files_of

SEALED = "\x02"  # how an encrypted text begins; no JSON and no title does
ID_LENGTH, _NONCE = 16, 12  # characters, bytes
_OURS = 0x6B6E6B79  # the application_id of these files
_SCHEMA = "CREATE TABLE IF NOT EXISTS keys (id TEXT PRIMARY KEY, owner TEXT NOT NULL, secret BLOB)"
_TIMEOUT = 30.0
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # the last: a table is missing
_UNKNOWN: Any = object()


class ErasedKey(EncryptionError):
    """The text belonged to a user who was erased. It cannot be read any more."""


class UserKey:
    """The key of one user. `id` names it in every text that it encrypts."""

    __slots__ = ("_cipher", "id")

    def __init__(self, id: str, secret: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.id, self._cipher = id, AESGCM(secret)

    def seal(self, text: str, place: str) -> str:
        """Encrypt a text for one place. It cannot be read at another place."""
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, text.encode("utf-8", "surrogatepass"), place.encode("utf-8", "surrogatepass"))
        return f"{SEALED}{self.id}{b64encode(nonce + sealed).decode()}"

    def unseal(self, text: str, place: str) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            data = b64decode(text[1 + ID_LENGTH :], validate=True)
            opened = self._cipher.decrypt(data[:_NONCE], data[_NONCE:], place.encode("utf-8", "surrogatepass"))
        except (InvalidTag, ValueError):
            raise EncryptionError.of(
                "encryption.tampered", "an encrypted text was changed or moved: {place!r}", place=place
            ) from None
        return opened.decode("utf-8", "surrogatepass")


class UserKeys:
    """The keys of the users of one journal. Several threads and processes can use them.

    `key`: the master key (default: the one that is set for the file).
    """

    def __init__(self, journal: Path, key: Any = SET_KEY) -> None:
        self.path, self._key = files_of(journal)[1], key
        self._lock = threading.Lock()
        self._known: dict[str, UserKey | None] = {}  # by id; None if it was destroyed
        self._db: sqlite3.Connection | None = None
        self._process = 0

    def of(self, user: str) -> UserKey:
        """Return the user's key. A user who has none gets one, which is on disk before it is returned.

        It is looked up each time: another process may have destroyed it.
        """
        with self._use() as db:
            query = "SELECT id, secret FROM keys WHERE owner = ? AND secret IS NOT NULL"
            row = db.execute(query, (user,)).fetchone()
            if row is None:
                db.execute("BEGIN IMMEDIATE")
                try:
                    row = db.execute(query, (user,)).fetchone()  # another process may have been first
                    if row is None:
                        row = secrets.token_hex(ID_LENGTH // 2), secrets.token_bytes(32)
                        db.execute("INSERT INTO keys VALUES (?, ?, ?)", (row[0], user, row[1]))
                finally:
                    db.execute("COMMIT")
            found = self._known.get(row[0])
            if found is None:
                found = self._known[row[0]] = UserKey(*row)
            return found

    def unseal(self, text: str, place: str) -> str:
        """Decrypt a text.

        Raises:
            ErasedKey: Its key was destroyed.
            EncryptionError: Its key is unknown, or the text was changed.
        """
        return self._key_of(text, place).unseal(text, place)

    def seal_like(self, before: str, text: str, place: str) -> str:
        """Encrypt a text with the key that another text was encrypted with."""
        return self._key_of(before, place).seal(text, place)

    def _key_of(self, text: str, place: str) -> UserKey:
        id = text[1 : 1 + ID_LENGTH]
        with self._lock:
            key: UserKey | None = self._known.get(id, _UNKNOWN)
        if key is _UNKNOWN:
            with self._use() as db:
                row = db.execute("SELECT secret FROM keys WHERE id = ?", (id,)).fetchone()
                if row is None:
                    raise EncryptionError.of(
                        "encryption.key_missing",
                        "the key that {place!r} was encrypted with is not in {path}. Restore this file from a backup.",
                        place=place,
                        path=self.path,
                    )
                key = self._known[id] = None if row[0] is None else UserKey(id, row[0])
        if key is None:
            raise ErasedKey.of("encryption.erased", "the user of {place!r} was erased: it cannot be read any more", place=place)
        return key

    def destroy(self, user: str) -> bool:
        """Destroy the keys of a user, for good. Return False if there were none."""
        with self._use() as db:
            gone = [id for (id,) in db.execute("SELECT id FROM keys WHERE owner = ?", (user,)).fetchall()]
            if gone:
                db.execute("UPDATE keys SET secret = NULL, owner = '' WHERE owner = ?", (user,))
                self._known |= dict.fromkeys(gone)
            return bool(gone)

    def owners(self) -> list[str]:
        """Return the users who have a key."""
        with self._use() as db:
            return [owner for (owner,) in db.execute("SELECT owner FROM keys WHERE secret IS NOT NULL ORDER BY owner")]

    def close(self) -> None:
        """Close the file and forget the keys. Both are read again with the next use."""
        with self._lock:
            self._known.clear()
            if self._db is not None and self._process == os.getpid():
                self._db.close()
            self._db = None

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """Hold the file. Raises `EncryptionError` if it is damaged; other errors of SQLite pass, such as those of a lock."""
        with self._lock:
            try:
                yield self._open()
            except sqlite3.DatabaseError as problem:
                if getattr(problem, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
                    raise
                raise EncryptionError.of(
                    "encryption.keys_damaged",
                    "{path} is damaged ({problem}), so the keys of users cannot be read. Nothing was changed. Restore this "
                    "file from a backup. The journal itself is a file of its own.",
                    path=self.path,
                    problem=problem,
                ) from problem

    def _open(self) -> sqlite3.Connection:
        if self._db is None or self._process != os.getpid():
            db = open_database(self.path, timeout=_TIMEOUT, create=True, key=self._key)
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA synchronous = FULL")
            if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                db.execute(_SCHEMA)
                db.execute(f"PRAGMA application_id = {_OURS}")
            self._db, self._process = db, os.getpid()
        return self._db


_shared: WeakValueDictionary[str, UserKeys] = WeakValueDictionary()
_sharing = threading.Lock()


def user_keys(journal: Path) -> UserKeys:
    """Return the keys of the users of a journal: one object a file."""
    found: Any = _shared.get(str(journal))  # a journal knows its real path, which is slow to find for every fact
    if found is not None:
        return found  # type: ignore[no-any-return]
    place = os.path.realpath(journal)
    with _sharing:
        found = _shared.get(place)
        if found is None:
            found = _shared[place] = UserKeys(Path(place))
        return found  # type: ignore[no-any-return]
