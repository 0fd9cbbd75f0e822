"""Journals of processes that others take for dead: what the journal itself offers to nobody."""

from kaname import PostgresJournal, SqliteJournal


def look_dead(journal: SqliteJournal | PostgresJournal) -> None:
    """Let the others take the process of a journal for dead, although it can still try to write."""
    if isinstance(journal, SqliteJournal):
        journal._place.release_owner()
    else:
        journal._own.heartbeat._beating.cancel()


def fall_silent(journal: PostgresJournal) -> None:
    """Let a journal say nothing more to its server, as if its process had been killed."""
    journal._own.thread.stop_soon()
