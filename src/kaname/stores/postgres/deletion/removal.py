"""Remove runs with everything that belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import RunBusy, RunNeeded, RunNotFound
from ....core.runs import RunInfo
from ...refusals import busy_text, dependants_text
from ..connections import Connection
from ..lists import Arguments, executes
from ..office import Office
from ..owner import describe_owner
from ..stores import media

_DEPENDENT = "SELECT base, run FROM kaname.runs WHERE base <> '' AND base = ANY($1::text[])"
_INSIDE = "SELECT parent, run FROM kaname.runs WHERE parent <> '' AND parent = ANY($1::text[])"
_AT_ONCE = 200  # runs of one statement


async def look(connection: Connection, office: Office, runs: Sequence[str], *, lock: bool) -> dict[str, Any]:
    """Return the owner, the number of facts and the status of each run, and whether a process executes it."""
    given = Arguments()
    condition = executes(office, given)
    query = (
        f"SELECT r.run, r.owner, r.seq, r.status, {condition} FROM kaname.runs AS r WHERE r.run = ANY({given.add(list(runs))}) "
    )
    query += "ORDER BY r.run FOR UPDATE" if lock else ""
    return {row[0]: row for row in await connection.fetch(office.sql(query), *given.values)}


async def _relatives(connection: Connection, office: Office, query: str, runs: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one, other in await connection.fetch(office.sql(query), list(runs)):
        found.setdefault(one, []).append(other)
    return found


async def family(connection: Connection, office: Office, run_id: str, cascade: bool) -> list[str]:
    """Return the run with its children and, with `cascade`, the runs that continue from them. Refuse if one is in use.

    They are locked: a run that would continue from one of them meanwhile waits, and is refused then.
    """
    doomed, new = [run_id], [run_id]
    while new:
        rows = await look(connection, office, new, lock=True)
        dependants = await _relatives(connection, office, _DEPENDENT, new)
        children = await _relatives(connection, office, _INSIDE, new)
        for one in new:
            if one not in rows:
                raise RunNotFound(one)
            if rows[one][4]:
                raise RunBusy(busy_text(one, describe_owner(rows[one][1])))
            if dependants.get(one) and not cascade:
                raise RunNeeded(dependants_text(one, dependants[one]))
        both = [other for one in new for other in (*dependants.get(one, ()), *children.get(one, ()))]
        new = [other for other in dict.fromkeys(both) if other not in doomed]
        doomed += new
    return doomed


async def removable(
    connection: Connection, office: Office, cards: Sequence[RunInfo], gone: set[str], *, lock: bool
) -> list[str]:
    """Return the ended runs that are as their cards say and that no run outside `gone` needs, with their children.

    They are added to `gone`: pass the runs that were opened last first, so that a whole session can be removed at once.
    """
    found: list[str] = []
    for card in cards:
        doomed, new, fits = [card.run_id], [card.run_id], True
        while new and fits:
            rows = await look(connection, office, new, lock=lock)
            dependants = await _relatives(connection, office, _DEPENDENT, new)
            children = await _relatives(connection, office, _INSIDE, new)
            for one in new:
                row = rows.get(one)
                fits = fits and row is not None and one not in gone and not row[4]
                if fits and one == card.run_id and row is not None:
                    fits = row[2] == card.seq and row[3] not in ("running", "waiting")
                fits = fits and all(other in gone or other in doomed for other in dependants.get(one, ()))
            new = [child for one in new for child in children.get(one, ()) if child not in gone and child not in doomed]
            doomed += new
        if fits:
            found += doomed
            gone.update(doomed)
    return found


async def remove(connection: Connection, office: Office, runs: Sequence[str]) -> None:
    """Delete all rows of these runs."""
    for first in range(0, len(runs), _AT_ONCE):
        some = list(runs[first : first + _AT_ONCE])
        await media.remove(connection, office.sql, some)
        for table in ("facts", "snapshots", "stops", "inbox", "runs"):
            await connection.execute(office.sql(f"DELETE FROM kaname.{table} WHERE run = ANY($1::text[])"), some)
