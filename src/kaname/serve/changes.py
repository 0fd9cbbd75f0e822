"""The runs that change, for all who watch the list: one look at the journal each second, however many they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from ..core.errors import JournalError
from ..core.runs import RunInfo
from .service import Service

_PAUSE, _LOOK_BACK = 1.0, 5.0  # seconds; facts are dated before they are written
_MOST, _STILL = 10_000, 100  # runs: of one look; of those that nobody executes
_BEHIND = 1_000  # cards: who takes none of so many is told no more, and asks again

Told = tuple[str, str | None, RunInfo | None]  # a run's id, its user (None: not known), and its card; None if it is gone


class Changes:
    """One that nobody executes any more changes without a fact; so it is asked for by itself."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._watchers: set[asyncio.Queue[list[Told]]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncGenerator[list[Told], None]:
        """What changes from now on, as it is seen."""
        news: asyncio.Queue[list[Told]] = asyncio.Queue(_BEHIND)
        self._watchers.add(news)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            while news in self._watchers:
                yield await news.get()
        finally:
            self._watchers.discard(news)

    def gone(self, user: str | None, *run_ids: str) -> None:
        """Tell that runs of that user are deleted. If the user is not known, only administrators learn of it."""
        self._tell([(run_id, user, None) for run_id in run_ids])

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
            new = [card for card in cards.values() if known.get(card.run_id) != _mark(card)]
            known = {run_id: _mark(card) for run_id, card in cards.items()}
            self._tell([(card.run_id, card.user, card) for card in new])
            since = asked - _LOOK_BACK
            await asyncio.sleep(_PAUSE)

    def _tell(self, news: list[Told]) -> None:
        for watcher in tuple(self._watchers) if news else ():
            if watcher.full():
                self._watchers.discard(watcher)
            else:
                watcher.put_nowait(news)


def _mark(card: RunInfo) -> tuple[Any, ...]:
    return card.status, card.seq, card.title
