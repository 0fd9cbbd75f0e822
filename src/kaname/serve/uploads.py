"""Files that a client uploads as they are, and then names in a message, instead of sending them as base64 in its JSON.

An upload is a run without an agent that holds the file, piece by piece: so it belongs to its user, is encrypted and erased like
every run, other processes that serve the journal find it, and this one holds one piece of it at a time. It is for one request:
the message that names it has its own copy.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..core.errors import AgentError, ConfigError, RunNotFound
from ..core.events import Event, Fact, Opened, Received, Stopped
from ..core.messages import Media, Message
from ..core.reading.media_types import WrongMediaType, checked_type
from ..core.runs import UPLOAD
from ..core.steps import Stop
from ..run.request import new_run_id
from .encoding import Json
from .forms import caller_of
from .guard import file_too_large
from .problems import HttpRefused
from .service import Service
from .users import Caller

_RECIPE = {"strategy": "Upload"}  # no agent has it: these facts are no run to be resumed
_PIECE = 786_432  # bytes of a file in one fact; a multiple of three, so that the pieces can be joined as base64


class Uploads:
    """The address `/api/media`, and the files that messages name. `most`: the bytes of all files of a message."""

    def __init__(self, service: Service, most: int) -> None:
        self._service, self._journal, self._most = service, service.journal, most

    async def add(self, request: Request) -> Response:
        """Store the body as a file of the caller, while it arrives.

        Its type follows from the beginning of its content and the ending of `name`.
        """
        caller, name = caller_of(request, "talk"), request.query_params.get("name", "")[:500]
        upload = new_run_id()
        run_id, mime, size, seq = f"{UPLOAD}{upload}", "", 0, 0
        lease = await self._journal.claim(run_id)

        async def record(fact: Fact) -> None:
            nonlocal seq
            await self._journal.append([Event(run_id, seq + 1, time.time(), "upload", fact)], lease.epoch)
            seq += 1

        try:
            await record(Opened(user=caller.name, recipe=_RECIPE))
            async for piece in _pieces(request):
                mime, size = mime or checked_type(piece, name), size + len(piece)
                await record(Received(Message("user", (Media(mime, b64encode(piece).decode(), name=name),))))
            await record(Stopped(Stop("completed")))
        except BaseException as problem:
            with suppress(AgentError):
                await record(Stopped(Stop("failed")))
            with suppress(AgentError):  # if even that could not be recorded
                await self._journal.release(run_id, lease.epoch)
            self._service.remove_later(run_id)
            if isinstance(problem, WrongMediaType):
                raise ConfigError(str(problem)) from None
            raise
        return Json({"file_id": upload, "name": name, "mime": mime, "size": size}, 201)

    async def attach(self, content: Any, caller: Caller) -> Any:
        """Return the input of a request with its files in the places where it names them. Their uploads are deleted.

        Raise `HttpRefused` if one does not exist or belongs to another user, or if they are too large together. Then all
        uploads stay, so that the request can be repeated.
        """
        left, files = self._most, dict[str, Media]()
        messages = content if isinstance(content, list) else [content]
        for place, message in enumerate(messages):
            parts = message.get("content") if isinstance(message, dict) else None
            if not isinstance(parts, list):
                continue
            made = []
            for part in parts:
                named = part.get("file") if isinstance(part, dict) and part.get("type") == "file" else None
                if isinstance(named, dict) and isinstance(named.get("file_id"), str):
                    upload = named["file_id"]
                    part = files[upload] = files.get(upload) or await self._find(upload, caller)
                    left -= len(part.data) // 4 * 3 - part.data[-2:].count("=")
                    if left < 0:
                        raise file_too_large(self._most)
                made.append(part)
            messages[place] = {**message, "content": made}
        for upload in files:
            self._service.remove_later(f"{UPLOAD}{upload}")
        return messages if isinstance(content, list) else messages[0]

    async def _find(self, upload: str, caller: Caller) -> Media:
        """Return the file of an upload."""
        found: list[Media] = []
        try:
            card = await self._service.card(f"{UPLOAD}{upload}", caller)
            if card.status == "completed":
                async for event in self._journal.read(card.run_id):
                    parts = event.body.message.parts if isinstance(event.body, Received) else ()
                    found += [part for part in parts if isinstance(part, Media)]
        except RunNotFound:
            pass
        if not found:
            raise HttpRefused.of(
                "serve.no_upload",
                "there is no uploaded file {id!r}. It is for one message: upload it again",
                http=404,
                id=upload[:100],
            )
        return Media(found[0].mime, "".join([one.data for one in found]), name=found[0].name)


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield the body in pieces of equal size. An empty one is a single piece."""
    held, empty = bytearray(), True
    async for arrived in request.stream():
        held += arrived
        while len(held) >= _PIECE:
            piece, empty = bytes(held[:_PIECE]), False
            del held[:_PIECE]
            yield piece
    if held or empty:
        yield bytes(held)
