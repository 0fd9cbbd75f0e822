"""Approvals that hold for later calls, over HTTP: list and revoke them."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from ...core.people.visible import visible_json
from ...kernel.approvals.port import Grant, HasGrants
from ..encoding import Json
from ..forms import caller_of
from ..problems import HttpRefused
from ..service import Service
from ..users import Caller


class ApprovalRoutes:
    """The addresses under `/api/approvals`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def all(self, request: Request) -> Response:
        found = [one for one in await self._seen_by(caller_of(request)) if one.is_valid(time.time())]
        return Json({"approvals": [{**one._asdict(), "shown": visible_json(one.where)} for one in found]})

    async def revoke(self, request: Request) -> Response:
        journal, wanted = self._service.journal, request.path_params["grant_id"]
        known = [one.id for one in await self._seen_by(caller_of(request))]
        if not isinstance(journal, HasGrants) or wanted not in known or not await journal.grants.revoke(wanted):
            raise HttpRefused.of("serve.no_approval", "there is no approval {id_!r}", http=404, id_=wanted)
        return Response(status_code=204)

    async def _seen_by(self, caller: Caller) -> list[Grant]:
        """Return the approvals for runs that the caller sees, and those that the caller has given."""
        journal = self._service.journal
        found = await journal.grants.all() if isinstance(journal, HasGrants) else []
        return [one for one in found if caller.sees(one.user) or one.by == caller.name]
