"""Stored memories over HTTP: read, add, correct, forget. Your own; as an administrator, also those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from logging import getLogger
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...core.errors import ConfigError
from ...memory.files import Owner
from ...memory.memory import Memory
from ...memory.store import Memories as Store
from ...memory.store import Remembered
from ..encoding import Json
from ..forms import Correction, Remember, caller_of, read_body
from ..problems import HttpRefused
from ..service import Service

_OWNERS = ("user", "agent", "project")


class MemoryRoutes:
    """The addresses under `/api/memory`.

    `agent`: the agent with the memory. `of`: the memory of a user, the agent or the project.
    """

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
        form = await read_body(request, Remember)
        made = await self._with(request, "talk", lambda store: store.add(form.text, form.kind, about=form.about))
        return Json(made._asdict(), 201)

    async def correct(self, request: Request) -> Response:
        number, form = _number(request), await read_body(request, Correction)
        return Json((await self._with(request, "talk", lambda store: store.correct(number, form.text)))._asdict())

    async def forget(self, request: Request) -> Response:
        number = _number(request)
        await self._with(request, "talk", lambda store: store.forget([number]))
        return Response(status_code=204)

    async def _with(self, request: Request, role: str, work: Callable[[Store], Any]) -> Any:
        """Call `work` with the memories that the request names, in a thread: another process may be writing them.

        Reading memories that were never written does not make a file.
        """
        memory, owner = self._find_memory(request, role)
        if role == "read" and not memory.path(owner).exists():
            return None
        kind, name = owner
        await self._service.auditor.read(caller_of(request), "memory", name if kind == "user" else caller_of(request).name)

        def work_on_memories() -> Any:
            return work(memory.of(name, agent=name if kind == "agent" else "", project=kind == "project"))

        try:
            return await asyncio.to_thread(work_on_memories)
        except ConfigError as problem:
            code = getattr(str(problem), "code", "")
            if code.startswith("memory."):
                raise HttpRefused(404 if code == "memory.unknown" else 400, str(problem)) from None
            getLogger("kaname.serve").error("%s", problem)  # the path is only for the owner
            raise HttpRefused.of("serve.memory", "the memory is not available now; see the server's log", http=503) from None

    def _find_memory(self, request: Request, role: str) -> tuple[Memory, Owner]:
        caller, asked = caller_of(request, role), request.query_params
        kind, user, named = asked.get("of", "user"), asked.get("user_id", caller.name), asked.get("agent", "")
        if kind not in _OWNERS:
            raise HttpRefused.of(
                "serve.owner", "the owner of a memory must be user, agent or project, not {owner!r}", http=400, owner=kind
            )
        if kind != "user" or user != caller.name:
            caller_of(request, "admin")
        for agent in [self._service.agent(named)] if named else list(self._service.agents.values()):
            if (memory := _memory(agent)) is not None:
                return memory, (kind, {"user": user, "agent": agent.name, "project": ""}[kind])  # type: ignore[return-value]
        raise HttpRefused.of("serve.no_memory", "no agent on this server has a memory", http=404)


def _memory(agent: Any) -> Memory | None:
    return next((part for part in agent.recipe.context if isinstance(part, Memory)), None)


def _search(store: Store, words: str) -> list[Remembered]:
    return [one for hit in store.search(words, least=0.1) for one in (hit.memory, *hit.before)]


def _number(request: Request) -> int:
    text = request.path_params["number"]
    if not text.isdecimal() or len(text) > 18:
        raise HttpRefused.of("memory.unknown", "there is no memory with the number {number}", http=404, number=text[:50])
    return int(text)
