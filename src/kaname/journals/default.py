"""Choose the journal: the caller's, else `KANAME_JOURNAL`, else the program's own file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ..core.errors import ConfigError
from ..core.notices import notice
from ..core.project import make_folder, state_path
from .memory import MemoryJournal

if TYPE_CHECKING:
    from pathlib import Path

    from ..kernel.ports import Journal
    from .sqlite import SqliteJournal

_open: WeakValueDictionary[str, SqliteJournal] = WeakValueDictionary()  # one writer thread a file, however many agents


def choose(wanted: Journal | str | Path | None) -> Journal:
    """Return the journal for a setting: `"memory"` stores nothing, a path is a SQLite file, and a journal object is used as it
    is."""
    if wanted is None:
        wanted = os.environ.get("KANAME_JOURNAL") or default_path()
    if isinstance(wanted, str | os.PathLike):
        return MemoryJournal() if str(wanted) in ("memory", ":memory:") else _sqlite(str(wanted))
    if not hasattr(wanted, "append"):
        raise ConfigError(
            notice(
                "journal.kind",
                'journal must be "memory", a path, or an object of the Journal protocol, not {wanted!r}',
                wanted=wanted,
            )
        )
    return wanted


def default_path() -> str:
    return state_path("journal.db")


def path_beside(journal: object, name: str) -> Path:
    """Return the path of a file in the folder of a journal, which is given as an object or as a path.

    A journal without a file uses the folder of the journal that the program would have by default.
    """
    from pathlib import Path

    place = journal if isinstance(journal, str | Path) else getattr(journal, "path", None)
    for one in (place, os.environ.get("KANAME_JOURNAL")):
        if one and str(one) not in ("memory", ":memory:"):
            return Path(one).expanduser().resolve().with_name(name)
    return Path(default_path()).with_name(name)


def _sqlite(path: str) -> SqliteJournal:
    from .sqlite import SqliteJournal

    path = os.path.realpath(os.path.expanduser(path))
    journal = _open.get(path)
    if journal is None or journal.closed:
        make_folder(path)
        journal = _open[path] = SqliteJournal(path)
    return journal
