"""Digests of runs: in memory, and in a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..kernel.stores import Digest
from .rows import row_sum
from .sql import Database, Many, Steps

_PUT = """
INSERT INTO kaname.digests (run, seq, body, sum) VALUES ($1, $2, $3, $4)
ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, body = excluded.body, sum = excluded.sum
"""


class MemoryDigests:
    """`facts` returns how many facts a run has; 0 if there is no such run."""

    def __init__(self, facts: Callable[[str], int]) -> None:
        self._facts, self._digests = facts, dict[str, Digest]()

    async def put(self, digests: Sequence[Digest]) -> None:
        self._digests |= {one.run_id: one for one in digests if self._facts(one.run_id) == one.seq}

    async def of(self, run_ids: Sequence[str]) -> list[Digest]:
        return [self._digests[one] for one in run_ids if one in self._digests]

    def forget(self, run_id: str) -> None:
        self._digests.pop(run_id, None)


class SqlDigests:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, digests: Sequence[Digest]) -> None:
        made = {one.run_id: one for one in digests}

        def work() -> Steps[None]:
            query = 'SELECT run, seq, "user" FROM kaname.runs WHERE run = ANY($1::text[]) ORDER BY run FOR UPDATE'
            rows = []
            for run, seq, user in (yield query, [*made]):
                if (made[run].seq, made[run].user) == (seq, user):
                    sealed = self._database.seal(user, made[run].text, _place(run))
                    rows.append((run, seq, sealed, row_sum(run, seq, sealed)))
            yield Many(_PUT, rows)

        await self._database.write(work)

    async def of(self, run_ids: Sequence[str]) -> list[Digest]:
        def work() -> Steps[list[Digest]]:
            rows = yield "SELECT run, seq, body, sum FROM kaname.digests WHERE run = ANY($1::text[])", list(run_ids)
            opened = [Digest(run, seq, self._database.open(body, _place(run)))
                      for run, seq, body, total in rows if row_sum(run, seq, body) == total]  # fmt: skip
            return [one for one in opened if one.text]

        return await self._database.read(work)


def _place(run: str) -> str:
    """Return the place that the encryption of a digest is bound to."""
    return f"{run} digest"
