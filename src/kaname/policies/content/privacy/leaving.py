"""A reply on its way to the user: pseudonyms become values again, and the rules for the output are applied.

The pieces of a stream are held back only while they may still become personal data or a pseudonym. If a rule blocks something,
nothing more is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..guardrails.verdicts import AT_ONCE
from .kinds import DataForm
from .pseudonyms import LABELS
from .scan import DataStream

if TYPE_CHECKING:
    from ....kernel.ports import Emit

By = Callable[[str, str], str]


class Leaving:
    """Takes the pieces of a reply and emits what can be shown.

    Args:
        forms: What to look for in the output.
        treat: Returns what stands in place of data that was found.
        restore: Returns what stands in place of a pseudonym, or None if there are no pseudonyms.
        whole: True to emit nothing before the end, because detectors need the whole text.
        is_blocked: Returns True once something was found that is blocked.
        record: Records new pseudonyms before they are shown.
    """

    def __init__(
        self,
        forms: Sequence[DataForm],
        treat: By,
        restore: By | None,
        *,
        whole: bool,
        is_blocked: Callable[[], bool],
        record: Callable[[], object],
        emit: Emit,
    ) -> None:
        self._forms, self._treat, self._restore, self._whole = forms, treat, restore, whole
        self._is_blocked, self._record, self._emit = is_blocked, record, emit
        self._streams: dict[str, list[DataStream]] = {}

    async def take(self, text: str, kind: str = "text", call_id: str = "") -> None:
        if kind in ("progress", "restarted"):
            self._streams = {} if kind == "restarted" else self._streams
            await self._emit(text, kind, call_id)
            return
        if self._whole:
            return
        stages = self._stages(kind)
        for start in range(0, len(text), AT_ONCE):
            if start:
                await asyncio.sleep(0)  # a long text must not keep everybody else waiting
            piece = text[start : start + AT_ONCE]
            for stage in stages:
                piece = stage.feed(piece)
            await self._show(piece, kind, call_id)

    async def finish(self, thinking: str, text: str) -> None:
        """Emit the rest; or everything, if the detectors had to see it first."""
        if self._whole:
            await self._show(thinking, "thinking")
            await self._show(text, "text")
        for kind, stages in self._streams.items():
            rest = ""
            for stage in stages:
                rest = stage.feed(rest) + stage.end()
            await self._show(rest, kind)

    async def _show(self, text: str, kind: str, call_id: str = "") -> None:
        if text and not self._is_blocked():
            await self._record()  # type: ignore[misc]
            await self._emit(text, kind, call_id)

    def _stages(self, kind: str) -> list[DataStream]:
        if kind not in self._streams:
            back = [] if self._restore is None or kind != "text" else [DataStream(LABELS, self._restore)]
            self._streams[kind] = [*back, *([DataStream(self._forms, self._treat)] if self._forms else [])]
        return self._streams[kind]
