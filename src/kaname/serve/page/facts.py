"""A run's facts as they are recorded: all of them, those to come, and as a test. The page tells a run's story from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...api.attach import batches
from ...core.chunks import Chunk
from ...core.codec import encode
from ...core.events import Custom, Event, ModelReplied, Opened, Stopped, Unknown
from ...core.notices import notice
from ...core.people.story import Order
from ...core.record import replace
from ...core.runs import RunInfo
from ...core.steps import CallModel
from ...kernel.load import load, read_whole
from ...kernel.ports import Journal
from ..admin_only import chunks_for, stop_for
from ..encoding import PIECE, Json, Part, joined, keep_once, share, to_json
from ..forms import caller_of, number
from ..problems import Refused
from ..runs import is_read_to_its_end, summary
from ..service import Service
from ..stream import Stream, Streams, event
from ..users import Caller
from .frozen import as_test
from .graphs import Graphs

_AT_ONCE = 200  # facts, before others have their turn
_TOLD = ("model", "tools", "graph")  # of what an agent is, everybody may know this


class Facts:
    """The addresses `/api/runs/{run_id}/facts`, `/state` and `/test`."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def facts(self, request: Request) -> Response:
        """Those after a number; with `whole`, after those of the runs that it went on from. As a stream: those to come, too."""
        card, caller = await self._mine(request), caller_of(request)
        last_id, asked = request.headers.get("last-event-id", ""), request.query_params
        after = int(last_id) if last_id.isdecimal() and len(last_id) < 10 else number(request, "after", 0, 0, 10**8)
        if request.headers.get("accept", "").startswith("text/event-stream"):
            if is_read_to_its_end(card, after):
                return Response(status_code=204)
            frames = _frames(self._service.journal, card.run_id, after, caller)
            return Stream(self._streams, caller, frames, closing=lambda: event({"type": "closing"}, "closing"))
        if asked.get("whole") in ("1", "true"):
            events = await read_whole(self._service.journal, card.run_id, number(request, "upto", card.seq, 1, 10**8))
        else:
            events = [one async for one in self._service.journal.read(card.run_id, after)]
        told, writer = [], Writer(self._service.journal, caller)
        for place, one in enumerate(events):
            told.append(await writer.write(one))
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)
        body = b'{"run":%b,"facts":[%b]}' % (to_json(summary(card)), b",".join(told))
        return keep_once(Response(body, media_type="application/json"))

    async def state(self, request: Request) -> Response:
        """What the model would be sent after that fact, and what stood open then."""
        from ...core.openai_shape import to_openai

        card = await self._mine(request)
        state = await load(self._service.journal, card.run_id, number(request, "at", card.seq, 1, 10**8))
        waiting = [{"id": call.id, "name": call.name, "arguments": call.args} for call in state.pending]
        return Json({"messages": [to_openai(message) for message in state.history], "pending": waiting, "facts": state.seq})

    async def test(self, request: Request) -> Response:
        """The run as a test for pytest. It holds the agent's instructions, which are not for everybody."""
        caller_of(request, "admin")
        card = await self._mine(request)
        if card.parent:
            told = notice("serve.child_test", "it is a part of run {run_id}: make a test of that one", run_id=card.parent)
            raise Refused(409, told)
        name, text = await asyncio.to_thread(as_test, card, await read_whole(self._service.journal, card.run_id))
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type="text/x-python; charset=utf-8", headers=headers)

    async def _mine(self, request: Request) -> RunInfo:
        return await self._service.card(request.path_params["run_id"], caller_of(request))


async def _frames(journal: Journal, run_id: str, after: int, caller: Caller) -> AsyncGenerator[Part, None]:
    """All that is recorded; then each fact as soon as it is, and what is shown before that as it comes.

    Nothing but the frames is held while a client is waited for: it may never read them.
    """
    held: list[Part] = []
    writer = Writer(journal, caller)
    async for one in journal.read(run_id, after):
        after = one.seq
        held += (frame := await _frame(one, writer))
        del one
        if len(held) >= _AT_ONCE or len(frame) > 1:
            for part in joined(held):
                yield part
            held = []
    for part in joined(held):
        yield part
    async for chunks in batches(journal, run_id, after, whole=True):
        told: list[Part] = []
        for chunk in chunks_for(chunks, caller):
            upto = chunk.data.get("fact")
            if upto is None:
                told.append(_shown(chunk))
            elif upto > after:
                told += await _between(journal, run_id, after, upto, writer)
                after = upto
            del chunk
        chunks.clear()
        for part in joined(told):
            yield part
    for part in joined(await _between(journal, run_id, after, None, writer)):  # some have no chunk
        yield part
    yield event({"type": "over"}, "over")


async def _frame(fact: Event, writer: Writer) -> tuple[Part, ...]:
    head, body = b"id: %d\nevent: fact\ndata: " % fact.seq, await writer.write(fact)
    return (b"%b%b\n\n" % (head, body),) if len(body) <= PIECE else (head, share(body), b"\n\n")


async def _between(journal: Journal, run_id: str, after: int, upto: int | None, writer: Writer) -> list[Part]:
    """The frames of the facts after one number, up to and with another."""
    found: list[Part] = []
    async for one in journal.read(run_id, after):
        if upto is not None and one.seq > upto:
            break
        found += await _frame(one, writer)
    return found


def _shown(chunk: Chunk) -> bytes:
    return event({"type": chunk.type, "data": chunk.data}, chunk.type if chunk.type.isidentifier() else "custom")


class Writer:
    """Write facts as JSON, as far as the caller may know them, with what the page needs to show them.

    `apart`: a result that does not stand below its call. `graph`: the drawing of a workflow or plan. The facts before the
    first one are read from the journal, because both depend on them.
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
    """A fact as it is recorded, as far as the caller may know it."""
    text = encode(discreet(fact, caller))
    if "NaN" in text or "Infinity" in text:  # which Python writes, and no browser reads
        return to_json(json.loads(text, parse_constant=lambda name: name))
    return text.encode()


def discreet(fact: Event, caller: Caller) -> Event:
    """Leave out of a fact what the caller must not know."""
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
