"""Open a run: new (in its session), resumed, or forked from an earlier fact. After that they are all the same."""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Literal
from weakref import WeakValueDictionary

from ..core import tracing
from ..core.chunks import Chunk
from ..core.errors import AgentError, ConfigError, InvalidState, JournalError, RunExists, RunNotFound, SessionBusy, nearest
from ..core.events import Answered, Asked, Fact, HandedOff, Opened, Received, Resumed, Stopped, ToolFinished
from ..core.messages import Message, Text, ToolResult, user
from ..core.notices import notice
from ..core.openai_shape import result_text
from ..core.people.answers import decided, fitting
from ..core.record import replace
from ..core.runs import RunInfo
from ..core.state import State, copy_of
from ..core.steps import Stop
from ..core.values import plain_text
from ..kernel.channel import Channel
from ..kernel.load import keep_snapshot, load, read_run
from ..kernel.ports import Journal, Recalls, Recipe, Sink, Turn
from ..kernel.results import must_be_json
from ..kernel.scope import Scope
from ..kernel.threads import off_loop
from ..policies.approve import Approve, edited
from ..tools.to_json import to_result
from .child import run_child
from .ids import SharedSession
from .recipe import check_strategy

_LONG = 1_000  # characters


def new_run_id() -> str:
    """Sorted by time, so that the newest facts lie together on the disk."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(7).hex()}"


class Recent:
    """The last states of some runs, so that a long conversation is not read back whole for every turn of it."""

    def __init__(self, size: int = 32) -> None:
        self._states: OrderedDict[str, State] = OrderedDict()
        self._size = size

    def keep(self, run_id: str, state: State) -> None:
        self._states[run_id] = state
        while len(self._states) > self._size:
            self._states.popitem(last=False)

    async def load(self, journal: Journal, card: RunInfo) -> State:
        known = self._states.get(card.run_id)
        same = known is not None and (known.seq, known.time) == (card.seq, card.updated)
        return copy_of(known) if same and known is not None else await load(journal, card.run_id)


_turns: WeakValueDictionary[tuple[int, int, tuple[str | None, ...]], asyncio.Lock] = WeakValueDictionary()


@asynccontextmanager
async def taking_turns(journal: Journal, *session: str | None) -> AsyncIterator[None]:
    """Runs of one session (its id, agent and user) wait for each other, so that each sees what the one before it said."""
    if not session[0]:
        yield
        return
    place = (id(asyncio.get_running_loop()), id(journal), session)
    turn = _turns.get(place)
    if turn is None:
        turn = _turns[place] = asyncio.Lock()
    async with turn:
        yield


async def _until_over(journal: Journal, run_id: str) -> None:
    """Until nobody executes it any more, in whichever process."""
    pause = 0.02
    while (cards := await journal.runs(run_id=run_id, limit=1)) and cards[0].status == "running":
        await asyncio.sleep(pause)
        pause = min(0.5, pause * 1.5)


class Beginnings:
    """The three beginnings, for one agent's recipe and journal."""

    def __init__(
        self, recipe: Recipe, journal: Journal, sinks: Sequence[Sink], describe: Callable[[], Mapping[str, Any]], recent: Recent
    ) -> None:
        self.recipe, self.journal, self.sinks, self.recent = recipe, journal, sinks, recent
        self._describe = describe

    async def _description(self) -> Mapping[str, Any]:
        """What the agent is. To say it anew takes a while (schemas are made, pydantic is loaded): off the loop."""
        known = self.recipe.memo.description(self.recipe.tools)
        if known is None:
            known = await off_loop(self._describe)
            self.recipe.memo.keep_description(self.recipe.tools, known)
        return known

    @asynccontextmanager
    async def new(
        self,
        run_id: str,
        messages: Sequence[Message],
        session: str,
        user: str,
        base: str | None,
        channel: Channel,
        turns: Literal["wait", "refuse", "none"] = "wait",
        parent: tuple[str, str] | None = None,
    ) -> AsyncIterator[Scope]:
        """`base`: the run whose conversation this one goes on with; by default the last of the session, this agent and user.
        `turns`: whether another run of the session is waited for, is a reason to refuse this one, or is nobody's business."""
        whose = ("", None) if isinstance(session, SharedSession) else (self.recipe.name, user)
        turn = Turn(session, *whose) if session and base is None and turns != "none" else None
        async with taking_turns(self.journal, session if turn and turns == "wait" else "", *whose):
            while True:
                before = await self.journal.runs(run_id=base, limit=1) if base else []
                if base is None and session:
                    before = await self.journal.runs(session=session, agent=whose[0], user=whose[1], limit=1)
                state = await self.recent.load(self.journal, before[0]) if before else State()
                onto, facts = (before[0].run_id, state.seq) if before else None, state.facts
                opened = Opened(session, user, onto, await self._description(), parent, tracing.current.get())
                try:
                    scope = await self._turn(run_id, messages, opened, state, turn, channel)
                    break
                except SessionBusy as other:  # another process, or another event loop of this one, is at it
                    if turns == "refuse" and (await self.journal.runs(run_id=other.run_id, limit=1))[0].status == "running":
                        raise
                    channel.show(Chunk(time.time(), self.recipe.name, "status", {"status": "queued", "behind": other.run_id}))
                    await _until_over(self.journal, other.run_id)
            async with self._remembered(scope, facts):
                yield scope

    async def _turn(
        self, run_id: str, messages: Sequence[Message], opened: Opened, state: State, turn: Turn | None, channel: Channel
    ) -> Scope:
        """Begin it; who had the conversation goes on with it."""
        at_work, state.agent = state.agent, self.recipe.name
        handed = [HandedOff(at_work)] if at_work in self.recipe.team else []
        received = [await self._written_down(message) for message in messages]
        return await self._open(run_id, state, [opened, *handed, *received], channel, turn)

    @asynccontextmanager
    async def _remembered(self, scope: Scope, facts: int) -> AsyncIterator[None]:
        """Keep what the run came to, however it ended, for the next one of its session."""
        try:
            yield
        except AgentError:
            if scope.failure is not None:  # it has ended, and the journal says how
                await self._remember(scope, facts)
            raise
        await self._remember(scope, facts)

    async def _remember(self, scope: Scope, facts: int) -> None:
        self.recent.keep(scope.run_id, scope.state)
        if scope.state.session:
            await keep_snapshot(self.journal, scope.run_id, scope.state, facts)

    async def _written_down(self, message: Message) -> Received:
        """A long text is looked through in a thread, so that nobody waits for it."""
        return await off_loop(self._received, message) if len(message.text) > _LONG else self._received(message)

    def _received(self, message: Message) -> Received:
        calls, results = message.calls, [part for part in message.parts if isinstance(part, ToolResult)]
        told = Message(message.role, tuple([Text(result_text(one)) for one in results])) if results else message
        looked = told
        for policy in self.recipe.policies:
            looked = policy.received(looked)
            if not isinstance(looked, Message):
                raise ConfigError(
                    notice(
                        "policy.received",
                        "{kind}.received returned {it!r}; expected a Message",
                        kind=type(policy).__name__,
                        it=looked,
                    )
                )
        if looked is told:
            return Received(message)
        changed = [replace(one, output=looked.text, error=None, shown=None) for one in results]
        return Received(Message(message.role, (*(changed or looked.parts), *(() if looked.calls else calls))))

    async def _recall(self, run_id: str) -> None:
        """Tell sinks that want to know what the run did before."""
        sinks: Sequence[object] = self.sinks
        for sink in [sink for sink in sinks if isinstance(sink, Recalls)]:
            sink.recall(await read_run(self.journal, run_id))

    async def _answer(self, given: Any) -> Any:
        """The words in it are the user's too. What is not words alone is taken as it is, or not at all."""
        message = await self._written_down(user(given if isinstance(given, str) else plain_text(given)))
        if isinstance(given, str):
            return message.message.text
        if message.message.text != plain_text(given):
            raise InvalidState(notice("run.input_refused", "not taken: {text_}", text_=message.message.text))
        return given

    @asynccontextmanager
    async def again(
        self,
        run_id: str,
        answers: Mapping[str, Any],
        takeover: bool,
        after: int | None,
        channel: Channel,
        by_parent: bool = False,
        by: str = "",
    ) -> AsyncIterator[Scope]:
        """Take a run up where it is. A completed one is left as it is, and so is one whose questions stay open."""
        answers = {key: await self._answer(answer) for key, answer in answers.items()}
        state = await load(self.journal, run_id)
        if state.parent is not None and answers and not by_parent:
            raise InvalidState(
                notice(
                    "run.inner_answer",
                    "run {run_id} is a part of run {parent}, which waits for it: answer there",
                    run_id=run_id,
                    parent=state.parent[0],
                )
            )
        check_strategy(run_id, state, self.recipe)
        known = check_answers(self._scope(run_id, 0, state, channel), answers)
        if after is not None:
            for event in await read_run(self.journal, run_id):
                if event.seq > after:
                    channel.event(event)
        if _at_rest(state, known):
            yield self._scope(run_id, 0, state, channel)
            return
        lease = await self.journal.claim(run_id, takeover=takeover)
        try:
            if lease.seq != state.seq:  # somebody went on with it in the meantime
                state = await load(self.journal, run_id)
                known = check_answers(self._scope(run_id, 0, state, channel), answers)
            await self._recall(run_id)
        except BaseException:
            await self.journal.release(run_id, lease.epoch)
            raise
        if _at_rest(state, known):
            await self.journal.release(run_id, lease.epoch)
            yield self._scope(run_id, 0, state, channel)
            return
        scope, facts = self._scope(run_id, lease.epoch, state, channel), state.facts
        scope.overtaken = lease.before == "overtaken"
        resumed = Resumed(state.attempt + 1, renewed=state.stop is not None, died=lease.before == "died" and state.stop is None)
        await self._record(scope, [resumed, *[Answered(key, answer, by) for key, answer in known.items()]])
        async with self._remembered(scope, facts):
            yield scope

    @asynccontextmanager
    async def either(
        self,
        run_id: str,
        messages: Sequence[Message],
        session: str,
        user: str,
        answers: Mapping[str, Any],
        takeover: bool,
        channel: Channel,
        parent: tuple[str, str] | None = None,
    ) -> AsyncIterator[Scope]:
        """Go on with the run if there is one of that name, else begin it. Of several processes that do so at once, one does the
        work and the others are told `RunBusy`."""
        async with AsyncExitStack() as stack:
            again = self.again(run_id, answers, takeover, None, channel, parent is not None)
            if await self.journal.runs(run_id=run_id, limit=1):
                yield await stack.enter_async_context(again)
                return
            try:
                begin = self.new(run_id, messages, session, user, None, channel, parent=parent)
                scope = await stack.enter_async_context(begin)
            except RunExists:  # somebody was quicker, and is no longer at it
                scope = await stack.enter_async_context(again)
            yield scope

    @asynccontextmanager
    async def fork(
        self,
        run_id: str,
        source: str,
        at: int | None,
        messages: Sequence[Message],
        results: Mapping[str, Any],
        channel: Channel,
    ) -> AsyncIterator[Scope]:
        """A new run that goes on from fact `at` of another, with other results or another input where they are given."""
        cards = await self.journal.runs(run_id=source, limit=1)
        if not cards:
            raise RunNotFound(source)
        last = cards[0].seq
        at = last if at is None else at
        if not 1 <= at <= last:
            raise InvalidState(
                notice("run.no_such_fact", "run {source} has the facts 1 to {last}, not {at}", source=source, last=last, at=at)
            )
        state = await load(self.journal, source, at)
        if not messages:  # else it is another turn of the conversation
            check_strategy(source, state, self.recipe)
        facts: list[Fact] = [Opened("", state.user, (source, at), await self._description(), None, tracing.current.get())]
        for call_id, value in results.items():
            if call_id not in state.open or call_id in state.results:
                waiting = [call.id for call in state.pending]
                told = notice("fork.not_waiting", "at fact {at} no call {call!r} waits for a result", at=at, call=call_id)
                raise InvalidState(told + nearest(call_id, waiting))
            facts.append(ToolFinished(replace(to_result(value), call_id=call_id, name=state.open[call_id].name)))
        facts += [await self._written_down(message) for message in messages]
        if not messages:  # what is still to be answered is this run's question too
            facts += [asked for asked in state.questions.values() if asked.call_id not in results]
        yield await self._open(run_id, state, facts, channel)

    async def _open(
        self, run_id: str, state: State, facts: Sequence[Fact], channel: Channel, turn: Turn | None = None
    ) -> Scope:
        lease = await self.journal.claim(run_id, turn=turn)
        if lease.seq:
            await self.journal.release(run_id, lease.epoch)
            raise RunExists(run_id)
        state.seq = 0
        scope = self._scope(run_id, lease.epoch, state, channel)
        await self._record(scope, facts)
        scope.interrupted = dict(state.started)
        return scope

    async def _record(self, scope: Scope, facts: Sequence[Fact]) -> None:
        """The first facts of a life. If it is called off while they are on their way, the journal says so after them."""
        try:
            await scope.record(*facts)
        except asyncio.CancelledError:
            await scope.record(Stopped(Stop("cancelled", notice("run.cancelled_at_start", "called off while it began"))))
            raise
        except BaseException:
            with suppress(JournalError):  # the trouble that is being told
                await self.journal.release(scope.run_id, scope.epoch)
            raise

    def _scope(self, run_id: str, epoch: int, state: State, channel: Channel) -> Scope:
        state.agent = state.agent or self.recipe.name
        scope = Scope(run_id, self.recipe, self.journal, epoch=epoch, state=state, sinks=self.sinks, channel=channel)
        scope.open_child = run_child
        return scope


def _at_rest(state: State, answers: Mapping[str, Any]) -> bool:
    """There is nothing to take up: it is completed, or waits for what nobody has brought."""
    if state.stop is not None:
        return state.stop.kind in ("completed", "degraded")
    return state.waiting and not answers


def check_answers(scope: Scope, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers to open questions as they are recorded.

    The same answer given again is passed over. Another one, one to no question, one that is unclear, and arguments that the
    tool or a policy does not accept raise `InvalidState`.
    """
    state, fresh = scope.state, dict[str, Any]()
    for key, answer in answers.items():
        if (asked := state.questions.get(key)) is not None:
            fresh[key] = must_be_json(fitting(asked, answer), f"the answer to {key!r}")
            _check_changed_arguments(scope, asked, fresh[key])
        elif key not in state.answers:
            told = notice(
                "run.no_question", "there is no open question {key!r}{hint}", key=key, hint=nearest(key, state.questions)
            )
            raise InvalidState(told)
        elif not _is_same(state.answers[key], answer):
            told = notice(
                "run.answered_already",
                "{key!r} was already answered with {answers!r}; {answer!r} does not count",
                key=key,
                answers=state.answers[key],
                answer=answer,
            )
            raise InvalidState(told)
    return fresh


def _is_same(recorded: Any, answer: Any) -> bool:
    return bool(recorded == answer) and isinstance(recorded, bool) == isinstance(answer, bool)


def _check_changed_arguments(scope: Scope, asked: Asked, answer: Any) -> None:
    """Refuse arguments that would not be run: the approval would be used up for nothing."""
    decision, call = decided(answer), scope.state.open.get(asked.call_id)
    if call is None or decision is None or decision.args is None or asked.key != Approve.key(call):
        return
    asking = next((one for one in scope.view.policies(call) if isinstance(one, Approve)), None)
    if asking is None:
        return
    if why := asking.objection(edited(call, asked.about or call, decision.args), scope.view):
        told = notice("answer.bad_arguments", "the changed arguments were not accepted: {why}", why=why)
        raise InvalidState(told)
