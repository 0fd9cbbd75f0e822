"""The places where kaname stores words of users, for one project or program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...core.encryption.keys import files_of
from ...core.project import default_state_folder
from ...core.record import record


@record
class DataPlaces:
    """Files and folders that hold what users said.

    Args:
        journal: The file of the journal; None if it is not a file.
        server: The URL of the journal, if it is in a database.
        memory: The folder of the memories.
        caches: Files of caches.
        indexes: Files of documents for the tool `search`. They are encrypted, but hold nothing of users.
        traces: Files that `trace: {file: …}` writes.
        audit: The audit log. Exports and erasures are recorded in it, if it exists.
    """

    journal: Path | None = None
    memory: Path | None = None
    caches: tuple[Path, ...] = ()
    indexes: tuple[Path, ...] = ()
    traces: tuple[Path, ...] = ()
    audit: Path | None = None
    server: str = ""

    @classmethod
    def below(cls, folder: str | Path | None = None, journal: str | Path | None = None) -> DataPlaces:
        """Return the usual places: everything in a project's `.kaname`, or in the state folder of this program."""
        home = Path(folder or default_state_folder()).expanduser()
        place = Path(journal).expanduser() if journal else home / "journal.db"
        return cls(
            place,
            home / "memory",
            (home / "cache.db", home / "values.db"),
            (home / "docs.db",),
            audit=place.parent / "audit.log",
        )

    def databases(self) -> Iterator[Path]:
        """Return all SQLite files that exist, the keys of the users before the media and the journal."""
        found = [files_of(self.journal)[at] for at in (1, 2, 0)] if self.journal is not None else []
        found += sorted(self.memory.glob("*.db")) if self.memory is not None else []
        yield from [one for one in (*found, *self.caches, *self.indexes) if one.is_file()]
