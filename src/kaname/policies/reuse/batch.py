"""Answer model calls through the provider's batch API: a run waits, as a fact, until its batch is done.

`Desk` gathers requests into waves, each of which becomes one batch, and finds the answers. The driver of the runs submits the
waves and resumes the runs (`run.many.batches`).
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...core.codec import digest
from ...core.errors import ModelError, ModelUnavailable, RequestRefused, Suspend
from ...core.messages import ModelReply, ModelRequest
from ...core.notices import notice
from ...core.people.answers import BATCH
from ...core.record import replace
from ...kernel.bases import ModelBase, PolicyInfo, optional
from ...kernel.ports import Batches, BatchProgress, ModelHandler, Policy
from ..money.meter import NEARLY

if TYPE_CHECKING:
    from ...kernel.view import RunView

_BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_KEPT = 4  # batches whose answers are in memory; others are downloaded again
_VARIANTS = 8  # different requests for one reply: judges, summaries, forms that the provider refused


class Key(NamedTuple):
    """The question of a run that waits for a batch: the wave, the number of the reply, the request, and how often it waited."""

    wave: str
    number: int
    mark: str
    times: int = 0

    def __str__(self) -> str:
        return f"{BATCH}{self.wave}:{self.number}:{self.mark}:{self.times}"

    def request(self, run_id: str) -> str:
        """Return the name of the request in its batch."""
        return digest([run_id, self.wave, self.number, self.mark])


def read_key(key: str) -> Key | None:
    """Return the parts of the key, or None for the key of another question."""
    parts = key.removeprefix(BATCH).split(":")
    if not key.startswith(BATCH) or len(parts) != 4 or not (parts[1].isdecimal() and parts[3].isdecimal()):
        return None
    return Key(parts[0], int(parts[1]), parts[2], int(parts[3]))


class Wave:
    """Requests that become one batch."""

    def __init__(self, name: str, model: str, api: Batches) -> None:
        self.name, self.model, self.api = name, model, api
        self.requests: dict[str, bytes] = {}
        self.size = 0

    def has_room(self, body: bytes) -> bool:
        return not self.requests or (
            len(self.requests) < self.api.most_requests and self.size + len(body) + 200 <= self.api.most_bytes
        )


class Desk:
    """The requests that wait for a batch, and the answers of batches.

    Attributes: waves: Waves that were not sent yet, by their names. sent: The ids of batches, by their waves.
    """

    def __init__(self) -> None:
        self.prefix = ""  # of the names of waves, another in each process
        self.waves: dict[str, Wave] = {}
        self.sent: dict[str, tuple[Batches, str]] = {}
        self._open: dict[str, Wave] = {}  # by model
        self.progress: dict[str, BatchProgress] = {}  # of batches, when they were last looked at
        self._loading = asyncio.Lock()
        self._count = 0
        self._answers: OrderedDict[str, Mapping[str, bytes | ModelError]] = OrderedDict()

    def add(self, api: Batches, model: str, run_id: str, number: int, mark: str, body: bytes) -> Key:
        wave = self._open.get(model)
        if wave is None or wave.name not in self.waves or not wave.has_room(body):
            self._count += 1
            wave = self._open[model] = Wave(f"{self.prefix}.{self._count}", model, api)
            self.waves[wave.name] = wave
        key = Key(wave.name, number, mark)
        wave.requests[key.request(run_id)] = body
        wave.size += len(body) + 200
        return key

    def is_full(self, wave: Wave) -> bool:
        return self._open.get(wave.model) is not wave

    async def answer(self, key: Key, run_id: str) -> bytes | ModelError | bool:
        """Return the answer of the provider; True if the batch is not done; False if the request was never sent."""
        if key.wave not in self.sent:
            return False
        if (answers := await self.answers_of(key.wave)) is None:
            return True
        found = answers.get(key.request(run_id)) or answers.get("")
        if found is None:
            return ModelUnavailable.of("batch.no_answer", "the batch has no answer to this request")
        return copy(found) if isinstance(found, ModelError) else found

    async def answers_of(self, wave: str) -> Mapping[str, bytes | ModelError] | None:
        """Return the answers of a batch, downloaded once for all who wait for them; None if it has not ended."""
        async with self._loading:
            if wave not in self._answers:
                api, batch_id = self.sent[wave]
                self.progress[wave] = await api.progress(batch_id)
                if not self.progress[wave].ended:
                    return None
                self._answers[wave] = await api.results(batch_id)
            self._answers.move_to_end(wave)
            found = self._answers[wave]
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
            return found


class Batching(Policy):
    """Answers model calls from batches. `tries`: how often a request is sent that the provider does not answer."""

    place = "send"
    about = PolicyInfo(replayed=False)

    def __init__(self, desk: Desk, tries: int = 3) -> None:
        self.desk, self.tries = desk, tries

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        model = request.model or view.agent.model
        api: Batches | None = optional(model, ModelBase, "batches")()
        if api is None or view.state.stop is not None:  # what comes after a run does not wait
            return await next(request)
        if request.messages[-1:] == (NEARLY,):  # it is not there each time, and the request must be the same
            request = replace(request, messages=request.messages[:-1])
        send = partial(self._send, api, getattr(model, "name", ""), view)
        reply = await next(replace(request, model=api.through(send)))
        cost = None if reply.usage.cost is None or api.discount is None else reply.usage.cost * api.discount
        return replace(reply, usage=replace(reply.usage, cost=cost))

    async def _send(self, api: Batches, model: str, view: RunView, body: bytes) -> bytes:
        """Return the answer to a request, or suspend the run until there is one."""
        number, mark, tries = view.state.replied + 1, _mark(body), 0
        asked = [key for key in map(read_key, view.state.answers) if key is not None and key.number == number]
        for key in {one.wave: one for one in asked if one.mark == mark}.values():
            answer = await self.desk.answer(key, view.run_id)
            if isinstance(answer, bytes):
                return answer
            if answer is True:
                raise self._wait(key._replace(times=key.times + 1), model, view)
            if isinstance(answer, ModelError):
                tries += 1
                if not answer.retryable or tries >= self.tries:
                    answer.retryable = False  # it was tried often enough
                    raise answer
        if len({key.mark for key in asked} - {mark}) >= _VARIANTS:
            raise RequestRefused.of(
                "batch.changing",
                "the request to the model changes each time it is made, so that its batch is never found. Record what changes "
                "with view.recall(…), or run without batch prices.",
            )
        raise self._wait(self.desk.add(api, model, view.run_id, number, mark, body), model, view)

    def _wait(self, key: Key, model: str, view: RunView) -> Suspend:
        while str(key) in view.state.answers:
            key = key._replace(times=key.times + 1)
        return Suspend(str(key), notice("batch.waiting", "waiting for a batch of {model}", model=model))


def _mark(body: bytes) -> str:
    """Return a fingerprint of a request, without the bound on its reply: that follows from what is left of a budget."""
    content = {name: value for name, value in json.loads(body).items() if name not in _BOUNDS}
    return digest(content)[:12]
