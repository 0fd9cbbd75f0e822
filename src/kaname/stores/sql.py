"""SQL that SQLite and PostgreSQL share. A piece of work is a generator: it yields statements and receives their rows.

Statements are written for PostgreSQL: parameters are `$1`, tables `kaname.runs`, and a list of texts is `ANY($1::text[])`.
`sqlite/database.py` rewrites them, and `postgres/database.py` fills in the schema. Three names are kaname's own:
`kaname.executes(r)` is true if a process executes the run of the row `r`, `kaname.alive(r.owner)` if that process is alive, and
`kaname.now()` is the time, in PostgreSQL that of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from ..core.runs import RunInfo

T = TypeVar("T")
Steps = Generator[tuple[Any, ...], list[Any], T]
"""Yields `(statement, *values)`, `Many` or `Lock`; receives the rows; returns the result."""


class Many(NamedTuple):
    """A statement that is run once for each row of values."""

    statement: str
    rows: Sequence[Sequence[Any]]


class Lock(NamedTuple):
    """Names that no other transaction can lock meanwhile. SQLite, with its one writer, ignores it. `space`: what is named."""

    names: Sequence[str]
    space: int


class Content(Protocol):
    """What the tables of one database hold in a form of its own. Its methods are parts of larger work.

    `card` returns the card in a row of `card_columns`. `changed_since` and `day` are expressions with a place for a value:
    whether a run may have changed since then, and the day on which it was opened, shifted by so many seconds.

    `seal` returns a text as it is stored, encrypted with the key of the user, and `open` the text that was stored, or "" if the
    key is gone; `place` is where it stands, `run` the run whose media are in it. `plain_body` and `stored_body` do the same
    with the body of a fact; `before` is what was stored. `describe` names a process for people. `forget` removes what only this
    database has of runs that are deleted. `erase_own` does so for a user, who gets another name in the runs that are `needed`.
    """

    card_columns: str
    changed_since: str
    day: str

    def card(self, row: Sequence[Any]) -> RunInfo: ...
    def seal(self, user: str, text: str, place: str, run: str = "") -> str: ...
    def open(self, text: str, place: str, run: str = "") -> str: ...
    def plain_body(self, run: str, seq: int, kind: str, body: str) -> str | None: ...
    def stored_body(self, run: str, seq: int, kind: str, plain: str, before: str) -> str: ...
    def describe(self, owner: str) -> str: ...
    def forget(self, runs: Sequence[str]) -> Steps[None]: ...
    def erase_own(self, user: str, alias: str, needed: Sequence[str]) -> Steps[None]: ...


class Database(Content, Protocol):
    """The database of a journal. `me` is this process, as the tables name it.

    `read` and `write` run work, and run it again if the database was away; what `write` returns is on disk. With `whole`, all
    is read as it is at one moment. `begin` enters this
    process among those that live, which a reservation needs; `settle` ends a reservation with the next facts.
    """

    @property
    def me(self) -> str: ...
    async def read(self, work: Callable[[], Steps[T]], *, whole: bool = False) -> T: ...
    async def write(self, work: Callable[[], Steps[T]]) -> T: ...
    async def begin(self) -> None: ...
    def settle(self, holder: str, spent: Mapping[str, float]) -> None: ...
    async def version(self) -> int: ...
    async def tell_of_message(self, run_id: str) -> None: ...
    async def wait_for_message(self, run_id: str, last: int, version: int) -> None: ...
    async def tell_of_work(self) -> None: ...
    async def wait_for_work(self, seconds: float) -> None: ...
