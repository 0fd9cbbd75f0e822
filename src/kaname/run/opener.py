"""Open a run from a `RunRequest`: new (in its session), resumed, or forked. After that they are all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from typing import Any

from ..core import tracing
from ..core.chunks import Chunk
from ..core.errors import AgentError, Halt, InvalidState, RunBusy, RunExists, RunNotFound, SessionBusy, nearest
from ..core.events import Answered, Custom, Fact, HandedOff, Interjected, Opened, Received, Resumed, Stopped, ToolFinished
from ..core.messages import Message, ToolResult, is_withheld, said_by, user
from ..core.notices import notice
from ..core.people.labels import FLOW
from ..core.record import replace
from ..core.runs import RunInfo
from ..core.state import State
from ..core.steps import Stop
from ..kernel.bases import SinkBase, optional
from ..kernel.chain import overrides
from ..kernel.channel import Channel
from ..kernel.load import keep_snapshot, load, read_run
from ..kernel.perform import joints
from ..kernel.ports import Journal, Lease, Recipe, Sink, Turn
from ..kernel.scope import Scope
from ..kernel.threads import off_loop
from ..people.answers import Given, TaskQuestions, check_answers, read_tasks
from ..people.entrance import Origin, admit, admit_answer, words_of
from ..people.history import recognise
from ..people.left import news_of_left
from ..tools.to_json import to_result
from .attach import stop_waiting_children
from .child import run_child
from .recipe import check_strategy, describe, for_run, other_model, with_flow
from .request import QUEUED, RunRequest, SharedSession
from .turns import Recent, claim_run, turn_of, until_over

FORK = "fork"  # the source of a result that the caller of a fork has written
_UNCLAIMED = Lease(0, 0)  # of a run that is only looked at
_BUSY, _PAUSE = 10.0, 0.05  # seconds that a task may be at work before it takes an answer, and between two tries


class Opener:
    """Opens runs of one recipe on one journal."""

    def __init__(
        self,
        recipe: Recipe,
        journal: Journal,
        sinks: Sequence[Sink] = (),
        describe: Callable[[Recipe], Mapping[str, Any]] = describe,
        recent: Recent | None = None,
    ) -> None:
        self.recipe, self.journal, self.sinks = recipe, journal, sinks
        self._describe, self._recent = describe, Recent() if recent is None else recent

    async def open(self, request: RunRequest, channel: Channel, stack: AsyncExitStack) -> Scope:
        """Open a run in four steps: admit the words, take the turn, record, lend.

        `stack` releases what is taken on the way: the turn of the session, and the claim of the run.
        """
        match request.how:
            case "new":
                return await self._new(request, channel, stack)
            case "resume":
                return await self._resume(request, channel, stack)
            case "either":
                return await self._either(request, channel, stack)
            case "fork":
                return await self._fork(request, channel, stack)

    async def _description(self) -> Mapping[str, Any]:
        """Return the description of the agent. A thread computes it, because making the schemas takes a while."""
        if "description" not in self._known:
            self._known["description"] = await off_loop(self._describe, self.recipe)
        described: Mapping[str, Any] = self._known["description"]
        return described

    @cached_property
    def _known(self) -> dict[str, Any]:
        """Return the store of values that were computed for the tools, as the tools are when the run is opened."""
        return self.recipe.memo.of_tools(self.recipe.tools)

    async def _new(self, request: RunRequest, channel: Channel, stack: AsyncExitStack) -> Scope:
        """Open a new run, as the next turn of its session."""
        session = request.session
        whose = ("", None) if isinstance(session, SharedSession) else (self.recipe.name, request.user)
        turn = Turn(session, *whose) if session and request.base is None and request.turns != "ahead" else None
        if turn is not None and request.turns == "wait":
            await stack.enter_async_context(turn_of(self.journal, session, *whose))
        while True:
            state, onto = await self._load_before(request, whose)
            facts = await self._first_facts(request, state, onto, is_turn=turn is not None)
            try:
                turn = None if turn is None else turn._replace(after=0 if onto is None else onto[1])
                return await self._record_new(request, state, facts, channel, stack, turn)
            except SessionBusy as other:  # another process, or another event loop of this one, executes a run of the session
                if request.turns == "refuse" and await self._is_running(other.run_id):
                    raise
                channel.show(Chunk(time.time(), self.recipe.name, "status", {"status": "queued", "behind": other.run_id}))
                await until_over(self.journal, other.run_id)

    async def _load_before(self, request: RunRequest, whose: tuple[str, str | None]) -> tuple[State, tuple[str, int] | None]:
        """Return the state from which a new run continues, and the run that left it with the number of its last fact."""
        cards: Sequence[RunInfo] = ()
        if request.base:
            cards = await self.journal.runs(run_id=request.base, limit=1)
        elif request.base is None and request.session:
            cards = await self.journal.runs(session=request.session, agent=whose[0], user=whose[1], limit=1)
        if not cards:
            return State(), None
        state = await self._recent.load(self.journal, cards[0])
        return state, (cards[0].run_id, state.seq)

    async def _is_running(self, run_id: str) -> bool:
        return any(card.status == "running" for card in await self.journal.runs(run_id=run_id, limit=1))

    async def _first_facts(
        self, request: RunRequest, state: State, onto: tuple[str, int] | None, *, is_turn: bool
    ) -> list[Fact]:
        """Return the facts with which a new run begins: the words, and what its session brings along.

        The agent that had the conversation continues it. `onto`: the run before it, and the number of its last fact.
        """
        by = "" if request.by == request.user else request.by
        opened = Opened(
            request.session, request.user, onto, await self._description(), request.parent, tracing.current.get(), by
        )
        at_work, state.agent = state.agent, self.recipe.name
        handed = [HandedOff(at_work)] if at_work in self.recipe.team else []
        received = await self._received(request.messages, Origin(request.user, agent=at_work), state)
        if onto is None:
            return [opened, *handed, *received]
        late = await self._letters(onto[0]) if is_turn else []  # for the run before it
        late = [replace(one, message=said_by(one.message, one.by or state.user, request.user)) for one in late]
        left = await news_of_left(
            self.journal, state, onto[0], waits=state.stop is None and bool(state.questions or state.pending)
        )
        return [opened, *handed, *left, *late, *received]

    async def _received(self, messages: Sequence[Message], origin: Origin, state: State) -> list[Fact]:
        """Return the facts of what was said: its messages, and where the runs that are quoted have read text from outside."""
        admitted = [await admit(message, self.recipe, origin) for message in messages]
        known = await recognise(messages, admitted, self.journal, self.recipe.name, origin.user)
        noted = Custom(FLOW, {"source": known.taint, "reply": 0}, shown=False)
        return [*map(Received, known.messages), *([noted] if known.taint and FLOW not in state.custom else [])]

    async def _letters(self, run_id: str) -> list[Interjected]:
        """Return the messages that wait for a run."""
        inbox = self.journal.stores.inbox
        return await inbox.letters(run_id) if inbox is not None else []

    async def _keep_state(
        self, scope: Scope, facts: int, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Keep what the run came to for the next one of its session, if the journal says how it ended.

        `facts`: how many there were when it was opened.
        """
        if error is None or (isinstance(error, AgentError) and scope.failure is not None):
            self._recent.keep(scope.run_id, scope.state)
            if scope.state.session:
                await keep_snapshot(self.journal, scope.run_id, scope.state, facts)

    async def _recall(self, run_id: str) -> None:
        """Tell sinks that want to know what the run did before."""
        for recall in [optional(sink, SinkBase, "recall") for sink in self.sinks if overrides(sink, "recall", SinkBase)]:
            recall(await read_run(self.journal, run_id))

    async def answer(self, scope: Scope, answers: Mapping[str, Any], by: str) -> bool:
        """Record answers to the questions of an open run, and those of questions that have expired. Return True if there are
        any.

        Raises `InvalidState` for every answer that `resume` would not accept.
        """
        sent, admitted = await self._admit_answers(answers, by, scope.state)
        known = await check_answers(scope, admitted, await read_tasks(self.journal, scope.state), judged=False)
        if known:
            await self._judge(scope, _words(known, sent, admitted, scope.state))
            await scope.record(*_answer_facts(known))
        return bool(known)

    async def _resume(self, request: RunRequest, channel: Channel, stack: AsyncExitStack) -> Scope:
        """Continue a run where it is. A completed run stays as it is, and so does one whose questions stay open."""
        run_id = request.run_id
        state = await load(self.journal, run_id)
        sent, answers = await self._admit_answers(request.answers, request.by, state)
        _check_can_resume(request, state, answers)
        check_strategy(run_id, state, self.recipe)
        scope = self._scope(request, _UNCLAIMED, state, channel)
        known, rests = await self._take_answers(request, scope, answers)
        if rests:
            await self._show_past(request, channel)
            return scope
        hold = await claim_run(self.journal, run_id, takeover=request.takeover)
        stack.push_async_exit(hold.release)
        await self._show_past(request, channel)
        if hold.lease.seq != state.seq:  # another process has continued it in the meantime
            state = await load(self.journal, run_id)
            scope = self._scope(request, _UNCLAIMED, state, channel)
            known, rests = await self._take_answers(request, scope, answers)
            if rests:
                return scope
        await self._recall(run_id)
        if state.stop is not None and state.stop.kind == "cancelled":  # else their questions could expire into a yes
            await stop_waiting_children(self.journal, run_id, state.stop.detail)
        facts, words = state.facts, _words(known, sent, answers, state)
        hold.scope, scope.lease = scope, hold.lease
        await self._record_resumed(request, scope, hold.lease, known, words)
        if request.queued:  # a worker executes it
            return scope
        scope.hear(*await self._letters(run_id))
        if (warning := other_model(state, self.recipe)) and request.parent is None:
            await scope.warn("model", warning)
        stack.push_async_exit(partial(self._keep_state, scope, facts))
        return scope

    async def _show_past(self, request: RunRequest, channel: Channel) -> None:
        """Show the facts that the caller has not seen. Nobody else records any: the run is held, or it rests."""
        if request.after is not None:
            for event in await read_run(self.journal, request.run_id):
                if event.seq > request.after and channel.event(event):
                    await channel.pause()

    async def _record_resumed(
        self, request: RunRequest, scope: Scope, lease: Lease, answers: Mapping[str, Given], words: Sequence[str]
    ) -> None:
        """Record that the run is resumed, and the answers after their words have been judged."""
        before, scope.overtaken = scope.state.stop, lease.before == "overtaken"
        died = lease.before == "died" and before is None
        facts: list[Fact] = [Resumed(scope.state.attempt + 1, renewed=before is not None, died=died)]
        if words:
            await self._record(scope, facts)  # the time before it is not counted
            await self._judge(scope, words)
            facts = []
        facts += [*_answer_facts(answers), *([Custom(QUEUED, shown=False)] if request.queued else [])]
        if facts:
            await (scope.record(*facts) if request.queued else self._record(scope, facts))

    async def _admit_answers(
        self, answers: Mapping[str, Any], by: str, state: State
    ) -> tuple[dict[str, Given], dict[str, Given]]:
        """Return the answers as they were sent, and as they are recorded."""
        origin = Origin(state.user, agent=state.agent)
        sent = {key: one if isinstance(one, Given) else Given(one, by) for key, one in answers.items()}
        return sent, {key: Given(await admit_answer(one.answer, self.recipe, origin), one.by) for key, one in sent.items()}

    async def _take_answers(
        self, request: RunRequest, scope: Scope, answers: Mapping[str, Given]
    ) -> tuple[dict[str, Given], bool]:
        """Return the answers to record, and whether the run rests. Work in the background whose run has ended gets its own."""
        state, until = scope.state, time.monotonic() + _BUSY
        while True:
            tasks = await read_tasks(self.journal, state) if answers or state.waiting else TaskQuestions({}, {})
            known = await check_answers(scope, answers, tasks, judged=request.parent is not None)
            left = [key for key in known if state.stop is not None and tasks.key(key) in tasks.questions]
            handed = {key: known.pop(key) for key in left}
            answers = {**answers, **handed}  # in the form in which they are recorded, for the next try
            try:
                if handed:
                    from .tasks import hand_over

                    await hand_over(scope, {tasks.key(key): one for key, one in handed.items()})
                break
            except RunBusy:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(_PAUSE)
        inner = state.stop is not None and bool(answers) and all(tasks.has(key) for key in answers)
        return known, inner or _at_rest(state, known, request)

    async def _judge(self, scope: Scope, words: Sequence[str]) -> None:
        """Have the policies judge the words of answers as they judge a message. Raises `InvalidState` if they are blocked."""
        try:
            for text in words:
                scope.unbilled += await joints(scope.agent, scope)[2](user(text))
        except Halt as end:
            if not end.stop.blocks_input:
                raise
            told = notice("run.input_refused", "the answer was not accepted: {text_}", text_=end.stop.detail)
            raise InvalidState(told) from None

    async def record_answers(self, request: RunRequest) -> None:
        """Record the answers of a request without executing the run, and release it."""
        async with AsyncExitStack() as stack:
            channel = Channel()
            channel.leaves_resumable = lambda: True
            await self.open(request, channel, stack)

    async def _either(self, request: RunRequest, channel: Channel, stack: AsyncExitStack) -> Scope:
        """Resume the run if it exists, else begin it. Of several processes that do so at once, one does the work and the others
        get `RunBusy`. Raises `RunExists` if the run belongs to another user."""
        if not await self._is_own(request):
            try:
                return await self._new(request, channel, stack)
            except RunExists:  # another process was quicker, and no longer executes it
                await self._is_own(request)
        return await self._resume(request, channel, stack)

    async def _is_own(self, request: RunRequest) -> bool:
        """Return False if the run does not exist. Raise `RunExists` if it belongs to another user."""
        cards = await self.journal.runs(run_id=request.run_id, limit=1)
        if cards and cards[0].user != request.user:
            raise RunExists(request.run_id)
        return bool(cards)

    async def _fork(self, request: RunRequest, channel: Channel, stack: AsyncExitStack) -> Scope:
        """Open a new run that continues from a fact of another, with other results or another input if they are given."""
        (source, at), messages, results = request.source, request.messages, request.results
        cards = await self.journal.runs(run_id=source, limit=1)
        if not cards:
            raise RunNotFound(source)
        last = cards[0].seq
        at = last if at is None else at
        if not 1 <= at <= last:
            raise InvalidState.of(
                "run.no_such_fact",
                "run {source} has no fact {at}; its facts are 1 to {last}",
                source=source,
                last=last,
                at=at,
            )
        state = await load(self.journal, source, at)
        if not messages:  # else it is another turn of the conversation
            check_strategy(source, state, self.recipe)
        origin, by = Origin(state.user, agent=state.agent), "" if request.by == state.user else request.by
        facts: list[Fact] = [Opened("", state.user, (source, at), await self._description(), None, tracing.current.get(), by)]
        facts += [await self._forked_result(call_id, value, state, at, origin) for call_id, value in results.items()]
        open_questions = [asked for asked in state.questions.values() if asked.call_id not in results]
        if messages:
            facts += await news_of_left(self.journal, state, source, waits=at == last and bool(open_questions))
            facts += await self._received(messages, origin, state)
        else:  # what is still to be answered is this run's question too
            facts += open_questions
        return await self._record_new(request, state, facts, channel, stack)

    async def _forked_result(self, call_id: str, value: Any, state: State, at: int, origin: Origin) -> ToolFinished:
        """Return the fact of a result that the caller of a fork has written for a call that waits at fact `at`."""
        if call_id not in state.open or call_id in state.results:
            why = notice("fork.not_waiting", "call {call!r} is not waiting for a result at fact {at}", at=at, call=call_id)
            raise InvalidState(why + nearest(call_id, [call.id for call in state.pending]))
        result = replace(to_result(value), call_id=call_id, name=state.open[call_id].name)
        received = await admit(Message("tool", (result,)), self.recipe, origin)
        known = isinstance(value, ToolResult)  # then it says itself whose text it is
        whose = {"source": "", "untrusted": result.untrusted} if known else {"source": FORK}
        (admitted,) = [one for one in received.parts if isinstance(one, ToolResult)]
        return ToolFinished(replace(admitted, **whose))

    async def _record_new(
        self,
        request: RunRequest,
        state: State,
        facts: Sequence[Fact],
        channel: Channel,
        stack: AsyncExitStack,
        turn: Turn | None = None,
    ) -> Scope:
        """Claim a new run, and record its first facts. `state`: that of the run before it, or of the run that is forked."""
        before, hold = state.facts, await claim_run(self.journal, request.run_id, turn=turn)
        try:
            if hold.lease.seq:
                raise RunExists(request.run_id)
            state.seq = 0
            hold.scope = scope = self._scope(request, hold.lease, state, channel, facts)
            await self._record(scope, facts)
        except BaseException as problem:  # released at once if the first facts cannot be recorded
            await hold.release(type(problem), problem)
            raise
        stack.push_async_exit(hold.release)
        scope.interrupted = dict(state.started)
        if request.how != "fork":
            stack.push_async_exit(partial(self._keep_state, scope, before))
        return scope

    async def _record(self, scope: Scope, facts: Sequence[Fact]) -> None:
        """Record the first facts after a start. If the run is cancelled meanwhile, a `Stopped` is recorded after them.

        Not if the run is left resumable: the same rule as for one that has begun.
        """
        try:
            await scope.record(*facts)
        except asyncio.CancelledError:
            if not scope.leaves_resumable():
                told = notice("run.cancelled_at_start", "cancelled while it was starting")
                await scope.record(Stopped(Stop("cancelled", told)))
            raise

    def _scope(self, request: RunRequest, lease: Lease, state: State, channel: Channel, opening: Sequence[Fact] = ()) -> Scope:
        """Return the scope of a run, with what the program lends to it. `opening`: the facts that are about to be recorded."""
        state.agent = state.agent or self.recipe.name
        recipe = for_run(self.recipe, state, opening, self._known)
        scope = Scope(request.run_id, recipe, self.journal, lease=lease, state=state, sinks=self.sinks, channel=channel)
        scope.deps, scope.open_child, scope.guarded = request.deps, run_child, with_flow
        scope.leaves_resumable = channel.leaves_resumable
        return scope


def _check_can_resume(request: RunRequest, state: State, answers: Mapping[str, Any]) -> None:
    """Raise `InvalidState` for a run that is answered elsewhere, or that has never begun."""
    run_id = request.run_id
    if state.parent is not None and answers and request.parent is None:
        raise InvalidState.of(
            "run.inner_answer",
            "run {run_id} is a part of run {parent}. Answer the question there.",
            run_id=run_id,
            parent=state.parent[0],
        )
    if state.seq == 2 and state.stop is not None and state.stop.kind == "cancelled" and not request.unfinished:
        raise InvalidState.of(
            "run.never_begun",
            "run {run_id} was stopped before it began, so its input is not recorded. Start it again with another id",
            run_id=run_id,
        )


def _words(known: Mapping[str, Given], given: Mapping[str, Given], admitted: Mapping[str, Given], state: State) -> list[str]:
    """Return the texts of answers that people have written, for the checks. What a pattern has removed is judged by that."""
    removed = [one.answer for key, one in admitted.items() if one.answer != given[key].answer]
    words = [text for key, one in known.items() for text in words_of(one.answer, state.questions.get(key))]
    return [text for text in words if text not in removed or not is_withheld(user(text))]


def _answer_facts(answers: Mapping[str, Given]) -> list[Answered]:
    return [Answered(key, *one) for key, one in answers.items()]


def _at_rest(state: State, answers: Mapping[str, Any], request: RunRequest) -> bool:
    """Return True if there is nothing to resume: the run is completed, or waits for an answer that was not given."""
    if state.stop is not None:
        return request.unfinished or state.stop.kind in ("completed", "degraded")
    return state.waiting and not answers
