"""Lists of runs and sessions, a page at a time along an index, and counts over all runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...core.runs import RunInfo, SessionInfo, Tally
from .reading import CARD_ROW, at_one_moment, card_of

WithStatus = Callable[[RunInfo, str | None], RunInfo]  # sets the status of a card, which depends on whether its owner is alive
_FEW = ("running", "waiting")  # statuses that few runs have at a time
_ENDED = "status NOT IN ('running', 'waiting')"  # as the index `runs_by_end` has it

_LISTED = "IN (SELECT value FROM json_each(?))"
_BEGINS = "run >= :starting AND run < :starting || char(1114111)"  # a stretch of the table itself


def _conditions(wanted: Mapping[str, Any]) -> list[str]:
    """Return conditions for the values that are given.

    The most selective one is left to its index; `+` keeps the planner, which has no statistics, from using another one.
    """
    given = [name for name, value in wanted.items() if value or (name == "user" and value is not None)]
    few = ["status"] if wanted.get("status") in _FEW else []
    named = ["user"] if wanted.get("user") else []  # where there are no users, all runs have the same
    order = ("run", "starting", "session", "parent", *few, *named, "agent", "status", "user")
    leading = next((name for name in order if name in given), "")
    partial = [f"{leading} <> ''"] if leading in ("session", "parent") else []  # as their indexes have it
    return partial + [_BEGINS if name == "starting" else f"{'' if name == leading else '+'}{name} = :{name}" for name in given]


def runs(
    connection: sqlite3.Connection, wanted: dict[str, Any], since: float, until: float, before: int, limit: int
) -> list[tuple[Any, ...]]:
    """Return the rows of one page of runs, with their owners, the run that was opened last first."""
    conditions, place = _conditions(wanted), "place"
    if wanted["starting"]:
        place = "+place"
    elif since and not wanted["run"]:  # few have changed: they are found first
        place, conditions = "+place", [f"+({one})" for one in conditions]
        ended = f"SELECT run FROM runs WHERE updated >= :since AND {_ENDED}"
        conditions.append(f"run IN ({ended} UNION ALL SELECT run FROM runs WHERE status IN {_FEW})")
    conditions += ["+updated >= :since"] if since else []
    conditions += ["+updated < :until"] if until else []
    conditions += [f"{place} < :before"] if before else []
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT {CARD_ROW}, owner FROM runs {where} ORDER BY {place} DESC LIMIT :limit"
    values = {**wanted, "since": since, "until": until, "before": before, "limit": limit}
    return connection.execute(query, values).fetchall()


def sessions(
    connection: sqlite3.Connection, wanted: dict[str, Any], before: int, limit: int, with_status: WithStatus, path: Path
) -> list[SessionInfo]:
    """Return one page of sessions, the one that changed last first. Each is found by its run that changed last."""
    given = [name for name, value in wanted.items() if value or (name == "user" and value is not None)]
    leading = "session" if wanted["session"] else "user"
    mine = "".join([f" AND {'' if name == leading else '+'}mine.{name} = :{name}" for name in given])
    mine += " AND mine.session <> ''" if wanted["session"] else ""
    mine += " AND mine.moved < :before" if before else ""
    theirs = "".join([f" AND +later.{name} = :{name}" for name in given])  # a shared one may have been moved on by others
    query = (
        f"SELECT thread, moved FROM runs AS mine WHERE thread IS NOT NULL{mine} AND NOT EXISTS (SELECT 1 FROM runs AS later "
        f"WHERE later.thread = mine.thread AND later.thread IS NOT NULL AND later.moved > mine.moved{theirs}) "
        "ORDER BY moved DESC LIMIT :limit"
    )
    with at_one_moment(connection):
        found = connection.execute(query, {**wanted, "before": before, "limit": limit}).fetchall()
        return _sessions(connection, found, with_status, path)


def _sessions(
    connection: sqlite3.Connection, found: list[tuple[str, int]], with_status: WithStatus, path: Path
) -> list[SessionInfo]:
    """Return sessions by their threads: all of a page with two statements, because each statement costs as much as a row."""
    held: dict[str, list[tuple[Any, ...]]] = {thread: [] for thread, _ in found}
    query = f"SELECT thread, run, updated, cost FROM runs WHERE thread {_LISTED} AND thread IS NOT NULL ORDER BY place"
    for thread, *row in connection.execute(query, (json.dumps([*held]),)):
        held[thread].append(tuple(row))
    ends = [one[0] for each in held.values() for one in (each[0], each[-1])]
    rows = connection.execute(f"SELECT {CARD_ROW}, owner FROM runs WHERE run {_LISTED}", (json.dumps(ends),))
    cards = {row[0]: with_status(card_of(row[:-1], path), row[-1]) for row in rows}
    made = []
    for thread, moved in found:
        ids, times, costs = zip(*held[thread], strict=True)
        cost = None if None in costs else sum(costs)
        made.append(SessionInfo(moved, cards[ids[0]], cards[ids[-1]], ids, max(times), cost))
    return made


def count(
    connection: sqlite3.Connection, wanted: dict[str, Any], since: float, shift: float, with_status: WithStatus
) -> list[Tally]:
    """Count the top-level runs by status and day. A running one comes alone, because its owner decides its status."""
    conditions = [*_conditions(wanted), "+parent = ''", *(["+created >= :since"] if since else [])]
    query = (
        "SELECT status, cast((created - :shift) / 86400 AS INTEGER), count(*), sum(input + output), total(cost), "
        f"count(*) - count(cost), min(run), min(owner) FROM runs WHERE {' AND '.join(conditions)} "
        "GROUP BY +status, 2, iif(status = 'running', run, '')"
    )
    rows = connection.execute(query, {**wanted, "since": since, "shift": shift}).fetchall()
    return [Tally(with_status(RunInfo(run, status=status), owner).status, *more) for status, *more, run, owner in rows]
