"""Choose the journal: the caller's, else `KANAME_JOURNAL`, else the program's own file. All journals are opened here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ..core.errors import ConfigError
from ..core.project import make_folder, state_path
from .memory import MemoryJournal
from .places import MEMORY, is_file, is_server, shown_place

if TYPE_CHECKING:
    from pathlib import Path

    from ..kernel.ports import Journal
    from .postgres import PostgresJournal
    from .sqlite import SqliteJournal

_open: WeakValueDictionary[str, SqliteJournal] = WeakValueDictionary()  # one writer thread a file, however many agents
_servers: WeakValueDictionary[str, PostgresJournal] = WeakValueDictionary()


def choose(wanted: Journal | str | Path | None) -> Journal:
    """Return the journal for a setting: `"memory"` stores nothing, `postgresql://…` is a database, a path is a SQLite file, and
    a journal object is used as it is."""
    if wanted is None:
        wanted = os.environ.get("KANAME_JOURNAL") or default_path()
    if isinstance(wanted, str | os.PathLike):
        place = str(wanted)
        return MemoryJournal() if place in MEMORY else _postgres(place) if is_server(place) else _sqlite(place)
    if not hasattr(wanted, "append"):
        raise ConfigError.of(
            "journal.kind",
            'journal must be "memory", a path, a postgresql:// URL, or an object of the Journal protocol, not {wanted!r}',
            wanted=wanted,
        )
    return wanted


def default_path() -> str:
    return state_path("journal.db")


def path_beside(journal: Journal | str | Path | None, name: str) -> Path:
    """Return the path of a file in the folder of a journal, which is given as an object or as a path.

    A journal without a file uses the folder of the journal that the program would have by default.
    """
    from pathlib import Path

    place = journal if journal is None or isinstance(journal, str | Path) else journal.stores.place
    for one in (place, os.environ.get("KANAME_JOURNAL")):
        if one and is_file(str(one)):
            return Path(one).expanduser().resolve().with_name(name)
    return Path(default_path()).with_name(name)


def refuse_to_encrypt(place: str) -> None:
    """Raise `ConfigError` if a journal is in a database: kaname would store there in plain text what is to be encrypted."""
    if is_server(place):
        raise ConfigError.of(
            "encryption.server",
            "kaname encrypts files, and the journal is in a database ({place}). Encrypt the disk of its server, and "
            "remove the key, or use a file as the journal",
            place=shown_place(place),
        )


async def check_server(journal: Journal) -> None:
    """Raise the error that keeps kaname from writing to a journal in a database, before a program relies on it."""
    place = journal.stores.place
    if is_server(place):
        from .postgres import PostgresJournal

        trial = PostgresJournal(place)
        try:
            assert trial.stores.health is not None
            await trial.stores.health.probe()
        finally:
            await trial.close()


def _postgres(url: str) -> PostgresJournal:
    from importlib.util import find_spec

    from ..core.encryption.keys import key_for
    from ..core.install import install_command

    if key_for(os.sep) is not None:  # a key for everything
        refuse_to_encrypt(url)
    if find_spec("asyncpg") is None:
        raise ConfigError.of(
            "journal.extra",
            "a journal in PostgreSQL needs the package asyncpg. Install it with: {command}",
            command=install_command("cluster"),
        )
    from .postgres import PostgresJournal

    journal = _servers.get(url)
    if journal is None or journal.closed:
        journal = _servers[url] = PostgresJournal(url)
    return journal


def _sqlite(path: str) -> SqliteJournal:
    from .sqlite import SqliteJournal

    path = os.path.realpath(os.path.expanduser(path))
    journal = _open.get(path)
    if journal is None or journal.closed:
        make_folder(path)
        journal = _open[path] = SqliteJournal(path)
    return journal
