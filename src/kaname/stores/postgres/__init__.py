"""The journal of several machines: a PostgreSQL database."""

from .journal import PostgresJournal

__all__ = ["PostgresJournal"]
