"""Encrypt what a run records with the key of its user, where rows are written.

Encrypted are the bodies of facts, the title in the list of runs, and snapshots. In a file, the first fact, which says where the
run belongs, and runs without a user are left to the encryption of the file. A database has a key of its own for them (`own`).
"""

from __future__ import annotations

from typing import Any

from ..core.encryption.user_keys import UserKey
from ..core.events import Opened
from ..core.runs import RunInfo
from .rows import fact_sum

TITLE = RunInfo.__match_args__.index("title")
_OPENED = Opened.__name__


class Seal:
    """Encrypts the rows of one run. `own`: the key for the first fact, which stays readable when the user is erased."""

    __slots__ = ("_known_title", "key", "own")

    def __init__(self, key: UserKey, title: str = "", stored: str = "", own: UserKey | None = None) -> None:
        self.key, self.own = key, own
        self._known_title = title, stored  # the title and its encrypted form, which must not change while the title does not

    def row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the row of a fact with its body encrypted."""
        run, seq, time, agent, kind, body, _ = row
        body = self.body(run, seq, kind, body)
        return run, seq, time, agent, kind, body, fact_sum(run, seq, time, agent, kind, body)

    def body(self, run: str, seq: int, kind: str, body: str) -> str:
        key = self.own if kind == _OPENED else self.key
        return body if key is None else key.seal(body, fact_place(run, seq, kind))

    def title(self, run: str, title: str) -> str:
        return self.key.seal(title, run)

    def card(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values of a run's entry with its title encrypted."""
        title = values[TITLE]
        if not title:
            return values
        if self._known_title[0] != title:
            self._known_title = title, self.title(values[0], title)
        return *values[:TITLE], self._known_title[1], *values[TITLE + 1 :]


def fact_place(run: str, seq: int, kind: str) -> str:
    return f"{run} {seq} {kind}"
