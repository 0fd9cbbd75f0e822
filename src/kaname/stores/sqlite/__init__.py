"""The default journal: one SQLite file."""

from .journal import SqliteJournal

__all__ = ["SqliteJournal"]
