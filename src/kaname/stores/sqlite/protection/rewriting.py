"""Rewrite rows of a journal in place, with their checksums. A row that does not match its checksum stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from ....core.codec import encode_body
from ....core.encryption.user_keys import SEALED, ErasedKey, UserKeys
from ...rows import CARD, fact_sum, row_sum
from ..reading import SELECT_CARD
from .sealing import ERASED_TEXT, Seal, erased_fact, fact_place
from .waiting import seal_waiting, unseal_waiting

Changed = tuple[str, str] | None
"""The new type and body of a fact; None leaves it as it is."""

_FACTS = "SELECT run, seq, time, agent, type, body, sum FROM facts WHERE run = ? ORDER BY seq"
_TITLE = CARD.index("title")


def rewrite_facts(connection: sqlite3.Connection, run: str, change: Callable[[int, str, str], Changed]) -> None:
    """Call `change` with the number, the type and the body of every fact of a run, and store what it returns."""
    rows = connection.execute(_FACTS, (run,)).fetchall()
    made = []
    for run, seq, time, agent, kind, body, total in rows:
        if fact_sum(run, seq, time, agent, kind, body) != total:
            continue
        if (changed := change(seq, kind, body)) is not None and changed != (kind, body):
            made.append((*changed, fact_sum(run, seq, time, agent, *changed), run, seq))
    connection.executemany("UPDATE facts SET type = ?, body = ?, sum = ? WHERE run = ? AND seq = ?", made)


def rewrite_card(connection: sqlite3.Connection, run: str, **changes: str) -> None:
    """Change columns of a run's entry."""
    row = connection.execute(f"{SELECT_CARD} WHERE run = ?", (run,)).fetchone()
    if row is None or row_sum(*row[:-1]) != row[-1]:
        return
    values = dict(zip((*CARD, "place"), row[:-1], strict=True)) | changes
    names = ", ".join([f"{name} = ?" for name in changes])
    connection.execute(f"UPDATE runs SET {names}, sum = ? WHERE run = ?", (*changes.values(), row_sum(*values.values()), run))


def seal_all(connection: sqlite3.Connection, keys: UserKeys) -> None:
    """Encrypt what the runs of users recorded in a journal that was plain."""
    connection.execute("DELETE FROM snapshots")  # they are made again
    seal_waiting(connection, keys)
    for run, user, title in connection.execute("SELECT run, user, title FROM runs WHERE user <> ''").fetchall():
        seal = Seal(keys.of(user))

        def change(seq: int, kind: str, body: str, run: str = run, seal: Seal = seal) -> Changed:
            return None if body.startswith(SEALED) else (kind, seal.body(run, seq, kind, body))

        rewrite_facts(connection, run, change)
        if title and not title.startswith(SEALED):
            rewrite_card(connection, run, title=seal.title(run, title))


def unseal_all(connection: sqlite3.Connection, keys: UserKeys) -> None:
    """Decrypt a journal. What belonged to an erased user becomes what stands in its place."""
    connection.execute("DELETE FROM snapshots")
    unseal_waiting(connection, keys)
    for run, title in connection.execute("SELECT run, title FROM runs").fetchall():

        def change(seq: int, kind: str, body: str, run: str = run) -> Changed:
            if not body.startswith(SEALED):
                return None
            try:
                return kind, keys.unseal(body, fact_place(run, seq, kind))
            except ErasedKey:
                return encode_body(erased_fact(kind))

        rewrite_facts(connection, run, change)
        if title.startswith(SEALED):
            rewrite_card(connection, run, title=_plain_title(keys, title, run))


def _plain_title(keys: UserKeys, title: str, run: str) -> str:
    try:
        return keys.unseal(title, run)
    except ErasedKey:
        return ERASED_TEXT


def plain_body(keys: UserKeys | None, run: str, seq: int, kind: str, body: str) -> str | None:
    """Return the plain body of a fact; None if it cannot be read any more."""
    if keys is None or not body.startswith(SEALED):
        return body
    try:
        return keys.unseal(body, fact_place(run, seq, kind))
    except ErasedKey:
        return None


def stored_body(keys: UserKeys | None, run: str, seq: int, kind: str, plain: str, before: str) -> str:
    """Return a changed body as it is stored: encrypted with the same key as before, if it was encrypted."""
    if keys is None or not before.startswith(SEALED):
        return plain
    return keys.seal_like(before, plain, fact_place(run, seq, kind))
