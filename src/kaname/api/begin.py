"""How a run begins: new, taken up again, or forked from an earlier fact. After that they are all the same."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..core.errors import InvalidState, JournalError, nearest
from ..core.events import Answered, Fact, Opened, Received, Resumed, ToolFinished
from ..core.language import say
from ..core.messages import Message, ToolResult
from ..core.state import State
from ..kernel.channel import Channel
from ..kernel.load import load, read_run
from ..kernel.ports import Journal, Recipe, Sink
from ..kernel.scope import Scope


def new_run_id() -> str:
    """Sorted by time, so that the newest facts lie together on the disk."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(7).hex()}"


class Beginnings:
    """The three beginnings, for one agent's recipe and journal."""

    def __init__(self, recipe: Recipe, journal: Journal, sinks: Sequence[Sink], described: Mapping[str, Any]) -> None:
        self.recipe, self.journal, self.sinks, self.described = recipe, journal, sinks, described

    @asynccontextmanager
    async def new(
        self, run: str, message: Message, session: str, user: str, base: str | None, channel: Channel
    ) -> AsyncIterator[Scope]:
        """`base`: the run whose conversation this one goes on with; by default the session's last."""
        if base is None and session:
            last = await self.journal.runs(session=session, limit=1)
            base = last[0].run if last else None
        state = await load(self.journal, base) if base else State()
        opened = Opened(session, user, (base, state.seq) if base else None, self.described)
        yield await self._open(run, state, [opened, Received(message)], channel)

    @asynccontextmanager
    async def again(
        self, run: str, answers: Mapping[str, Any], takeover: bool, after: int | None, channel: Channel
    ) -> AsyncIterator[Scope]:
        """Take a run up where it is. A completed one is left as it is, and so is one whose questions stay open."""
        state = await load(self.journal, run)
        known = _check_answers(state, answers)
        if after is not None:
            for event in await read_run(self.journal, run):
                if event.seq > after:
                    await channel.event(event)
        if state.stop is not None and state.stop.kind == "completed":
            yield self._scope(run, 0, state, channel)
            return
        if state.waiting and not known and state.stop is None:
            yield self._scope(run, 0, state, channel)
            return
        lease = await self.journal.claim(run, takeover=takeover)
        try:
            if lease.seq != state.seq:  # somebody went on with it in the meantime
                state = await load(self.journal, run)
                known = _check_answers(state, answers)
            scope = self._scope(run, lease.epoch, state, channel)
            facts = [Answered(key, answer) for key, answer in known.items()]
            await scope.record(Resumed(state.attempt + 1, renewed=state.stop is not None), *facts)
        except BaseException:
            await self.journal.release(run, lease.epoch)
            raise
        yield scope

    @asynccontextmanager
    async def fork(
        self,
        run: str,
        source: str,
        at: int | None,
        message: Message | None,
        results: Mapping[str, Any],
        channel: Channel,
    ) -> AsyncIterator[Scope]:
        """A new run that goes on from fact `at` of another, with other results or another input where they are given."""
        events = await read_run(self.journal, source)
        last = events[-1].seq
        at = last if at is None else at
        if not 1 <= at <= last:
            raise InvalidState(
                say(
                    f"run {source} has the facts 1 to {last}, not {at}",
                    f"実行 {source} の記録は 1〜{last} 番です({at} 番はありません)",
                )
            )
        state = await load(self.journal, source, at)
        facts: list[Fact] = [Opened("", state.user, (source, at), self.described)]
        for call_id, value in results.items():
            if call_id not in state.open or call_id in state.results:
                waiting = [call.id for call in state.pending]
                raise InvalidState(f"at fact {at} no call {call_id!r} waits for a result{nearest(call_id, waiting)}")
            result = value if isinstance(value, ToolResult) else ToolResult(value)
            named = ToolResult(result.output, result.error, call_id, state.open[call_id].name, result.shown)
            facts.append(ToolFinished(named))
        if message is not None:
            facts.append(Received(message))
        yield await self._open(run, state, facts, channel)

    async def _open(self, run: str, state: State, facts: Sequence[Fact], channel: Channel) -> Scope:
        lease = await self.journal.claim(run)
        if lease.seq:
            await self.journal.release(run, lease.epoch)
            raise JournalError(
                say(f"there is already a run {run!r}; resume it", f"実行 {run!r} はもうあります。再開してください")
            )
        state.seq = 0
        scope = self._scope(run, lease.epoch, state, channel)
        try:
            await scope.record(*facts)
        except BaseException:
            await self.journal.release(run, lease.epoch)
            raise
        scope.inherited = dict(state.started)
        return scope

    def _scope(self, run: str, epoch: int, state: State, channel: Channel) -> Scope:
        state.agent = state.agent or self.recipe.name
        return Scope(run, self.recipe, self.journal, epoch=epoch, state=state, sinks=self.sinks, channel=channel)


def _check_answers(state: State, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers to open questions. One that was given before is passed over; one to no question is an error."""
    for key in answers:
        if key not in state.questions and key not in state.answers:
            raise InvalidState(
                say(
                    f"there is no open question {key!r}{nearest(key, state.questions)}",
                    f"{key!r} という質問はありません{nearest(key, state.questions)}",
                )
            )
    return {key: answer for key, answer in answers.items() if key in state.questions}
