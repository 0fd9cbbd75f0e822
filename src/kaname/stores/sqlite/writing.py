"""Statements that write runs and their facts, and what a journal knows of a run that it executes."""

from __future__ import annotations

import sqlite3
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.runs import RunInfo
from ...kernel.ports import Turn
from ..inbox import take_messages
from ..journal import RunHold
from ..rows import CARD, fact_sum, messages_in
from .database import run_steps
from .media import media_of

if TYPE_CHECKING:
    from .sealing import Seal

card_values = attrgetter(*RunInfo.__match_args__[:-1])
rarely_changing = attrgetter("agent", "session", "user", "status", "title", "created", "base", "questions")
NEXT = "SELECT ifnull(max(place), 0) + 1 FROM moves"
OPEN = f"INSERT INTO runs ({', '.join(CARD)}, place, moved, sum, epoch, owner) VALUES ({'?, ' * len(CARD)}?, ?, ?, ?, ?)"
_WHERE = "WHERE run = ? AND epoch = ? AND seq = ?"
GO_ON = f"UPDATE runs SET updated = ?, seq = ?, input = ?, output = ?, cost = ?, sum = ? {_WHERE}"  # no index is touched
_SET = ", ".join([f"{name} = ?" for name in CARD])
CHANGE = f"UPDATE runs SET {_SET}, sum = ?, moved = ({NEXT}), owner = iif(?, NULL, owner) {_WHERE}"
_MEDIA = '"type":"media"'  # how the codec writes a medium
_INSERT = "INSERT INTO facts (run, seq, time, agent, type, body, sum) VALUES (?, ?, ?, ?, ?, ?, ?)"
_MOVE = "INSERT INTO moves (run, first, last) VALUES (?, ?, ?)"


class SqliteHold(RunHold):
    """A run that is executed through this journal. `seal`: what encrypts its rows."""

    __slots__ = ("seal",)

    def __init__(self, epoch: int, card: RunInfo, turn: Turn | None = None, before: str = "") -> None:
        super().__init__(epoch, card, turn, before)
        self.constant = rarely_changing(card)
        self.seal: Seal | None = None

    def write(self, connection: sqlite3.Connection, rows: list[tuple[Any, ...]], path: Path) -> None:
        """Write facts, and note them in the order of all changes. Their media are stored first, next to the journal."""
        if said := messages_in(rows):
            run_steps(connection, partial(take_messages, said))
        for place, row in enumerate(rows):
            if _MEDIA in row[5]:
                rows[place] = self._without_media(row, path)
        connection.executemany(_INSERT, rows if self.seal is None else map(self.seal.row, rows))
        connection.execute(_MOVE, (rows[0][0], rows[0][1], rows[-1][1]))

    def _without_media(self, row: tuple[Any, ...], path: Path) -> tuple[Any, ...]:
        run, seq, time, agent, kind, body, _ = row
        body = media_of(path).detach(run, body, None if self.seal is None else self.seal.key)
        return run, seq, time, agent, kind, body, fact_sum(run, seq, time, agent, kind, body)
