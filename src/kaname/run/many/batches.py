"""Submit the model calls of many runs as batches, each once, and say which runs can continue.

What was submitted is recorded in a run of its own: the intent before, the id of the batch after. If a crash comes between the
two, the provider is asked for the batch before anything is submitted again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from logging import getLogger
from typing import Any, NamedTuple

from ...core.durations import backoff
from ...core.errors import ConfigError, JournalError, ModelError
from ...core.events import Custom, Event, Fact, Opened, Resumed, Stopped
from ...core.notices import notice
from ...core.record import record
from ...core.runs import TITLE
from ...core.steps import Stop
from ...kernel.bases import ModelBase, optional
from ...kernel.load import read_run
from ...kernel.ports import Batches, Journal, Recipe
from ...policies.reuse.batch import Batching, Desk, Wave, read_key
from ..recipe import fallback_of

_FACT = "batch"  # the name of the facts
_STRATEGY = "BatchPrices"  # no agent has it: these facts are no run to be resumed
_LONGEST = 60.0  # seconds between two looks at a batch
_TRIES = 5  # of a submission
log = getLogger("kaname")


@record
class BatchPrices:
    """How `agent.map(…, batch=BatchPrices(…))` uses a provider's batch API. `batch=True` uses the defaults.

    Args:
        tries: How often a request is sent that the provider does not answer (default: 3).
        poll: Seconds until the first look at a batch (default: 5). The pauses grow to a minute, or to `poll` if it is longer.
    """

    tries: int = 3
    poll: float = 5.0


class BatchStatus(NamedTuple):
    """The batches at work, and how many of their requests are done."""

    batches: int = 0
    done: int = 0
    of: int = 0


class BatchJob:
    """The batches of one job. Only one process can have a job at a time."""

    def __init__(self, job: str, recipe: Recipe, journal: Journal, options: BatchPrices | None) -> None:
        options = BatchPrices() if options is None else options
        _check_budgets(recipe)
        self.run_id, self._journal, self._options = f"{job}-batches", journal, options
        self.desk = Desk()
        self.recipe = recipe.with_changes(policies=(*recipe.policies, Batching(self.desk, options.tries)))
        self._apis = _apis(recipe)
        self._intents: dict[str, Mapping[str, Any]] = {}  # waves that a former process submitted, or was about to
        self._epoch = self._seq = 0
        self._parked: dict[str, dict[str, tuple[str, Any]]] = {}  # by wave and request: the question, and whose it is
        self.status = BatchStatus()

    async def open(self) -> None:
        """Take the job, and find out what a former process has submitted."""
        lease = await self._journal.claim(self.run_id)
        self._epoch, self._seq, self.desk.prefix = lease.epoch, lease.seq, str(lease.epoch)
        if not lease.seq:
            await self._record(Opened(recipe={"strategy": _STRATEGY}), Custom(TITLE, self.run_id, shown=False))
            return
        for event in await read_run(self._journal, self.run_id):
            if isinstance(event.body, Custom) and event.body.name == _FACT:
                told = event.body.data
                self._intents[told["wave"]] = {**self._intents.get(told["wave"], {}), **told}
        await self._record(Resumed(lease.epoch))
        for wave, told in self._intents.items():
            if "id" not in told:
                await self._settle(wave, told)
            elif told["id"] and told["model"] in self._apis:
                self.desk.sent[wave] = self._apis[told["model"]], told["id"]

    async def close(self, *, done: bool) -> None:
        """Release the job. `done`: no run of it waits for a batch any more."""
        if not self._epoch:
            return
        with suppress(JournalError):
            if done:
                await self._record(Stopped(Stop("completed")))
            else:
                await self._journal.release(self.run_id, self._epoch)

    async def _settle(self, wave: str, told: Mapping[str, Any]) -> None:
        """Find out whether a batch was submitted before its process ended."""
        if (api := self._apis.get(told["model"])) is None:
            raise _other_model(told["model"])
        found = await api.find(self._label(wave), told["requests"], told["sample"], told["time"])
        await self._record(Custom(_FACT, {"wave": wave, "id": found}, shown=False))
        if found:
            self.desk.sent[wave] = api, found

    def park(self, run_id: str, question: str, item: Any) -> bool:
        """Keep a run until its batch is done. Return False if its request is in no batch: it must be asked for again."""
        if (key := read_key(question)) is None:
            return False
        name, wave = key.request(run_id), self.desk.waves.get(key.wave)
        if wave is None and key.wave not in self.desk.sent:
            if self._intents.get(key.wave, {}).get("id"):
                raise _other_model(self._intents[key.wave]["model"])
            return False
        if wave is not None and name not in wave.requests:
            return False
        self._parked.setdefault(key.wave, {})[name] = (question, item)
        return True

    async def submit_full(self) -> None:
        """Submit the waves that take no more requests, if all their runs wait."""
        for wave in [one for one in self.desk.waves.values() if self.desk.is_full(one)]:
            if wave.requests.keys() <= self._parked.get(wave.name, {}).keys():
                await self._submit(wave)

    async def next(self) -> list[tuple[str, Any]]:
        """Submit all requests, and wait until a batch is done. Return its questions, and whose they are.

        Return nothing if no run waits.
        """
        for wave in tuple(self.desk.waves.values()):
            await self._submit(wave)
        looks = 0
        while self._parked:
            ended = [wave for wave in tuple(self._parked) if await self._has_ended(wave)]
            known = [self.desk.progress[wave] for wave in self._parked if wave in self.desk.progress]
            self.status = BatchStatus(len(self._parked), sum([one.done for one in known]), sum([one.of for one in known]))
            if ended:
                return [waiting for wave in ended for waiting in self._parked.pop(wave).values()]
            looks += 1
            await asyncio.sleep(max(self._options.poll, backoff(looks, self._options.poll, _LONGEST, growth=1.5)))
        self.status = BatchStatus()
        return []

    async def _has_ended(self, wave: str) -> bool:
        """Return True if the answers of a batch are here."""
        try:
            return await self.desk.answers_of(wave) is not None
        except ModelError as problem:
            if not problem.retryable:
                raise
            log.warning("%s", problem.public)
            return False

    async def _submit(self, wave: Wave) -> None:
        """Submit a wave: the intent is recorded before, the id after. Requests of runs that do not wait are left out."""
        waiting = self._parked.get(wave.name, {})
        requests = {name: body for name, body in wave.requests.items() if name in waiting}
        del self.desk.waves[wave.name]
        if not requests:
            return
        told = {"wave": wave.name, "model": wave.model, "requests": len(requests), "sample": next(iter(requests))}
        told["time"] = time.time()
        await self._record(Custom(_FACT, told, shown=False))
        batch_id = await self._send(wave, requests, told)
        await self._record(Custom(_FACT, {"wave": wave.name, "id": batch_id}, shown=False))
        self.desk.sent[wave.name] = wave.api, batch_id
        self.status = BatchStatus(len(self._parked), 0, sum([len(one) for one in self._parked.values()]))

    async def _send(self, wave: Wave, requests: Mapping[str, bytes], told: Mapping[str, Any]) -> str:
        label = self._label(wave.name)
        for attempt in range(1, _TRIES + 1):
            try:
                return await wave.api.submit(requests, label)
            except ModelError as problem:
                if not problem.retryable or attempt == _TRIES:
                    raise
                log.warning("%s", problem.public)
                await asyncio.sleep(problem.retry_after or backoff(attempt, 2.0 * min(1.0, self._options.poll), _LONGEST))
            if found := await wave.api.find(label, told["requests"], told["sample"], told["time"]):
                return found  # it was received, and only the answer was lost
        raise AssertionError("the last try returns or raises")

    def _label(self, wave: str) -> str:
        return f"{self.run_id}.{wave}"[-512:]

    async def _record(self, *facts: Fact) -> None:
        events = [Event(self.run_id, self._seq + place, time.time(), _FACT, one) for place, one in enumerate(facts, 1)]
        await self._journal.append(events, self._epoch)
        self._seq += len(events)


def _apis(recipe: Recipe) -> dict[str, Batches]:
    """Return the batch APIs of the models of an agent and its team, by the names of the models."""
    agents = (recipe, *recipe.team.values())
    fallbacks = [fallback for one in agents if (fallback := fallback_of(one)) is not None]
    if any(len(tier) > 1 for policy in fallbacks for tier in policy.tiers):
        told = notice("batch.equals", "batch prices cannot be used with equal models in a list: a batch belongs to one key")
        raise ConfigError(told)
    models = [one.model for one in agents if one.model is not None]
    models += [model for policy in fallbacks for model in policy.all_models]
    make: list[tuple[str, Callable[[], Batches | None]]] = [(one.name, optional(one, ModelBase, "batches")) for one in models]
    found = {name: api for name, made in make if (api := made()) is not None}
    if recipe.model is None or recipe.model.name not in found:
        told = notice(
            "batch.no_api",
            "{model} has no batch API: use a model of openai/… or anthropic/…, or leave out batch prices",
            model=getattr(recipe.model, "name", "None"),
        )
        raise ConfigError(told)
    return found


def _check_budgets(recipe: Recipe) -> None:
    """Refuse budgets that runs share: nothing is reserved while a run waits, so that a batch could exceed them."""
    for policy in [policy for one in (recipe, *recipe.team.values()) for policy in one.policies]:
        if shared := [level for level, _ in policy.about.limits if level != "run" and not level.startswith("tool ")]:
            told = notice(
                "batch.budget",
                "batch prices cannot be used with Budget({scope}=…), because a batch pays for many runs at once. Limit each "
                "run instead: Budget(run=…) or cost(…).",
                scope=shared[0],
            )
            raise ConfigError(told)


def _other_model(model: str) -> ConfigError:
    return ConfigError.of(
        "batch.other_model", "this job has a batch of {model}, but this agent does not use that model", model=model
    )
