"""Evaluations in the journal: each is a run whose facts are the verdicts, so that it can be resumed, listed and compared."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..core.errors import ConfigError, RunNotFound
from ..core.events import Custom, Event, Fact, Opened, Resumed, Stopped
from ..core.record import replace
from ..core.runs import EVALUATION, EVALUATION_PREFIX, TITLE, RunInfo
from ..core.steps import Stop
from ..kernel.load import read_run
from ..kernel.ports import Journal
from ..run.figures import RATING
from .results.report import CaseAttempt, EvalReport, labels_of, make_report

PREFIX = EVALUATION_PREFIX
SEARCH = ".search"  # how the names of evaluations end that an improvement makes of its many candidates: lists leave them out
_ATTEMPTS = "attempts"  # the name of the facts with verdicts
_STRATEGY = "Evaluation"  # no agent has it: these facts are no run to be resumed
_AT_ONCE, _SECONDS = 25, 0.5  # verdicts are written together; a verdict that a crash loses is made again from the run


class Recording:
    """An evaluation that is being made. Only one process can make it at a time.

    Attributes: attempts: The attempts so far, by case and number.
    """

    def __init__(self, journal: Journal, job: str, header: Mapping[str, Any]) -> None:
        self._journal, self.job, self.header = journal, job, header
        self._epoch = self._seq = 0
        self._unwritten: list[CaseAttempt] = []
        self._written = time.monotonic()
        self.attempts: dict[tuple[str, int], CaseAttempt] = {}

    async def open(self, recipe: Mapping[str, Any]) -> None:
        """Take the job, and read what a former process has done."""
        lease = await self._journal.claim(self.job)
        self._epoch, self._seq = lease.epoch, lease.seq
        head = Custom(EVALUATION, dict(self.header), shown=False)
        if not lease.seq:
            title = f"{EVALUATION} {self.header['name']}"
            await self._record(Opened(recipe={**recipe, "strategy": _STRATEGY}), Custom(TITLE, title, shown=False), head)
            return
        before, attempts, _ = _read(await read_run(self._journal, self.job))
        labels = dict.fromkeys([*labels_of(before), *labels_of(self.header)])  # a new label does not replace the older ones
        self.header = {**self.header, "label": next(reversed(labels), ""), "labels": [*labels]}
        self.attempts = {(one.case, one.number): one for one in attempts}
        await self._record(Resumed(lease.epoch, renewed=True), replace(head, data=dict(self.header)))

    async def add(self, attempt: CaseAttempt) -> None:
        self.attempts[attempt.case, attempt.number] = attempt
        self._unwritten.append(attempt)
        if len(self._unwritten) >= _AT_ONCE or time.monotonic() - self._written > _SECONDS:
            await self.flush()

    async def flush(self) -> None:
        told, self._unwritten = self._unwritten, []
        self._written = time.monotonic()
        if told:
            await self._record(Custom(_ATTEMPTS, [one.to_json() for one in told], shown=False))

    def report(self) -> EvalReport:
        return make_report(self.job, self.header, self.attempts.values())

    async def close(self) -> None:
        """Write what is left. The evaluation ends if it is complete; otherwise it stays interrupted and can be continued."""
        await self.flush()
        made = self.report()
        if made.complete:
            await self._record(Stopped(Stop("completed"), {"rate": made.rate, "cases": len(made.cases)}))
        else:
            await self._journal.release(self.job, self._epoch)

    async def _record(self, *facts: Fact) -> None:
        now = time.time()
        events = [Event(self.job, self._seq + place, now, EVALUATION, one) for place, one in enumerate(facts, 1)]
        self._seq += len(events)
        await self._journal.append(events, self._epoch)


def _read(events: Iterable[Event]) -> tuple[dict[str, Any], list[CaseAttempt], list[float]]:
    """Return the header of an evaluation, its attempts, and the times at which it was complete with new attempts.

    An attempt that replaces one that ended in an error is not new.
    """
    header, attempts, completed = dict[str, Any](), list[CaseAttempt](), list[float]()
    failed, is_new = set[tuple[str, int, str]](), False
    for event in events:
        match event.body:
            case Custom(name, data) if name == EVALUATION:
                header = data
            case Custom(name, data) if name == _ATTEMPTS:
                parts = [CaseAttempt.from_json(one) for one in data]
                is_new = is_new or any((one.case, one.number, one.digest) not in failed for one in parts)
                failed |= {(one.case, one.number, one.digest) for one in parts if one.error}
                attempts += parts
            case Stopped() if is_new:
                completed.append(event.time)
                is_new = False
    return header, attempts, completed


async def read_report(journal: Journal, job: str, *, ratings: bool = True) -> EvalReport:
    """Return the report of an evaluation, as far as it is.

    `ratings`: with people's ratings of runs that a model judged, and with what a comparison of it has to count.

    Raises `RunNotFound` if there is no such evaluation.
    """
    header, attempts, completed = _read(await read_run(journal, job))
    if not header:
        raise RunNotFound(job)
    every = [completed, *(await _others_completed(journal, job, header) if ratings else ())]
    made = make_report(job, header, attempts, tuple([tuple(one) for one in every if one]))
    if not ratings or not made.has_judge:
        return made
    rated = {
        attempt.run_ids[-1]: await read_rating(journal, attempt.run_ids[-1]) for attempt in made.attempts if attempt.run_ids
    }
    parts = [replace(one, rating=rated.get(one.run_ids[-1], "") if one.run_ids else "") for one in made.attempts]
    return make_report(job, header, parts, made.completed)


async def _others_completed(journal: Journal, job: str, header: Mapping[str, Any]) -> list[list[float]]:
    """Return the times at which other evaluations of the same cases and version, made anew, were complete."""
    version = str(header.get("about", {}).get("version", ""))[:8]
    first = job[: job.rfind(f"-{version}") + len(version) + 1] if version and f"-{version}" in job else job
    cards = await journal.runs(agent=EVALUATION, starting=first, limit=1000)
    same = [one.run_id for one in cards if one.run_id != job and re.fullmatch(r"(-\d+)?", one.run_id[len(first) :])]
    return [_read(await read_run(journal, one))[2] for one in same]


async def read_rating(journal: Journal, run_id: str) -> str:
    """Return a person's rating of a run: "good", "bad" or ""."""
    try:
        facts = [event.body for event in await read_run(journal, run_id)]  # its own: a session's earlier runs have ratings, too
    except RunNotFound:  # deleted since
        return ""
    said = [one.data for one in facts if isinstance(one, Custom) and one.name == RATING and isinstance(one.data, dict)]
    return str(said[-1].get("rating", "")) if said else ""


async def people_of(journal: Journal, run_id: str) -> set[str]:
    """Return the users whose words are in the evaluation that made a run; none, if the run is not an attempt."""
    found, parts = set[str](), run_id.split("-") if run_id.startswith(PREFIX) else []
    for end in range(2, len(parts)):  # names can have "-", too
        with suppress(RunNotFound):
            facts = [event.body for event in await read_run(journal, "-".join(parts[:end]))]
            lines = [one.data for one in facts if isinstance(one, Custom) and one.name == EVALUATION]
            found |= {name for header in lines for name in header.get("people", ())}
    return found


async def list_reports(journal: Journal, *, name: str = "", limit: int = 20) -> list[EvalReport]:
    """Return the last evaluations, the newest first; of one name if it is given."""
    found, before = list[EvalReport](), 0
    while len(found) < limit and (cards := await _cards(journal, before)):
        before = cards[-1].place
        for card in cards:
            made = await read_report(journal, card.run_id, ratings=False)
            fits = made.name == name if name else not made.name.endswith(SEARCH)
            if fits and len(found) < limit:
                found.append(made)
    return found


async def find_report(journal: Journal, wanted: str) -> EvalReport:
    """Return an evaluation by its id, the beginning of its id, its label, or "last". Raises `ConfigError` if there is none."""
    cards, before = list[RunInfo](), 0
    while more := await _cards(journal, before):
        cards, before = cards + more, more[-1].place
    like = await _find_matches(journal, cards, wanted)
    if not like:
        raise ConfigError.of(
            "eval.not_found", "there is no evaluation {wanted!r}. List them with: kaname eval list", wanted=wanted
        )
    if len(like) > 1:
        listed = ", ".join([one.run_id for one in like[:5]])
        raise ConfigError.of("eval.several", "{wanted!r} matches several evaluations: {listed}", wanted=wanted, listed=listed)
    return await read_report(journal, like[0].run_id)


async def _find_matches(journal: Journal, cards: Sequence[RunInfo], wanted: str) -> list[RunInfo]:
    """Return the evaluations that `wanted` can mean: the last one, by id, by the beginning of the id, or by label."""
    if wanted == "last":
        return [max(cards, key=lambda one: one.updated)] if cards else []
    exact = [one for one in cards if one.run_id == wanted]
    if like := exact or [one for one in cards if one.run_id.startswith((wanted, PREFIX + wanted))]:
        return like
    return [one for one in cards if wanted in (await read_report(journal, one.run_id, ratings=False)).labels][:1]


async def _cards(journal: Journal, before: int) -> list[RunInfo]:
    return await journal.runs(agent=EVALUATION, starting=PREFIX, before=before, limit=100)
