"""Schema: the tables and their migrations.

A file is migrated to the last version, in one transaction, when it is opened. A process of an older version that still has the
file open can no longer write: the columns that it would leave out are `NOT NULL`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from ...core.errors import JournalTooNew
from ...core.runs import SHARED
from ..rows import row_sum

APPLICATION = 0x6B616E6D  # "kanm"

_FIRST = """
    CREATE TABLE runs (
        run TEXT PRIMARY KEY, agent TEXT NOT NULL DEFAULT '', session TEXT NOT NULL DEFAULT '',
        user TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'running', title TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL DEFAULT 0, updated REAL NOT NULL DEFAULT 0, seq INTEGER NOT NULL DEFAULT 0,
        input INTEGER NOT NULL DEFAULT 0, output INTEGER NOT NULL DEFAULT 0, cost REAL DEFAULT 0, base TEXT NOT NULL DEFAULT '',
        questions INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0, owner TEXT
    ) WITHOUT ROWID;
    CREATE TABLE facts (
        run TEXT NOT NULL, seq INTEGER NOT NULL, time REAL NOT NULL, agent TEXT NOT NULL, type TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) WITHOUT ROWID;
"""
_SECOND = """
    CREATE INDEX runs_by_time ON runs (created);
    CREATE INDEX runs_by_session ON runs (session, created) WHERE session <> '';
    CREATE INDEX runs_by_base ON runs (base) WHERE base <> '';
"""
# `place` counts the runs in the order in which they were opened, whatever the clock said; `sum` is the row's checksum. `moves`
# counts what was appended, over all runs; `stops` holds what another process asks of the one that executes a run.
_THIRD = """
    ALTER TABLE runs RENAME TO old_runs;
    ALTER TABLE facts RENAME TO old_facts;
    CREATE TABLE runs (
        run TEXT PRIMARY KEY, agent TEXT NOT NULL, session TEXT NOT NULL, user TEXT NOT NULL, status TEXT NOT NULL,
        title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL, seq INTEGER NOT NULL, input INTEGER NOT NULL,
        output INTEGER NOT NULL, cost REAL, base TEXT NOT NULL, questions INTEGER NOT NULL, parent TEXT NOT NULL,
        place INTEGER NOT NULL, epoch INTEGER NOT NULL, owner TEXT, sum INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO runs
        SELECT run, agent, session, user, status, title, created, updated, seq, input, output, cost, base, questions, '',
            place_of(run), epoch, owner,
            row_sum(run, agent, session, user, status, title, created, updated, seq, input, output, cost, base, questions, '',
                place_of(run))
        FROM old_runs WHERE seq > 0;
    CREATE TABLE facts (
        run TEXT NOT NULL, seq INTEGER NOT NULL, time REAL NOT NULL, agent TEXT NOT NULL, type TEXT NOT NULL,
        body TEXT NOT NULL, sum INTEGER NOT NULL,
        PRIMARY KEY (run, seq)
    ) WITHOUT ROWID;
    INSERT INTO facts SELECT run, seq, time, agent, type, body, row_sum(run, seq, time, agent, type, body) FROM old_facts;
    DROP TABLE old_runs;
    DROP TABLE old_facts;
    CREATE UNIQUE INDEX runs_by_place ON runs (place);
    CREATE INDEX runs_by_session ON runs (session, place) WHERE session <> '';
    CREATE INDEX runs_by_base ON runs (base) WHERE base <> '';
    CREATE INDEX runs_by_status ON runs (status, place);
    CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> '';
    CREATE TABLE moves (place INTEGER PRIMARY KEY, run TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL);
    INSERT INTO moves (run, first, last) SELECT run, 1, seq FROM runs ORDER BY place;
    CREATE TABLE stops (run TEXT PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE snapshots (
        run TEXT PRIMARY KEY, seq INTEGER NOT NULL, fold INTEGER NOT NULL, state TEXT NOT NULL, sum INTEGER NOT NULL
    );
"""
# `place` is that of the run's first move, and `moved` that of its last change of status or title: neither depends on the clock,
# and both are the numbers that `changes` gives. `thread` names the conversation: runs of one thread are one session.
_FOURTH = f"""
    DELETE FROM moves WHERE run NOT IN (SELECT run FROM runs) AND place < (SELECT max(place) FROM moves);
    UPDATE moves SET run = '' WHERE run NOT IN (SELECT run FROM runs);
    ALTER TABLE runs RENAME TO old_runs;
    CREATE TABLE runs (
        run TEXT PRIMARY KEY, agent TEXT NOT NULL, session TEXT NOT NULL, user TEXT NOT NULL, status TEXT NOT NULL,
        title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL, seq INTEGER NOT NULL, input INTEGER NOT NULL,
        output INTEGER NOT NULL, cost REAL, base TEXT NOT NULL, questions INTEGER NOT NULL, parent TEXT NOT NULL,
        place INTEGER NOT NULL, moved INTEGER NOT NULL, epoch INTEGER NOT NULL, owner TEXT, sum INTEGER NOT NULL,
        thread TEXT GENERATED ALWAYS AS (CASE WHEN session = '' OR parent <> '' THEN NULL
            WHEN substr(session, 1, {len(SHARED)}) = '{SHARED}' THEN session
            ELSE session || char(31) || agent || char(31) || user END) VIRTUAL
    ) WITHOUT ROWID;
    INSERT INTO runs (run, agent, session, user, status, title, created, updated, seq, input, output, cost, base, questions,
            parent, place, moved, epoch, owner, sum)
        SELECT run, agent, session, user, status, title, created, updated, seq, input, output, cost, base, questions, parent,
            ifnull(first_move, -place), ifnull(last_move, -place), epoch, owner,
            moved_sum(sum, ifnull(first_move, -place), run, agent, session, user, status, title, created, updated, seq, input,
                output, cost, base, questions, parent, place)
        FROM old_runs LEFT JOIN (SELECT run AS mover, min(place) AS first_move, max(place) AS last_move FROM moves GROUP BY run)
            ON mover = run;
    DROP TABLE old_runs;
    CREATE UNIQUE INDEX runs_by_place ON runs (place);
    CREATE INDEX runs_by_session ON runs (session, place) WHERE session <> '';
    CREATE INDEX runs_by_base ON runs (base) WHERE base <> '';
    CREATE INDEX runs_by_status ON runs (status, place);
    CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> '';
    CREATE INDEX runs_by_agent ON runs (agent, place);
    CREATE INDEX runs_by_user ON runs (user, place);
    CREATE INDEX runs_by_end ON runs (updated) WHERE status NOT IN ('running', 'waiting');
    CREATE INDEX threads ON runs (thread, moved) WHERE thread IS NOT NULL;
    CREATE INDEX threads_by_move ON runs (moved, thread, agent) WHERE thread IS NOT NULL;
    CREATE INDEX threads_by_user ON runs (user, moved, thread, agent) WHERE thread IS NOT NULL;
"""
MIGRATIONS = (_FIRST, _SECOND, _THIRD, _FOURTH)
_ACCOUNTS = (
    "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, spent REAL NOT NULL) WITHOUT ROWID",
    # no index by holders: there are only as many as open calls, and every step would have to write to it
    "CREATE TABLE IF NOT EXISTS reservations (name TEXT NOT NULL, holder TEXT NOT NULL, amount REAL NOT NULL, "
    "owner TEXT NOT NULL, PRIMARY KEY (name, holder)) WITHOUT ROWID",
)
# Tables that not every journal needs: each is created with its first row (`database.py`).
ON_DEMAND = {
    "accounts": _ACCOUNTS,
    "reservations": _ACCOUNTS,
    "inbox": (
        "CREATE TABLE IF NOT EXISTS inbox (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL, "
        "thread TEXT, body TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS inbox_by_run ON inbox (run)",
    ),
    "grants": (
        "CREATE TABLE IF NOT EXISTS grants (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, "
        "user TEXT NOT NULL, tool TEXT NOT NULL, conditions TEXT NOT NULL, until REAL NOT NULL, by TEXT NOT NULL, "
        "at REAL NOT NULL, revoked REAL NOT NULL)",
    ),
    "marks": ("CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID",),
    "digests": (
        "CREATE TABLE IF NOT EXISTS digests (run TEXT PRIMARY KEY, seq INTEGER NOT NULL, body TEXT NOT NULL, "
        "sum INTEGER NOT NULL) WITHOUT ROWID",
    ),
    "queue": (
        'CREATE TABLE IF NOT EXISTS queue (number INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, "order" '
        "TEXT NOT NULL, session TEXT NOT NULL, user TEXT NOT NULL, queue TEXT NOT NULL, key TEXT NOT NULL, "
        "priority INTEGER NOT NULL, at REAL NOT NULL, seq INTEGER NOT NULL, thread TEXT NOT NULL, "
        "attempts INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL, worker TEXT NOT NULL DEFAULT '', "
        "reason TEXT NOT NULL DEFAULT '')",
        "CREATE INDEX IF NOT EXISTS queue_ready ON queue (queue, agent, key, priority DESC, number) WHERE state = 'waiting'",
        "DROP INDEX IF EXISTS queue_waiting",  # of older versions
        "CREATE INDEX IF NOT EXISTS queue_delayed ON queue (at) WHERE state = 'delayed'",
        "CREATE INDEX IF NOT EXISTS queue_taken ON queue (worker) WHERE state = 'taken'",
        "CREATE INDEX IF NOT EXISTS queue_threads ON queue (thread, number) WHERE thread <> ''",
    ),
}


def moved_sum(old: int, place: int, *values: Any) -> int:
    """Return the checksum of a row with another `place`, its last value. A damaged row keeps its wrong checksum."""
    return row_sum(*values[:-1], place) if row_sum(*values) == old else old


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate the file to this version's schema, in one transaction. A newer file is left unchanged."""
    if _version(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # again, inside the lock: another process may have been first
        if version > len(MIGRATIONS):
            raise JournalTooNew.of(
                "journal.too_new",
                "the journal {path} was written by a newer version of kaname (schema {version}; this version reads "
                "up to {count}). Nothing was changed. Upgrade kaname, or use another file.",
                path=path,
                version=version,
                count=len(MIGRATIONS),
            )
        places = _places(connection) if version else {}
        connection.create_function("place_of", 1, places.__getitem__)
        connection.create_function("row_sum", -1, row_sum)
        connection.create_function("moved_sum", -1, moved_sum)
        for script in MIGRATIONS[version:]:
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _places(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the order in which the runs of an older file were opened: by the clock, and each after the run it continues."""
    bases = dict(connection.execute("SELECT run, base FROM runs WHERE seq > 0 ORDER BY created, run"))
    places: dict[str, int] = {}
    for run in bases:
        chain = []
        while run in bases and run not in places and run not in chain:
            chain.append(run)
            run = bases[run]
        for one in reversed(chain):
            places[one] = len(places) + 1
    return places


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
