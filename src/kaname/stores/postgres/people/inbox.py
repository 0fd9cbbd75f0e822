"""Inbox in the journal's database."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, cast

from ....core.codec import decode_body, encode_body
from ....core.errors import RunNotFound
from ....core.events import Interjected
from ....kernel.inbox.port import Sent, run_is_over
from ..arrivals import INBOX
from ..connections import Connection
from ..office import Office

_UNDER_WAY = "status IN ('running', 'waiting')"
_RUN = f"SELECT run, {_UNDER_WAY}, thread FROM kaname.runs WHERE run = $1"
_LAST = f"SELECT run, {_UNDER_WAY} FROM kaname.runs WHERE thread = $1 ORDER BY place DESC LIMIT 1"
_PUT = "INSERT INTO kaname.inbox (id, run, thread, body) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING"
# The answer to `_PUT` was lost, and the run may have taken the message in since.
_IS_RECORDED = """
SELECT 1 FROM kaname.facts AS f JOIN kaname.runs AS r ON r.run = f.run
WHERE (r.run = $1 OR r.thread = $2) AND f.type = 'Interjected' AND strpos(f.body, $3) > 0
"""
_LETTERS = f"""
SELECT i.id, i.body, i.number FROM kaname.inbox AS i WHERE i.run = $1 OR (
    i.thread = (SELECT thread FROM kaname.runs WHERE run = $1)
    AND NOT EXISTS (SELECT 1 FROM kaname.runs AS o WHERE o.run = i.run AND o.{_UNDER_WAY}))
ORDER BY i.number
"""


class PostgresInbox:
    def __init__(self, office: Callable[[], Office]) -> None:
        self._office = office

    async def put(self, run_id: str, said: Interjected) -> Sent:
        office, tried = self._office(), False
        _, body = encode_body(said)

        async def work(connection: Connection) -> Sent | None:
            nonlocal tried
            again, tried = tried, True
            row = await connection.fetchrow(office.sql(_RUN), run_id)
            if row is None:
                raise RunNotFound(run_id)
            to, under_way, thread = row
            if not under_way:
                if thread is None:
                    return None
                to, under_way = await connection.fetchrow(office.sql(_LAST), thread)
            if not again or not await connection.fetchval(office.sql(_IS_RECORDED), run_id, thread, said.id):
                await connection.execute(office.sql(_PUT), said.id, to, thread, body)
            return Sent(to, under_way)

        sent = await office.read(work)
        if sent is None:
            raise run_is_over(run_id)
        await office.ask(lambda: office.arrivals.tell_of_message(sent.run_id))
        return sent

    async def letters(self, run_id: str, known: Collection[str] = (), *, wait: bool = False) -> list[Interjected]:
        while True:
            office = self._office()
            rows: list[Any] = await office.read(partial(_fetch, office.sql(_LETTERS), run_id))
            found = [cast(Interjected, decode_body(Interjected.__name__, row[1])) for row in rows if row[0] not in known]
            if found or not wait:
                return found
            seen = rows[-1][2] if rows else 0
            await office.ask(partial(office.arrivals.wait, INBOX + run_id, seen), gives_up=True)


async def _fetch(query: str, run_id: str, connection: Connection) -> list[Any]:
    return list(await connection.fetch(query, run_id))
