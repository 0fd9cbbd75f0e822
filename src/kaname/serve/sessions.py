"""Sessions, waiting questions, and the agents that are served, over HTTP."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from .. import __version__
from ..agent.agent import Agent
from ..core.errors import ConfigError
from ..kernel.bases import strategy_info
from ..memory.files import MemoryFiles
from ..memory.sessions import SEARCHED, Session
from ..memory.sessions import Sessions as Journaled
from .changes import Changes
from .encoding import Json
from .forms import Rename, caller_of, read_body, read_page
from .page.graphs import draw_graph
from .problems import HttpRefused
from .questions import questions_of
from .service import Service
from .users import ROLES


class SessionRoutes:
    """The addresses under `/api/sessions`, `/api/questions` and `/api/agents`."""

    def __init__(self, service: Service, changes: Changes) -> None:
        self._changes, self._service, self._sessions = changes, service, Journaled(service.journal)

    async def all(self, request: Request) -> Response:
        whose, asked = self._whose(request), request.query_params
        await self._service.auditor.read(caller_of(request), "sessions", whose)
        if words := asked.get("q", ""):
            listed = await self._sessions.all(agent=asked.get("agent", ""), user=whose, limit=SEARCHED)
            hits = await self._sessions.search(words, among=listed)
            known = {one for one, _ in hits}
            titled = [one for one in listed if words.casefold() in one.title.casefold() and one not in known]
            said = [{**one.as_json(), "found": [place.text for place in places]} for one, places in hits]
            return Json({"sessions": [*[{**one.as_json(), "found": []} for one in titled], *said], "searched": len(listed)})
        listed, following = await read_page(request, partial(self._sessions.all, agent=asked.get("agent", ""), user=whose))
        return Json({"sessions": [one.as_json() for one in listed], "next": following})

    async def get(self, request: Request) -> Response:
        return Json(await self._sessions.export(await self._allowed_session(request, "read")))

    async def rename(self, request: Request) -> Response:
        session, form = await self._allowed_session(request, "talk"), await read_body(request, Rename)
        await self._sessions.rename(session, form.title)
        return Json({**session.as_json(), "title": form.title})

    async def delete(self, request: Request) -> Response:
        session = await self._allowed_session(request, "talk")
        if session.status == "running":
            raise HttpRefused.of(
                "serve.session_running",
                "a run of session {session} is still running; stop it first",
                http=409,
                session=session.id,
            )
        await self._service.before_deletion(caller_of(request), f"session:{session.id}", session.user)
        await self._sessions.delete(session)
        self._changes.announce_deleted(session.user, *session.runs)
        return Response(status_code=204)

    async def questions(self, request: Request) -> Response:
        """Return the questions that wait for an answer, with the call that is asked about.

        A page holds those of `limit` runs.
        """
        caller = caller_of(request)
        user = None if caller.answers_for_others else caller.list_of()
        await self._service.auditor.read(caller, "questions", user)
        cards, following = await read_page(request, partial(self._service.journal.runs, status="waiting", user=user))
        waiting = []
        for card in cards:
            above = await self._service.journal.runs(run_id=card.parent, limit=1) if card.parent else [card]
            if not above or not (caller.sees(card.user) or caller.can_answer(card.user, above[0].agent)):
                continue
            waiting += await questions_of(self._service, card, above[0], caller)
        return Json({"questions": waiting, "next": following})

    async def me(self, request: Request) -> Response:
        """Return the name and the roles of the caller, the version of the server, and the name of the project."""
        caller = caller_of(request)
        roles = [role for role in ROLES if caller.may(role) or (role == "approve" and caller.answers_for_others)]
        signed_in = request.scope.get("kaname.signed_in", False)
        told = {"name": caller.name, "roles": roles, "version": __version__, "project": Path.cwd().name, "signed_in": signed_in}
        return Json(told)

    async def agents(self, request: Request) -> Response:
        caller_of(request)
        flows = self._service.workflows
        told = [{**describe_agent(one), "parameters": flows[name].parameters if name in flows else None}
                for name, one in self._service.agents.items()]  # fmt: skip
        return Json({"agents": told})

    def _whose(self, request: Request) -> str | None:
        caller = caller_of(request)
        return caller.list_of(request.query_params.get("user_id"))

    async def _allowed_session(self, request: Request, role: str) -> Session:
        caller_of(request, role)
        wanted, asked = request.path_params["session_id"], request.query_params
        try:
            found = await self._sessions.named(wanted, agent=asked.get("agent", ""), user=self._whose(request))
        except ConfigError as problem:
            raise HttpRefused(404, str(problem)) from None
        if found is None:
            raise HttpRefused.of("session.none", "there is no session {session!r}", http=404, session=wanted)
        await self._service.auditor.read(caller_of(request), f"session:{found.id}", found.user)
        return found


def describe_agent(agent: Agent[Any]) -> dict[str, Any]:
    """Return the description of an agent that every user can see. It does not contain the instructions."""
    return {
        "name": agent.name,
        "model": getattr(agent.recipe.model, "name", ""),
        "tools": sorted(agent.tools),
        "team": sorted(agent.recipe.team),
        "graph": (graph := strategy_info(agent.recipe.strategy).graph),
        "drawing": draw_graph(graph),
        "remembers": any(isinstance(part, MemoryFiles) for part in agent.recipe.context),
    }
