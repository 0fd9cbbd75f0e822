"""Encrypt what a run records with the key of its user, where rows are written, and decrypt it where they are read.

Encrypted are the bodies of all facts but the first, which says where the run belongs, the title in the list of runs, and
snapshots. Runs without a user have no key of their own: the encryption of the file protects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.encryption.user_keys import SEALED, ErasedKey, UserKey, user_keys
from ...core.errors import EncryptionError, JournalCorrupt
from ...core.events import Opened
from ...core.runs import RunInfo
from ..rows import ERASED_TEXT, fact_sum

_TITLE = RunInfo.__match_args__.index("title")
_OPENED = Opened.__name__


class Seal:
    """Encrypts the rows of one run."""

    __slots__ = ("_known_title", "key")

    def __init__(self, key: UserKey, title: str = "", stored: str = "") -> None:
        self.key = key
        self._known_title = title, stored  # the title and its encrypted form, which must not change while the title does not

    def row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the row of a fact with its body encrypted."""
        run, seq, time, agent, kind, body, _ = row
        body = self.body(run, seq, kind, body)
        return run, seq, time, agent, kind, body, fact_sum(run, seq, time, agent, kind, body)

    def body(self, run: str, seq: int, kind: str, body: str) -> str:
        return body if kind == _OPENED else self.key.seal(body, fact_place(run, seq, kind))

    def title(self, run: str, title: str) -> str:
        return self.key.seal(title, run)

    def card(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values of a run's entry with its title encrypted."""
        title = values[_TITLE]
        if not title:
            return values
        if self._known_title[0] != title:
            self._known_title = title, self.title(values[0], title)
        return *values[:_TITLE], self._known_title[1], *values[_TITLE + 1 :]


def fact_place(run: str, seq: int, kind: str) -> str:
    return f"{run} {seq} {kind}"


def unseal(path: Path, text: str, place: str) -> str:
    """Decrypt a text of this journal, if it is encrypted."""
    if not text.startswith(SEALED):
        return text
    try:
        return user_keys(path).unseal(text, place)
    except ErasedKey:
        raise
    except EncryptionError as problem:
        raise JournalCorrupt.of(
            "journal.sealed", "the journal {path} cannot be read: {problem}", path=path, problem=problem
        ) from problem


def unseal_title(path: Path, row: Sequence[Any]) -> list[Any]:
    """Return the values of a run's entry with its title decrypted, or with a placeholder if the key was destroyed."""
    values = list(row)
    try:
        values[_TITLE] = unseal(path, values[_TITLE], values[0])
    except ErasedKey:
        values[_TITLE] = ERASED_TEXT
    return values
