"""Workers, queue and schedules over HTTP, for administrators, and metrics in the format of Prometheus."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ...agent.work.overview import list_queue, list_schedules, list_workers, retry_run, steer_schedule
from ...agent.work.submit import queue_of
from ...core.events import Event, Stopped
from ...kernel.bases import SinkBase
from ...stores.queue import HasQueue
from ..encoding import Json
from ..forms import caller_of
from ..service import Service
from ..workers import process_number

_TYPES = {
    "kaname_runs_total": ("counter", "Runs that a process has ended, by agent and stop."),
    "kaname_queue_runs": ("gauge", "Runs in the queue, by state."),
    "kaname_workers": ("gauge", "Processes that execute runs of the journal."),
    "kaname_schedule_paused": ("gauge", "1 if the schedule is paused."),
    "kaname_schedule_next_timestamp_seconds": ("gauge", "When the schedule is due next."),
}


class RunCounts(SinkBase):
    """Counts the runs that this process ends, by agent and stop."""

    wants = ()

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, str]] = Counter()

    def __call__(self, event: Event) -> None:
        if isinstance(event.body, Stopped):
            self.ended[event.agent, event.body.stop.kind] += 1


class WorkRoutes:
    """The addresses `/api/work…` and `/metrics`."""

    def __init__(self, service: Service) -> None:
        self._service, self._counts = service, RunCounts()
        if any(agent.schedules for agent in service.agents.values()):
            queue_of(service.journal)  # else they would silently do nothing
        for agent in service.agents.values():
            agent.sinks = (*agent.sinks, self._counts)

    async def get(self, request: Request) -> Response:
        caller_of(request, "admin")
        return Json(await self._overview())

    async def _overview(self) -> dict[str, Any]:
        journal, agents = self._service.journal, list(self._service.agents.values())
        if not isinstance(journal, HasQueue):
            return {"workers": [], "queue": {"counts": {}, "runs": []}, "schedules": []}
        told = {"workers": await list_workers(journal), "queue": await list_queue(journal)}
        return {**told, "schedules": await list_schedules(agents)}

    async def steer(self, request: Request) -> Response:
        """Pause, resume or run a schedule, or retry a run that was set aside."""
        caller, (action, name) = caller_of(request, "admin"), [request.path_params[one] for one in ("action", "name")]
        if action not in ("pause", "resume", "run", "retry"):
            raise HTTPException(404)
        await self._service.auditor.record("change", caller, f"{action} {name}")
        if action == "retry":
            await retry_run(self._service.journal, name)
            return Json({})
        return Json({"run_id": await steer_schedule(list(self._service.agents.values()), action, name)})

    async def metrics(self, request: Request) -> Response:
        caller_of(request, "admin")
        now = await self._overview()
        found: dict[str, list[str]] = {name: [] for name in _TYPES}

        def add(name: str, value: float | None, **labels: str) -> None:
            shown = ",".join([f'{key}="{_escape(text)}"' for key, text in labels.items()])
            if value is not None:
                found[name].append(f"{name}{{{shown}}} {value}\n" if shown else f"{name} {value}\n")

        own = {"process": process} if (process := process_number()) else {}
        for (agent, stop), number in sorted(self._counts.ended.items()):
            add("kaname_runs_total", number, agent=agent, stop=stop, **own)
        for state, number in now["queue"]["counts"].items():
            add("kaname_queue_runs", number, state=state)
        add("kaname_workers", len(now["workers"]))
        for one in now["schedules"]:
            add("kaname_schedule_paused", int(one["paused"]), schedule=one["name"])
            add("kaname_schedule_next_timestamp_seconds", one["next"], schedule=one["name"])
        heads = {name: f"# HELP {name} {about}\n# TYPE {name} {kind}\n" for name, (kind, about) in _TYPES.items()}
        text = "".join([heads[name] + "".join(lines) for name, lines in found.items()])
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
