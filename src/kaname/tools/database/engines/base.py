"""Engine port: list the tables, and run one statement that passed the check."""

from __future__ import annotations

import json
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from ....core.errors import ConfigError
from ....core.install import install_command
from ..tables import Table

ROW = "kaname_row_"  # what the statement is called inside ours; no column should have that name


class Rows(NamedTuple):
    """The rows of a result as JSON objects. `more`: True if there were more than the limit."""

    rows: list[dict[str, Any]]
    more: bool


class QueryLimits(NamedTuple):
    rows: int
    characters: int  # of one row, as JSON
    seconds: float


class QueryFailed(Exception):
    """An error that the database reported."""


class Engine(Protocol):
    dialect: str

    def tables(self) -> list[Table]: ...
    def run(self, sql: str, limits: QueryLimits) -> Rows: ...


class BuiltInEngine(Engine, Protocol):
    """An engine of kaname. It runs in a worker process, which opens it by its address."""

    address: str

    def load(self) -> None:
        """Import the driver, before limits are set."""


def out_of_time(limits: QueryLimits) -> QueryFailed:
    return QueryFailed(f"the query took longer than {limits.seconds:g} s and was stopped; ask for less")


def too_large() -> QueryFailed:
    told = "the query needs more memory than it may use; ask for less"
    return QueryFailed(told)


def row_too_long(limits: QueryLimits) -> QueryFailed:
    return QueryFailed(
        f"a row is longer than {limits.characters:,} characters; select fewer columns, or parts of them with substr"
    )


def unique(names: list[str]) -> list[str]:
    """Make column names unique: the second `id` becomes `id_2`."""
    taken, seen, made = set(names), set(), []
    for name in names:
        number, free = 2, name
        while free in seen or (free != name and free in taken):
            free, number = f"{name}_{number}", number + 1
        seen.add(free)
        made.append(free)
    return made


def require(package: str, extra: str) -> None:
    """Raise `ConfigError` if the package is not installed. Only the worker process imports it."""
    if find_spec(package) is not None:
        return
    raise ConfigError.of(
        "database.driver_missing",
        "{package} is not installed. Install it with: {how}",
        package=package,
        how=install_command(extra),
    )


def as_hex(value: bytes) -> str:
    """Return bytes in the form of PostgreSQL, for every engine."""
    return "\\x" + value.hex()


def read_rows(texts: list[str], limits: QueryLimits) -> Rows:
    """Parse rows that the engine wrote as JSON. Duplicate column names are numbered, and numbers keep all their digits."""
    if any(len(text) > limits.characters for text in texts):
        raise row_too_long(limits)
    try:
        made = [json.loads(text, object_pairs_hook=_row, parse_float=_exact, parse_constant=str) for text in texts]
    except (ValueError, RecursionError, ArithmeticError) as problem:
        told = f"a row cannot be read as JSON: {problem}"
        raise QueryFailed(told) from problem
    return Rows(made[: limits.rows], len(made) > limits.rows)


def _row(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = unique([name for name, _ in pairs])
    return dict(zip(names, [value for _, value in pairs], strict=True))


def _exact(text: str) -> float | str:
    value = float(text)
    return value if value - value == 0 and Decimal(repr(value)) == Decimal(text) else text
