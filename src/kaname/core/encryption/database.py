"""The opener of kaname's SQLite files, plain or encrypted. Every file that holds words of users is opened here.

SQLCipher is another copy of SQLite. Two copies must never have one file open in the same process, because they would drop each
other's locks. A file that is open here in one form is therefore not opened in the other one.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from ..errors import EncryptionError
from ..install import install_command, this_command
from ..project import create_private
from . import keys

_HEADER = b"SQLite format 3\0"
_VARIED = 240  # different bytes in a page: an encrypted page has them all, a plain one is mostly zeros
SET_KEY: Any = object()  # the key that is set for the file


class PlainConnection(sqlite3.Connection):
    """A connection of `sqlite3` that can be observed."""

    __slots__ = ("__weakref__",)


_open_here: dict[str, WeakSet[Any]] = {}  # the connections of this process, by the real paths of their files


def open_database(
    path: Path, *, timeout: float = 5.0, create: bool = False, mode: str = "", key: keys.MasterKey | None = SET_KEY
) -> sqlite3.Connection:
    """Open one of kaname's SQLite files with the key that belongs to it (see `keys.key_for`), or as a plain file without one.

    Args:
        path: The file.
        timeout: Seconds to wait for the locks of other processes.
        create: Create a missing file so that only its user can read it.
        mode: Parameters of a URI, such as "mode=ro".
        key: The key to use instead; None for a plain file.

    Raises:
        EncryptionError: The key is missing or wrong, or the file is plain although there is a key. Nothing was changed.
        sqlite3.Error: As `sqlite3.connect` raises it.
    """
    used = keys.key_for(path) if key is SET_KEY else key
    _refuse_other_form(path, used)
    if used is not None:
        require_cipher()
    if create:
        create_private(path)
    address = f"file:{quote(str(path.resolve()))}?{mode}" if mode else str(path)
    made = (
        _open_plain(path, address, timeout, bool(mode))
        if used is None
        else _open_encrypted(path, address, used, timeout, bool(mode))
    )
    _open_here.setdefault(os.path.realpath(path), WeakSet()).add(made)
    return made


def _open_plain(path: Path, address: str, timeout: float, uri: bool) -> sqlite3.Connection:
    made = sqlite3.connect(
        address, timeout=timeout, isolation_level=None, check_same_thread=False, uri=uri, factory=PlainConnection
    )
    try:
        made.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as problem:
        if _is_unreadable(problem) and _looks_encrypted(path):
            made.close()
            raise _missing_key(path) from problem
    return made  # any other problem is met again, and explained, by the caller


def _open_encrypted(path: Path, address: str, key: keys.MasterKey, timeout: float, uri: bool) -> sqlite3.Connection:
    from .cipher import connect

    problem: sqlite3.DatabaseError | None = None
    for one in key.for_files():
        made: sqlite3.Connection = connect(address, one, timeout, uri)
        try:
            made.execute("PRAGMA schema_version").fetchone()
            return made
        except sqlite3.DatabaseError as found:
            made.close()
            if not _is_unreadable(found):
                raise
            problem = found
        except BaseException:
            made.close()
            raise
    raise (_plain_file(path, key) if is_plain(path) else _wrong_key(path, key)) from problem


def require_cipher() -> None:
    """Raise `EncryptionError` with the command that installs the packages, if they are missing."""
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
        import sqlcipher3.dbapi2  # noqa: F401
    except ImportError:
        raise EncryptionError.of(
            "encryption.not_installed",
            "encrypted files need packages that are not installed: {command}",
            command=install_command("encryption"),
        ) from None


def is_plain(path: Path) -> bool:
    """Return True if the file is a plain SQLite file."""
    known = _form_here(path)
    return not known if known is not None else _read(path, len(_HEADER)) == _HEADER


def _looks_encrypted(path: Path) -> bool:
    known = _form_here(path)
    return known if known is not None else len({*_read(path, 4096)}) >= _VARIED


def _read(path: Path, size: int) -> bytes:
    """Read the beginning of a file. Reading a file that is open here would drop the locks on it."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _is_unreadable(problem: sqlite3.DatabaseError) -> bool:
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_NOTADB


def _form_here(path: Path) -> bool | None:
    """Return True if the file is open here as an encrypted one, False if as a plain one, None if it is not open."""
    for connection in tuple(_open_here.get(os.path.realpath(path), ())):
        with suppress(sqlite3.Error):
            _ = connection.total_changes  # raises an error if the connection is closed
            return not isinstance(connection, PlainConnection)
    return None


def is_open_here(path: Path) -> bool:
    """Return True if this process has the file open."""
    return _form_here(path) is not None


def _refuse_other_form(path: Path, key: keys.MasterKey | None) -> None:
    known = _form_here(path)
    if known is not None and known != (key is not None):
        raise _missing_key(path) if key is None else _plain_file(path, key)


def _missing_key(path: Path) -> EncryptionError:
    return EncryptionError.of(
        "encryption.no_key",
        "{path} is encrypted, and no key is set. Nothing was changed. Set encryption: in kaname.yaml, {key_file} or {key}.",
        path=path,
        key_file=keys.KEY_FILE,
        key=keys.KEY,
    )


def _plain_file(path: Path, key: keys.MasterKey) -> EncryptionError:
    return EncryptionError.of(
        "encryption.plain",
        "{path} is not encrypted, but a key is set ({source}). Nothing was changed. Encrypt it with: {kaname} encrypt",
        path=path,
        source=key.source,
        kaname=this_command(),
    )


def _wrong_key(path: Path, key: keys.MasterKey) -> EncryptionError:
    return EncryptionError.of(
        "encryption.wrong_key",
        "{path} cannot be opened with the key from {source}: it was encrypted with another key, or it is damaged. "
        "Nothing was changed. Use the key that it was encrypted with, or restore a backup.",
        path=path,
        source=key.source,
    )
