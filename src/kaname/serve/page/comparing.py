"""Compare two runs: their lines side by side, and where they first differ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...core.events import Opened
from ...core.notices import Notice, to_json
from ...core.people.story import SIGNS, StoryLine, lines
from ...core.runs import RunInfo
from ...kernel.load import read_whole
from ..encoding import Json
from ..forms import caller_of
from ..problems import HttpRefused
from ..questions import summary
from ..service import Service
from ..users import Caller
from .facts import redact

_MOST = 4_000_000  # pairs of lines that are looked at; beyond that, line by line
Pair = tuple[StoryLine | None, StoryLine | None]


class CompareRoutes:
    """The address `/api/compare`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def compare(self, request: Request) -> Response:
        """Return both runs, and rows of two lines with True if they are equal. `first`: the first row that differs, or -1."""
        caller, asked = caller_of(request), request.query_params
        if not asked.get("one") or not asked.get("other"):
            raise HttpRefused.of("serve.compare", "Name two runs to compare: /api/compare?one=RUN&other=RUN", http=400)
        cards = [await self._service.card(asked.get(name, ""), caller) for name in ("one", "other")]
        one, other = [await self._side(card, caller) for card in cards]
        pairs = await asyncio.to_thread(lambda: list(align(one[1], other[1])))
        first = next((place for place, pair in enumerate(pairs) if not _same(pair)), -1)
        rows = [[*[_line_as_json(line) for line in pair], _same(pair)] for pair in pairs]
        return Json({"runs": [one[0], other[0]], "rows": rows, "first": first})

    async def _side(self, card: RunInfo, caller: Caller) -> tuple[dict[str, Any], list[StoryLine]]:
        events = [redact(event, caller) for event in await read_whole(self._service.journal, card.run_id)]
        opened = [event.body for event in events if isinstance(event.body, Opened)]
        return {**summary(card), "model": opened[-1].recipe.get("model", "") if opened else ""}, lines(events)


def align(one: Sequence[StoryLine], other: Sequence[StoryLine]) -> Iterator[Pair]:
    """Yield the lines side by side, equal ones in the same row."""
    if len(one) * len(other) > _MOST:
        yield from zip_longest(one, other)
        return
    matcher = SequenceMatcher(None, [_content(line) for line in one], [_content(line) for line in other])
    for _, start, end, other_start, other_end in matcher.get_opcodes():
        yield from zip_longest(one[start:end], other[other_start:other_end])


def _content(line: StoryLine) -> tuple[str, ...]:
    """Return the parts of a line that are compared. Times, numbers, and the place of a result below its call are left out."""
    return line.kind, line.text, line.whose


def _same(pair: Pair) -> bool:
    return pair[0] is not None and pair[1] is not None and _content(pair[0]) == _content(pair[1])


def _line_as_json(line: StoryLine | None) -> dict[str, Any] | None:
    if line is None:
        return None
    said = {"notice": to_json(line.text)} if isinstance(line.text, Notice) else {}
    whose = line.whose if line.apart or line.kind not in ("call", "result", "error") else ""
    told = {"kind": line.kind, "sign": SIGNS.get(line.kind, ""), "text": line.text, "whose": whose, **said}
    return {"run": line.event.run_id, "seq": line.event.seq, **told}
