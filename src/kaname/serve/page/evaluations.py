"""Evaluations over HTTP, for administrators: list them, read and compare them, and add a recorded run as a case."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ...core.notices import notice, to_json
from ...core.project import program_folder
from ...evals.recorded import DEFAULT, add_case, case_from_run
from ...evals.records import list_reports, read_report
from ...evals.results.comparison import compare
from ..encoding import Json
from ..forms import AddCase, caller_of, number, read_body
from ..problems import HttpRefused
from ..service import Service


class EvaluationRoutes:
    """The addresses under `/api/evaluations`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def all(self, request: Request) -> Response:
        caller_of(request, "admin")
        found = await list_reports(
            self._service.journal, name=request.query_params.get("name", ""), limit=number(request, "limit", 50, 1, 500)
        )
        return Json({"evaluations": [one.summary() for one in found]})

    async def get(self, request: Request) -> Response:
        caller_of(request, "admin")
        return Json((await read_report(self._service.journal, request.path_params["run_id"])).to_json())

    async def compare(self, request: Request) -> Response:
        """Return the comparison of two evaluations, and its result in words."""
        caller_of(request, "admin")
        jobs = [request.query_params.get(name, "") for name in ("one", "other")]
        if not all(jobs):
            message = notice(
                "serve.compare_evals", "Name two evaluations: /api/evaluations/compare?one=EVALUATION&other=EVALUATION"
            )
            raise HttpRefused(400, message)
        made = compare(*[await read_report(self._service.journal, job) for job in jobs])
        return Json({**made.to_json(), "told": to_json(str(made))})

    async def add(self, request: Request) -> Response:
        """Add a recorded run to `evals.jsonl` in the folder of the program."""
        caller = caller_of(request, "admin")
        form = await read_body(request, AddCase)
        card = await self._service.card(form.run_id, caller)
        case = await case_from_run(self._service.journal, card.run_id, form.name)
        await asyncio.to_thread(add_case, Path(program_folder()) / DEFAULT, case)
        return Json({"file": DEFAULT, "case": case}, 201)
