"""Convert a SQLite file: encrypt it, change its key, or decrypt it. Killed at any moment, the old or the new file is whole."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from ..errors import EncryptionError
from ..project import create_private, sync_folder
from . import keys
from .database import is_open_here, is_plain, open_database, require_cipher

UNFINISHED = ".converting"
_TIMEOUT = 2.0  # seconds to wait for other processes
_BLOCK = bytes(1 << 20)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
Rewrite = Callable[[sqlite3.Connection], None]


def convert(path: Path, old: keys.MasterKey | None, new: keys.MasterKey | None, rewrite: Rewrite | None = None) -> bool:
    """Convert a file from one key to another; None stands for a plain file. Return False if there was nothing to do.

    No process must use the file. The content of a plain file is overwritten once the encrypted one has taken its place.

    Args:
        path: The file.
        old: Its key now. If it has several, the one that opens the file is used.
        new: Its key afterwards; only the first one is used.
        rewrite: Is called with the new file before it takes the place of the old one.

    Raises:
        EncryptionError: Another process uses the file, or its key is another one.
    """
    require_cipher()
    if not path.exists() or path.stat().st_size == 0:
        return False
    if is_open_here(path):
        raise _in_use(path)
    unfinished = path.with_name(path.name + UNFINISHED)
    remove(unfinished)  # of a conversion that was interrupted
    used = _key_of(path, old)
    wanted = None if new is None else new.for_files()[0]
    if used == wanted:
        return False
    from .cipher import connect

    with closing(connect(str(path), used or "", _TIMEOUT)) as connection:
        try:
            was_wal = _take(connection)
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF in _BUSY:
                raise _in_use(path) from problem
            raise
        try:
            _export(connection, unfinished, wanted)
            with closing(connect(str(unfinished), wanted or "", _TIMEOUT)) as made:
                _finish(made, connection, rewrite, was_wal)
            _sync(unfinished)
        except BaseException:
            remove(unfinished)
            raise
        replace_file(path, unfinished, overwrite=used is None)
    return True


def replace_file(path: Path, new: Path, *, overwrite: bool = True) -> None:
    """Put another file in the place of a file, and overwrite what the old one held."""
    with path.open("r+b") as before:
        new.replace(path)
        sync_folder(path.parent)
        if overwrite:
            _overwrite(before)


def _key_of(path: Path, old: keys.MasterKey | None) -> str | None:
    """Return the key that opens the file, None for a plain one. Raises `EncryptionError` if there is none."""
    if is_plain(path):
        return None
    with closing(open_database(path, key=old)):  # says what is wrong, if no key opens it
        pass
    from .cipher import connect

    for one in old.for_files() if old is not None else ():
        with closing(connect(str(path), one, _TIMEOUT)) as connection:
            try:
                connection.execute("PRAGMA schema_version").fetchone()
            except sqlite3.DatabaseError:
                continue
            return one
    raise AssertionError("unreachable")


def _take(connection: sqlite3.Connection) -> bool:
    """Keep all other processes out until the connection is closed. Return True if the file had a write-ahead log."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("COMMIT")  # the lock stays
    return bool(mode == "wal")


def _export(connection: sqlite3.Connection, target: Path, key: str | None) -> None:
    create_private(target)
    (vacuum,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    secret = "''" if key is None else f"\"x'{key}'\""
    connection.execute(f"ATTACH DATABASE ? AS made KEY {secret}", (str(target),))
    try:
        connection.execute(f"PRAGMA made.auto_vacuum = {vacuum}")
        connection.execute("SELECT sqlcipher_export('made')").fetchall()
    finally:
        connection.execute("DETACH DATABASE made")


def _finish(made: sqlite3.Connection, old: sqlite3.Connection, rewrite: Rewrite | None, was_wal: bool) -> None:
    for name in ("application_id", "user_version"):  # an export leaves them out
        (value,) = old.execute(f"PRAGMA {name}").fetchone()
        made.execute(f"PRAGMA {name} = {value}")
    if rewrite is not None:
        made.execute("BEGIN IMMEDIATE")
        rewrite(made)
        made.execute("COMMIT")
        made.execute("VACUUM")
    (found,) = made.execute("PRAGMA quick_check").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(found)
    if was_wal:
        made.execute("PRAGMA journal_mode = WAL").fetchone()


def remove(path: Path) -> None:
    """Overwrite and delete a file, with the files that SQLite keeps next to it."""
    for ending in ("-wal", "-journal", "-shm", ""):
        one = path.with_name(path.name + ending)
        try:
            with one.open("r+b") as file:
                _overwrite(file)
        except FileNotFoundError:
            continue
        one.unlink(missing_ok=True)
    sync_folder(path.parent)


def _overwrite(file: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    while size > 0:
        size -= file.write(_BLOCK[:size])
    file.flush()
    os.fsync(file.fileno())


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _in_use(path: Path) -> EncryptionError:
    return EncryptionError.of(
        "encryption.in_use",
        "{path} is in use. Nothing was changed. Stop the programs that use it, then repeat the command.",
        path=path,
    )
