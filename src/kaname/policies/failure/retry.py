"""Try a model call again when its provider is busy, down or out of reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import count
from typing import TYPE_CHECKING, Any

from ...core.durations import backoff
from ...core.errors import ConfigError, ModelError, ModelTimeout
from ...core.messages import ModelReply, ModelRequest
from ...core.notices import notice
from ...core.record import replace
from ...kernel.bases import PolicyInfo
from ...kernel.ports import ModelHandler, Policy

if TYPE_CHECKING:
    from ...kernel.view import RunView

PAUSE = 1.0  # seconds before the second try; doubled for each further one


class Retry(Policy):
    """Retries calls of a busy model. It is on by default.

    Args:
        tries: How often a call is tried in all. 1 switches retries off.
        longest_wait: Seconds. If the provider asks to wait longer, the call raises its error.

    A call is tried again if the error says that it makes sense (429, 5xx, no connection) and nobody was shown a part of the
    reply. A call that timed out is not: it has taken long enough.
    """

    place = "retry"
    about = PolicyInfo(stands_alone=True)

    def __init__(self, tries: int = 5, longest_wait: float = 60.0) -> None:
        if tries < 1 or longest_wait < 0:
            raise ConfigError.of(
                "retry.numbers",
                "Retry: tries must be at least 1 and longest_wait at least 0, not {tries!r} and {longest_wait!r}",
                tries=tries,
                longest_wait=longest_wait,
            )
        self.tries, self.longest_wait = tries, longest_wait

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        shown, emit = False, request.emit or view.emit

        def show(text: str, kind: str = "text", *more: Any) -> Awaitable[None]:
            nonlocal shown
            shown = kind != "restarted" and (shown or kind != "progress")
            return emit(text, kind, *more)

        watched = replace(request, emit=show)
        for attempt in count(1):
            try:
                return await next(watched)
            except ModelError as error:
                pointless = not error.retryable or isinstance(error, ModelTimeout) or (shown and view.is_read)
                wait = self.wait_before_retry(error, attempt, not pointless, request, view)
                if pointless or wait is None or wait > self.longest_wait:
                    raise
                if shown:
                    await show("", "restarted")
                await view.warn("retry", self._announce(error, wait, attempt + 1))
            await asyncio.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def wait_before_retry(
        self, error: ModelError, attempt: int, can_retry: bool, request: ModelRequest, view: RunView
    ) -> float | None:
        """Return the seconds until the next try, or None if there is none. `attempt` is 1 for the first try."""
        if attempt == self.tries:
            return None
        return backoff(attempt, PAUSE, jitter=0.25) if error.retry_after is None else error.retry_after

    def _announce(self, error: ModelError, wait: float, attempt: int) -> str:
        return notice(
            "model.retry",
            "{error}; retrying in {wait:.1f} s (try {attempt} of {tries})",
            error=error.public,
            wait=wait,
            attempt=attempt,
            tries=self.tries,
        )
