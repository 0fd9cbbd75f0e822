"""Marks in the journal's database: times by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..office import Office

_ENTER = "INSERT INTO kaname.marks SELECT * FROM unnest($1::text[], $2::float8[]) ON CONFLICT (name) DO NOTHING"
_RAISE = _ENTER.replace("NOTHING", "UPDATE SET time = greatest(marks.time, EXCLUDED.time)")


class PostgresMarks:
    def __init__(self, office: Callable[[], Office]) -> None:
        self._office = office

    async def all(self) -> dict[str, float]:
        return dict(await self._do("SELECT name, time FROM kaname.marks"))

    async def enter(self, values: Mapping[str, float]) -> None:
        await self._do(_ENTER, list(values), list(values.values()))

    async def raise_to(self, values: Mapping[str, float]) -> None:
        await self._do(_RAISE, list(values), list(values.values()))

    async def remove(self, names: Sequence[str]) -> None:
        await self._do("DELETE FROM kaname.marks WHERE name = ANY($1::text[])", list(names))

    async def _do(self, statement: str, *values: Any) -> Any:
        office = self._office()
        return await office.read(lambda connection: connection.fetch(office.sql(statement), *values))
