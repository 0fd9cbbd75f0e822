"""Erase a user from a journal: runs, titles, snapshots, account names, and the user's name in runs of other people.

A run that other people's runs continue from stays as a row of placeholders: its facts say nothing any more, and theirs remain.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.encryption.database import open_database
from ....core.encryption.keys import key_for
from ....core.encryption.user_keys import UserKeys
from ....core.errors import AgentError, RunBusy
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
from .. import removal
from ..errors import explain
from ..file import connect, disconnect
from ..inbox import remove_letters
from ..media import MediaFile, media_of
from ..removal import Holder
from ..schema import APPLICATION, MIGRATIONS
from .copies import copies_of, forget_copy
from .rewriting import Changed, plain_body, rewrite_card, rewrite_facts, stored_body
from .sealing import ERASED_TEXT
from .waiting import erase_waiting

if TYPE_CHECKING:
    from ..journal import SqliteJournal

_MINE = "SELECT run, epoch, owner FROM runs WHERE user = ?"
_ATTEMPTS = "SELECT run, epoch, owner FROM runs WHERE run = ? OR (run >= ? AND run < ?)"
_FROM_IT = "SELECT run FROM runs WHERE base = ? AND base <> ''"
_INSIDE = "SELECT run FROM runs WHERE parent = ? AND parent <> ''"
_PATIENCE, _TRIES, _PAUSE = 5.0, 20, 0.1  # seconds, times, seconds


async def find_user(journal: SqliteJournal, user: str) -> Footprint:
    """Return what there is of a user. Raises `RunBusy` if a process executes one of the runs."""

    def work(connection: sqlite3.Connection) -> Footprint:
        runs = _family(connection, user, journal._holder)
        query = "SELECT DISTINCT session FROM runs WHERE user = ? AND session <> ''"
        sessions = [one for (one,) in connection.execute(query, (user,)) if not one.startswith(SHARED)]
        texts = {text for said in _answers_of(connection, user, journal._place.keys).values() for text in said}
        users = [connection.execute("SELECT user FROM runs WHERE run = ?", (one,)).fetchone()[0] for one in runs]
        tried = {one for one in users if one.startswith(EVALUATION_PREFIX)}
        return Footprint(tuple(runs), tuple(sessions), tuple(texts), tuple(tried))

    found: Footprint = await journal._writer.transact(work)
    return found


async def erase_user_from(journal: SqliteJournal, user: str) -> Erased:
    """Erase a user from a journal, and from the copies that were made of it. It can be repeated after an interruption.

    The rows and the user's key are gone in one transaction; then the files are rewritten, so that deleted text is in none.

    Raises:
        RunBusy: A process executes a run of the user. Nothing was erased.
    """
    place = journal._place
    doomed, kept = await journal._writer.transact(lambda c: (_family(c, user, journal._holder), copies_of(c)))
    await asyncio.to_thread(_erase_media, journal.path, kept, doomed)  # before the runs: after a crash, they are still found

    def work(connection: sqlite3.Connection) -> tuple[Erased, list[Path]]:
        done = _erase(connection, user, journal._holder, place.keys)
        copies = copies_of(connection)
        for path in [path for path in copies if not path.exists()]:
            forget_copy(connection, path)
        if place.keys is not None:
            place.keys.destroy(user)  # before the commit: no run of this user can begin meanwhile with the old key
        return done, [path for path in copies if path.exists()]

    done: Erased
    done, copies = await journal._writer.transact(work)

    def finish() -> dict[str, str]:
        pending = dict(_rewrite(journal.path))
        for path in copies:
            pending |= dict(_erase_copy(path, journal.path, user, place.keys))
        return pending

    pending = await asyncio.to_thread(finish)
    reached = tuple([str(path) for path in copies if str(path) not in pending])
    return done._replace(copies=reached, pending=tuple(pending.items()))


def _erase_media(journal: Path, copies: Sequence[Path], runs: Sequence[str]) -> None:
    """Erase the pictures and other media of runs, next to the journal and next to its copies."""
    media_of(journal).remove(runs)
    for path in copies:
        beside = MediaFile(path, key_for(journal))
        try:
            beside.remove(runs)
        finally:
            beside.close()


def _family(connection: sqlite3.Connection, user: str, holder: Holder) -> list[str]:
    """Return the runs of a user, those inside them, and evaluations of the user's words. Raises `RunBusy` if one is busy."""
    rows = {row[0]: row[1:] for row in connection.execute(_MINE, (user,))}
    for one in evaluations_with(user, connection.execute(HEADERS.format(""))):
        rows |= {row[0]: row[1:] for row in connection.execute(_ATTEMPTS, (one, f"{one}-", f"{one}."))}  # "." follows "-"
    doomed = list(rows)
    known = set(doomed)
    for one in doomed:
        row = rows.get(one) or connection.execute("SELECT epoch, owner FROM runs WHERE run = ?", (one,)).fetchone()
        if found := holder(one, row):
            raise RunBusy(busy_text(one, found))
        inner = [child for (child,) in connection.execute(_INSIDE, (one,)) if child not in known]
        doomed += inner
        known.update(inner)
    return doomed


def _erase(connection: sqlite3.Connection, user: str, holder: Holder, keys: UserKeys | None) -> Erased:
    doomed = _family(connection, user, holder)
    needed, later = _dependants(connection, doomed)
    accounts = _erase_accounts(connection, user, doomed)
    alias = f"erased-{secrets.token_hex(6)}"
    for run in needed:
        rewrite_facts(connection, run, partial(blank_fact, alias))
        rewrite_card(connection, run, user=alias, title=ERASED_TEXT)
    connection.executemany("DELETE FROM snapshots WHERE run = ?", [(one,) for one in (*needed, *later)])
    for run in later:  # a summary of the conversation may tell what the user said
        rewrite_facts(connection, run, partial(_without_summary, keys, run))
    removal.remove(connection, [one for one in doomed if one not in needed])
    remove_letters(connection, tuple(needed))
    erase_waiting(connection, user, alias, keys)
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'queue'").fetchone() is not None:
        connection.execute("DELETE FROM queue WHERE user = ?", (user,))
    answers = _erase_answers(connection, user, alias, keys)
    return Erased(len(doomed) - len(needed), len(needed), answers, accounts)


def _dependants(connection: sqlite3.Connection, doomed: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return the runs of the user that other people's runs continue from, and those runs, with all that follow."""
    mine = set(doomed)
    later = [other for one in doomed for (other,) in connection.execute(_FROM_IT, (one,)) if other not in mine]
    for one in later:
        later += [other for (other,) in connection.execute(_FROM_IT, (one,)) if other not in mine and other not in later]
    needed: set[str] = set()
    for one in later:
        while one:
            (one,) = connection.execute("SELECT base FROM runs WHERE run = ?", (one,)).fetchone() or ("",)
            if one in needed:
                break
            if one in mine:
                needed.add(one)
    return needed, later


def _without_summary(keys: UserKeys | None, run: str, seq: int, kind: str, body: str) -> Changed:
    plain = plain_body(keys, run, seq, kind, body)
    changed = None if plain is None else without_summary(kind, plain)
    return None if changed is None else (kind, stored_body(keys, run, seq, kind, changed, body))


def _answers_of(connection: sqlite3.Connection, user: str, keys: UserKeys | None) -> dict[str, set[str]]:
    """Return the runs in which the user answered questions or said something, each with the texts."""
    found: dict[str, set[str]] = {}
    query = "SELECT run, seq, type, body FROM facts WHERE type IN (?, ?, ?)"
    for run, seq, kind, body in connection.execute(query, SAID).fetchall():
        plain = plain_body(keys, run, seq, kind, body)
        texts = None if plain is None else answers_by(user, kind, plain)
        if texts is not None:
            found.setdefault(run, set()).update(texts)
    return found


def _erase_answers(connection: sqlite3.Connection, user: str, alias: str, keys: UserKeys | None) -> int:
    """Erase who answered questions in other people's runs, and what they wrote, wherever the run repeats it word for word."""
    found = _answers_of(connection, user, keys)
    for run, texts in found.items():
        rewrite_facts(connection, run, partial(_without_answer, user, alias, texts, keys, run))
        connection.execute("DELETE FROM snapshots WHERE run = ?", (run,))
    return len(found)


def _without_answer(
    user: str, alias: str, texts: Iterable[str], keys: UserKeys | None, run: str, seq: int, kind: str, body: str
) -> Changed:
    plain = plain_body(keys, run, seq, kind, body)
    changed = None if plain is None else without_answer(user, alias, texts, kind, plain)
    return None if changed is None else (kind, stored_body(keys, run, seq, kind, changed, body))


def _erase_accounts(connection: sqlite3.Connection, user: str, runs: Iterable[str]) -> int:
    """Delete the accounts of the user, and of the user's runs and sessions. Accounts of agents and tools name nobody."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'accounts'").fetchone() is None:
        return 0
    talks = connection.execute("SELECT DISTINCT session, agent FROM runs WHERE user = ? AND session <> ''", (user,))
    query = "SELECT name FROM accounts UNION SELECT name FROM reservations"
    gone = [(name,) for name in accounts_of(user, talks, runs, [name for (name,) in connection.execute(query)])]
    for table in ("accounts", "reservations"):
        connection.executemany(f"DELETE FROM {table} WHERE name = ?", gone)
    return len(gone)


def _rewrite(path: Path) -> Iterable[tuple[str, str]]:
    """Rewrite the file without what was deleted, and empty its log. Yield the file and the reason, if that is not possible."""
    connection = connect(path, patience=_PATIENCE)
    try:
        yield from vacuum(connection, path)
    finally:
        disconnect(connection, path)


def vacuum(connection: sqlite3.Connection, path: Path) -> Iterable[tuple[str, str]]:
    """Rewrite a file without its deleted content, and empty its log. Yield the file and the reason, if that is not possible."""
    try:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("VACUUM")
        for _ in range(_TRIES):
            (busy, *_rest) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return
            time.sleep(_PAUSE)
        yield str(path), "in use"
    except sqlite3.OperationalError as problem:
        yield str(path), str(problem)


def _erase_copy(path: Path, journal: Path, user: str, keys: UserKeys | None) -> Iterable[tuple[str, str]]:
    """Erase the user from a copy of the journal."""
    try:
        with closing(open_database(path, timeout=_PATIENCE, key=key_for(journal))) as connection:
            marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            if marks != [APPLICATION, len(MIGRATIONS)]:
                yield str(path), json.dumps(marks)
                return
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            _erase(connection, user, lambda run, row: "", keys)
            connection.execute("COMMIT")
            yield from vacuum(connection, path)
    except AgentError as problem:
        yield str(path), str(problem)
    except (sqlite3.Error, OSError) as problem:
        yield str(path), str(explain(problem, path))
