"""Schema: the tables in PostgreSQL and their migrations.

Several versions of kaname can work on one journal while a fleet is upgraded. A migration therefore only adds, and says which is
the oldest version that can still write. Processes of an older version stop writing at their next heartbeat.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.errors import JournalTooNew
from ...core.runs import SHARED
from .connections import Connection
from .errors import too_old_server

OLDEST_SERVER = 13
PLACES = 10  # bits: how many places there are in one transaction

# Places below it are final: all transactions that could still write there have ended.
BARRIER = f"(pg_snapshot_xmin(pg_current_snapshot())::text::int8 << {PLACES}) + (SELECT shift FROM kaname.journal)"


class Migration(NamedTuple):
    """`oldest`: the number of the migration that a process must know to write to a journal that has this one."""

    script: str
    oldest: int


# `place` orders all facts: the number of the transaction, and the position in it. A reader of `changes` reads up to the oldest
# transaction that is still open, so that no fact appears behind it later. `shift` is added because a restored database may
# count its transactions from a lower number. `ended` repeats `updated` for runs that are over: a column that every fact changes
# must not have an index. `claim` marks the last claim, so that a claim can be sent twice; `before` is what it found.
_FIRST = f"""
CREATE TABLE kaname.journal (version int NOT NULL, oldest int NOT NULL, shift int8 NOT NULL DEFAULT 0);
INSERT INTO kaname.journal VALUES (0, 0);
CREATE TABLE kaname.owners (
    owner text PRIMARY KEY, until timestamptz NOT NULL, listens bool NOT NULL DEFAULT false) WITH (fillfactor = 50);
CREATE TABLE kaname.runs (
    run text COLLATE "C" PRIMARY KEY, agent text NOT NULL, session text NOT NULL, "user" text NOT NULL, status text NOT NULL,
    title text NOT NULL, created float8 NOT NULL, updated float8 NOT NULL, seq int8 NOT NULL, input int8 NOT NULL,
    output int8 NOT NULL, cost float8, base text COLLATE "C" NOT NULL, questions int8 NOT NULL,
    parent text COLLATE "C" NOT NULL, base_seq int8 NOT NULL, place int8 NOT NULL, moved int8 NOT NULL,
    ended float8, epoch int8 NOT NULL, owner text, claim text NOT NULL DEFAULT '', before text NOT NULL DEFAULT '',
    thread text GENERATED ALWAYS AS (CASE WHEN session = '' OR parent <> '' THEN NULL
        WHEN starts_with(session, '{SHARED}') THEN session
        ELSE session || chr(31) || agent || chr(31) || "user" END) STORED
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX runs_by_place ON kaname.runs (place);
CREATE INDEX runs_by_session ON kaname.runs (session, place) WHERE session <> '';
CREATE INDEX runs_by_base ON kaname.runs (base) WHERE base <> '';
CREATE INDEX runs_by_parent ON kaname.runs (parent) WHERE parent <> '';
CREATE INDEX runs_by_status ON kaname.runs (status, place);
CREATE INDEX runs_by_agent ON kaname.runs (agent, place);
CREATE INDEX runs_by_user ON kaname.runs ("user", place);
CREATE INDEX runs_by_end ON kaname.runs (ended) WHERE ended IS NOT NULL;
CREATE INDEX threads ON kaname.runs (thread, moved) WHERE thread IS NOT NULL;
CREATE INDEX threads_by_move ON kaname.runs (moved) WHERE thread IS NOT NULL;
CREATE TABLE kaname.facts (
    run text COLLATE "C" NOT NULL, seq int8 NOT NULL, time float8 NOT NULL, agent text NOT NULL, type text NOT NULL,
    body text NOT NULL, sum int8 NOT NULL, place int8 NOT NULL, PRIMARY KEY (run, seq));
CREATE INDEX facts_by_place ON kaname.facts (place, seq);
CREATE TABLE kaname.stops (run text COLLATE "C" PRIMARY KEY, reason text NOT NULL);
CREATE TABLE kaname.snapshots (
    run text COLLATE "C" PRIMARY KEY, seq int8 NOT NULL, fold int8 NOT NULL, state text NOT NULL, sum int8 NOT NULL);
CREATE TABLE kaname.accounts (name text COLLATE "C" PRIMARY KEY, spent float8 NOT NULL) WITH (fillfactor = 50);
CREATE TABLE kaname.reservations (
    name text COLLATE "C" NOT NULL, holder text NOT NULL, amount float8 NOT NULL, owner text NOT NULL,
    PRIMARY KEY (name, holder));
CREATE INDEX reservations_by_holder ON kaname.reservations (holder);
"""
# Runs that wait for a worker. `waiting` ones are found along the index by queue, key and priority, and `delayed` ones by time.
_SECOND = """
CREATE TABLE kaname.queue (
    number bigserial PRIMARY KEY, run text COLLATE "C" NOT NULL UNIQUE, agent text NOT NULL, "order" text NOT NULL,
    session text NOT NULL, "user" text NOT NULL, queue text NOT NULL, key text COLLATE "C" NOT NULL, priority int8 NOT NULL,
    at float8 NOT NULL, seq int8 NOT NULL, attempts int8 NOT NULL DEFAULT 0, state text NOT NULL, worker text,
    reason text NOT NULL DEFAULT '', thread text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);
CREATE INDEX queue_waiting ON kaname.queue (queue, key, priority DESC, number) WHERE state = 'waiting';
CREATE INDEX queue_delayed ON kaname.queue (at) WHERE state = 'delayed';
CREATE INDEX queue_taken ON kaname.queue (worker) WHERE state = 'taken';
CREATE INDEX queue_threads ON kaname.queue (thread, number) WHERE thread <> '';
"""
# Messages that no run has taken in yet, and approvals that hold for later runs.
_PEOPLE = """
CREATE TABLE kaname.inbox (
    number bigserial PRIMARY KEY, id text NOT NULL UNIQUE, run text COLLATE "C" NOT NULL, thread text, body text NOT NULL);
CREATE INDEX inbox_by_run ON kaname.inbox (run);
CREATE INDEX inbox_by_thread ON kaname.inbox (thread) WHERE thread IS NOT NULL;
CREATE TABLE kaname.grants (
    number bigserial PRIMARY KEY, id text NOT NULL UNIQUE, agent text NOT NULL, "user" text NOT NULL, tool text NOT NULL,
    conditions text NOT NULL, until float8 NOT NULL, by text NOT NULL, at float8 NOT NULL, revoked float8 NOT NULL);
CREATE INDEX grants_by_user ON kaname.grants (agent, "user", tool);
"""
# Times by name: up to where schedules were handled.
_MARKS = 'CREATE TABLE kaname.marks (name text COLLATE "C" PRIMARY KEY, time float8 NOT NULL) WITH (fillfactor = 50);'
# Contents of media by their hash, and the runs that use them. An older version cannot read facts that hold a hash.
_MEDIA = """
CREATE TABLE kaname.media (hash text COLLATE "C" PRIMARY KEY, content bytea NOT NULL);
ALTER TABLE kaname.media ALTER content SET STORAGE EXTERNAL;
CREATE TABLE kaname.uses (
    run text COLLATE "C" NOT NULL, hash text COLLATE "C" NOT NULL, mime text NOT NULL, name text NOT NULL, size int8 NOT NULL,
    PRIMARY KEY (run, hash));
CREATE INDEX uses_by_hash ON kaname.uses (hash);
"""
# Workers find runs along their agents, past those of other agents, and are told from other processes.
_WORKERS = """
CREATE INDEX queue_ready ON kaname.queue (queue, agent, key, priority DESC, number) WHERE state = 'waiting';
DROP INDEX kaname.queue_waiting;
ALTER TABLE kaname.owners ADD works bool NOT NULL DEFAULT true;
"""
# What figures count of each run. An older version, which does not know them, deletes them with their runs.
_DIGESTS = """
CREATE TABLE kaname.digests (
    run text COLLATE "C" PRIMARY KEY REFERENCES kaname.runs (run) ON DELETE CASCADE, seq int8 NOT NULL, body text NOT NULL,
    sum int8 NOT NULL);
"""
_LATER = (Migration(_PEOPLE, 1), Migration(_MARKS, 1), Migration(_MEDIA, 5), Migration(_WORKERS, 1), Migration(_DIGESTS, 1))
MIGRATIONS = (Migration(_FIRST, 1), Migration(_SECOND, 1), *_LATER)


class Sql:
    """Statements for one schema. They are written for `kaname`, the default."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def __call__(self, statement: str) -> str:
        return statement if self.schema == "kaname" else statement.replace("kaname.", f"{self.schema}.")


async def prepare_database(connection: Connection, sql: Sql, where: str) -> None:
    """Create or migrate the tables, if that is necessary. Raises `JournalTooNew` if this version cannot write to them."""
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise too_old_server(where, f"{version.major}.{version.minor}")
    known = len(MIGRATIONS)
    found, oldest = await _versions(connection, sql)
    if found < known:
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = '10s'")  # a migration waits, but does not stop the others
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"kaname schema {sql.schema}")
            found, oldest = await _versions(connection, sql)
            if found < known:
                await _migrate(connection, sql, found)
                found, oldest = await _versions(connection, sql)
    check_version(found, oldest, where)
    if await connection.fetchval(sql(_IS_BEHIND)):
        await connection.execute(sql("UPDATE kaname.journal SET shift = (SELECT max(place) + 1 FROM kaname.facts)"))


# After a restore into another server, its transactions may have lower numbers than the places that were given.
_IS_BEHIND = f"""
SELECT coalesce((SELECT max(place) FROM kaname.facts), 0) >=
    shift + (pg_snapshot_xmax(pg_current_snapshot())::text::int8 << {PLACES}) FROM kaname.journal
"""


def check_version(found: int, oldest: int, where: str) -> None:
    """Raise `JournalTooNew` if the journal has a migration that this version must know to write."""
    if oldest > len(MIGRATIONS):
        raise JournalTooNew.of(
            "journal.too_new",
            "the journal {path} was written by a newer version of kaname (schema {version}; this version reads "
            "up to {count}). Nothing was changed. Upgrade kaname, or use another file.",
            path=where,
            version=found,
            count=len(MIGRATIONS),
        )


# Not `to_regclass`: inside a transaction it may not see tables that another process has just created.
_IS_THERE = """
SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'journal'
"""


async def _versions(connection: Connection, sql: Sql) -> tuple[int, int]:
    if await connection.fetchval(_IS_THERE, sql.schema) is None:
        return 0, 0
    found, oldest = await connection.fetchrow(sql("SELECT version, oldest FROM kaname.journal"))
    return found, oldest


async def _migrate(connection: Connection, sql: Sql, found: int) -> None:
    if not found:
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {sql.schema}")
    for migration in MIGRATIONS[found:]:
        await connection.execute(sql(migration.script))
    set_version = "UPDATE kaname.journal SET version = $1, oldest = greatest(oldest, $2)"
    await connection.execute(sql(set_version), len(MIGRATIONS), max([one.oldest for one in MIGRATIONS[found:]]))
