"""What is remembered, over HTTP: read, add, correct, forget. One's own; an administrator also that of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from logging import getLogger
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...api.memory.files import Owner
from ...api.memory.memory import Memory
from ...api.memory.store import Memories as Store
from ...api.memory.store import Remembered
from ...core.errors import ConfigError
from ...core.notices import notice
from ..encoding import Json
from ..forms import Correction, Remember, caller_of, read
from ..problems import Refused
from ..service import Service

_OWNERS = ("user", "agent", "project")


class Memories:
    """The addresses under `/api/memory`. `agent`: whose memory is meant; `of`: a user's, the agent's own, the project's."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def all(self, request: Request) -> Response:
        caller_of(request)
        remembering = [name for name, agent in self._service.agents.items() if _memory(agent) is not None]
        if not remembering:
            return Json({"agents": [], "memories": []})
        words, past = request.query_params.get("q", ""), request.query_params.get("past") in ("1", "true")
        read = (lambda store: _search(store, words)) if words else (lambda store: store.all(past=past))
        found = await self._with(request, "read", read)
        return Json({"agents": remembering, "memories": [one._asdict() for one in found or ()]})

    async def add(self, request: Request) -> Response:
        form = await read(request, Remember)
        made = await self._with(request, "talk", lambda store: store.add(form.text, form.kind, about=form.about))
        return Json(made._asdict(), 201)

    async def correct(self, request: Request) -> Response:
        number, form = _number(request), await read(request, Correction)
        return Json((await self._with(request, "talk", lambda store: store.correct(number, form.text)))._asdict())

    async def forget(self, request: Request) -> Response:
        number = _number(request)
        await self._with(request, "talk", lambda store: store.forget([number]))
        return Response(status_code=204)

    async def _with(self, request: Request, role: str, work: Callable[[Store], Any]) -> Any:
        """Do it with the file that is meant, in a thread: it may have to wait for another who writes. What was never written
        is not made by reading it."""
        memory, owner = self._meant(request, role)
        if role == "read" and not memory.path(owner).exists():
            return None
        kind, name = owner

        def done() -> Any:
            return work(memory.of(name, agent=name if kind == "agent" else "", project=kind == "project"))

        try:
            return await asyncio.to_thread(done)
        except ConfigError as problem:
            code = getattr(str(problem), "code", "")
            if code.startswith("memory."):
                raise Refused(404 if code == "memory.unknown" else 400, str(problem)) from None
            getLogger("kaname.serve").error("%s", problem)  # where the file is, is the owner's business
            raise Refused(503, notice("serve.memory", "the memory cannot be used now; the server's log says why")) from None

    def _meant(self, request: Request, role: str) -> tuple[Memory, Owner]:
        caller, asked = caller_of(request, role), request.query_params
        kind, user, named = asked.get("of", "user"), asked.get("user_id", caller.name), asked.get("agent", "")
        if kind not in _OWNERS:
            raise Refused(400, notice("serve.owner", "a memory is of user, agent or project, not {owner!r}", owner=kind))
        if kind != "user" or user != caller.name:
            caller_of(request, "admin")
        for agent in [self._service.agent(named)] if named else list(self._service.agents.values()):
            if (memory := _memory(agent)) is not None:
                return memory, (kind, {"user": user, "agent": agent.name, "project": ""}[kind])  # type: ignore[return-value]
        raise Refused(404, notice("serve.no_memory", "no agent here has a memory"))


def _memory(agent: Any) -> Memory | None:
    return next((part for part in agent.recipe.context if isinstance(part, Memory)), None)


def _search(store: Store, words: str) -> list[Remembered]:
    return [one for hit in store.search(words, least=0.1) for one in (hit.memory, *hit.before)]


def _number(request: Request) -> int:
    text = request.path_params["number"]
    if not text.isdecimal() or len(text) > 18:
        raise Refused(404, notice("memory.unknown", "there is no memory {number}", number=text[:50]))
    return int(text)
