"""Encrypt a journal that was plain, and decrypt it: facts, titles, messages and approvals. Rows keep their checksums right."""

from __future__ import annotations

import sqlite3
from functools import partial

from ...core.codec import encode_body
from ...core.encryption.user_keys import SEALED, ErasedKey, UserKeys
from ..erasing import Changed, rewrite_facts
from ..rows import ERASED_TEXT, erased_fact
from ..sql import Many, Steps
from .database import rewrite_card, run_steps
from .sealing import Seal, fact_place

_MESSAGES = "SELECT i.id, r.user, i.body FROM kaname.inbox AS i JOIN kaname.runs AS r ON r.run = i.run"
_GRANTS = "SELECT id, user, conditions FROM kaname.grants"
_WAITING = (("inbox", "body", _MESSAGES), ("grants", "conditions", _GRANTS))


def _drop_derived() -> Steps[None]:
    """Delete what is made again from the facts."""
    for table in ("snapshots", "digests"):
        yield (f"DELETE FROM kaname.{table}",)


def seal_all(connection: sqlite3.Connection, keys: UserKeys) -> None:
    """Encrypt what the runs of users recorded in a journal that was plain."""

    def work() -> Steps[None]:
        yield from _drop_derived()
        for table, column, query in _WAITING:
            rows = [row for row in (yield (query,)) if row[1] and not row[2].startswith(SEALED)]
            sealed = [(keys.of(user).seal(text, id), id) for id, user, text in rows]
            yield Many(f"UPDATE {table} SET {column} = $1 WHERE id = $2", sealed)
        for run, user, title in (yield ("SELECT run, user, title FROM runs WHERE user <> ''",)):
            seal = Seal(keys.of(user))
            yield from rewrite_facts(run, partial(_seal_body, seal, run))
            if title and not title.startswith(SEALED):
                yield from rewrite_card(run, title=seal.title(run, title))

    run_steps(connection, work)


def _seal_body(seal: Seal, run: str, seq: int, kind: str, body: str) -> Changed:
    return None if body.startswith(SEALED) else (kind, seal.body(run, seq, kind, body))


def unseal_all(connection: sqlite3.Connection, keys: UserKeys) -> None:
    """Decrypt a journal. Placeholders stand for facts of an erased user; waiting messages and approvals are deleted."""

    def work() -> Steps[None]:
        yield from _drop_derived()
        for table, column, query in _WAITING:
            for id, _, text in (yield (query,)):
                plain = _open_text(keys, text, id)
                if plain is None:
                    yield f"DELETE FROM {table} WHERE id = $1", id
                elif plain != text:
                    yield f"UPDATE {table} SET {column} = $1 WHERE id = $2", plain, id
        for run, title in (yield ("SELECT run, title FROM runs",)):
            yield from rewrite_facts(run, partial(_unsealed_fact, keys, run))
            if title.startswith(SEALED):
                plain = _open_text(keys, title, run)
                yield from rewrite_card(run, title=ERASED_TEXT if plain is None else plain)

    run_steps(connection, work)


def _unsealed_fact(keys: UserKeys, run: str, seq: int, kind: str, body: str) -> Changed:
    plain = _open_text(keys, body, fact_place(run, seq, kind))
    return encode_body(erased_fact(kind)) if plain is None else (kind, plain)


def _open_text(keys: UserKeys, text: str, place: str) -> str | None:
    """Return a text that may be encrypted; None if its key was destroyed."""
    if not text.startswith(SEALED):
        return text
    try:
        return keys.unseal(text, place)
    except ErasedKey:
        return None
