"""Read facts and verify them: every checksum must be right, and no fact may be missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.codec import decode_body
from ...core.errors import JournalCorrupt, RunNotFound
from ...core.events import Event
from ...core.notices import notice
from ...core.runs import UNDER_WAY
from ...kernel.ports import Change, Lineage
from ..media import STORED
from ..rows import fact_sum, row_sum
from .connections import Connection
from .media import Held, attach, read
from .schema import BARRIER, Sql

_NOTHING: Held = {}
_FACT = "f.run, f.seq, f.time, f.agent, f.type, f.body, f.sum"
_BYTES = 500_000  # of a page: a slow reader holds no more in memory
_PAGE = f"""
WITH sized AS (
    SELECT seq, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS bytes FROM kaname.facts
    WHERE run = $1 AND seq > $2 AND seq <= $2 + $3)
SELECT {_FACT}, r.seq, r.status FROM kaname.runs AS r LEFT JOIN (kaname.facts AS f JOIN sized ON sized.seq = f.seq
    AND bytes < {_BYTES}) ON f.run = r.run AND f.seq > $2 AND f.seq <= least(r.seq, $2 + $3) WHERE r.run = $1 ORDER BY f.seq
"""
_CHAIN = """
WITH RECURSIVE chain AS (
    SELECT run, least($2, seq) AS upto, base, base_seq, 0 AS depth FROM kaname.runs WHERE run = $1
    UNION ALL SELECT r.run, c.base_seq, r.base, r.base_seq, c.depth + 1 FROM chain AS c JOIN kaname.runs AS r ON r.run = c.base
    WHERE c.base <> '' AND NOT EXISTS (
        SELECT 1 FROM kaname.snapshots AS s WHERE $3 > 0 AND s.run = c.run AND s.fold = $3 AND s.seq <= c.upto))
SELECT c.run, c.upto, c.base, s.seq, s.state, s.sum FROM chain AS c
LEFT JOIN kaname.snapshots AS s ON $3 > 0 AND s.run = c.run AND s.fold = $3 AND s.seq <= c.upto ORDER BY depth DESC
"""
_FACTS = f"""
SELECT {_FACT} FROM unnest($1::text[], $2::int8[], $3::int8[]) WITH ORDINALITY AS g(run, after, upto, at)
JOIN kaname.facts AS f ON f.run = g.run AND f.seq > g.after AND f.seq <= g.upto ORDER BY g.at, f.seq
"""
_CHANGES = f"""
WITH last AS (
    SELECT place FROM kaname.facts WHERE place > $1 AND place < {BARRIER} ORDER BY place OFFSET $2 LIMIT 1)
SELECT {_FACT}, f.place FROM kaname.facts AS f
WHERE place > $1 AND place < {BARRIER} AND place <= coalesce((SELECT place FROM last), 9223372036854775807)
ORDER BY place, seq
"""


def damage_error(where: str, what: str) -> JournalCorrupt:
    """Return the error for data that differs from what was written."""
    return JournalCorrupt.of(
        "journal.damaged",
        "the journal {path} is damaged: {what}. Nothing was changed. Restore a backup, or fork the run from an earlier fact.",
        path=where,
        what=what,
    )


def _event(row: Any, where: str, held: Held) -> Event:
    run, seq, time, agent, kind, body, total = row[:7]
    if fact_sum(run, seq, time, agent, kind, body) != total:
        message = notice(
            "journal.fact_checksum", "fact {number} of run {run_id} does not match its checksum", number=seq, run_id=run
        )
        raise damage_error(where, message)
    return Event(run, seq, time, agent, decode_body(kind, attach(held, run, body) if STORED in body else body))


def _without_gaps(
    rows: Iterable[Any], run_id: str, after: int, upto: int | None, where: str, held: Held = _NOTHING
) -> list[Event]:
    """Return the facts of one run, with their media. None may be missing between `after` and `upto`."""
    events = []
    for row in rows:
        after += 1
        if row[1] != after:
            break
        events.append(_event(row, where, held))
    else:
        if upto is None or after == upto:
            return events
        after += 1
    raise damage_error(
        where, notice("journal.fact_missing", "fact {number} of run {run_id} is missing", number=after, run_id=run_id)
    )


async def page(
    connection: Connection, sql: Sql, run_id: str, after: int, most: int, where: str
) -> tuple[list[Event], bool, bool]:
    """Return the next facts, True if they are the last so far, and True if the run is over.

    A page has at most `most` facts and about `_BYTES` bytes.
    """
    rows = await connection.fetch(sql(_PAGE), run_id, after, most)
    if not rows:
        return [], True, True
    seq, status = rows[0][7], rows[0][8]
    found = [row for row in rows if row[1] is not None]
    if not found and seq > after:
        _without_gaps([], run_id, after, seq, where)
    found, held = await _some_media(connection, sql, found)
    events = _without_gaps(found, run_id, after, None, where, held)
    last = not events or events[-1].seq >= seq
    return events, last, last and status not in UNDER_WAY


async def _some_media(connection: Connection, sql: Sql, rows: list[Any]) -> tuple[list[Any], Held]:
    """Return the first rows of a page with their media, so many that a slow reader does not hold too much in memory."""
    held: dict[tuple[str, str], bytes] = {}
    for count, row in enumerate(rows, 1):
        held |= await read(connection, sql, [(row[0], row[5])])
        if sum([len(content) for content in held.values()]) > _BYTES:
            return rows[:count], held
    return rows, held


async def lineage(connection: Connection, sql: Sql, run_id: str, upto: int | None, fold: int, where: str) -> Lineage:
    """Return the lineage of a run (see `Journal.lineage`) in two queries, however many runs it has."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        rows = await connection.fetch(sql(_CHAIN), run_id, 2**62 if upto is None else upto, fold)
        if not rows:
            raise RunNotFound(run_id)
        oldest, snapshot, start = rows[0], "", 0
        if oldest[3] is not None:
            if row_sum(oldest[0], fold, oldest[3], oldest[4]) == oldest[5]:
                start, snapshot = oldest[3], oldest[4]
            else:
                return await lineage(connection, sql, run_id, upto, 0, where)  # the snapshot is damaged: without it
        elif oldest[2]:
            raise RunNotFound(oldest[2])  # the base is gone
        afters = [start, *[0] * (len(rows) - 1)]
        given = [[row[0] for row in rows], afters, [row[1] for row in rows]]
        facts = await connection.fetch(sql(_FACTS), *given)
        held = await read(connection, sql, [(oldest[0], snapshot), *[(row[0], row[5]) for row in facts]])
    events: list[Event] = []
    at = 0
    for run, after, last in zip(*given, strict=True):
        mine = facts[at : at + max(0, last - after)]
        at += len(mine)
        events += _without_gaps(mine, run, after, max(after, last), where, held)
    return Lineage(attach(held, oldest[0], snapshot), events)


async def changes(connection: Connection, sql: Sql, after: int, most: int, where: str) -> list[Change]:
    """Return the facts appended after that place, in order, a page at a time. All facts of one place are in one page."""
    rows = await connection.fetch(sql(_CHANGES), after, most)
    held = await read(connection, sql, [(row[0], row[5]) for row in rows])
    return [Change(row[7], _event(row, where, held)) for row in rows]


async def verify(connection: Connection, sql: Sql, where: str, most: int = 0) -> list[str]:
    """Return a description of everything that is damaged: facts that are missing, alone, or not as they were written.

    With `most`, read about so many facts, of the newest runs, and do not look for facts without a run.
    """
    problems, read = list[str](), 0
    orphans = "SELECT DISTINCT run FROM kaname.facts AS f WHERE NOT EXISTS (SELECT 1 FROM kaname.runs AS r WHERE r.run = f.run)"
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        for (run,) in [] if most else await connection.fetch(sql(orphans)):
            problems.append(f"run {run!r} has facts, but no entry in the list of runs")
        async for run, seq in connection.cursor(sql("SELECT run, seq FROM kaname.runs ORDER BY place DESC")):
            try:
                rows = await connection.fetch(sql(_FACTS), [run], [0], [2**62])
                _without_gaps(rows, run, 0, seq, where)
            except JournalCorrupt as problem:
                problems.append(str(problem))
            read += seq
            if most and read >= most:
                break
    return problems
