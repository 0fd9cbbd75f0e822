"""Read rows and verify them: every checksum must be right, and no fact may be missing."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...core.codec import decode_body
from ...core.encryption.user_keys import ErasedKey
from ...core.errors import JournalCorrupt, JournalError, RunNotFound, RunSuperseded
from ...core.events import Event, Fact, Opened
from ...core.notices import notice
from ...core.runs import UNDER_WAY, RunInfo
from ...kernel.ports import Change, Lineage, Turn
from ..media import STORED
from ..refusals import gap_text, superseded_text
from ..rows import CARD, erased_fact, fact_sum, row_sum
from .errors import damage_error
from .media import media_of

CARD_ROW = f"{', '.join(CARD)}, place, sum"
SELECT_CARD = f"SELECT {CARD_ROW} FROM runs"
_SELECT_FACTS = "SELECT run, seq, time, agent, type, body, sum FROM facts WHERE run = ? AND seq > ? AND seq <= ? ORDER BY seq"
SEALED = "\x02"  # how an encrypted text begins: see `sealing`
_TITLE = CARD.index("title")
_BYTES = 500_000  # of a page: a slow reader holds no more in memory
_SELECT_SNAPSHOT = "SELECT seq, state, sum FROM snapshots WHERE run = ? AND fold = ? AND seq <= ?"


@contextmanager
def at_one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """Read everything inside from one snapshot of the file, whatever other processes write meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def card_of(row: tuple[Any, ...], path: Path) -> RunInfo:
    if row_sum(*row[:-1]) != row[-1]:
        raise damage_error(
            path, notice("journal.entry_checksum", "the entry of run {run_id!r} does not match its checksum", run_id=row[0])
        )
    if row[_TITLE][:1] == SEALED:
        from .sealing import unseal_title

        return RunInfo(*unseal_title(path, row[:-1]))
    return RunInfo(*row[:-1])


def last_fact(connection: sqlite3.Connection, run_id: str, path: Path) -> int:
    """Return the number of the run's last fact, 0 if there is no such run."""
    row = connection.execute(f"{SELECT_CARD} WHERE run = ?", (run_id,)).fetchone()
    if row is not None:
        return card_of(row, path).seq
    if connection.execute("SELECT 1 FROM facts WHERE run = ?", (run_id,)).fetchone() is not None:
        raise damage_error(
            path, notice("journal.no_entry", "run {run_id!r} has facts, but no entry in the list of runs", run_id=run_id)
        )
    return 0


def _intact_rows(connection: sqlite3.Connection, run_id: str, after: int, upto: int, path: Path) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the facts after one number, up to and including another. None may be missing or damaged."""
    for row in connection.execute(_SELECT_FACTS, (run_id, after, upto)):
        after += 1
        if row[1] != after:
            break
        if fact_sum(*row[:-1]) != row[-1]:
            raise damage_error(
                path,
                notice(
                    "journal.fact_checksum",
                    "fact {number} of run {run_id} does not match its checksum",
                    number=after,
                    run_id=run_id,
                ),
            )
        yield row
    else:
        if after == upto:
            return
        after += 1
    raise damage_error(
        path, notice("journal.fact_missing", "fact {number} of run {run_id} is missing", number=after, run_id=run_id)
    )


def facts(
    connection: sqlite3.Connection, run_id: str, after: int, upto: int, path: Path, most: int | None = None
) -> list[Event]:
    """Return the facts after one number, up to and including another.

    None may be missing. `most`: stop after so many bytes.
    """
    events: list[Event] = []
    read = 0
    for name, seq, time, agent, kind, body, _ in _intact_rows(connection, run_id, after, upto, path):
        if body[:1] == SEALED or STORED in body:
            decoded = _read_elsewhere(path, name, seq, kind, body)
        else:
            decoded = decode_body(kind, body)
        events.append(Event(name, seq, time, agent, decoded))
        read += len(body)
        if most is not None and read > most:
            break
    return events


def _read_elsewhere(path: Path, run: str, seq: int, kind: str, body: str) -> Fact:
    """Decrypt a fact and add its media. If the key of its user was destroyed, return what stands in its place."""
    from .sealing import fact_place, unseal

    try:
        body = unseal(path, body, fact_place(run, seq, kind))
    except ErasedKey:
        return erased_fact(kind)
    return decode_body(kind, media_of(path).attach(run, body) if STORED in body else body)


def open_text(path: Path, run: str, text: str, place: str) -> str:
    """Return a text that `stored_text` made, with its media; an empty one if the key of its user was destroyed."""
    if text[:1] == SEALED:
        from .sealing import unseal

        try:
            text = unseal(path, text, place)
        except ErasedKey:
            return ""
    return media_of(path).attach(run, text) if STORED in text else text


def lineage(connection: sqlite3.Connection, run_id: str, upto: int | None, fold: int, path: Path) -> Lineage:
    """Return the lineage of a run (see `Journal.lineage`) in one transaction, however many runs it has."""
    parts: list[list[Event]] = []
    snapshot = ""
    with at_one_moment(connection):
        last = last_fact(connection, run_id, path)
        if not last:
            raise RunNotFound(run_id)
        upto = last if upto is None else min(upto, last)
        while run_id:
            found = connection.execute(_SELECT_SNAPSHOT, (run_id, fold, upto)).fetchone() if fold else None
            if (
                found is not None
                and row_sum(run_id, fold, *found[:-1]) == found[-1]
                and (snapshot := open_text(path, run_id, found[1], run_id))
            ):
                parts.append(facts(connection, run_id, found[0], upto, path))
                break
            parts.append(facts(connection, run_id, 0, upto, path))
            opened = parts[-1][0].body
            run_id, upto = opened.base if isinstance(opened, Opened) and opened.base is not None else ("", 0)
    return Lineage(snapshot, [event for part in reversed(parts) for event in part])


def page(connection: sqlite3.Connection, run_id: str, after: int, most: int, path: Path) -> tuple[list[Event], bool, bool]:
    """Return the next facts, True if they are the last so far, and True if the run is over.

    A page has at most `most` facts and `_BYTES` bytes.
    """
    with at_one_moment(connection):
        row = connection.execute(f"{SELECT_CARD} WHERE run = ?", (run_id,)).fetchone()
        if row is None:
            last_fact(connection, run_id, path)
            return [], True, True
        card = card_of(row, path)
        upto = min(card.seq, after + most)
        found = facts(connection, run_id, after, upto, path, _BYTES) if upto > after else []
        last = not found or found[-1].seq >= card.seq
        return found, last, last and card.status not in UNDER_WAY


def changes(connection: sqlite3.Connection, after: int, most: int, path: Path) -> tuple[list[Change], int]:
    """Return the facts appended after that place, in order, and the last place examined. Runs deleted since are left out."""
    found: list[Change] = []
    query = "SELECT place, run, first, last FROM moves WHERE place > ? ORDER BY place LIMIT ?"
    with at_one_moment(connection):
        for place, run, first, last in connection.execute(query, (after, most)).fetchall():
            after = place
            if last_fact(connection, run, path) >= last:
                found += [Change(place, event) for event in facts(connection, run, first - 1, last, path)]
    return found, after


def verify(connection: sqlite3.Connection, path: Path, most: int = 0) -> list[str]:
    """Return a description of everything that is damaged in the file: its pages, its entries, its facts (see `Health`).

    With `most`, facts are compared with their checksums only, and not decoded.
    """
    with at_one_moment(connection):
        checked = connection.execute(f"PRAGMA {'quick' if most else 'integrity'}_check")
        problems, read = [text for (text,) in checked if text != "ok"], 0
        orphans = "SELECT DISTINCT run FROM facts WHERE run NOT IN (SELECT run FROM runs)"
        problems += [f"run {run!r} has facts, but no entry in the list of runs" for (run,) in connection.execute(orphans)]
        for row in connection.execute(f"{SELECT_CARD} ORDER BY place DESC"):
            try:
                card = card_of(row, path)
                if most:
                    deque(_intact_rows(connection, card.run_id, 0, card.seq, path), maxlen=0)
                else:
                    facts(connection, card.run_id, 0, card.seq, path)
                read += card.seq
            except JournalCorrupt as problem:
                problems.append(str(problem))
            if most and read >= most:
                break
    return problems


def refusal(connection: sqlite3.Connection, run_id: str, epoch: int, before: int) -> JournalError:
    """Return the error that says why facts could not be written."""
    row = connection.execute("SELECT epoch, seq FROM runs WHERE run = ?", (run_id,)).fetchone()
    if row is None:
        return RunNotFound(run_id)
    return RunSuperseded(superseded_text(run_id)) if row[0] != epoch else JournalError(gap_text(run_id, row[1], before + 1))


def last_of(connection: sqlite3.Connection, turn: Turn | None) -> tuple[str, str, str | None, int]:
    """Return the session's last run, its status, owner and last fact; empty values, if there is none or no turn is given."""
    if turn is None:
        return "", "", None, 0
    row = connection.execute(
        "SELECT run, status, owner, seq FROM runs WHERE session = ? AND session <> '' AND ? IN ('', agent) "
        "AND ifnull(?, user) = user ORDER BY place DESC LIMIT 1",
        turn[:3],
    ).fetchone()
    return row if row is not None else ("", "", None, 0)
