"""One run's live context: the folded state, and the only place where anything is recorded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from logging import getLogger

from ..core.errors import AgentError
from ..core.events import Delta, Event, Fact, Resumed, ToolStarted, Warned
from ..core.state import State, evolve
from .boundary import Failure, attempt
from .channel import Channel
from .ports import Journal, Recipe, Sink


class Scope:
    def __init__(
        self,
        run: str,
        recipe: Recipe,
        journal: Journal,
        *,
        epoch: int,
        state: State,
        sinks: Sequence[Sink] = (),
        channel: Channel | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run, self.root, self.journal, self.epoch, self.state = run, recipe, journal, epoch, state
        self.channel, self.clock = channel, clock
        self.inherited: dict[str, ToolStarted] = dict(state.started)  # calls that a former life started and never finished
        self.failure: AgentError | None = None  # why the run failed, for the caller
        self._sinks = list(sinks)
        self._seq = state.seq
        self._appending: deque[Event] = deque()

    @property
    def agent(self) -> Recipe:
        """Who is at work: the root, or the agent it was handed to."""
        return self.root.team.get(self.state.agent, self.root)

    async def record(self, *bodies: Fact) -> None:
        now, agent, events = self.clock(), self.state.agent or self.root.name, []
        for body in bodies:
            self._seq += 1
            events.append(Event(self.run, self._seq, now, agent, body))
        self._appending.extend(events)
        await self.journal.append(events, self.epoch)  # 1. durable
        last = events[-1].seq
        while self._appending and self._appending[0].seq <= last:  # an earlier one too, whose recorder was cancelled
            event = self._appending.popleft()
            evolve(self.state, event)  # 2. true
            if self._sinks or (self.channel is not None and not self.channel.muted):
                await self._publish(event)  # 3. seen

    async def resume(self, *, renewed: bool) -> None:
        """Tell the journal and the reader that another life of this run begins."""
        await self.record(Resumed(self.state.attempt + 1, renewed))

    async def emit(self, text: str, kind: str = "text", call_id: str = "") -> None:
        """Show a piece of text without recording it."""
        if self.channel is not None:
            await self.channel.delta(text, kind, call_id, self.state.agent)
        if self._sinks:
            delta = Delta(text, kind, call_id)  # type: ignore[arg-type]
            await self._tell_sinks(Event(self.run, self.state.seq, self.clock(), self.state.agent, delta))

    async def _publish(self, event: Event) -> None:
        if self.channel is not None:
            await self.channel.event(event)
        if self._sinks:
            await self._tell_sinks(event)

    async def _tell_sinks(self, event: Event) -> None:
        failures = [(sink, outcome) for sink in self._sinks if isinstance(outcome := await attempt(sink, event), Failure)]
        for sink, failure in failures:
            if sink in self._sinks:
                self._sinks.remove(sink)
                await self._warn(f"{getattr(sink, '__qualname__', type(sink).__name__)} failed and hears no more: {failure}")

    async def _warn(self, text: str) -> None:
        if self.state.stop is None:
            await self.record(Warned("sink", text))
        else:  # the run is over, and nothing more is written
            getLogger("kaname").warning("sink %s (run %s)", text, self.run)


async def silent(text: str, kind: str = "text", call_id: str = "") -> None:
    """The `emit` of a request that must not be streamed."""
