"""Metrics over time, for the page: how runs ended, their cost and duration, and how often tools failed."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...core.errors import RunNotFound
from ...core.events import Event, ModelReplied, Opened, ToolFinished, ToolStarted
from ...core.runs import UNDER_WAY, RunInfo, Tally
from ...kernel.load import read_run
from ...policies.money.overview import overview
from ...run.figures import sum_tallies
from ..encoding import Json
from ..forms import caller_of, number
from ..service import Service

_TIMED, _LOOKED_INTO = 2_000, 300  # of the last runs: whose durations are told, and whose facts are read; all are counted
_DAY = 86_400


class FigureRoutes:
    """The address `/api/figures`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def figures(self, request: Request) -> Response:
        caller, asked = caller_of(request), request.query_params
        user = caller.list_of(asked.get("user_id"))
        days, west = number(request, "days", 30, 1, 400), number(request, "west", 720, 0, 1620)  # minutes west of UTC+12
        since = time.time() - days * _DAY
        journal = self._service.journal
        whose: dict[str, Any] = {"agent": asked.get("agent", ""), "user": user}
        tallies = await journal.count(**whose, since=since, shift=(west - 720) * 60.0)
        found = await journal.runs(**whose, limit=_TIMED)
        cards = [card for card in found if card.created >= since]
        tools, models = Uses(), Uses()
        for card in cards[:_LOOKED_INTO]:
            with suppress(RunNotFound):  # deleted meanwhile
                count(await read_run(journal, card.run_id), tools, models)
        times: dict[int, list[RunInfo]] = defaultdict(list)
        for card in cards:
            times[int((card.created - (west - 720) * 60) // _DAY)].append(card)
        by_day: dict[int, list[Tally]] = defaultdict(list)
        for one in tallies:
            by_day[one.day].append(one)
        days_told = [{"day": _date(day), **sum_tallies(by_day[day]), **_durations(times[day])} for day in sorted(by_day)]
        return Json(
            {
                "days": days_told,
                "all": {**sum_tallies(tallies), **_durations(cards)},
                "tools": tools.as_json(),
                "models": models.as_json(),
                "budgets": await self._budgets(user),
                "read": min(len(cards), _LOOKED_INTO),
                "timed": len(cards),
            }
        )

    async def _budgets(self, user: str | None) -> list[dict[str, Any]]:
        """Return the accounts of the budgets: all, or those of one user."""
        ledger, agents = self._service.journal.stores.ledger, self._service.agents.values()
        if ledger is None:
            return []
        limits = [limit for agent in agents for policy in agent.recipe.policies for limit in policy.about.limits]
        found = await overview(ledger, limits)
        return [
            one.as_json() for one in found if one.scope != "run" and (user is None or (one.scope, one.whose) == ("user", user))
        ]


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * _DAY, UTC).strftime("%Y-%m-%d")


def _durations(cards: list[RunInfo]) -> dict[str, Any]:
    """Return the median and the 95th percentile of the duration of the ended runs."""
    ended = [card for card in cards if not card.parent and card.status not in UNDER_WAY]
    lasted = sorted([card.updated - card.created for card in ended])
    return {"median": percentile(lasted, 0.5), "slow": percentile(lasted, 0.95)}


class Uses:
    """Uses of tools or models: how many, how many failed, their duration and cost."""

    def __init__(self) -> None:
        self._used: dict[str, list[tuple[float, bool, int, float | None]]] = defaultdict(list)

    def add(self, name: str, seconds: float, failed: bool, tokens: int = 0, cost: float | None = 0.0) -> None:
        self._used[name].append((seconds, failed, tokens, cost))

    def as_json(self) -> list[dict[str, Any]]:
        told = []
        for name, uses in sorted(self._used.items(), key=lambda item: -len(item[1])):
            lasted = sorted([one[0] for one in uses])
            told.append(
                {
                    "name": name,
                    "calls": len(uses),
                    "failed": sum([one[1] for one in uses]),
                    "median": percentile(lasted, 0.5),
                    "slow": percentile(lasted, 0.95),
                    "tokens": sum([one[2] for one in uses]),
                    "cost": sum([one[3] or 0.0 for one in uses]) if any(one[3] is not None for one in uses) else None,
                }
            )
        return told


def count(events: list[Event], tools: Uses, models: Uses) -> None:
    """Count the calls of a run.

    A call of a tool lasts from its start to its end, a reply of a model from the fact before it.
    """
    begun: dict[str, float] = {}
    model, before = "", events[0].time
    for event in events:
        match event.body:
            case Opened(recipe=recipe):
                model = str(recipe.get("model", ""))
            case ToolStarted(call):
                begun[call.id] = event.time
            case ToolFinished(result):
                tools.add(result.name, event.time - begun.pop(result.call_id, event.time), result.is_error)
            case ModelReplied(reply):
                models.add(reply.model or model or "?", event.time - before, False, reply.usage.total, reply.usage.cost)
            case _:
                pass
        before = event.time


def percentile(ordered: list[float], share: float) -> float | None:
    """Return the value that this share of the ordered values does not exceed; None without values."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3) if ordered else None
