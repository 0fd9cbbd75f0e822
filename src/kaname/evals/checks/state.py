"""Checks of the state that an attempt left behind: files of its folder, and rows of a database in it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ...core.notices import notice
from .outcome import CaseOutcome

_SHOWN = 200


def file_problem(outcome: CaseOutcome, wanted: Mapping[str, Any]) -> str:
    """Compare files with their texts. A text must be equal; `{"contains": …}` must be in the file; None: there is no file."""
    if (folder := outcome.folder) is None:
        return _no_folder()
    for name, text in wanted.items():
        path = _inside(folder, name)
        if text is None:
            if path.exists():
                return notice("eval.file_there", "the file {name} must not exist", name=name)
            continue
        if not path.is_file():
            return notice("eval.no_file", "the file {name} does not exist", name=name)
        given = path.read_text(encoding="utf-8", errors="replace")
        parts = text["contains"] if isinstance(text, Mapping) else None
        listed = [parts] if isinstance(parts, str) else parts
        fits = given.strip() == str(text).strip() if listed is None else all(str(one) in given for one in listed)
        if not fits:
            return notice("eval.file_differs", "the file {name} has {given!r}", name=name, given=given[:_SHOWN])
    return ""


def prepare_sql(value: Any) -> list[dict[str, Any]]:
    made = [dict(one) for one in ([value] if isinstance(value, Mapping) else value)]
    for one in made:
        if {*one} != {"database", "query", "equals"}:
            raise ValueError("expected database, query and equals")
    return made


async def sql_problem(outcome: CaseOutcome, wanted: list[dict[str, Any]]) -> str:
    """Compare results of queries on SQLite files of the folder: a single value, a row, or a list of rows."""
    if (folder := outcome.folder) is None:
        return _no_folder()
    for one in wanted:
        rows = await asyncio.to_thread(_query, _inside(folder, one["database"]), one["query"])
        given: Any = [list(row) for row in rows]
        expected = one["equals"]
        if not isinstance(expected, list):
            given = given[0][0] if len(given) == 1 and len(given[0]) == 1 else given
        elif not (expected and isinstance(expected[0], list)):
            given = given[0] if len(given) == 1 else given
        if given != expected:
            return notice("eval.rows_differ", "{query} gives {given!r:.200}, not {expected!r:.200}", query=one["query"],
                          given=given, expected=expected)  # fmt: skip
    return ""


def _query(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name} is outside of the workspace")
    return path


def _no_folder() -> str:
    return notice(
        "eval.no_folder",
        "the state cannot be checked, because the agent has no workspace: pass a function that makes the agent for a folder",
    )
