"""Encrypt all files of a project, change their key, or decrypt them. It can be repeated after an interruption."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from ...core.encryption.conversion import convert, remove
from ...core.encryption.database import is_plain, open_database
from ...core.encryption.keys import MasterKey, add_new_key, drop_old_keys, files_of
from ...core.encryption.user_keys import UserKeys
from ...core.errors import EncryptionError
from ...core.install import this_command
from ...stores.sqlite.copies import copies_of
from ...stores.sqlite.media import seal_media, unseal_media
from ...stores.sqlite.rewriting import seal_all, unseal_all
from ..files import MemoryFiles, Owner
from .places import DataPlaces


def encrypt_files(places: DataPlaces, key: MasterKey) -> Iterator[Path]:
    """Encrypt every file that is plain, and yield each that was converted. No program must use the files meanwhile.

    Raises:
        EncryptionError: A file is in use, or was encrypted with another key. The files before it are converted.
    """
    yield from _each(places, key, key.current())


def decrypt_files(places: DataPlaces, key: MasterKey) -> Iterator[Path]:
    """Decrypt every file, and yield each that was converted. The keys of the users are removed at the end."""
    yield from _each(places, key, None)
    if places.journal is not None and (kept := files_of(places.journal)[1]).exists():
        remove(kept)


def rotate_key(places: DataPlaces, key: MasterKey) -> Iterator[Path]:
    """Encrypt every file with a new key, and yield each. Both keys are in the key file until all files are converted.

    Raises:
        EncryptionError: A file is in use, or the key is not in a file and there is no second one yet.
    """
    if key.count == 1:
        if key.file is None:
            raise EncryptionError.of(
                "encryption.rotate_source",
                "the key comes from {source}, which kaname cannot change. Put a new key before the old one there, with a "
                "space between them, run {kaname} encrypt --rotate, then remove the old one.",
                source=key.source,
                kaname=this_command(),
            )
        key = add_new_key(key)
    yield from _each(places, key, key.current())
    if key.file is not None:
        drop_old_keys(key)


def _each(places: DataPlaces, old: MasterKey, new: MasterKey | None) -> Iterator[Path]:
    copies = [] if places.journal is None else _copies(places.journal, old)
    beside = [path for one in copies if (path := files_of(one)[2]).is_file()]  # before the copies, which say whose they are
    for path in [*places.databases(), *beside, *copies]:
        if places.memory is not None and path.parent == places.memory:
            path = _rename(path, old, hidden=new is not None)
        if places.journal is not None and path in (places.journal, *copies):
            done = _convert_journal(path, places.journal, old, new)
        elif new is None and places.journal is not None and path == files_of(places.journal)[1]:
            continue  # it is still needed to decrypt the journal
        elif places.journal is not None and path in (files_of(places.journal)[2], *beside):
            done = _convert_media(path, places.journal, old, new)
        else:
            done = convert(path, old, new)
        if done:
            yield path


def _convert_journal(path: Path, journal: Path, old: MasterKey, new: MasterKey | None) -> bool:
    """Convert a journal or its copy: rows of users are sealed with their keys, or unsealed."""
    keys, rewrite = UserKeys(journal, new or old), None
    if new is None:
        rewrite = partial(unseal_all, keys=keys)
    elif is_plain(path):
        rewrite = partial(seal_all, keys=keys)
    try:
        return convert(path, old, new, rewrite)
    finally:
        keys.close()


def _convert_media(path: Path, journal: Path, old: MasterKey, new: MasterKey | None) -> bool:
    """Convert the media of a journal or of its copy: what belongs to users is sealed with their keys, or unsealed."""
    keys, owner = UserKeys(journal, new or old), path.with_name(path.name.removesuffix("-media"))
    try:
        if new is None:
            return convert(path, old, new, partial(unseal_media, keys=keys))
        if not is_plain(path):
            return convert(path, old, new)
        with closing(open_database(owner, key=None if is_plain(owner) else old)) as connection:
            owners = dict(connection.execute("SELECT run, user FROM runs WHERE user <> ''").fetchall())
        return convert(path, old, new, partial(seal_media, keys=keys, owners=owners))
    finally:
        keys.close()


def _copies(journal: Path, key: MasterKey) -> list[Path]:
    """Return the copies of the journal that `journal.backup` made and that still exist."""
    if not journal.is_file():
        return []
    with closing(open_database(journal, key=None if is_plain(journal) else key)) as connection:
        return [one for one in copies_of(connection) if one.is_file()]


def _rename(path: Path, key: MasterKey, hidden: bool) -> Path:
    """Give a file of memories the name that it has when it is encrypted, which does not show the user, or when it is plain."""
    with closing(open_database(path, key=None if is_plain(path) else key, timeout=2.0)) as connection:
        try:
            row = connection.execute("SELECT value FROM meta WHERE key = 'owner'").fetchone()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()  # no files stay beside it, and nobody else uses it
        except sqlite3.OperationalError as problem:
            raise EncryptionError.of(
                "encryption.cannot_rename", "{path} cannot be renamed: {problem}", path=path, problem=problem
            ) from problem
    kind, _, name = str(row[0] if row else "").partition(" ")
    if kind != "user":
        return path
    owner: Owner = ("user", name)
    named = MemoryFiles(path.parent).path(owner, hidden)
    if named != path and not named.exists():
        path.rename(named)
        return named
    return path
