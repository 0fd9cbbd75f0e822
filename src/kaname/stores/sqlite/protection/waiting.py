"""Messages that no run has taken in yet, and approvals that hold for later runs: encrypt, decrypt and erase them."""

from __future__ import annotations

import sqlite3

from ....core.codec import decode_body
from ....core.encryption.user_keys import SEALED, ErasedKey, UserKeys
from ....core.events import Interjected

_MESSAGES = "SELECT i.id, r.user, i.body FROM inbox AS i JOIN runs AS r ON r.run = i.run"
_GRANTS = "SELECT id, user, conditions FROM grants"
_TABLES = (("inbox", "body", _MESSAGES), ("grants", "conditions", _GRANTS))


def _rows(connection: sqlite3.Connection, table: str, query: str) -> list[tuple[str, str, str]]:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return [] if found is None else connection.execute(query).fetchall()


def seal_waiting(connection: sqlite3.Connection, keys: UserKeys) -> None:
    """Encrypt what is stored in plain text of users."""
    for table, column, query in _TABLES:
        rows = [row for row in _rows(connection, table, query) if row[1] and not row[2].startswith(SEALED)]
        sealed = [(keys.of(user).seal(text, id), id) for id, user, text in rows]
        connection.executemany(f"UPDATE {table} SET {column} = ? WHERE id = ?", sealed)


def unseal_waiting(connection: sqlite3.Connection, keys: UserKeys) -> None:
    """Decrypt it. What belonged to an erased user is deleted."""
    for table, column, query in _TABLES:
        for id, _, text in _rows(connection, table, query):
            plain = _plain_text(keys, id, text)
            if plain is None:
                connection.execute(f"DELETE FROM {table} WHERE id = ?", (id,))
            elif plain != text:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (plain, id))


def erase_waiting(connection: sqlite3.Connection, user: str, alias: str, keys: UserKeys | None) -> None:
    """Delete what a user said to other people's runs and the approvals for the user, and the name in approvals for others."""
    for id, _, text in _rows(connection, "inbox", _MESSAGES):
        said = _plain_text(keys, id, text)
        if said is None or decode_body(Interjected.__name__, said).by == user:  # type: ignore[union-attr]
            connection.execute("DELETE FROM inbox WHERE id = ?", (id,))
    if _rows(connection, "grants", _GRANTS):
        connection.execute("DELETE FROM grants WHERE user = ?", (user,))
        connection.execute("UPDATE grants SET by = ? WHERE by = ?", (alias, user))


def _plain_text(keys: UserKeys | None, id: str, text: str) -> str | None:
    """Return a text that may be encrypted; None if it cannot be read any more."""
    if keys is None or not text.startswith(SEALED):
        return text
    try:
        return keys.unseal(text, id)
    except ErasedKey:
        return None
