"""`agent.map(…)`: run an agent once for each of many inputs, a few at a time."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, cast

from ...core.codec import digest, encode_body
from ...core.errors import AgentError, ConfigError, JournalError, RunBusy, SessionBusy
from ...core.events import Received
from ...core.messages import Message
from ...core.people.answers import asks_person
from ...core.record import record
from ...core.state import State
from ...core.steps import Stop
from ...kernel.ports import Journal, Recipe
from ..input import Input, as_turn
from ..opener import Opener
from ..request import RunRequest, check_ids, new_run_id
from ..result import OutputT, Result
from ..run import Run

if TYPE_CHECKING:
    from .batches import BatchJob, BatchPrices, BatchStatus

_PLAIN = re.compile(r"[\w.-]{1,60}", re.ASCII)
_HELD = 10_000  # inputs that are read ahead because their sessions are busy


@record
class MapInput:
    """An input of `agent.map(…)` with a name, a session or a user of its own.

    Args:
        input: What `agent.run` takes.
        key: Its name in the job (default: its place, from 0). Results have it, and so do the ids of runs.
        session: The conversation that it belongs to. Inputs of one session run one after another, in their order.
        user: The user that it belongs to.
    """

    input: Input
    key: str = ""
    session: str = ""
    user: str = ""


class Mapped(NamedTuple, Generic[OutputT]):
    """A result of `agent.map(…)`. `key`: the key of the input, or its place, from 0."""

    key: str | int
    result: Result[OutputT]


class Runner(Protocol[OutputT]):
    """An agent, as far as `Map` needs it."""

    recipe: Recipe
    journal: Journal

    async def result(self, run_id: str) -> Result[OutputT]: ...
    def _opener(self, recipe: Recipe) -> Opener: ...
    def _run(self, request: RunRequest, abort_event: Any = ..., opener: Opener | None = ...) -> Run[OutputT]: ...
    def _view(self, run_id: str, state: State) -> Result[OutputT]: ...


class _Item(NamedTuple):
    place: int
    key: str | int
    run_id: str
    turn: tuple[Message, ...]
    session: str
    user: str
    problem: AgentError | None = None  # the input is not one that an agent takes
    answers: tuple[tuple[str, str], ...] = ()


class Map(AsyncIterator[Mapped[OutputT]]):
    """The runs of one agent over many inputs.

    `async for key, result in agent.map(…)` yields each result when it is there. `await agent.map(…)` returns all of them in the
    order of the inputs. If the loop is left, or the program ends, runs under way stay resumable: call `map` again with the
    same `job`.

    Attributes: job: The name of the job. done: The number of results so far.
    """

    def __init__(
        self,
        agent: Runner[OutputT],
        inputs: Iterable[Input | MapInput] | AsyncIterable[Input | MapInput],
        job: str = "",
        at_once: int = 8,
        batch: bool | BatchPrices = False,
        deps: Any = None,
    ) -> None:
        check_ids(run_id=job)
        if isinstance(inputs, str | Message) or not (hasattr(inputs, "__iter__") or hasattr(inputs, "__aiter__")):
            raise ConfigError.of("map.inputs", "map() expects a list or an iterator of inputs, not {it!r:.100}", it=inputs)
        if not isinstance(at_once, int) or at_once < 1:
            raise ConfigError.of("map.at_once", "at_once must be a number from 1 up, not {it!r}", it=at_once)
        self.job, self.done = job or f"map-{new_run_id()}", 0
        self._agent, self._at_once, self._deps = agent, at_once, deps
        self._inputs: Iterator[Any] | AsyncIterator[Any] | None
        self._inputs = aiter(inputs) if isinstance(inputs, AsyncIterable) else iter(inputs)
        self._batches: BatchJob | None = None
        self._opener: Opener | None = None
        if batch:
            from .batches import BatchJob

            self._batches = BatchJob(self.job, agent.recipe, agent.journal, None if batch is True else batch)
            self._opener = agent._opener(self._batches.recipe)
        self._places = self._read_ahead = 0
        self._keys: set[int] = set()
        self._ready: deque[_Item] = deque()
        self._held: dict[tuple[str, str], deque[_Item]] = {}  # by sessions that are busy
        self._working: dict[asyncio.Task[Result[OutputT]], _Item] = {}
        self._runs: dict[str, Run[OutputT]] = {}
        self._going: AsyncGenerator[tuple[_Item, Result[OutputT]]] | None = None

    @property
    def working(self) -> int:
        """Return the number of runs that are under way now."""
        return len(self._working)

    @property
    def batches(self) -> BatchStatus | None:
        """Return the progress of the batches at work; None without batch prices."""
        return None if self._batches is None else self._batches.status

    def __aiter__(self) -> Map[OutputT]:
        return self

    async def __anext__(self) -> Mapped[OutputT]:
        item, result = await anext(self._generator())
        return Mapped(item.key, result)

    def __await__(self) -> Generator[Any, None, list[Result[OutputT]]]:
        return self._all().__await__()

    async def _all(self) -> list[Result[OutputT]]:
        found = {item.place: result async for item, result in self._generator()}
        return [found[place] for place in sorted(found)]

    async def aclose(self) -> None:
        """Stop. Runs under way are left as they are, and can be resumed."""
        if self._going is not None:
            await self._going.aclose()

    def _generator(self) -> AsyncGenerator[tuple[_Item, Result[OutputT]]]:
        if self._going is None:
            self._going = self._go()
        return self._going

    async def _go(self) -> AsyncGenerator[tuple[_Item, Result[OutputT]]]:
        over = False
        try:
            if self._batches is not None:
                await self._batches.open()
            while True:
                await self._fill()
                if self._working:
                    done, _ = await asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED)
                    for item, result in [(self._working.pop(task), task.result()) for task in done]:
                        if not self._parks(item, result):
                            self._free_session(item)
                            self.done += 1
                            yield item, result
                    if self._batches is not None:
                        await self._batches.submit_full()
                elif self._batches is not None and (answered := await self._batches.next()):
                    self._ready.extend([item._replace(answers=((question, "done"),)) for question, item in answered])
                else:
                    over = True
                    return
        finally:
            await self._leave(done=over)

    async def _leave(self, *, done: bool) -> None:
        """Let go of the runs that are under way, so that they can be resumed."""
        if self._runs:
            await asyncio.gather(*[run.let_go() for run in tuple(self._runs.values())], return_exceptions=True)
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)
        if self._batches is not None:
            await self._batches.close(done=done)

    async def _fill(self) -> None:
        """Begin runs until enough of them are under way."""
        while len(self._working) < self._at_once and (item := await self._next_item()) is not None:
            self._working[asyncio.create_task(self._run(item))] = item

    async def _next_item(self) -> _Item | None:
        if self._ready:
            return self._ready.popleft()
        while self._read_ahead < _HELD and (item := await self._read()) is not None:
            place = (item.session, item.user)
            if not item.session:
                return item
            if place not in self._held:
                self._held[place] = deque()
                return item
            self._held[place].append(item)
            self._read_ahead += 1
        return None

    def _free_session(self, item: _Item) -> None:
        place = (item.session, item.user)
        if item.session and not self._held[place]:
            del self._held[place]
        elif item.session:
            self._ready.append(self._held[place].popleft())
            self._read_ahead -= 1

    async def _read(self) -> _Item | None:
        """Return the next input, or None if there are no more."""
        if self._inputs is None:
            return None
        try:
            given = await anext(self._inputs) if isinstance(self._inputs, AsyncIterator) else next(self._inputs)
        except (StopIteration, StopAsyncIteration):
            self._inputs = None
            return None
        place, self._places = self._places, self._places + 1
        one = given if isinstance(given, MapInput) else MapInput(given)
        if one.key:
            self._check_key(one.key)
        key, turn, problem = one.key or place, cast(tuple[Message, ...], ()), None
        try:
            check_ids(run_id=one.key, session_id=one.session, user_id=one.user)
            turn = as_turn(one.input)
        except AgentError as wrong:
            problem = wrong
        run_id = run_id_of(self._agent.recipe.name, self.job, key, turn, one.user)
        return _Item(place, key, run_id, turn, one.session, one.user, problem)

    def _check_key(self, key: str) -> None:
        if hash(key) in self._keys:
            raise ConfigError.of("map.two_of_a_key", "two inputs have the key {key!r}: each needs one of its own", key=key)
        self._keys.add(hash(key))

    async def _run(self, item: _Item) -> Result[OutputT]:
        """Run one input. What fails in it is its result; what would fail for all of them is raised."""
        if item.problem is not None:
            return self._failed(item, item.problem)
        how: dict[str, Any] = {"how": "either", "session": item.session, "user": item.user, "deps": self._deps}
        request = RunRequest(item.run_id, item.turn, answers=dict(item.answers), **how)
        run = self._runs[item.run_id] = self._agent._run(request, opener=self._opener)
        try:
            return await run
        except (RunBusy, SessionBusy) as problem:  # another process is at it
            return self._failed(item, problem)
        except JournalError:
            raise
        except AgentError as problem:
            if not problem.run_id:  # it did not begin
                raise
            return await self._agent.result(item.run_id)
        finally:
            del self._runs[item.run_id]

    def _failed(self, item: _Item, problem: AgentError) -> Result[OutputT]:
        stop = Stop("failed", problem.public, type(problem).__name__, problem.said)
        return self._agent._view(item.run_id, State(stop=stop))

    def _parks(self, item: _Item, result: Result[OutputT]) -> bool:
        """Keep a run that waits for a batch. Return False if it does not."""
        waits = [key for key in result.state.questions if not asks_person(key)]
        if self._batches is None or result.stop.kind != "waiting" or not waits:
            return False
        if not self._batches.park(item.run_id, waits[0], item):
            self._ready.append(item._replace(answers=((waits[0], "again"),)))
        return True


def run_id_of(agent: str, job: str, key: str | int, turn: tuple[Message, ...], user: str) -> str:
    """Return an id that follows from the agent, the job, the key, the input and its user. If one is another, so is the run.

    The agent counts by its name: a job is continued by a later version of its agent, without repeating what it has done.
    """
    name = str(key) if _PLAIN.fullmatch(str(key)) else digest(key)
    return f"{job}-{name}-{digest([agent, user, *[encode_body(Received(message)) for message in turn]])[:8]}"
