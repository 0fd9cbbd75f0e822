"""Erase a user from a journal in PostgreSQL, in one transaction.

A run that other people's runs continue from stays as a row of placeholders. The server reuses the space of deleted rows when it
vacuums; its backups and archives are not reached.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....core.errors import RunBusy
from ....core.events import Interjected
from ....core.runs import EVALUATION_PREFIX, SHARED
from ...erasing import (
    HEADERS,
    SAID,
    Erased,
    Footprint,
    accounts_of,
    answers_by,
    blank_fact,
    evaluations_with,
    without_answer,
    without_summary,
)
from ...refusals import busy_text
from ...rows import fact_sum
from ...sqlite.protection.sealing import ERASED_TEXT
from ..connections import Connection
from ..journal import PostgresJournal
from ..office import Office
from ..owner import describe_owner
from ..queues.procrastinate import TASK
from ..stores import media
from . import removal

_FAMILY = """
WITH RECURSIVE mine AS (SELECT run FROM kaname.runs WHERE "user" = $1 OR run = ANY($2::text[])
    OR EXISTS (SELECT FROM unnest($2::text[]) AS job WHERE starts_with(run, job || '-'))
    UNION SELECT r.run FROM kaname.runs AS r JOIN mine ON r.parent = mine.run WHERE r.parent <> '')
SELECT run FROM mine
"""
_LATER = """
WITH RECURSIVE later AS (
    SELECT run, base FROM kaname.runs WHERE base <> '' AND base = ANY($1::text[]) AND run <> ALL($1::text[])
    UNION SELECT r.run, r.base FROM kaname.runs AS r JOIN later ON r.base = later.run WHERE r.run <> ALL($1::text[])),
needed AS (SELECT base AS run FROM later WHERE base <> ''
    UNION SELECT r.base FROM kaname.runs AS r JOIN needed ON r.run = needed.run WHERE r.base <> '')
SELECT run, true FROM later UNION ALL SELECT run, false FROM needed WHERE run = ANY($1::text[])
"""
_FACTS = "SELECT run, seq, time, agent, type, body, sum FROM kaname.facts WHERE run = $1 ORDER BY seq"
_REWRITE = "UPDATE kaname.facts SET type = $3, body = $4, sum = $5 WHERE run = $1 AND seq = $2"
_ANONYMOUS = """
UPDATE kaname.runs SET "user" = $2, title = $3, session = CASE WHEN starts_with(session, $4) THEN session ELSE '' END
WHERE run = ANY($1::text[])
"""
_TALKS = "SELECT DISTINCT session, agent FROM kaname.runs WHERE \"user\" = $1 AND session <> ''"
_TRIED = 'SELECT DISTINCT "user" FROM kaname.runs WHERE run = ANY($1::text[]) AND starts_with("user", $2)'
_ACCOUNTS = "SELECT name FROM kaname.accounts UNION SELECT name FROM kaname.reservations"
_ANSWERS = "SELECT run, type, body FROM kaname.facts WHERE type = ANY($1::text[])"
Change = Callable[[int, str, str], tuple[str, str] | None]


async def find_user(journal: PostgresJournal, user: str) -> Footprint:
    """Return what there is of a user. Raises `RunBusy` if a process executes one of the runs."""
    office = journal._office()

    async def work(connection: Connection) -> Footprint:
        runs = await _family(connection, office, user)
        talks = {session for session, _ in await connection.fetch(office.sql(_TALKS), user) if not session.startswith(SHARED)}
        texts = {text for found in (await _answers(connection, office, user)).values() for text in found}
        users = await connection.fetch(office.sql(_TRIED), runs, EVALUATION_PREFIX)
        return Footprint(tuple(runs), tuple(talks), tuple(texts), tuple([one for (one,) in users]))

    return await office.read(work)


async def erase_user_from(journal: PostgresJournal, user: str) -> Erased:
    """Erase a user from the database. It can be repeated after an interruption.

    Raises:
        RunBusy: A process executes a run of the user. Nothing was erased.
    """
    office = journal._office()

    async def work(connection: Connection) -> Erased:
        async with connection.transaction():
            return await _erase(connection, office, user)

    return await office.read(work)


async def _family(connection: Connection, office: Office, user: str) -> list[str]:
    """Return the runs of a user, those inside them, and evaluations of the user's words. Lock them in a transaction."""
    headers = await connection.fetch(office.sql(HEADERS.format("kaname.")))
    jobs = sorted(evaluations_with(user, [tuple(row) for row in headers]))
    runs = [run for (run,) in await connection.fetch(office.sql(_FAMILY), user, jobs)]
    for run, row in (await removal.look(connection, office, runs, lock=True)).items():
        if row[4]:
            raise RunBusy(busy_text(run, describe_owner(row[1])))
    return runs


async def _erase(connection: Connection, office: Office, user: str) -> Erased:
    sql = office.sql
    doomed = await _family(connection, office, user)
    rows = await connection.fetch(sql(_LATER), doomed)
    later, needed = [run for run, is_later in rows if is_later], [run for run, is_later in rows if not is_later]
    talks = [tuple(row) for row in await connection.fetch(sql(_TALKS), user)]
    gone = accounts_of(user, talks, doomed, [name for (name,) in await connection.fetch(sql(_ACCOUNTS))])
    for table in ("accounts", "reservations"):
        await connection.execute(sql(f"DELETE FROM kaname.{table} WHERE name = ANY($1::text[])"), gone)
    alias = f"erased-{secrets.token_hex(6)}"
    for run in needed:
        await _rewrite(connection, office, run, partial(blank_fact, alias))
    await connection.execute(sql(_ANONYMOUS), needed, alias, ERASED_TEXT, SHARED)
    await media.remove(connection, sql, needed)
    await connection.execute(sql("DELETE FROM kaname.snapshots WHERE run = ANY($1::text[])"), [*needed, *later])
    for run in later:
        await _rewrite(connection, office, run, _without_summary)
    await removal.remove(connection, office, [one for one in doomed if one not in needed])
    await connection.execute(sql('DELETE FROM kaname.queue WHERE "user" = $1'), user)
    if await connection.fetchval("SELECT to_regclass('procrastinate_jobs') IS NOT NULL"):
        await connection.execute("DELETE FROM procrastinate_jobs WHERE task_name = $1 AND args->>'user' = $2", TASK, user)
    await _erase_waiting(connection, office, user, alias, needed)
    answers = await _answers(connection, office, user)
    for run, texts in answers.items():
        await _rewrite(connection, office, run, partial(_without_answer, user, alias, texts))
    await connection.execute(sql("DELETE FROM kaname.snapshots WHERE run = ANY($1::text[])"), list(answers))
    return Erased(len(doomed) - len(needed), len(needed), len(answers), len(gone))


async def _erase_waiting(connection: Connection, office: Office, user: str, alias: str, needed: list[str]) -> None:
    """Delete messages that no run has taken in, approvals for the user, and the user's name in approvals for others."""
    sql, kind = office.sql, Interjected.__name__
    letters = await connection.fetch(sql("SELECT id, body FROM kaname.inbox"))
    said = [one for one, body in letters if answers_by(user, kind, body) is not None]
    await connection.execute(sql("DELETE FROM kaname.inbox WHERE id = ANY($1::text[]) OR run = ANY($2::text[])"), said, needed)
    await connection.execute(sql('DELETE FROM kaname.grants WHERE "user" = $1'), user)
    await connection.execute(sql("UPDATE kaname.grants SET by = $2 WHERE by = $1"), user, alias)


def _without_summary(seq: int, kind: str, body: str) -> tuple[str, str] | None:
    changed = without_summary(kind, body)
    return None if changed is None else (kind, changed)


def _without_answer(user: str, alias: str, texts: set[str], seq: int, kind: str, body: str) -> tuple[str, str] | None:
    changed = without_answer(user, alias, texts, kind, body)
    return None if changed is None else (kind, changed)


async def _answers(connection: Connection, office: Office, user: str) -> dict[str, set[str]]:
    """Return the runs in which the user answered questions or said something, each with the texts."""
    found: dict[str, set[str]] = {}
    for run, kind, body in await connection.fetch(office.sql(_ANSWERS), list(SAID)):
        texts = answers_by(user, kind, body)
        if texts is not None:
            found.setdefault(run, set()).update(texts)
    return found


async def _rewrite(connection: Connection, office: Office, run: str, change: Change) -> None:
    """Change facts of a run. One that does not match its checksum stays as it is."""
    made: list[Sequence[Any]] = []
    for name, seq, time, agent, kind, body, total in await connection.fetch(office.sql(_FACTS), run):
        changed = change(seq, kind, body) if fact_sum(name, seq, time, agent, kind, body) == total else None
        if changed is not None and changed != (kind, body):
            made.append((name, seq, *changed, fact_sum(name, seq, time, agent, *changed)))
    await connection.executemany(office.sql(_REWRITE), made)
