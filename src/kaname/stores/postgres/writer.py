"""Write facts: what many runs append while a statement is under way goes out as one statement, with one commit.

A statement can be sent twice, because its answer may be lost with the connection: it writes only if the run is where it was
before. Everything here runs in the event loop of the journal's thread, except for `put`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from ...core.errors import JournalError, RunBusy, RunExists, RunNotFound, RunSuperseded, SessionBusy
from ...core.runs import RunInfo
from ...kernel.boundary import Border
from ...kernel.ports import Turn
from ..journal import RunHold
from ..media import MARK, Medium, detach_media
from ..refusals import busy_text, gap_text, superseded_text
from ..rows import CARD, fact_sum, messages_in
from .connections import Connection, Connections
from .errors import code_of, explain, is_temporary
from .media import store
from .owner import alive, describe_owner
from .schema import PLACES, Sql
from .thread import PostgresThread, deliver

_MOST = 500  # appends in one statement; there is a place for each of them
_BYTES = 4_000_000  # of the facts in one statement
_TYPES = dict.fromkeys(CARD, "text")
_TYPES |= dict.fromkeys(("created", "updated", "cost"), "float8")
_TYPES |= dict.fromkeys(("seq", "input", "output", "questions"), "int8")
_QUOTED = {name: f'"{name}"' for name in CARD}  # `user` is a reserved word
_BASE = CARD.index("base")
_SHORT = {"run": "text", "epoch": "int8", "prior": "int8", "updated": "float8", "seq": "int8"}
_SHORT |= {"input": "int8", "output": "int8", "cost": "float8"}
_WHOLE = {_QUOTED[name]: kind for name, kind in _TYPES.items()}
_WHOLE |= {"epoch": "int8", "prior": "int8", "base_seq": "int8", "n": "int8", "ends": "bool", "opens": "bool"}
_FACT = {
    "run": "text",
    "seq": "int8",
    "time": "float8",
    "agent": "text",
    "type": "text",
    "body": "text",
    "sum": "int8",
    "n": "int8",
}


def _given(columns: dict[str, str], first: int) -> str:
    """Return rows that are passed as one array a column, from that parameter on."""
    arrays = ", ".join([f"${number}::{kind}[]" for number, kind in enumerate(columns.values(), first)])
    return f"unnest({arrays}) AS g({', '.join(columns)})"


_ENDED = "CASE WHEN {status} IN ('running', 'waiting') THEN NULL ELSE g.updated END"
_COUNTS = ("updated", "seq", "input", "output", "cost")
_OPEN_COLUMNS = ", ".join([*_QUOTED.values(), "base_seq", "place", "moved", "ended", "epoch", "owner"])
# $1 is this process. A run that goes on changes no column that has an index. `LIMIT 1` is for the planner: without statistics
# it expects thousands of rows, and spends seconds on compiling the statement (JIT) when many runs begin at once.
_APPEND = f"""
WITH mark AS (SELECT shift + (pg_current_xact_id()::text::int8 << {PLACES}) AS place FROM kaname.journal LIMIT 1),
short AS (SELECT * FROM {_given(_SHORT, 2)}),
whole AS (SELECT * FROM {_given(_WHOLE, 2 + len(_SHORT))}),
bases AS (SELECT run FROM kaname.runs WHERE run IN (SELECT base FROM whole WHERE opens AND base <> '') FOR KEY SHARE),
gone_on AS (
    UPDATE kaname.runs AS r SET {", ".join([f"{name} = g.{name}" for name in _COUNTS])},
        ended = {_ENDED.format(status="r.status")}
    FROM short AS g WHERE r.run = g.run AND r.epoch = g.epoch AND r.seq = g.prior RETURNING r.run
), changed AS (
    UPDATE kaname.runs AS r SET {", ".join([f"{name} = g.{name}" for name in list(_QUOTED.values())[1:]])},
        ended = {_ENDED.format(status="g.status")}, moved = mark.place + g.n,
        owner = CASE WHEN g.ends THEN NULL ELSE r.owner END
    FROM whole AS g, mark WHERE NOT g.opens AND r.run = g.run AND r.epoch = g.epoch AND r.seq = g.prior RETURNING r.run
), opened AS (
    INSERT INTO kaname.runs ({_OPEN_COLUMNS})
    SELECT {", ".join([f"g.{name}" for name in _QUOTED.values()])}, g.base_seq, mark.place + g.n, mark.place + g.n,
        {_ENDED.format(status="g.status")}, g.epoch, CASE WHEN g.ends THEN NULL ELSE $1::text END
    FROM whole AS g, mark WHERE g.opens AND (g.base = '' OR g.base IN (SELECT run FROM bases))
    ON CONFLICT (run) DO NOTHING RETURNING run
), taken AS (SELECT run FROM gone_on UNION ALL SELECT run FROM changed UNION ALL SELECT run FROM opened),
written AS (
    INSERT INTO kaname.facts (run, seq, time, agent, type, body, sum, place)
    SELECT g.run, g.seq, g.time, g.agent, g.type, g.body, g.sum, mark.place + g.n
    FROM {_given(_FACT, 2 + len(_SHORT) + len(_WHOLE))} JOIN taken USING (run), mark
)
SELECT run FROM taken
"""
_REASONS = """
SELECT r.run, r.epoch, r.seq, r.owner, f.sum FROM kaname.runs AS r LEFT JOIN kaname.facts AS f ON f.run = r.run AND f.seq = 1
WHERE r.run = ANY($1::text[])
"""
_LOCK_SESSIONS = "SELECT pg_advisory_xact_lock(hashtextextended(name, 0)) FROM unnest($1::text[]) AS name"
_LAST_OF = """
SELECT run, status, owner, {alive}, seq FROM kaname.runs AS r WHERE session = $1 AND session <> '' AND $2 IN ('', agent)
AND coalesce($3, "user") = "user" ORDER BY place DESC LIMIT 1
"""
_REMOVE_MESSAGES = "DELETE FROM kaname.inbox WHERE id = ANY($1::text[])"
card_values = attrgetter(*RunInfo.__match_args__[:-1])


# Sent again because its answer was lost, it counts only if the reservation is still there: else it was counted before.
_SETTLE = """
WITH gone AS (DELETE FROM kaname.reservations WHERE holder = $1 RETURNING 1)
INSERT INTO kaname.accounts SELECT name, amount FROM unnest($2::text[], $3::float8[]) AS g(name, amount)
WHERE NOT $4 OR EXISTS (SELECT 1 FROM gone)
ON CONFLICT (name) DO UPDATE SET spent = accounts.spent + EXCLUDED.spent
"""


class Settlement(NamedTuple):
    """The end of a reservation, and what was spent by account."""

    holder: str
    spent: Mapping[str, float]


async def settle(connection: Connection, sql: Sql, one: Settlement, again: bool) -> None:
    names = sorted(one.spent)
    await connection.execute(sql(_SETTLE), one.holder, names, [float(one.spent[name]) for name in names], again)


class Append:
    """Facts of one run on their way to the database. `base_seq`: the fact of the base from which a new run continues."""

    __slots__ = ("base_seq", "ends", "future", "goes_on", "hold", "loop", "media", "outcome", "prior", "rows", "values")

    def __init__(
        self, hold: RunHold, prior: int, rows: list[Any], values: Any, goes_on: bool, ends: bool, base_seq: int
    ) -> None:
        self.hold, self.prior, self.values = hold, prior, values
        self.rows, self.media = _without_media(rows)
        self.goes_on, self.ends, self.base_seq = goes_on, ends, base_seq
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.outcome: Any = None


class Group:
    """The appends of one run that are written together."""

    __slots__ = ("appends", "base_seq", "ends", "goes_on", "hold", "last", "opens", "outcome", "prior", "run", "values")

    def __init__(self, first: Append) -> None:
        self.appends, self.hold, self.run = [first], first.hold, first.rows[0][0]
        self.prior, self.base_seq, self.opens = first.prior, first.base_seq, first.prior == 0
        self.goes_on, self.ends, self.values, self.last = first.goes_on, first.ends, first.values, first.rows[-1][1]
        self.outcome: JournalError | None = None  # of the last try

    def add(self, append: Append) -> None:
        self.appends.append(append)
        self.goes_on, self.ends = self.goes_on and append.goes_on, append.ends
        self.values, self.last = append.values, append.rows[-1][1]

    def messages(self) -> list[str]:
        return [one for append in self.appends for one in messages_in(append.rows)]

    def finish(self) -> None:
        self.hold.failure = self.hold.failure or self.outcome
        for append in self.appends:
            append.outcome = self.outcome


class Writer:
    """One connection that writes. `wrote` is called with the runs that were written, `owner` is this process.

    `is_held` returns True for a run that this process executes.
    """

    def __init__(
        self,
        connections: Connections,
        thread: PostgresThread,
        sql: Sql,
        owner: str,
        ready: Callable[[], Awaitable[None]],
        wrote: Callable[[list[str]], None],
        is_held: Callable[[str], bool],
    ) -> None:
        self._connections, self._thread, self._sql, self._owner = connections, thread, sql, owner
        self._ready, self._wrote, self._is_held = ready, wrote, is_held
        self._appends: deque[Append] = deque()
        self._settlements: deque[Settlement] = deque()
        self._is_awake = False
        self._task: asyncio.Task[None] | None = None
        self._last_of = sql(_LAST_OF.format(alive=alive("r.owner", connections.address.ttl)))
        self.statements = 0

    def put(self, one: Append | Settlement) -> None:
        """Queue something to be written, from any thread."""
        (self._appends if isinstance(one, Append) else self._settlements).append(one)  # type: ignore[arg-type]
        if not self._is_awake:
            self._is_awake = True
            assert self._thread.loop is not None
            self._thread.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())

    async def finish(self) -> None:
        """Wait until everything is written."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    async def _write_all(self) -> None:
        while True:
            self._is_awake = True
            appends = self._next_appends()
            settlements = [self._settlements.popleft() for _ in range(len(self._settlements))]
            if not appends and not settlements:
                self._is_awake = False
                if not self._appends and not self._settlements:  # nothing came in this very moment
                    return
                continue
            groups = _group_rows(appends)
            await self._write(groups, settlements)
            for group in groups:
                group.finish()
            self._wrote([group.run for group in groups if group.outcome is None])
            deliver(appends)

    def _next_appends(self) -> list[Append]:
        """Take the appends of the next transaction from the queue: at most `_MOST`, and about `_BYTES` bytes."""
        taken: list[Append] = []
        size = 0
        while self._appends and len(taken) < _MOST and size < _BYTES:
            taken.append(self._appends.popleft())
            size += sum([len(row[5]) for row in taken[-1].rows]) + sum([len(one.content) for one in taken[-1].media])
        return taken

    async def _write(self, groups: list[Group], settlements: list[Settlement]) -> None:
        tried = [False]
        with Border() as border:
            await self._ready()
            await self._connections.patiently(partial(self._try, groups, settlements, tried), writes=True)
        if border.failure is None:
            return
        problem = border.failure.error
        cause = problem.__cause__ or problem
        alone = len(groups) + len(settlements) < 2
        if not alone and not is_temporary(cause) and code_of(cause) != "53100":  # one run's trouble must not be the others'
            for settlement in settlements:
                await self._write([], [settlement])
            for group in groups:
                await self._write([group], [])
            return
        for group in groups:
            group.outcome = problem if isinstance(problem, JournalError) else explain(problem, self._connections.address.shown)
        if is_temporary(cause):  # money is counted as soon as the server is there again
            self._settlements.extendleft(reversed(settlements))

    async def _try(self, groups: list[Group], settlements: list[Settlement], tried: list[bool]) -> None:
        again, tried[0] = tried[0], True
        turns = [group for group in groups if group.opens and group.hold.turn is not None]
        said = {group.run: found for group in groups if (found := group.messages())}
        media = any(append.media for group in groups for append in group.appends)

        async def work(connection: Connection) -> None:
            if not turns and not settlements and not said and not media:
                return await self._append(connection, groups, again)
            async with connection.transaction():
                for one in settlements:
                    await settle(connection, self._sql, one, again)
                refused = await self._refused_turns(connection, turns) if turns else set()
                await self._append(connection, [group for group in groups if group.run not in refused], again)
                taken = [one for group in groups if group.outcome is None for one in said.get(group.run, ())]
                if taken:
                    await connection.execute(self._sql(_REMOVE_MESSAGES), taken)
                if media:
                    await self._store_media(connection, groups)
            return None

        await self._connections.writer.do(work)

    async def _store_media(self, connection: Connection, groups: Sequence[Group]) -> None:
        written = [group for group in groups if group.outcome is None]
        found = [(group.run, one) for group in written for append in group.appends for one in append.media]
        if found:
            await store(connection, self._sql, found)

    async def _append(self, connection: Connection, groups: Sequence[Group], again: bool) -> None:
        if not groups:
            return
        self.statements += 1
        taken = {row[0] for row in await connection.fetch(self._sql(_APPEND), self._owner, *_arrays(groups))}
        left = [group for group in groups if group.run not in taken]
        reasons = (
            {row[0]: row for row in await connection.fetch(self._sql(_REASONS), [one.run for one in left])} if left else {}
        )
        for group in groups:
            group.outcome = None if group.run in taken else self._refusal(group, reasons.get(group.run), again)

    def _refusal(self, group: Group, row: Any, again: bool) -> JournalError | None:
        """Return the error that says why facts were not written; None if they had been written before the answer was lost."""
        if row is None:
            return RunNotFound(group.values[_BASE] if group.opens else group.run)
        _, epoch, seq, owner, first = row
        if group.opens:
            if again and epoch == group.hold.epoch and seq == group.last and first == group.appends[0].rows[0][-1]:
                return None
            return RunBusy(busy_text(group.run, describe_owner(owner))) if owner else RunExists(group.run)
        if epoch != group.hold.epoch:
            return RunSuperseded(superseded_text(group.run))
        return None if again and seq == group.last else JournalError(gap_text(group.run, seq, group.prior + 1))

    async def _refused_turns(self, connection: Connection, groups: list[Group]) -> set[str]:
        """Refuse runs whose session has moved on meanwhile. The locks keep other processes from the same sessions."""
        names = sorted({f"{self._sql.schema} {group.hold.turn.session}" for group in groups if group.hold.turn is not None})
        await connection.execute(_LOCK_SESSIONS, names)
        refused: set[str] = set()
        opening: dict[Any, str] = {}
        for group in groups:
            turn = group.hold.turn
            assert turn is not None
            row = await connection.fetchrow(self._last_of, *turn[:3])
            if row is not None and row[0] == group.run:  # written before the answer was lost
                continue
            first = opening.setdefault(turn[:3], group.run)
            busy = first if first != group.run else self._has_moved_on(group, turn, row)  # two of a session in one statement
            if busy:
                group.outcome = SessionBusy(busy)
                refused.add(group.run)
        return refused

    def _has_moved_on(self, group: Group, turn: Turn, row: Any) -> str:
        """Return the last run of the session if the new one does not continue from its end; else ""."""
        last, status, owner, lives, seq = row or ("", "", None, False, 0)
        executes = status == "running" and (self._is_held(last) if owner == self._owner else lives)
        return last if last != group.values[_BASE] or turn.after not in (0, seq) or executes else ""


def _without_media(rows: list[Any]) -> tuple[list[Any], list[Medium]]:
    """Return the rows with hashes in the places of media, and the media."""
    media: list[Medium] = []
    for place, (run, seq, time, agent, kind, body, _) in enumerate(rows):
        if MARK in body:
            text, found = detach_media(body)
            rows[place] = (run, seq, time, agent, kind, text, fact_sum(run, seq, time, agent, kind, text))
            media += found
    return rows, media


def _group_rows(appends: Sequence[Append]) -> list[Group]:
    groups: dict[tuple[str, int], Group] = {}
    for append in appends:
        key = (append.rows[0][0], append.hold.epoch)
        if key in groups:
            groups[key].add(append)
        else:
            groups[key] = Group(append)
    return list(groups.values())


def _arrays(groups: Sequence[Group]) -> list[list[Any]]:
    """Return the values of `_APPEND`, one array a column: runs that go on, runs that begin or change, and facts."""
    short = [(one.run, one.hold.epoch, one.prior, *_counts(one.values)) for one in groups if one.goes_on and not one.opens]
    whole = [
        (*one.values, one.hold.epoch, one.prior, one.base_seq, number, one.ends, one.opens)
        for number, one in enumerate(groups)
        if one.opens or not one.goes_on
    ]
    facts = [(*row, number) for number, group in enumerate(groups) for one in group.appends for row in one.rows]
    return [*_columns(short, len(_SHORT)), *_columns(whole, len(_WHOLE)), *_columns(facts, len(_FACT))]


_TIMES = [CARD.index(name) for name in _COUNTS]


def _counts(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([values[number] for number in _TIMES])


def _columns(rows: list[Any], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * count
