"""Lists of runs and sessions, a page at a time along an index, and counts over all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.runs import RunInfo, SessionInfo, Tally
from .connections import Connection
from .office import Office
from .owner import alive

CARD = ", ".join([f'r."{name}"' for name in ("run", *RunInfo.__match_args__[1:])])


class Arguments:
    """The values of a statement, in the order of their numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any) -> str:
        """Return the place of the value in the statement: `$1` for the first."""
        self.values.append(value)
        return f"${len(self.values)}"


def executes(office: Office, given: Arguments) -> str:
    """Return the condition that a process executes the run `r`: another one that is alive, or this one."""
    me, held = given.add(office.me), given.add(office.held_runs())
    lives = alive("r.owner", office.address.ttl)
    return f"(r.owner IS NOT NULL AND CASE WHEN r.owner = {me} THEN r.run = ANY({held}::text[]) ELSE {lives} END)"


def _select(office: Office, given: Arguments) -> str:
    """Return the columns of a card. The status of a run that is under way depends on whether a process executes it."""
    status = f"CASE WHEN r.status = 'running' AND NOT {executes(office, given)} THEN 'interrupted' ELSE r.status END"
    return CARD.replace('r."status"', status)


def _conditions(given: Arguments, **wanted: Any) -> list[str]:
    found = {name: value for name, value in wanted.items() if value or (name == "user" and value is not None)}
    return [f'r."{name}" = {given.add(value)}' for name, value in found.items()]


async def runs(
    connection: Connection,
    office: Office,
    wanted: dict[str, Any],
    starting: str,
    since: float,
    until: float,
    before: int,
    limit: int,
) -> list[RunInfo]:
    """Return one page of runs, the one that was opened last first."""
    given = Arguments()
    columns, status = _select(office, given), wanted.pop("status")
    conditions = _conditions(given, **wanted)
    if status in ("running", "interrupted"):
        conditions += ["r.status = 'running'", f"{'' if status == 'running' else 'NOT '}{executes(office, given)}"]
    elif status:
        conditions.append(f"r.status = {given.add(status)}")
    if starting:
        conditions.append(f"r.run >= {given.add(starting)} AND r.run < {given.add(starting + chr(0x10FFFF))}")
    if since:
        moment = given.add(float(since))
        conditions.append(f"(r.ended >= {moment} OR r.ended IS NULL AND r.status IN ('running', 'waiting'))")
        conditions.append(f"r.updated >= {moment}")
    if until:
        conditions.append(f"r.updated < {given.add(float(until))}")
    if before:
        conditions.append(f"r.place < {given.add(before)}")
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT {columns} FROM kaname.runs AS r {where} ORDER BY r.place DESC LIMIT {given.add(limit)}"
    return [RunInfo(*row) for row in await connection.fetch(office.sql(query), *given.values)]


async def sessions(
    connection: Connection, office: Office, wanted: dict[str, Any], before: int, limit: int
) -> list[SessionInfo]:
    """Return one page of sessions, the one that changed last first. Each is found by its run that changed last."""
    given = Arguments()
    mine = "".join([f" AND {one}" for one in _conditions(given, **wanted)])
    later = mine.replace("r.", "later.")  # a shared one may have been moved on by others
    mine += f" AND r.moved < {given.add(before)}" if before else ""
    query = (
        f"SELECT r.thread, r.moved FROM kaname.runs AS r WHERE r.thread IS NOT NULL{mine} AND NOT EXISTS (SELECT 1 FROM "
        f"kaname.runs AS later WHERE later.thread = r.thread AND later.moved > r.moved{later}) "
        f"ORDER BY r.moved DESC LIMIT {given.add(limit)}"
    )
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await connection.fetch(office.sql(query), *given.values)
        return await _sessions(connection, office, found)


async def _sessions(connection: Connection, office: Office, found: Sequence[Any]) -> list[SessionInfo]:
    given = Arguments()
    columns = _select(office, given)
    threads = given.add([thread for thread, _ in found])
    query = f"SELECT r.thread, {columns} FROM kaname.runs AS r WHERE r.thread = ANY({threads}::text[]) ORDER BY r.place"
    cards: dict[str, list[RunInfo]] = {}
    for thread, *row in await connection.fetch(office.sql(query), *given.values):
        cards.setdefault(thread, []).append(RunInfo(*row))
    listed = []
    for thread, moved in found:
        held = cards[thread]
        costs = [card.cost for card in held if card.cost is not None]
        cost = sum(costs) if len(costs) == len(held) else None
        ids = tuple([card.run_id for card in held])
        listed.append(SessionInfo(moved, held[0], held[-1], ids, max([card.updated for card in held]), cost))
    return listed


async def count(connection: Connection, office: Office, wanted: dict[str, Any], since: float, shift: float) -> list[Tally]:
    """Count the top-level runs by status and day."""
    given = Arguments()
    status = f"CASE WHEN r.status = 'running' AND NOT {executes(office, given)} THEN 'interrupted' ELSE r.status END"
    conditions = ["r.parent = ''", *_conditions(given, **wanted)]
    if since:
        conditions.append(f"r.created >= {given.add(float(since))}")
    query = (
        f"SELECT {status}, floor((r.created - {given.add(float(shift))}) / 86400)::int8, count(*), "
        "sum(r.input + r.output)::int8, coalesce(sum(r.cost), 0), count(*) - count(r.cost) "
        f"FROM kaname.runs AS r WHERE {' AND '.join(conditions)} GROUP BY 1, 2"
    )
    return [Tally(*row) for row in await connection.fetch(office.sql(query), *given.values)]
