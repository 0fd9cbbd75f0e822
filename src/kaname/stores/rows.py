"""Rows of a journal in a database: their columns, their checksums, and what stands in place of what was erased."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from ..core.codec import encode_body
from ..core.events import Custom, Event, Fact, Interjected, Stopped
from ..core.runs import RunInfo
from ..core.steps import Stop

_SAID = Interjected.__name__
ERASED_TEXT = "[erased]"
CARD = ("run", *RunInfo.__match_args__[1:-1])  # the columns of a run's card, without its place


def row_sum(*values: Any) -> int:
    """Return the checksum of a row, from its values as the database returns them. Times and money must therefore be floats.

    A text may be of a subclass (`SharedSession`, an enum of users): only its letters count, as in a database.
    """
    return crc32("\x1f".join([value if isinstance(value, str) else repr(value) for value in values]).encode())


def fact_sum(run_id: str, seq: int, time: float, agent: str, kind: str, body: str) -> int:
    """Return the checksum of a fact. It is written out, because it is computed for every fact."""
    return crc32("\x1f".join((run_id, str(seq), str(time), agent, kind, body)).encode())


def fact_row(event: Event) -> tuple[Any, ...]:
    """Return the row of a fact, with its checksum."""
    run, seq, time, agent, body = event
    time = float(time)  # as the column gives it back
    kind, text = encode_body(body)  # type: ignore[arg-type]
    return run, seq, time, agent, kind, text, fact_sum(run, seq, time, agent, kind, text)


def messages_in(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the ids of the messages that these rows of facts record. They leave the inbox in the same transaction."""
    return [json.loads(row[5])["id"] for row in rows if row[4] == _SAID]


def erased_fact(kind: str) -> Fact:
    """Return the fact that replaces an erased one. The end of a run remains an end."""
    return Stopped(Stop("completed")) if kind == Stopped.__name__ else Custom("erased", shown=False)
