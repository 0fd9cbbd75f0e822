"""Remove runs from a database, with everything that belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import RunBusy, RunNeeded, RunNotFound
from ..core.runs import UNDER_WAY, RunInfo
from .refusals import busy_text, dependants_text
from .sql import Content, Database, Many, Steps

_LOOK = "SELECT r.run, r.owner, r.seq, r.status, kaname.executes(r) FROM kaname.runs AS r WHERE r.run = ANY($1::text[])"
DEPENDENT = "SELECT base, run FROM kaname.runs WHERE base <> '' AND base = ANY($1::text[])"
INSIDE = "SELECT parent, run FROM kaname.runs WHERE parent <> '' AND parent = ANY($1::text[])"
_AT_ONCE = 200  # runs of one statement


def look(runs: Sequence[str], *, lock: bool) -> Steps[dict[str, Any]]:
    """Return the owner, the number of facts and the status of each run, and whether a process executes it."""
    rows = yield f"{_LOOK} ORDER BY r.run{' FOR UPDATE' if lock else ''}", list(runs)
    return {row[0]: row for row in rows}


def relatives(query: str, runs: Sequence[str]) -> Steps[dict[str, list[str]]]:
    """Return the runs that continue from each of these (`DEPENDENT`), or that are inside it (`INSIDE`)."""
    found: dict[str, list[str]] = {}
    for one, other in (yield query, list(runs)):
        found.setdefault(one, []).append(other)
    return found


def family(content: Content, run_id: str, cascade: bool) -> Steps[list[str]]:
    """Return the run with its children and, with `cascade`, the runs that continue from them. Refuse if one is in use.

    They are locked: a run that would continue from one of them meanwhile waits, and is refused then.
    """
    doomed, new = [run_id], [run_id]
    while new:
        rows = yield from look(new, lock=True)
        dependants = yield from relatives(DEPENDENT, new)
        children = yield from relatives(INSIDE, new)
        for one in new:
            if one not in rows:
                raise RunNotFound(one)
            if rows[one][4]:
                raise RunBusy(busy_text(one, content.describe(rows[one][1])))
            if dependants.get(one) and not cascade:
                raise RunNeeded(dependants_text(one, dependants[one]))
        both = [other for one in new for other in (*dependants.get(one, ()), *children.get(one, ()))]
        new = [other for other in dict.fromkeys(both) if other not in doomed]
        doomed += new
    return doomed


def removable(cards: Sequence[RunInfo], gone: set[str], *, lock: bool) -> Steps[list[str]]:
    """Return the ended runs that are as their cards say and that no run outside `gone` needs, with their children.

    They are added to `gone`: pass the runs that were opened last first, so that a whole session can be removed at once.
    """
    found: list[str] = []
    for card in cards:
        doomed = yield from _unneeded(card, gone, lock)
        found += doomed
        gone.update(doomed)
    return found


def _unneeded(card: RunInfo, gone: set[str], lock: bool) -> Steps[list[str]]:
    """Return a run with its children if it is as its card says and no other run needs one of them; else an empty list."""
    doomed, new = [card.run_id], [card.run_id]
    while new:
        rows = yield from look(new, lock=lock)
        if any(one not in rows or one in gone or rows[one][4] for one in new):
            return []
        if new == doomed and (rows[card.run_id][2] != card.seq or rows[card.run_id][3] in UNDER_WAY):
            return []
        if (yield from _all_relatives(DEPENDENT, new)) - gone - {*doomed}:
            return []
        new = sorted((yield from _all_relatives(INSIDE, new)) - gone - {*doomed})
        doomed = [*doomed, *new]
    return doomed


def _all_relatives(query: str, runs: Sequence[str]) -> Steps[set[str]]:
    return {other for others in (yield from relatives(query, runs)).values() for other in others}


def remove(content: Content, runs: Sequence[str]) -> Steps[None]:
    """Delete all rows of these runs."""
    for first in range(0, len(runs), _AT_ONCE):
        some = list(runs[first : first + _AT_ONCE])
        yield from content.forget(some)
        for table in ("facts", "snapshots", "stops", "inbox", "digests", "runs"):
            yield Many(f"DELETE FROM kaname.{table} WHERE run = $1", [(run,) for run in some])


async def delete_run(database: Database, run_id: str, cascade: bool) -> list[str]:
    """Delete a run with its children, and return their ids."""
    tried = False

    def work() -> Steps[list[str]]:
        nonlocal tried
        again, tried = tried, True
        try:
            doomed = yield from family(database, run_id, cascade)
        except RunNotFound:
            if again:  # it was deleted before the answer was lost
                return []
            raise
        yield from remove(database, doomed)
        return doomed

    return await database.write(work)


async def prune_runs(database: Database, cards: Sequence[RunInfo], trial: set[str] | None) -> list[str]:
    """Delete runs as `Journal.prune` does, and return their ids."""

    def work() -> Steps[list[str]]:
        found = yield from removable(cards, set(trial or ()), lock=trial is None)
        if trial is None:
            yield from remove(database, found)
        return found

    if trial is None:
        return await database.write(work)
    found = await database.read(work)
    trial.update(found)
    return found
