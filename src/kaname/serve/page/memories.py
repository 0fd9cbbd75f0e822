"""What is remembered, over HTTP: read, add, correct, forget. One's own; an administrator also that of others."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...api.memory.recall import Memory
from ...api.memory.store import Memories as Store
from ...api.memory.store import Remembered
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
        store, words = self._store(request, "read"), request.query_params.get("q", "")
        past = request.query_params.get("past") in ("1", "true")
        found = await asyncio.to_thread(_search, store, words) if words else await asyncio.to_thread(store.all, past=past)
        return Json({"agents": remembering, "memories": [_told(one) for one in found]})

    async def add(self, request: Request) -> Response:
        store, form = self._store(request, "talk"), await read(request, Remember)
        made = await asyncio.to_thread(lambda: store.add(form.text, form.kind, about=form.about))
        return Json(_told(made), 201)

    async def correct(self, request: Request) -> Response:
        store, form = self._store(request, "talk"), await read(request, Correction)
        return Json(_told(await asyncio.to_thread(store.correct, request.path_params["number"], form.text)))

    async def forget(self, request: Request) -> Response:
        store = self._store(request, "talk")
        await asyncio.to_thread(store.forget, [request.path_params["number"]])
        return Response(status_code=204)

    def _store(self, request: Request, role: str) -> Store:
        caller, asked = caller_of(request, role), request.query_params
        owner, user = asked.get("of", "user"), asked.get("user_id", caller.name)
        if owner not in _OWNERS:
            raise Refused(400, notice("serve.owner", "a memory is of user, agent or project, not {owner!r}", owner=owner))
        if owner != "user" or user != caller.name:
            caller_of(request, "admin")
        named = asked.get("agent", "")
        agents = [self._service.agent(named)] if named else list(self._service.agents.values())
        for agent in agents:
            if (memory := _memory(agent)) is not None:
                return memory.of(user, agent=agent.name if owner == "agent" else "", project=owner == "project")
        raise Refused(404, notice("serve.no_memory", "no agent here has a memory"))


def _memory(agent: Any) -> Memory | None:
    return next((part for part in agent.recipe.context if isinstance(part, Memory)), None)


def _search(store: Store, words: str) -> list[Remembered]:
    return [one for hit in store.search(words, least=0.1) for one in (hit.memory, *hit.before)]


def _told(one: Remembered) -> dict[str, Any]:
    return {**one._asdict()}
