"""What an engine does for the tool: tell its tables, and run one statement that was let through."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...core.errors import ConfigError
from ...core.language import say

ROW = "kaname_row_"  # what the statement is called inside ours; no column should have that name


class Column(NamedTuple):
    name: str
    kind: str
    comment: str = ""
    samples: tuple[str, ...] = ()


class Table(NamedTuple):
    name: str
    columns: tuple[Column, ...]
    comment: str = ""


class Rows(NamedTuple):
    """`rows` as JSON objects; `more`: there were more than were asked for."""

    rows: list[dict[str, Any]]
    more: bool


class Limits(NamedTuple):
    rows: int
    characters: int  # of one row, as JSON
    seconds: float


class QueryFailed(Exception):
    """What the database said."""


class Engine(Protocol):
    dialect: str

    def tables(self) -> list[Table]: ...
    def run(self, sql: str, limits: Limits) -> Rows: ...


def out_of_time(limits: Limits) -> QueryFailed:
    return QueryFailed(
        say(
            f"the query took longer than {limits.seconds:g} s and was stopped; ask for less",
            f"{limits.seconds:g} 秒を超えたため中止しました。範囲を絞ってください",
        )
    )


def row_too_long(limits: Limits) -> QueryFailed:
    return QueryFailed(
        say(
            f"a row is longer than {limits.characters:,} characters; select fewer columns, or parts of them with substr",
            f"1 行が {limits.characters:,} 文字を超えています。列を減らすか substr で短くしてください",
        )
    )


def unique(names: list[str]) -> list[str]:
    """Column names, none twice: the second `id` becomes `id_2`."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return made


def missing(package: str, extra: str) -> ConfigError:
    return ConfigError(
        say(
            f"{package} is not installed: pip install 'kaname[{extra}]'",
            f"{package} がありません: pip install 'kaname[{extra}]'",
        )
    )
