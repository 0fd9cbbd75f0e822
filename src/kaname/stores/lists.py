"""Lists of runs and sessions, a page at a time along an index, and counts over all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.runs import UNDER_WAY, RunInfo, SessionInfo, Tally
from .sql import Content, Steps

# `/*+*/` before a value keeps SQLite, whose tables have no statistics, from using its index. PostgreSQL reads a comment.
_INTERRUPTED = "CASE WHEN r.status = 'running' AND NOT kaname.executes(r) THEN 'interrupted' ELSE r.status END"
_LAST = chr(0x10FFFF)  # no character comes after it


class Values:
    """The values of a statement, in the order of their numbers."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def add(self, value: Any) -> str:
        """Return the place of the value in the statement: `$1` for the first."""
        self.all.append(value)
        return f"${len(self.all)}"


def _values_by_name(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are given: "" is a user, but no other value."""
    return {name: value for name, value in wanted.items() if value or (name == "user" and value is not None)}


def _conditions(wanted: Mapping[str, Any], values: Values) -> list[str]:
    """Return conditions for the values that are given. The most selective one is left to its index."""
    given = _values_by_name(wanted)
    few = ["status"] if given.get("status") in UNDER_WAY else []
    named = ["user"] if given.get("user") else []  # where there are no users, all runs have the same
    order = ("run", "starting", "session", "parent", *few, *named, "agent", "status", "user")
    leading = next((name for name in order if name in given), "")
    found = [f"r.{leading} <> ''"] if leading in ("session", "parent") else []  # as their indexes have it
    for name, value in given.items():
        if name == "starting":  # a stretch of the table itself
            found.append(f"r.run >= {values.add(value)} AND r.run < {values.add(value + _LAST)}")
        else:
            found.append(f'{"" if name == leading else "/*+*/"}r."{name}" = {values.add(value)}')
    return found


def list_runs(
    content: Content, wanted: Mapping[str, Any], *, since: float, until: float, before: int, limit: int
) -> Steps[list[RunInfo]]:
    """Return one page of runs, the one that was opened last first. `wanted`: columns, and "starting" for the id."""
    values, status, place = Values(), wanted["status"], "r.place"
    open_ones = status in ("running", "interrupted")  # one status in the table: it depends on the owner
    conditions = _conditions({**wanted, "status": "running" if open_ones else status}, values)
    if open_ones:
        conditions.append(f"{'' if status == 'running' else 'NOT '}kaname.executes(r)")
    if wanted["starting"]:
        place = "/*+*/r.place"
    elif since and not wanted["run"]:  # few have changed: they are found first
        place, conditions = "/*+*/r.place", [f"/*+*/({one})" for one in conditions]
        conditions.append(content.changed_since.format(values.add(since)))
    conditions += [f"/*+*/r.updated >= {values.add(since)}"] if since else []
    conditions += [f"/*+*/r.updated < {values.add(until)}"] if until else []
    conditions += [f"{place} < {values.add(before)}"] if before else []
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT {content.card_columns}, kaname.executes(r) FROM kaname.runs AS r {where} ORDER BY {place} DESC"
    return [_card(content, row) for row in (yield f"{query} LIMIT {values.add(limit)}", *values.all)]


def _card(content: Content, row: Sequence[Any]) -> RunInfo:
    """Return a card. The status of a run that is under way depends on whether a process executes it, the last value."""
    card = content.card(row[:-1])
    if card.status == "running" and not row[-1]:
        card.status = "interrupted"
    return card


def list_sessions(content: Content, wanted: Mapping[str, Any], before: int, limit: int) -> Steps[list[SessionInfo]]:
    """Return one page of sessions, the one that changed last first. Each is found by its run that changed last."""
    values, leading = Values(), "session" if wanted["session"] else "user"
    mine = theirs = ""
    for name, value in _values_by_name(wanted).items():
        place = values.add(value)
        mine += f' AND {"" if name == leading else "/*+*/"}mine."{name}" = {place}'
        theirs += f' AND /*+*/later."{name}" = {place}'  # a shared one may have been moved on by others
    mine += " AND mine.session <> ''" if wanted["session"] else ""
    mine += f" AND mine.moved < {values.add(before)}" if before else ""
    query = (
        f"SELECT thread, moved FROM kaname.runs AS mine WHERE thread IS NOT NULL{mine} AND NOT EXISTS (SELECT 1 FROM "
        "kaname.runs AS later WHERE later.thread = mine.thread AND later.thread IS NOT NULL AND later.moved > mine.moved"
        f"{theirs}) ORDER BY moved DESC LIMIT {values.add(limit)}"
    )
    found = yield query, *values.all
    # All of a page with two statements, because each statement costs as much as a row.
    held: dict[str, list[Any]] = {thread: [] for thread, _ in found}
    query = "SELECT thread, run, updated, cost FROM kaname.runs WHERE thread = ANY($1::text[]) AND thread IS NOT NULL"
    for thread, *row in (yield f"{query} ORDER BY place", [*held]):
        held[thread].append(row)
    ends = [one[0] for each in held.values() for one in (each[0], each[-1])]
    query = f"SELECT {content.card_columns}, kaname.executes(r) FROM kaname.runs AS r WHERE r.run = ANY($1::text[])"
    cards = {card.run_id: card for card in [_card(content, row) for row in (yield query, ends)]}
    made = []
    for thread, moved in found:
        ids, times, costs = zip(*held[thread], strict=True)
        cost = None if None in costs else sum(costs)
        made.append(SessionInfo(moved, cards[ids[0]], cards[ids[-1]], ids, max(times), cost))
    return made


def count_runs(content: Content, wanted: Mapping[str, Any], since: float, shift: float) -> Steps[list[Tally]]:
    """Count the top-level runs by status and day."""
    values = Values()
    conditions = [*_conditions(wanted, values), "/*+*/r.parent = ''"]
    conditions += [f"/*+*/r.created >= {values.add(since)}"] if since else []
    query = (
        f"SELECT {_INTERRUPTED}, {content.day.format(values.add(shift))}, count(*), sum(r.input + r.output)::int8, "
        "coalesce(sum(r.cost), 0.0), count(*) - count(r.cost) "
        f"FROM kaname.runs AS r WHERE {' AND '.join(conditions)} GROUP BY 1, 2"
    )
    return [Tally(*row) for row in (yield query, *values.all)]
