"""Recover runs that a crash or a restart has interrupted, and execute queued runs: the server is a worker, too."""

from __future__ import annotations

from ...agent.work.worker import Worker
from ...stores.queue import HasQueue
from ..service import Service

_AT_ONCE = 256  # runs that the server takes at the same time, in addition to those of requests


class Recovery:
    """The worker of a server. Runs of scripts are left to the scripts."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._worker: Worker | None = None
        if isinstance(service.journal, HasQueue):
            self._worker = Worker(service.agents.values(), concurrency=_AT_ONCE, begin=service.begin)

    async def keep_looking(self) -> None:
        """Take interrupted and queued runs at the start and whenever there are some, until the server shuts down."""
        if self._worker is not None:
            await self._worker.work()

    def close(self) -> None:
        """Take no more runs."""
        if self._worker is not None:
            self._worker.stop()
