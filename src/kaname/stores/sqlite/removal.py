"""Remove runs with everything that belongs to them, and return the space to the disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.errors import RunBusy, RunNeeded, RunNotFound
from ...core.runs import RunInfo
from ..refusals import busy_text, dependants_text
from .file import connect, disconnect

Holder = Callable[[str, tuple[Any, str | None]], str]  # returns a description of the process that executes a run
_OWNER = "SELECT epoch, owner, seq, status FROM runs WHERE run = ?"
_FROM_IT = "SELECT run FROM runs WHERE base = ? AND base <> ''"
_INSIDE = "SELECT run FROM runs WHERE parent = ? AND parent <> ''"
_PATIENCE = 0.5  # seconds to wait for readers and writers
_PAGES = 2_000  # given back in one go: 8 MB, some 50 ms


def family(connection: sqlite3.Connection, run_id: str, cascade: bool, holder: Holder) -> list[str]:
    """Return the run with its children and, with `cascade`, the runs that continue from them. Refuse if one is in use."""
    doomed = [run_id]
    for one in doomed:
        row = connection.execute(_OWNER, (one,)).fetchone()
        if row is None:
            raise RunNotFound(one)
        if found := holder(one, row[:2]):
            raise RunBusy(busy_text(one, found))
        dependants = [other for (other,) in connection.execute(_FROM_IT, (one,))]
        if dependants and not cascade:
            raise RunNeeded(dependants_text(one, dependants))
        children = [child for (child,) in connection.execute(_INSIDE, (one,))]
        doomed += [other for other in (*dependants, *children) if other not in doomed]
    return doomed


def remove_family(connection: sqlite3.Connection, run_id: str, cascade: bool, holder: Holder) -> list[str]:
    """Delete the run with its family, and return their ids."""
    doomed = family(connection, run_id, cascade, holder)
    remove(connection, doomed)
    return doomed


def removable(connection: sqlite3.Connection, cards: Sequence[RunInfo], gone: set[str], holder: Holder) -> list[str]:
    """Return the ended runs that are as their cards say and that no run outside `gone` needs, with their children.

    They are added to `gone`: pass the runs that were opened last first, so that a whole session can be removed at once.
    """
    found: list[str] = []
    for card in cards:
        doomed = [card.run_id]
        for one in doomed:
            row = connection.execute(_OWNER, (one,)).fetchone()
            if row is None or one in gone or holder(one, row[:2]):
                break
            if one == card.run_id and (row[2] != card.seq or row[3] in ("running", "waiting")):
                break
            if any(other not in gone and other not in doomed for (other,) in connection.execute(_FROM_IT, (one,))):
                break
            doomed += [child for (child,) in connection.execute(_INSIDE, (one,)) if child not in gone]
        else:
            found += doomed
            gone.update(doomed)
    return found


def remove(connection: sqlite3.Connection, runs: Sequence[str]) -> None:
    """Delete all rows of these runs. The very last move stays, without its run, so that its number is not used again."""
    (top,) = connection.execute("SELECT ifnull(max(place), 0) FROM moves").fetchone()
    for run in runs:
        place, seq = connection.execute("SELECT place, seq FROM runs WHERE run = ?", (run,)).fetchone()
        reached = "SELECT place FROM moves WHERE place >= :place AND run = :run AND last = :seq ORDER BY place LIMIT 1"
        connection.execute(
            f"DELETE FROM moves WHERE place BETWEEN :place AND ifnull(({reached}), :top) AND run = :run AND place <> :top",
            {"run": run, "place": place, "seq": seq, "top": top},
        )
        connection.execute("UPDATE moves SET run = '' WHERE place = ? AND run = ?", (top, run))
    from .inbox import remove_letters

    remove_letters(connection, runs)
    for table in ("facts", "snapshots", "stops", "runs"):
        connection.executemany(f"DELETE FROM {table} WHERE run = ?", [(one,) for one in runs])


def tidy(path: Path, *, whole: bool = False) -> tuple[int, int]:
    """Free unused pages and empty the write-ahead log, as far as no other process is in the way.

    Returns the bytes freed and the bytes still to free. A file that was created before version 4 of the schema frees nothing
    until `whole` rewrites it; writers wait for that.
    """
    connection = connect(path, patience=_PATIENCE)
    try:
        size, before = (_number(connection, name) for name in ("page_size", "page_count"))
        if whole:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # which a file made by an older version has not
            connection.execute("VACUUM")
        else:
            with suppress(sqlite3.OperationalError):  # another process writes: try the next time
                connection.executescript(f"PRAGMA incremental_vacuum({_PAGES})")  # `execute` would free a single page
        after, free = (_number(connection, name) for name in ("page_count", "freelist_count"))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # does not fail if another process is in the way
        return (before - after) * size, free * size
    finally:
        disconnect(connection, path)


def _number(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
