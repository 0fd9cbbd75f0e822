"""Decrypt what is encrypted in a journal's file with the keys of its users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.encryption.user_keys import SEALED, ErasedKey, user_keys
from ...core.errors import EncryptionError, JournalCorrupt
from ..rows import ERASED_TEXT
from ..sealing import TITLE


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
        values[TITLE] = unseal(path, values[TITLE], values[0])
    except ErasedKey:
        values[TITLE] = ERASED_TEXT
    return values
