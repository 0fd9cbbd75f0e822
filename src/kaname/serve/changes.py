"""Changes of runs, for all clients that watch the list. The journal is read once a second, however many clients there are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from ..core.errors import JournalError
from ..core.runs import RunInfo, is_upload
from .service import Service

_PAUSE, _LOOK_BACK = 1.0, 5.0  # seconds; facts are dated before they are written
_MOST, _STILL = 10_000, 100  # runs that are read at once: changed ones, interrupted ones
_BEHIND = 1_000  # batches that a watcher can be behind; then it is dropped, and its client reconnects

Change = tuple[str, str | None, RunInfo | None]  # a run's id, its user (None: not known), and its card; None if it is gone


class Changes:
    """Watch the journal for changed runs and pass them to the watchers.

    An interrupted run changes its status without a fact, so interrupted runs are read by their own query.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._watchers: set[asyncio.Queue[list[Change]]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncGenerator[list[Change], None]:
        """Yield the changes from now on, in batches."""
        news: asyncio.Queue[list[Change]] = asyncio.Queue(_BEHIND)
        self._watchers.add(news)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            while news in self._watchers:
                yield await news.get()
        finally:
            self._watchers.discard(news)

    def announce_deleted(self, user: str | None, *run_ids: str) -> None:
        """Announce that runs of a user were deleted. If the user is not known (None), only administrators are notified."""
        self._notify([(run_id, user, None) for run_id in run_ids])

    async def _look(self) -> None:
        known: dict[str, tuple[Any, ...]] = {}
        since = time.time() - _LOOK_BACK
        while self._watchers:
            asked = time.time()
            try:
                cards = {card.run_id: card for card in await self._service.journal.runs(since=since, limit=_MOST)}
                still = await self._service.journal.runs(status="interrupted", limit=_STILL)
            except JournalError:  # the next look may find it again
                await asyncio.sleep(_PAUSE)
                continue
            cards |= {card.run_id: card for card in still}
            new = [card for card in cards.values() if known.get(card.run_id) != _mark(card) and not is_upload(card)]
            known = {run_id: _mark(card) for run_id, card in cards.items()}
            self._notify([(card.run_id, card.user, card) for card in new])
            since = asked - _LOOK_BACK
            await asyncio.sleep(_PAUSE)

    def _notify(self, news: list[Change]) -> None:
        for watcher in tuple(self._watchers) if news else ():
            if watcher.full():
                self._watchers.discard(watcher)
            else:
                watcher.put_nowait(news)


def _mark(card: RunInfo) -> tuple[Any, ...]:
    return card.status, card.seq, card.title
