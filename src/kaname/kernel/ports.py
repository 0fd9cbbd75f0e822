"""Ports: the small protocols that everything pluggable satisfies. Their optional members are in `bases.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, cast, runtime_checkable

from ..core.demands import Demand
from ..core.errors import ConfigError, ModelError
from ..core.events import Event
from ..core.messages import Media, Message, ModelReply, ModelRequest, ToolCall, ToolResult, Usage
from ..core.reading.files import named_files, require_file
from ..core.record import field, record, replace
from ..core.runs import RunInfo, SessionInfo, Tally
from ..core.state import State
from ..core.steps import Step, Stop
from .bases import PolicyInfo
from .memo import Described, Memo
from .stores import Stores
from .view import RunView

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", default=Any)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT")

Emit = Callable[..., Awaitable[None]]
"""`await emit("text")`, or `await emit("…", "thinking")`: show a piece of the reply while it is being made."""


class Model(Protocol):
    """A language model. `reply` raises `ModelError` when the provider fails."""

    name: str

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply: ...


class BatchProgress(NamedTuple):
    """How far a batch is: whether it has ended, and how many of its requests are done."""

    ended: bool
    done: int
    of: int


class Batches(Protocol):
    """A provider's batch API, for the requests of one model. Its methods raise `ModelError`.

    `submit` sends requests by their names, and returns the id of the batch. `find` looks for a batch of which it is unknown
    whether the provider has received it: by its label, its number of requests, one of their names, and the time (seconds since
    1970) after which it was sent. It returns "" if there is none. `results` returns answers and errors by the names of the
    requests, after the batch has ended; the error under "" is that of all others. `through` returns the model with another way
    to its provider. `discount`: the factor on the price, or None if it is unknown.
    """

    most_requests: int
    most_bytes: int
    discount: float | None

    async def submit(self, requests: Mapping[str, bytes], label: str) -> str: ...
    async def find(self, label: str, count: int, sample: str, since: float) -> str: ...
    async def progress(self, batch_id: str) -> BatchProgress: ...
    async def results(self, batch_id: str) -> Mapping[str, bytes | ModelError]: ...
    def through(self, send: Callable[[bytes], Awaitable[bytes]]) -> Model: ...


@runtime_checkable
class Tool(Protocol):
    """A tool in its smallest form: text in, result out. Functions and richer tools become an `Action`."""

    name: str
    description: str

    async def execute(self, input_text: str) -> ToolResult: ...


class Action(Described, Protocol):
    """A tool as the kernel runs it. `prepare` checks the arguments before the call starts, and raises `BadArguments`.

    Its optional members are those of `ActionBase`.
    """

    def prepare(self, call: ToolCall) -> Any: ...
    async def act(self, prepared: Any, context: ToolContext) -> ToolResult: ...


class Strategy(Protocol):
    """The rule that decides the next step. Pure: no clock, no I/O; the same facts give the same step.

    Its optional members are those of `StrategyBase`, such as `conclude`, which decides how the run ends at a limit.
    """

    def next(self, state: State) -> Step: ...


class Turn(NamedTuple):
    """The agent and the user to whom a new run of a session belongs. Without both, it belongs to everybody.

    `after`: the number of the fact from which it continues. If the session's last run has another one by the time at which the
    new run is recorded, that raises `SessionBusy`. 0: this is not checked.
    """

    session: str
    agent: str = ""
    user: str | None = None
    after: int = 0


class Journal(Protocol):
    """The store of facts. Facts survive the process once `append` has returned, in the order of the calls.

    A fact that is not JSON is refused before the first `await`. A `Stopped` ends the lease, unless `keep` is True because a
    tool still works in a thread. Snapshots are optional.

    Reading: `follow` yields a run's facts as they come, from any process, until one ends it; `changes` yields those of all
    runs, in the order in which they were appended. `runs` returns the run that was opened last first, by the order of opening
    and not by the clock. Lists are read a page at a time: `runs(before=place)` lists the runs that were opened before that
    place, `sessions(before=place)` the sessions whose last change came before it. `since` and `until` select by the time of
    the last fact, `starting` by the beginning of the run's id. `count` counts runs by status and day of opening; days begin
    `shift` seconds after those of UTC.

    Deleting: `prune` deletes ended runs that have not changed since their cards were read and from which no other run
    continues, with their children, and returns their ids. With `trial` it deletes nothing: it treats those ids as deleted, and
    adds to them. `tidy` returns the space of deleted runs to the disk; it returns the bytes freed and the bytes still to free.

    Stopping: `ask_to_stop` asks the process that executes the run, and returns False if there is no such process. That process
    waits in `asked_to_stop`, which returns the reason.

    `stores`: what the journal keeps besides facts. A journal of facts only has `Stores()`.
    """

    @property
    def stores(self) -> Stores: ...
    async def claim(self, run_id: str, *, takeover: bool = False, turn: Turn | None = None) -> Lease: ...
    async def append(self, events: Sequence[Event], epoch: int, *, keep: bool = False) -> None: ...
    async def release(self, run_id: str, epoch: int) -> None: ...
    def read(self, run_id: str, after: int = 0) -> AsyncIterator[Event]: ...
    async def lineage(self, run_id: str, upto: int | None = None, *, fold: int = 0) -> Lineage: ...
    async def keep_snapshot(self, run_id: str, seq: int, fold: int, state: str) -> None: ...
    def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]: ...
    def changes(self, after: int = 0, *, wait: bool = True) -> AsyncIterator[Change]: ...
    async def ask_to_stop(self, run_id: str, reason: str) -> bool: ...
    async def asked_to_stop(self, run_id: str) -> str: ...
    async def runs(
        self,
        *,
        run_id: str = "",
        session: str = "",
        status: str = "",
        agent: str = "",
        user: str | None = None,
        parent: str = "",
        starting: str = "",
        since: float = 0.0,
        until: float = 0.0,
        before: int = 0,
        limit: int = 100,
    ) -> list[RunInfo]: ...
    async def sessions(
        self, *, session: str = "", agent: str = "", user: str | None = None, before: int = 0, limit: int = 100
    ) -> list[SessionInfo]: ...
    async def count(
        self, *, session: str = "", agent: str = "", user: str | None = None, since: float = 0.0, shift: float = 0.0
    ) -> list[Tally]: ...
    async def delete(self, run_id: str, *, cascade: bool = False) -> None: ...
    async def prune(self, cards: Sequence[RunInfo], *, trial: set[str] | None = None) -> list[str]: ...
    async def tidy(self, *, whole: bool = False) -> tuple[int, int]: ...
    async def close(self) -> None: ...


def still_held() -> None:
    """Return None: the lease of a process ends only with the process."""


class Lease(NamedTuple):
    """The right to write a run: the owner's epoch, and the number of the last fact.

    `before`: what happened to the previous owner. "died": its process ended without releasing the lease. "overtaken": the
    lease was taken from it, and it may still be at work. Otherwise it released the lease.

    `confirm` is called right before an action that cannot be taken back. It returns None as long as no other process can have
    taken the lease because this one was silent. Otherwise it returns an awaitable that asks the journal, and raises
    `RunSuperseded` if another process has the lease.
    """

    epoch: int
    seq: int
    before: str = ""
    confirm: Callable[[], Awaitable[None] | None] = still_held


class Change(NamedTuple):
    """A fact and its place in the order of all facts. A listener stores the place, to continue after it."""

    place: int
    event: Event


class Lineage(NamedTuple):
    """The facts that led to a run's state: its own, after those of the runs from which it continues, oldest first.

    `snapshot` is the state before these facts, if one was stored for the same `fold`; else it is empty.
    """

    snapshot: str
    events: list[Event]


Sink = Callable[[Event], Any]
"""Who listens. It sees every fact after it became durable, and every delta. It may be async; it can never break a run."""


StopRule = Callable[[State, Step], Stop | None]
ModelHandler = Callable[[ModelRequest], Awaitable[ModelReply]]
ToolHandler = Callable[[ToolCall], Awaitable[ToolResult]]
Admission = Callable[[Message], Awaitable[Usage]]
Repair = Callable[[Any, "ToolContext"], Awaitable[ToolResult | None]]
ContextPart = Callable[[tuple[Message, ...], RunView], Awaitable[Sequence[Message]]]
"""One part of what the model sees: takes the messages as they are so far, gives them as they are to be. Parts are asked in
their order, for each call of the model; the first gets the instructions and the whole history."""


Place = Literal["turn", "choice", "call", "allowed", "retry", "model", "attempt", "timeout", "money", "send"]
"""The places of policies around a call, outermost first. `chain.py` puts policies in this order, wherever they are listed.

turn: the whole turn (`Deadline`). choice: which tool or stored value answers the call (`ToolFallback`, `Equals`, `Cache`).
call: yours. allowed: inside yours, on the call as they changed it. retry: around all attempts of a model call. model: around
the attempts at one model after another (`ModelFallback`). attempt: around each attempt at one model (`Pace`, `Privacy`).
timeout: what is inside is limited in time. money: what is inside is counted (`Budget`). send: the request as it is sent.
"""


class Policy:
    """A rule around the only two things an agent does: calling a model and calling a tool. Override the methods you need.

    Attributes: place: Where the policy stands around a call. Of policies in the same place, the first in the list is the
    outermost. about: What the policy says of itself. A subclass inherits the fields that it leaves at their defaults.
    """

    place: Place = "call"
    about: PolicyInfo = PolicyInfo()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own, inherited = vars(cls).get("about"), getattr(super(cls, cls), "about", None)
        if isinstance(own, PolicyInfo) and isinstance(inherited, PolicyInfo):
            cls.about = own.joined_with(inherited)

    async def admit(self, question: Message, next: Admission, view: RunView) -> Usage:
        """Judge the user's message before each model call, before any part of the context sees it.

        Raise `Halt` to end the run. Returns the cost of judging.
        """
        return await next(question)

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        """Call the model with `next(request)`.

        Override it to change the request or the reply, to retry, or to raise `Halt`.
        """
        return await next(request)

    def received(self, message: Message) -> Message:
        """Return the user's message as it is recorded. It is called before anything else sees the message."""
        return message

    async def demand(self, call: ToolCall, view: RunView) -> Demand | None:
        """State what must happen before the call runs: `Refuse`, `Ask`, `Wait`, or None for nothing.

        It is called next to the tool, on the call that will really run: also for a tool that stands in for another, and for
        arguments that a person has changed. kaname joins the demands of all policies.
        """
        return None

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        """Run the call with `next(call)`.

        Override it to change the call or its result, or to raise `Halt`. To decide whether a call runs, override `demand`.
        """
        return await next(call)

    def for_child(self, view: RunView) -> Policy | None:
        """Return the policy that also stands around the calls of a child run, or None if this one does not concern children."""
        return None

    def check(self, tools: Mapping[str, Action]) -> None:
        """Check the policy against the agent's tools before a run.

        Raise `ConfigError` for a mistake, such as an unknown tool name.
        """


@record
class ToolContext(Generic[DepsT]):
    """The run as a tool sees it. A function receives it through a parameter of this type, which the model never sees.

    `ToolContext[Database]` declares the type of `deps`: `agent.run(…, deps=database)`.

    Attributes: run_id: The run. session: Its session, or "". user: Its user, or "". agent: The name of the agent at work.
    call_id: The id of this call. idempotency_key: A key that stays the same when the call is repeated after a crash. attempt:
    1 for the first try of this call, 2 for the second. view: The run as policies see it too; None if a program called the tool
    directly, and then everything that needs a run raises `ConfigError`.
    """

    run_id: str
    session: str
    user: str
    agent: str
    call_id: str
    idempotency_key: str
    attempt: int
    view: RunView | None = None

    @property
    def deps(self) -> DepsT:
        """Return the object passed as `deps=…`. It is never recorded: pass it again when you resume a run."""
        return cast(DepsT, self._run.deps)

    @property
    def state(self) -> State:
        """Return the state of the run, such as `state.messages` and `state.usage`. Read it; do not change it."""
        return self._run.state

    @property
    def journal(self) -> Journal:
        """Return the journal of the run, to read other runs. Do not append to it: use `note`."""
        return self._run.journal

    @property
    def files(self) -> Mapping[str, Media]:
        """Return the files of the conversation by name: those of the user's messages and of earlier results."""
        return named_files(self.state)

    def file(self, name: str) -> Media:
        """Return a file of the conversation by its name or number. Raises `AgentError` with the names of those there are."""
        return require_file(self.state, name)

    async def note(self, name: str, data: Any) -> None:
        """Record a custom fact: it is stored in `state.custom[name]` and shown as a chunk of that type."""
        await self._run.note(name, data)

    @property
    def _run(self) -> RunView:
        if self.view is None:
            raise ConfigError.of("context.no_run", "there is no run here: a program called the tool directly")
        return self.view

    async def run_child(self, agent: Any, user_input: Any, *, name: str = "") -> Any:
        """Run another agent, a workflow or an orchestrator as a part of this call, and return its `Result`.

        Its facts are in the same journal, under the id of this call. Its cost counts for this run, and this run's limits on
        cost and time apply to it. If this run is stopped, the child is stopped; its questions are asked here; it receives the
        same `deps`. Declare `effect="idempotent"` for a tool that runs children: if the call is repeated, it finds the
        children as they are.

        Args:
            agent: The agent, workflow or orchestrator.
            user_input: The input. For a workflow: its parameters, as a mapping or as a JSON object in a text.
            name: The name of the child, if the call has more than one.

        Raises:
            ConfigError: In a replay, or if the tool was called directly.
        """
        return await self._run.run_child(self, agent, user_input, name)

    async def progress(self, text: str) -> None:
        """Show a text to readers of the run while the tool works."""
        await self._run.emit(text, "progress", self.call_id)


@record
class Recipe:
    """An agent with everything resolved, as the kernel runs it."""

    name: str
    strategy: Strategy
    model: Model | None = None
    tools: Mapping[str, Action] = field(factory=dict)
    policies: tuple[Policy, ...] = ()
    stops: tuple[StopRule, ...] = ()
    instructions: str = ""
    context: tuple[ContextPart, ...] = ()
    settings: Mapping[str, Any] = field(factory=dict)
    team: Mapping[str, Recipe] = field(factory=dict)
    memo: Memo = field(factory=Memo)

    def with_changes(self, **changes: Any) -> Recipe:
        return replace(self, **changes, memo=Memo())
