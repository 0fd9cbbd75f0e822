"""Files that a client uploads as they are, and then names in a message, instead of sending them as base64 in its JSON.

An upload is a run without an agent that holds the file: so it belongs to its user, is encrypted and erased like every run, and
other processes that serve the journal find it. It is for one request: the message that names it has its own copy.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..core.errors import ConfigError, RunNotFound
from ..core.events import Event, Fact, Opened, Received, Stopped
from ..core.messages import Media, Message
from ..core.notices import notice
from ..core.reading.media_types import WrongMediaType
from ..core.runs import UPLOAD
from ..core.steps import Stop
from ..kernel.load import read_run
from ..run.request import new_run_id
from .encoding import Json
from .forms import caller_of
from .guard import file_too_large
from .problems import HttpRefused
from .service import Service
from .users import Caller

_STRATEGY = "Upload"  # no agent has it: these facts are no run to be resumed


class Uploads:
    """The address `/api/media`, and the files that messages name. `most`: the bytes of all files of a message."""

    def __init__(self, service: Service, most: int) -> None:
        self._service, self._journal, self._most = service, service.journal, most

    async def add(self, request: Request) -> Response:
        """Store the body as a file of the caller. Its type follows from its content and the ending of `name`."""
        caller, name = caller_of(request, "talk"), request.query_params.get("name", "")[:500]
        content = await request.body()
        try:
            file = Media.of(content, name=name)
        except WrongMediaType as problem:
            raise ConfigError(str(problem)) from None
        upload = new_run_id()
        run_id = f"{UPLOAD}{upload}"
        held = Received(Message("user", (file,)))
        facts: tuple[Fact, ...] = (Opened(user=caller.name, recipe={"strategy": _STRATEGY}), held, Stopped(Stop("completed")))
        lease, now = await self._journal.claim(run_id), time.time()
        told = [Event(run_id, place, now, "upload", one) for place, one in enumerate(facts, 1)]
        await self._journal.append(told, lease.epoch)
        return Json({"file_id": upload, "name": name, "mime": file.mime, "size": len(content)}, 201)

    @asynccontextmanager
    async def attach(self, given: Any, caller: Caller) -> AsyncIterator[Any]:
        """Yield the input of a request with its files in the places where it names them, and delete the uploads afterwards.

        Raise `HttpRefused` if one does not exist or belongs to another user, or if they are too large together.
        """
        used, left = list[str](), self._most

        async def part_of(part: Any) -> Any:
            nonlocal left
            named = part.get("file") if isinstance(part, dict) and part.get("type") == "file" else None
            if not isinstance(named, dict) or not isinstance(named.get("file_id"), str):
                return part
            run_id, file = await self._find(named["file_id"], caller)
            used.append(run_id)
            left -= len(file.data) // 4 * 3 - file.data[-2:].count("=")
            if left < 0:
                raise file_too_large(self._most)
            return file

        async def message_of(message: Any) -> Any:
            content = message.get("content") if isinstance(message, dict) else None
            return {**message, "content": [await part_of(one) for one in content]} if isinstance(content, list) else message

        try:
            yield [await message_of(one) for one in given] if isinstance(given, list) else await message_of(given)
        finally:
            for run_id in used:
                self._service.remove_later(run_id)

    async def _find(self, upload: str, caller: Caller) -> tuple[str, Media]:
        try:
            card = await self._service.card(f"{UPLOAD}{upload}", caller)
            (file,) = [part for event in await read_run(self._journal, card.run_id) if isinstance(event.body, Received)
                       for part in event.body.message.parts if isinstance(part, Media)]  # fmt: skip
        except RunNotFound:
            told = notice("serve.no_upload", "there is no uploaded file {id!r}. It is for one message: upload it again",
                          id=upload[:100])  # fmt: skip
            raise HttpRefused(404, told) from None
        return card.run_id, file
