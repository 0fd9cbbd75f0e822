"""Scope of one run: the folded state, what others may ask of it, and the only place where anything is recorded."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from inspect import isawaitable
from logging import getLogger
from typing import Any

from ..core.chunks import RESERVED, Chunk
from ..core.codec import dump
from ..core.errors import (
    AgentError,
    ConfigError,
    JournalError,
    ModelError,
    Released,
    ReplayDiverged,
    Suspend,
    UnexpectedError,
    nearest,
)
from ..core.events import (
    Asked,
    Compacted,
    Custom,
    Delta,
    Event,
    Fact,
    Interjected,
    ModelReplied,
    Stopped,
    ToolStarted,
    Warned,
    withholding_fact,
)
from ..core.messages import NOTHING, Message, ModelReply, ToolCall, ToolResult, Usage
from ..core.reading.as_read import read_text
from ..core.record import replace
from ..core.runs import title_of
from ..core.state import State, evolve
from ..core.steps import Stop
from .alarms import within
from .arguments import IncomingCall, read_unknown
from .bases import SinkBase, StrategyBase, optional
from .boundary import failure_of
from .chain import join_policies, join_rules, overrides, policies_with
from .channel import Channel
from .door import decide
from .family import Family
from .ports import Action, Admission, Journal, Lease, ModelHandler, Policy, Recipe, Sink, StopRule, ToolContext, ToolHandler
from .threads import AtWork, inside
from .view import Fetch, Summarise

COMPACTED = "compacted"  # a summary, among what a replay finds recorded
_CUT = ("deadline", "cancelled", "failed")  # ways to end in the middle of a reply
_SINK_SECONDS, _SINK_AT_THE_END = 5.0, 0.05  # how long a run waits for a sink that listens slowly


class Scope:
    def __init__(
        self,
        run_id: str,
        recipe: Recipe,
        journal: Journal,
        *,
        lease: Lease,
        state: State,
        sinks: Sequence[Sink] = (),
        channel: Channel | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.run_id, self.root, self.journal, self.lease, self.state = run_id, recipe, journal, lease, state
        self.team: Mapping[str, Recipe] = dict(recipe.team) if recipe.team else {}
        self.channel, self.now = channel, clock or steady_clock()
        self.interrupted: dict[str, ToolStarted] = dict(state.started)  # calls started before a crash and not finished
        self.running: dict[str, asyncio.Task[None]] = {}  # calls that a strategy does not wait for together
        self._rules: dict[str, tuple[StopRule, ...]] = {}  # of members, by name
        self._deciders: dict[str, tuple[Policy, ...]] = {}
        self.joints: dict[str, tuple[ModelHandler, ToolHandler, Admission]] = {}
        self.stopping = False  # it is to end: no call begins; a step that never pauses cannot be cancelled otherwise
        self.acting: dict[str, tuple[str, str]] = {}  # calls under way that are not pure: tool and effect
        self.children: set[Any] = set()  # runs that calls wait for
        self.tasks: set[Any] = set()  # runs that it has begun in the background
        self.failure: AgentError | None = None  # why the run failed, for the caller
        self.deps: Any = None  # what the program lends to its tools; it is not recorded
        self.open_child: Callable[..., Awaitable[Any]] | None = None
        self.guarded: Callable[[Recipe], Recipe] = lambda recipe: recipe  # the recipe for a run that reads text from outside
        self.unbilled = NOTHING  # for model calls that gave no reply; recorded with the next reply, or at the end
        self.scratch: dict[Any, Any] = {}  # what policies keep during the run; it is not recorded
        self.families: dict[str, Family] = {}  # the children of calls that are under way, by call
        self.threads = AtWork(inside.get())  # of its tools, and of its children's
        self.keeps_lease = False  # it has stopped, and a thread of it is still at work
        self.overtaken = False  # from a process that may still be at it
        self.inbox: list[Interjected | Suspend] = []  # messages and questions of children, for the next model call
        self.heard: set[str] = set()  # the ids of those, and of the messages that were taken in
        self.asking = self.interrupting = False  # a model is called; an urgent message ends the call
        self.incoming: dict[str, IncomingCall] = {}  # calls on their way to their tools
        self.unstarted: set[str] = set()  # calls that are judged although nothing is started for them, as for a cached result
        self._starting: dict[str, tuple[str, ToolStarted | None]] = {}  # calls that are allowed to start: tool, and last start
        self._asked: set[str] = set()  # keys of questions that this process has asked
        self.leaves_resumable: Callable[[], bool] = lambda: False  # cancelled now, it is left as it is, and so are its children
        self.recalled: Mapping[tuple[str, int], Any] | None = None  # in a replay: what was brought in from outside
        self._sinks = list(sinks)
        self._seq = state.seq
        self._appending: deque[Event] = deque()
        self._unwritten: list[Event] = []  # a reply that is true already
        self._woken_soon = False
        self._writing: asyncio.Task[None] | None = None  # of it, when no other fact came in time

    @property
    def agent(self) -> Recipe:
        """Return the agent at work: the root, or the agent it handed over to."""
        return self.team.get(self.state.agent, self.root) if self.team else self.root

    @property
    def is_at_work(self) -> bool:
        """Return True if a thread still executes a call that has no result yet."""
        return bool(self.state.started) and self.threads.busy

    @property
    def is_to_end(self) -> bool:
        """Return True if it is to end now: to be released, it waits for calls that a strategy does not wait for together."""
        return self.stopping and not (self.running and (self.acting or self.children) and self.leaves_resumable())

    def begin(self, call: ToolCall, effect: str) -> None:
        """Note that a call begins. Raise `Released` if the run is to end: then no call begins."""
        if self.stopping:
            raise Released
        if effect != "pure":
            self.acting[call.id] = (call.name, effect)

    @property
    def sinks(self) -> Sequence[Sink]:
        return self._sinks

    def member(self, name: str) -> Recipe:
        if name != self.root.name and name not in self.team:
            raise UnexpectedError(f"there is no agent named {name!r} in the team{nearest(name, [self.root.name, *self.team])}")
        return self.recipe(name)

    def recipe(self, name: str) -> Recipe:
        return self.team.get(name, self.root) if self.team else self.root

    def policies(self, call: ToolCall | None = None) -> tuple[Policy, ...]:
        return self.policies_of(self.agent if call is None else self.caller(call))

    def policies_of(self, agent: Recipe) -> tuple[Policy, ...]:
        """Return the policies around an agent's calls. The root's policies apply to all agents it hands over to."""
        return agent.policies if agent is self.root else join_policies(self.root.policies, agent.policies)

    def deciders(self, agent: Recipe) -> tuple[Policy, ...]:
        """Return the policies that state demands about an agent's calls."""
        known = self._deciders.get(agent.name)
        if known is None:
            known = self._deciders[agent.name] = policies_with(self.policies_of(agent), "demand")
        return known

    @property
    def stops(self) -> tuple[StopRule, ...]:
        return self.stops_of(self.agent)

    def stops_of(self, agent: Recipe) -> tuple[StopRule, ...]:
        """Return an agent's stop rules. The root's rules apply to all agents it hands over to."""
        if agent is self.root:
            return agent.stops
        if agent.name not in self._rules:
            self._rules[agent.name] = join_rules(self.root.stops, agent.stops)
        return self._rules[agent.name]

    def guard(self) -> bool:
        """Go on with policies against text from outside. Return False if the run has them already."""
        before, self.root = self.root, self.guarded(self.root)
        if self.root is before:
            return False
        self._rules, self._deciders, self.joints = {}, {}, {}
        return True

    def family(self, call_id: str) -> Family:
        """Return the children of a call that is under way."""
        return self.families.setdefault(call_id, Family())

    def caller(self, call: ToolCall) -> Recipe:
        """Return the agent that made the call. Another agent may be at work by now."""
        return self.recipe(self.state.callers.get(call.id) or self.state.agent) if self.team else self.root

    def as_received(self, call: ToolCall) -> ToolCall:
        incoming = self.incoming.get(call.id)
        if incoming is None:
            incoming = IncomingCall()
        elif incoming.last is call:
            return call
        tools = self.caller(call).tools
        tool = tools.get(call.name, None)
        return read_unknown(call, tools) if tool is None else incoming.read_call(call, tool)

    def as_sent(self, call: ToolCall) -> ToolCall:
        return self.incoming.get(call.id, IncomingCall()).as_sent(call)

    def may_start(self, call: ToolCall, limit: float, counts: Mapping[str, int] | None = None) -> bool:
        if call.id in self.unstarted or (self.state.interrupted and call.id in self.state.interrupted):
            return True
        started, underway = self.state.started, self.incoming
        self._starting = {key: one for key, one in self._starting.items() if key in underway and started.get(key) is one[1]}
        others = [name for key, (name, _) in self._starting.items() if key != call.id and name == call.name]
        if (self.state.starts if counts is None else counts).get(call.name, 0) + len(others) >= limit:
            return False
        self._starting[call.id] = (call.name, started.get(call.id))
        return True

    def hear(self, *letters: Interjected) -> None:
        """Keep messages for the next model call. One that is known already is passed over."""
        fresh = [said for said in letters if said.id not in self.heard]
        self.heard.update([said.id for said in fresh])
        self.inbox += fresh

    async def record(self, *bodies: Fact, agent: str = "") -> None:
        """Record facts: 1. make them durable, 2. apply them to the state, 3. show them.

        A model's reply is applied at once, and written together with the fact that follows from it, if that comes before the
        event loop turns: one sync for both. No tool is started, and no reader sees the reply, before it is on disk.
        """
        ends, cancelled = type(bodies[-1]) is Stopped, False
        if ends and self.running:
            cancelled = await _run_to_end(self.cancel_running())
        if self._writing is not None:
            cancelled = (await _run_to_end(self._reply_is_written()) if ends else await self._reply_is_written()) or cancelled
        if ends:
            bodies = (*bodies[:-1], self._complete(bodies[-1]))  # type: ignore[arg-type]
        now, name, events = self.now(), agent or self.state.agent or self.root.name, []
        for body in bodies:
            self._seq += 1
            events.append(Event(self.run_id, self._seq, now, name, body))
        if len(bodies) == 1 and type(bodies[0]) is ModelReplied and not self._appending and not self._unwritten:
            self._unwritten = events
            evolve(self.state, events[0])
            if not self._woken_soon:
                self._woken_soon = True
                asyncio.get_running_loop().call_soon(self._write_soon)
            return
        appending = self._append(self._with_unwritten(events))
        if not ends:
            await appending
        elif await _run_to_end(appending) or cancelled:
            raise asyncio.CancelledError

    def _complete(self, stopped: Stopped) -> Stopped:
        """Return the last fact with what calls have cost that gave no reply, and with the words of a reply that was cut off."""
        output, strategy = stopped.output, self.agent.strategy
        if output is None and stopped.stop.kind in _CUT and self.channel and not overrides(strategy, "partial", StrategyBase):
            output = self.channel.current_text or None
        if output is stopped.output and self.unbilled is NOTHING:
            return stopped
        return replace(stopped, output=output, usage=stopped.usage + self.take_unbilled())

    def take_unbilled(self) -> Usage:
        usage, self.unbilled = self.unbilled, NOTHING
        return usage

    def billed(self, reply: ModelReply) -> ModelReply:
        """Return a reply with what calls have cost that gave none."""
        unbilled, self.unbilled = self.unbilled, NOTHING
        return reply if unbilled is NOTHING else replace(reply, usage=reply.usage + unbilled)

    async def fail(self, failure: AgentError) -> None:
        """End the run with an error. One of the journal is raised: what cannot be recorded cannot be turned into a fact."""
        if isinstance(failure, JournalError):
            raise failure
        self.failure = failure
        await self.record(Stopped(Stop("failed", failure.public, type(failure).__name__, failure.said)))

    async def cancel_running(self) -> None:
        """Cancel the calls that are still running, because the run ends."""
        if self.running:
            running, self.running = list(self.running.values()), {}
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def let_go(self) -> None:
        """Drop what refers back to the run, which is not executed any more: its memory is then free without the collector."""
        resumable = self.leaves_resumable()
        self.joints, self.leaves_resumable = {}, lambda: resumable

    async def write_pending(self) -> None:
        """Write a reply that is waiting for the next fact, if no fact follows."""
        if self._writing is not None:
            await self._reply_is_written()
        if self._unwritten:
            await self._append(self._with_unwritten([]))

    def _with_unwritten(self, events: list[Event]) -> list[Event]:
        """Return the facts with those that wait to be written before them.

        Never await between numbering facts and appending them: facts of parallel tools must keep their order.
        """
        if self._unwritten:
            events, self._unwritten = self._unwritten + events, []
        self._appending.extend(events)
        return events

    def _write_soon(self) -> None:
        self._woken_soon = False
        if self._unwritten:
            self._writing = asyncio.create_task(self._append(self._with_unwritten([])))
            self._writing.add_done_callback(_retrieve_exception)  # the next fact reports a failure

    async def _reply_is_written(self) -> bool:
        """Wait for a reply that is being written. If writing failed, this raises, and nothing more is recorded."""
        writing = self._writing
        if (
            writing is not None and writing is not asyncio.current_task()
        ):  # a failing sink is reported while the reply is being written
            await asyncio.shield(writing)
            if self._writing is writing:
                self._writing = None
        return False

    async def _append(self, events: list[Event]) -> None:
        refusal = None
        try:  # 1. durable
            if type(events[-1].body) is Stopped and self.is_at_work:
                self.keeps_lease = True
                await self.journal.append(events, self.lease.epoch, keep=True)
            else:
                await self.journal.append(events, self.lease.epoch)
        except (TypeError, ValueError, RecursionError) as problem:
            waited = [event for event in events if event.seq <= self.state.seq]  # the reply that is true already
            refusal = self._refusal(events[len(waited) :] or events, problem)
            if not waited or len(waited) == len(events):
                raise refusal from problem
            events = waited
            await self.journal.append(events, self.lease.epoch)
        last, pauses = events[-1].seq, False
        while self._appending and self._appending[0].seq <= last:  # an earlier one too, whose recorder was cancelled
            event = self._appending.popleft()
            if event.seq > self.state.seq:
                evolve(self.state, event)  # 2. true
            if self.channel is not None:
                pauses = self.channel.event(event) or pauses  # 3. seen
            if self._sinks:
                await self._tell_sinks(event)
        if refusal is not None:
            raise refusal
        if self.channel is not None and self.state.stop is None:  # nobody waits for readers before a fact has come everywhere
            if pauses:
                await self.channel.pause()
            if self.channel.is_full:
                await self.channel.wait_for_room()

    def _refusal(self, events: list[Event], problem: Exception) -> UnexpectedError:
        """Release the numbers of facts that are not JSON, and return the error."""
        self._seq -= len(events)
        for _ in events:
            self._appending.pop()
        return UnexpectedError(f"a {type(events[-1].body).__name__} fact cannot be recorded: {problem}")

    async def park(self, question: Suspend, call_id: str = "") -> None:
        """Record a question, which suspends the run until it is answered."""
        if question.key in self.state.answers:
            raise UnexpectedError(f"the question {question.key!r} was asked again, although it has been answered")
        if question.key in self._asked:  # several calls wait for one answer
            return
        self._asked.add(question.key)
        if call_id in self.families:
            self.families[call_id].opened.clear()  # the answer resumes them
        asked, terms = question, (question.by, question.until, question.then, question.rules)
        await self.record(Asked(asked.key, asked.prompt, asked.options, call_id, asked.in_doubt, asked.about, *terms))

    def tool_context(self, call_id: str, key: str, attempt: int) -> ToolContext:
        state = self.state
        agent = state.callers.get(call_id) or state.agent
        return ToolContext(self.run_id, state.session, state.user, agent, call_id, key, attempt, self)

    async def emit(self, text: str, kind: str = "text", call_id: str = "") -> None:
        if self.channel is not None and self.channel.delta(text, kind, call_id, self.state.agent):
            await self.channel.pause()
        if self._sinks:
            delta = Delta(text, kind, call_id)  # type: ignore[arg-type]
            await self._tell_sinks(Event(self.run_id, self.state.seq, self.now(), self.state.agent, delta))

    def tell(self, data: Mapping[str, Any]) -> None:
        if self.channel is not None:
            self.channel.show(Chunk(self.now(), self.state.agent, "status", {"status": "progress", **data}))

    async def _tell_sinks(self, event: Event) -> None:
        failures = []
        for sink in self._sinks:
            try:
                await self._tell(sink, event)
            except BaseException as error:
                if failure := failure_of(error, passing=()):
                    failures.append((sink, failure))
                    continue
                raise
        for sink, failure in failures:
            if sink in self._sinks:
                self._sinks.remove(sink)
                await self._tell_of_sink(
                    f"sink {getattr(sink, '__qualname__', type(sink).__name__)!r} raised {failure}; it is disabled for this run"
                )

    async def _tell(self, sink: Sink, event: Event) -> None:
        outcome = sink(event)
        if isawaitable(outcome):
            ending = self.channel is not None and self.channel.ending
            await within(_SINK_AT_THE_END if ending else _SINK_SECONDS, outcome)

    async def _tell_of_sink(self, text: str) -> None:
        if self.state.stop is None:
            await self.warn("sink", text)
        else:  # the run is over, and nothing more is written
            getLogger("kaname").warning("sink %s (run %s)", text, self.run_id)

    # What policies, context parts and tools ask for: see `RunView`

    async def confirm(self) -> None:
        if (asking := self.lease.confirm()) is not None:
            await asking

    def place(self, part: Any) -> int:
        return next((place for place, one in enumerate(self.agent.context) if one is part), 0)

    def tools(self, call: ToolCall) -> Mapping[str, Action]:
        return self.caller(call).tools

    async def decide(self, call: ToolCall) -> ToolResult | None:
        self.unstarted.add(call.id)
        try:
            return await decide(call, self)
        finally:
            self.unstarted.discard(call.id)

    async def allows(self, call: ToolCall) -> bool:
        return await decide(call, self, may_ask=False) is None

    def charge(self, usage: Usage, call_id: str = "") -> None:
        if call_id:
            self.family(call_id).charged += usage
        else:
            self.unbilled += usage

    def spent_by_children(self, call_id: str) -> Usage:
        return self.families[call_id].spent if call_id in self.families else NOTHING

    def withdraw_question(self, call_id: str) -> None:
        self.family(call_id).question = None

    @property
    def is_read(self) -> bool:
        read = self.channel is not None and self.channel.is_read
        return read or any("deltas" in optional(sink, SinkBase, "wants") for sink in self._sinks)

    async def warn(self, source: str, text: str) -> None:
        await self.record(Warned(source, text))

    async def note(self, name: str, data: Any, *, shown: bool = True) -> None:
        await self.record(custom(name, data, shown=shown))

    async def report_error(self, about: Mapping[str, Any]) -> None:
        await self.record(Custom("error", about))

    async def run_child(self, context: ToolContext, agent: Any, user_input: Any, name: str) -> Any:
        if self.open_child is None:
            raise ConfigError.of("child.not_here", "run_child() cannot be used in a replay")
        return await self.open_child(self, context, agent, user_input, name)

    async def recall(self, name: str, fetch: Fetch, *, turn: bool = False) -> Any:
        number, known = self.state.replied + 1, self.state.custom.get(name)
        mark = ("turn", self.state.turns) if turn else ("reply", number)
        if isinstance(known, Mapping) and "value" in known and known.get(mark[0]) == mark[1]:
            return known["value"]
        value = self._recorded_value(name, number) if self.recalled is not None else await fetch()
        value = json.loads(dump(value))  # as it will be read from the record
        await self._note_found(name, {"reply": number, "value": value, mark[0]: mark[1]})
        return value

    async def look_up(self, name: str, fetch: Fetch) -> Any:
        number, known = self.state.replied + 1, self.state.custom.get(name)
        value = await fetch() if self.recalled is None else self.recalled.get((name, number))
        if value is not None and not (isinstance(known, Mapping) and known == {"reply": number, "value": value}):
            await self._note_found(name, {"reply": number, "value": value})
        return value

    async def _note_found(self, name: str, data: Any) -> None:
        """Record what was found, unless the run is only looked at: answers are checked before the run is opened."""
        if self.lease.epoch:
            await self.record(custom(name, data, shown=False))  # it may be one person's alone

    def _recorded_value(self, name: str, number: int) -> Any:
        recorded = self.recalled or {}
        if (name, number) not in recorded:
            raise ReplayDiverged(f"{name!r} was not recalled for reply {number} when the run was recorded")
        return recorded[name, number]

    def _recorded_summary(self) -> tuple[str, Usage]:
        made = (self.recalled or {}).get((COMPACTED, self.state.replied + 1))
        if not made:
            raise ModelError.of("compact.not_recorded", "the recorded run has no summary at this point")
        found: tuple[str, Usage] = made.pop(0)
        return found

    async def withhold(self, messages: Sequence[Message]) -> None:
        await self.record(withholding_fact([read_text(one) for one in messages], [title_of(one) for one in messages]))

    async def compact(self, upto: int, summarise: Summarise) -> None:
        messages = self.state.messages
        if not 0 < upto < len(messages) or messages[upto].role == "tool":
            raise ConfigError.of(
                "compact.upto", "upto must be an index between two steps of the conversation, not {upto}", upto=upto
            )
        summary, usage = await summarise(messages[:upto]) if self.recalled is None else self._recorded_summary()
        await self.record(Compacted(upto, summary, usage))


def custom(name: str, data: Any, *, shown: bool = True) -> Custom:
    """Return a custom fact. Raises `ConfigError` if its name is reserved for a type of chunk."""
    if not name or name in RESERVED:
        raise ConfigError.of(
            "fact.name", "{name!r} cannot be the name of a fact: it is empty or reserved for a type of chunk", name=name
        )
    return Custom(name, data, shown)


def steady_clock() -> Callable[[], float]:
    """Return a clock that starts at the time of day and then advances steadily, even if the system clock is changed.

    Deadlines therefore hold. Time between two processes of a run is not counted.
    """
    start = time.time() - time.monotonic()
    return lambda: start + time.monotonic()


async def _run_to_end(work: Coroutine[Any, Any, Any]) -> bool:
    """Run the work to its end even if this task is cancelled. Return True if it was."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    return cancelled


def _retrieve_exception(done: asyncio.Task[None]) -> None:
    if not done.cancelled():
        done.exception()


async def silent(text: str, kind: str = "text", call_id: str = "") -> None:
    """Ignore a piece of text: the `emit` of a request that is not streamed."""
