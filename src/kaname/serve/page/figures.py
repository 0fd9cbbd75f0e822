"""Metrics over time, for the page: how runs ended, their cost and duration, and how often tools failed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ...core.errors import JournalError, RunNotFound
from ...core.events import Event, ModelReplied, Opened, ToolFinished, ToolStarted
from ...core.runs import UNDER_WAY, RunInfo, Tally, is_upload
from ...kernel.load import read_run
from ...kernel.stores import Digest
from ...policies.money.overview import overview
from ...run.figures import sum_tallies
from ..encoding import Json
from ..forms import caller_of, number
from ..service import Service

_LAST = 2_000  # runs whose durations, tools and models are told; all are counted
_NEW, _RUNNING = 300, 100  # runs whose facts one request reads because they have no digest, or cannot have one yet
_TOGETHER = 50  # digests that are stored at once
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
        found = await journal.runs(**whose, limit=_LAST)
        cards = [card for card in found if card.created >= since and not is_upload(card)]
        tools, models = Uses(), Uses()
        counted = 0
        async with aclosing(self._count(cards)) as counts:
            async for calls in counts:
                counted += 1
                tools.take(calls.tools)
                models.take(calls.models)
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
                "read": counted,
                "timed": len(cards),
            }
        )

    async def _count(self, cards: list[RunInfo]) -> AsyncGenerator[Calls, None]:
        """Yield the calls of each run: from its digest, or from its facts, and then the digest is stored.

        Of runs without a digest, only the last ones are read, and the others by the next requests.
        """
        journal, new, left = self._service.journal, list[Digest](), {False: _NEW, True: _RUNNING}
        digests = journal.stores.digests
        known = {} if digests is None else {one.run_id: one for one in await digests.of([card.run_id for card in cards])}
        for card in cards:
            digest = known.get(card.run_id)
            calls = None if digest is None or digest.seq != card.seq else _read_digest(digest, card)
            if calls is None:
                running = card.status == "running"
                if not left[running]:
                    continue
                left[running] -= 1
                try:
                    events = await read_run(journal, card.run_id)
                except RunNotFound:  # deleted meanwhile
                    continue
                calls = count(events, card.created)
                new += [] if running else [Digest(card.run_id, events[-1].seq, _encode(calls).decode(), card.user)]
            if len(new) == _TOGETHER:
                await self._keep(new)
            yield calls
        await self._keep(new)

    async def _keep(self, new: list[Digest]) -> None:
        if new and (digests := self._service.journal.stores.digests) is not None:
            with suppress(JournalError):  # they are made again
                await digests.put(new)
        new.clear()

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


class StoredCall(Struct, array_like=True):
    """A call of a tool or a model, as it is stored in a digest."""

    name: str
    seconds: float
    failed: bool = False
    tokens: int = 0
    cost: float | None = 0.0


class Calls(Struct):
    """The calls of a run. `form`: that of the digest, which is made again if another version has stored it. `created`: when the
    run was created. An older version may delete a run without its digest, and record another one under the same id."""

    form: int
    created: float
    tools: list[StoredCall]
    models: list[StoredCall]


_FORM = 2
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Calls).decode


def _read_digest(digest: Digest, card: RunInfo) -> Calls | None:
    try:
        calls = _decode(digest.text)
    except msgspec.MsgspecError:
        return None
    return calls if (calls.form, calls.created) == (_FORM, card.created) else None


class Uses:
    """Uses of tools or models: how many, how many failed, their duration and cost."""

    def __init__(self) -> None:
        self._used: dict[str, list[StoredCall]] = defaultdict(list)

    def take(self, calls: list[StoredCall]) -> None:
        for call in calls:
            self._used[call.name].append(call)

    def as_json(self) -> list[dict[str, Any]]:
        told = []
        for name, uses in sorted(self._used.items(), key=lambda item: -len(item[1])):
            lasted = sorted([one.seconds for one in uses])
            known = any(one.cost is not None for one in uses)
            told.append(
                {
                    "name": name,
                    "calls": len(uses),
                    "failed": sum([one.failed for one in uses]),
                    "median": percentile(lasted, 0.5),
                    "slow": percentile(lasted, 0.95),
                    "tokens": sum([one.tokens for one in uses]),
                    "cost": sum([one.cost or 0.0 for one in uses]) if known else None,
                }
            )
        return told


def count(events: list[Event], created: float) -> Calls:
    """Return the calls of a run that was created at that time.

    A call of a tool lasts from its start to its end, a reply of a model from the fact before it.
    """
    calls, begun = Calls(_FORM, created, [], []), dict[str, float]()
    model, before = "", events[0].time
    for event in events:
        match event.body:
            case Opened(recipe=recipe):
                model = str(recipe.get("model", ""))
            case ToolStarted(call):
                begun[call.id] = event.time
            case ToolFinished(result):
                lasted = event.time - begun.pop(result.call_id, event.time)
                calls.tools.append(StoredCall(_storable(result.name), lasted, result.is_error))
            case ModelReplied(reply):
                usage = reply.usage
                calls.models.append(
                    StoredCall(_storable(reply.model or model or "?"), event.time - before, False, usage.total, usage.cost)
                )
            case _:
                pass
        before = event.time
    return calls


def _storable(name: str) -> str:
    """Return a name without half surrogate pairs: a model may have called a tool by any."""
    return name.encode("utf-8", "replace").decode()


def percentile(ordered: list[float], share: float) -> float | None:
    """Return the value that this share of the ordered values does not exceed; None without values."""
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3) if ordered else None
