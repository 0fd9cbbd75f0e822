"""Messages to runs: in memory, and in a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, cast

from ..core.codec import decode_body, encode_body
from ..core.errors import RunNotFound
from ..core.events import Event, Interjected
from ..core.runs import UNDER_WAY
from ..kernel.stores import Sent, run_is_over
from .news import News
from .sql import Database, Steps

_UNDER_WAY = "status IN ('running', 'waiting')"  # as the table says it: an interrupted run is a running one without an owner
_RUN = f'SELECT run, {_UNDER_WAY}, thread, "user" FROM kaname.runs WHERE run = $1'
_LAST = f'SELECT run, {_UNDER_WAY}, thread, "user" FROM kaname.runs WHERE thread = $1 ORDER BY place DESC LIMIT 1'
_PUT = "INSERT INTO kaname.inbox (id, run, thread, body) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING"
# The answer to `_PUT` was lost, and the run may have taken the message in since.
_IS_RECORDED = """
SELECT 1 FROM kaname.facts AS f JOIN kaname.runs AS r ON r.run = f.run
WHERE (r.run = $1 OR r.thread = $2) AND f.type = 'Interjected' AND strpos(f.body, $3) > 0
"""
_LETTERS = f"""
SELECT i.id, i.run, i.body, i.number FROM kaname.inbox AS i WHERE i.run = $1 OR (
    i.thread = (SELECT thread FROM kaname.runs WHERE run = $1)
    AND NOT EXISTS (SELECT 1 FROM kaname.runs AS o WHERE o.run = i.run AND o.{_UNDER_WAY}))
ORDER BY i.number
"""


class Addressee(NamedTuple):
    """A run as the inbox sees it. `thread`: the conversation that it belongs to, or None."""

    run_id: str
    status: str
    thread: tuple[str, ...] | None
    last: str  # the last run of the conversation


class MemoryInbox:
    """`find`: returns a run of the journal, or raises `RunNotFound`."""

    def __init__(self, find: Callable[[str], Addressee]) -> None:
        self._find = find
        self._letters: dict[str, tuple[str, Interjected]] = {}  # with the run of each, by id
        self._news = News()

    async def put(self, run_id: str, said: Interjected) -> Sent:
        to = self._find(run_id)
        if to.status not in UNDER_WAY:
            if to.thread is None:
                raise run_is_over(run_id)
            to = self._find(to.last)
        self._letters[said.id] = (to.run_id, said)
        self._news.tell()
        return Sent(to.run_id, to.status in UNDER_WAY)

    async def letters(self, run_id: str, known: Collection[str] = (), *, wait: bool = False) -> list[Interjected]:
        while True:
            version = await self._news.version() if wait else 0
            found = [said for to, said in self._letters.values() if said.id not in known and self._is_for(to, run_id)]
            if found or not wait:
                return found
            await self._news.wait(version)

    def _is_for(self, to: str, run_id: str) -> bool:
        if to == run_id:
            return True
        its, mine = self._find(to), self._find(run_id)
        return its.thread is not None and its.thread == mine.thread and its.status not in UNDER_WAY

    def remove(self, events: Sequence[Event]) -> None:
        """Remove the messages that these facts record."""
        for event in events:
            if isinstance(event.body, Interjected):
                self._letters.pop(event.body.id, None)

    def forget(self, run_id: str) -> None:
        """Delete the messages to a run that is deleted."""
        self._letters = {one: letter for one, letter in self._letters.items() if letter[0] != run_id}


def take_messages(ids: Sequence[str]) -> Steps[None]:
    """Remove messages, because the same transaction records them."""
    yield "DELETE FROM kaname.inbox WHERE id = ANY($1::text[])", list(ids)


class SqlInbox:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, run_id: str, said: Interjected) -> Sent:
        _, body = encode_body(said)
        tried = False

        def work() -> Steps[Sent | None]:
            nonlocal tried
            again, tried = tried, True
            rows = yield _RUN, run_id
            if not rows:
                raise RunNotFound(run_id)
            to, under_way, thread, user = rows[0]
            if not under_way:
                if thread is None:
                    return None
                ((to, under_way, _, user),) = yield _LAST, thread
            if not again or not (yield _IS_RECORDED, run_id, thread, said.id):
                yield _PUT, said.id, to, thread, self._database.seal(user, body, said.id, to)
            return Sent(to, bool(under_way))

        sent = await self._database.write(work)
        if sent is None:
            raise run_is_over(run_id)
        await self._database.tell_of_message(sent.run_id)
        return sent

    async def letters(self, run_id: str, known: Collection[str] = (), *, wait: bool = False) -> list[Interjected]:
        def work() -> Steps[tuple[list[str], int]]:
            rows = yield _LETTERS, run_id
            texts = [self._database.open(body, id, run) for id, run, body, _ in rows if id not in known]
            return [text for text in texts if text], rows[-1][3] if rows else 0

        while True:
            version = await self._database.version() if wait else 0
            texts, last = await self._database.read(work)
            if texts or not wait:
                return [cast(Interjected, decode_body(Interjected.__name__, text)) for text in texts]
            await self._database.wait_for_message(run_id, last, version)
