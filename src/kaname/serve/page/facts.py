"""The facts of a run: all of them, a stream of them, and as a test. The page builds the view of a run from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...core.chunks import Chunk
from ...core.codec import encode
from ...core.events import Custom, Event, ModelReplied, Opened, Stopped, Unknown
from ...core.notices import notice
from ...core.openai_shape import to_openai
from ...core.people.story import Order
from ...core.record import replace
from ...core.runs import RunInfo
from ...core.steps import CallModel
from ...kernel.load import load, read_whole
from ...kernel.ports import Journal
from ...run.attach import batches
from ..encoding import PIECE, Json, Part, join_parts, keep_once, share, to_json
from ..forms import caller_of, number
from ..problems import HttpRefused, chunks_for, stop_for
from ..questions import summary
from ..runs import is_read_to_its_end
from ..service import Service
from ..stream import Stream, Streams, event
from ..users import Caller
from .frozen import as_test
from .graphs import Graphs
from .media import MARK, without_media

_AT_ONCE = 50  # facts that are written before other tasks get their turn
_TOLD = ("model", "tools", "graph")  # the fields of a recipe that every user can see


class FactRoutes:
    """The addresses `/api/runs/{run_id}/facts`, `/state` and `/test`."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def facts(self, request: Request) -> Response:
        """Return the facts after a number; with `whole`, also those of the runs that this one was forked from.

        As a stream, also return the facts to come.
        """
        card, caller = await self._mine(request), caller_of(request)
        last_id, asked = request.headers.get("last-event-id", ""), request.query_params
        after = int(last_id) if last_id.isdecimal() and len(last_id) < 10 else number(request, "after", 0, 0, 10**8)
        if request.headers.get("accept", "").startswith("text/event-stream"):
            if is_read_to_its_end(card, after):
                return Response(status_code=204)
            frames = _frames(self._service, card.run_id, after, request)
            return Stream(self._streams, caller, frames, closing=lambda: event({"type": "closing"}, "closing"))
        if asked.get("whole") in ("1", "true"):
            events = await read_whole(self._service.journal, card.run_id, number(request, "upto", card.seq, 1, 10**8))
        else:
            events = [one async for one in self._service.journal.read(card.run_id, after)]
        told, writer = [], FactWriter(self._service.journal, caller)
        for place, one in enumerate(events):
            told.append(await writer.write(one))
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)
        body = b'{"run":%b,"facts":[%b]}' % (to_json(summary(card)), b",".join(told))
        return keep_once(Response(body, media_type="application/json"))

    async def state(self, request: Request) -> Response:
        """Return the messages that the model would be sent after a fact, and the calls that were open then."""
        card = await self._mine(request)
        state = await load(self._service.journal, card.run_id, number(request, "at", card.seq, 1, 10**8))
        waiting = [{"id": call.id, "name": call.name, "arguments": call.args} for call in state.pending]
        return Json({"messages": [to_openai(message) for message in state.history], "pending": waiting, "facts": state.seq})

    async def test(self, request: Request) -> Response:
        """Return the run as a test for pytest. Needs `admin`, because the test holds the instructions of the agent."""
        caller_of(request, "admin")
        card = await self._mine(request)
        if card.parent:
            message = notice(
                "serve.child_test", "this run is a part of run {run_id}: create the test from that one", run_id=card.parent
            )
            raise HttpRefused(409, message)
        await self._service.auditor.record("export", caller_of(request), f"run:{card.run_id}", user=card.user, form="test")
        name, text = await asyncio.to_thread(as_test, card, await read_whole(self._service.journal, card.run_id))
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type="text/x-python; charset=utf-8", headers=headers)

    async def _mine(self, request: Request) -> RunInfo:
        return await self._service.card(request.path_params["run_id"], caller_of(request))


async def _frames(service: Service, run_id: str, after: int, request: Request) -> AsyncGenerator[Part, None]:
    """Yield all recorded facts; then each new fact as soon as it is recorded, and the deltas before it as they come.

    Only the frames are kept in memory while the client is waited for: it may never read them.
    """
    journal, caller = service.journal, caller_of(request)
    writer = FactWriter(journal, caller)

    async def write(fact: Event) -> list[Part]:
        nonlocal after
        after = fact.seq
        return [await _frame(fact, writer)]

    async with aclosing(service.readers.facts(journal, run_id, after, request, write)) as parts:
        async for part in parts:
            yield part
    async for chunks in batches(journal, run_id, after, whole=True):
        told: list[Part] = []
        for chunk in chunks_for(chunks, caller):
            upto = chunk.data.get("fact")
            if upto is None:
                told.append(_chunk_frame(chunk))
            elif upto > after:
                told += await _frames_between(journal, run_id, after, upto, writer)
                after = upto
            del chunk
        chunks.clear()
        for part in join_parts(told):
            yield part
    for part in join_parts(await _frames_between(journal, run_id, after, None, writer)):  # some have no chunk
        yield part
    yield event({"type": "over"}, "over")


async def _frame(fact: Event, writer: FactWriter) -> Part:
    head, body = b"id: %d\nevent: fact\ndata: " % fact.seq, await writer.write(fact)
    return b"%b%b\n\n" % (head, body) if len(body) <= PIECE else (head, share(body), b"\n\n")


async def _frames_between(journal: Journal, run_id: str, after: int, upto: int | None, writer: FactWriter) -> list[Part]:
    """Return the frames of the facts after one number, up to and including another."""
    found: list[Part] = []
    async for one in journal.read(run_id, after):
        if upto is not None and one.seq > upto:
            break
        found.append(await _frame(one, writer))
    return found


def _chunk_frame(chunk: Chunk) -> bytes:
    return event({"type": chunk.type, "data": chunk.data}, chunk.type if chunk.type.isidentifier() else "custom")


class FactWriter:
    """Write facts as JSON, without what the caller is not allowed to see, and with what the page needs to show them.

    `apart`: a result that is not directly below its call. `graph`: the drawing of a workflow or plan. Both depend on earlier
    facts, so the facts before the first one are read from the journal.
    """

    def __init__(self, journal: Journal, caller: Caller) -> None:
        self._journal, self._caller = journal, caller
        self._order, self._graphs = Order(), Graphs()
        self._begun = False

    async def write(self, fact: Event) -> bytes:
        if not self._begun and fact.seq > 1:
            async for one in self._journal.read(fact.run_id):
                if one.seq >= fact.seq:
                    break
                self._take(one)
        self._begun = True
        more = self._take(fact)
        body = as_json(fact, self._caller)
        return b"%b,%b" % (body[:-1], to_json(more)[1:]) if more else body

    def _take(self, fact: Event) -> dict[str, Any]:
        graph = self._graphs.take(fact)
        return {**({"apart": True} if self._order.take(fact) else {}), **({"graph": graph} if graph else {})}


def as_json(fact: Event, caller: Caller) -> bytes:
    """Return a fact as JSON, without what the caller is not allowed to see."""
    text = encode(redact(fact, caller))
    if MARK in text:
        text = without_media(text)
    if "NaN" in text or "Infinity" in text:  # Python writes these, but no browser reads them
        return to_json(json.loads(text, parse_constant=lambda name: name))
    return text.encode()


def redact(fact: Event, caller: Caller) -> Event:
    """Remove from a fact what the caller is not allowed to see."""
    body: Any = fact.body
    if isinstance(body, Stopped):
        return fact._replace(body=replace(body, stop=stop_for(body.stop, caller)))
    if caller.is_admin:
        return fact
    if isinstance(body, Opened):
        body = replace(body, recipe={name: body.recipe[name] for name in _TOLD if name in body.recipe}, trace="")
    elif isinstance(body, ModelReplied):
        body = replace(body, step=CallModel())
    elif isinstance(body, Unknown) or (isinstance(body, Custom) and not body.shown):
        body = replace(body, data=None)
    return fact._replace(body=body)
