"""Marks in a database: times by name, which all its processes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .sql import Database, Many, Steps

_ENTER = "INSERT INTO kaname.marks VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
_RAISE = _ENTER.replace("NOTHING", "UPDATE SET time = greatest(marks.time, excluded.time)")


class SqlMarks:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> dict[str, float]:
        def work() -> Steps[dict[str, float]]:
            return dict((yield ("SELECT name, time FROM kaname.marks",)))

        return await self._database.read(work)

    async def enter(self, values: Mapping[str, float]) -> None:
        await self._write(Many(_ENTER, [(name, float(time)) for name, time in values.items()]))

    async def raise_to(self, values: Mapping[str, float]) -> None:
        await self._write(Many(_RAISE, [(name, float(time)) for name, time in values.items()]))

    async def remove(self, names: Sequence[str]) -> None:
        await self._write(Many("DELETE FROM kaname.marks WHERE name = $1", [(name,) for name in names]))

    async def _write(self, changes: Many) -> None:
        def work() -> Steps[None]:
            yield changes

        await self._database.write(work)
