"""Ports: the small protocols that everything pluggable satisfies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, cast, runtime_checkable

from ..core.errors import ConfigError
from ..core.events import Event
from ..core.messages import Message, ModelReply, ModelRequest, ToolCall, ToolResult, Usage
from ..core.notices import notice
from ..core.record import field, record, replace
from ..core.runs import RunInfo, SessionInfo, Tally
from ..core.state import State
from ..core.steps import Step, Stop
from .memo import Described, Memo
from .view import RunView

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .scope import Scope

    DepsT = TypeVar("DepsT", default=Any)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT")

Emit = Callable[..., Awaitable[None]]
"""`await emit("text")`, or `await emit("…", "thinking")`: show a piece of the reply while it is being made."""


class Model(Protocol):
    """Who thinks. Raise `ModelError` when the provider fails."""

    name: str

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply: ...


@runtime_checkable
class Selective(Protocol):
    """A model whose protocol does not take every setting: `ignores` returns the names of those that are left out."""

    def ignores(self, settings: Mapping[str, Any]) -> Sequence[str]: ...


@runtime_checkable
class Tool(Protocol):
    """A tool in its smallest form: text in, result out. Functions and richer tools become an `Action`."""

    name: str
    description: str

    async def execute(self, input_text: str) -> ToolResult: ...


class Action(Described, Protocol):
    """A tool as the kernel runs it. `prepare` checks the arguments (raises `BadArguments`) before anything is started.

    It may be `Hidden`, `Unfolding` or `Shows` as well.
    """

    @property
    def timeout(self) -> float | None: ...
    @property
    def undo(self) -> Repair | None: ...
    @property
    def reconcile(self) -> Repair | None: ...
    def prepare(self, call: ToolCall) -> Any: ...
    async def act(self, prepared: Any, context: ToolContext) -> ToolResult: ...


@runtime_checkable
class Hidden(Protocol):
    """A tool with `listed = False` is there, and the model is not told of it."""

    @property
    def listed(self) -> bool: ...


@runtime_checkable
class Unfolding(Protocol):
    """A tool whose call stands for another, or for itself (`None`). The other takes its place in the reply, so that everybody
    sees what is really called."""

    def unfold(self, call: ToolCall) -> ToolCall | None: ...


@runtime_checkable
class Shows(Protocol):
    """A tool whose prepared arguments are not JSON: `shown` returns them as JSON, for policies and people."""

    def shown(self, prepared: Any) -> Mapping[str, Any]: ...


class Strategy(Protocol):
    """Who decides next. Pure: no clock, no I/O; same facts, same step.

    With a method `conclude(state, stop)` it also says how the run ends at a limit: `Conclude`, or `Finish`.
    """

    def next(self, state: State) -> Step: ...


class Turn(NamedTuple):
    """Whose turn a new run is in a session; no agent and no user: everybody's."""

    session: str
    agent: str = ""
    user: str | None = None


class Journal(Protocol):
    """Where facts live. What `append` has returned from survives the process; acknowledgements keep their order.

    A fact that cannot be written (no JSON) is refused before the first `await`. A `Stopped` ends the lease, unless it
    is to be kept (`keep`) because a tool is still at work in a thread. `runs` gives the
    run that was opened last first, by the order of opening and not by the clock. A journal need not keep snapshots.

    `follow` gives a run's facts as they come, from any process, until one ends it; `changes` those of all runs, in the order in
    which they were appended. Lists are read a page at a time: `runs(before=place)` lists the runs that were opened before that
    place, `sessions(before=place)` the sessions whose last change came before it. `since` and `until` select by the time of the
    last fact, `starting` by the beginning of the run's id. `count` counts runs by status and day of opening; days begin `shift`
    seconds after those of UTC. `prune` deletes those of the ended runs that have not changed since their cards were read and
    that no other run goes on from, with their children, and returns their ids. With `trial` it deletes nothing: it treats those
    ids as deleted, and adds to them. `tidy` gives space that deleted runs left back to the disk; it returns the bytes given
    back and those that are still free.
    `ask_to_stop` asks whoever executes the run, and says whether there is somebody; that one waits in
    `asked_to_stop`, which gives the reason.
    """

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


class Lease(NamedTuple):
    """The right to write a run: the owner's epoch, and the number of the last fact there is.

    `before`: what became of the one that had it. "died": its process ended without releasing it. "overtaken": it was taken from
    it, and may still be at work. Otherwise it was released.
    """

    epoch: int
    seq: int
    before: str = ""


class Change(NamedTuple):
    """A fact, and its place in the order of all: what a listener keeps, to go on after it."""

    place: int
    event: Event


class Lineage(NamedTuple):
    """All that made a run what it is: its facts, after those of the runs it goes on from, oldest first.

    `snapshot` is the state that stands for the facts before them, if one was kept by the same `fold`; else it is empty.
    """

    snapshot: str
    events: list[Event]


@runtime_checkable
class Probes(Protocol):
    """A journal that can be asked whether it can write now. It raises what stands in the way, and records no fact."""

    async def probe(self) -> None: ...


Sink = Callable[[Event], Any]
"""Who listens. It sees every fact after it became durable, and every delta. It may be async; it can never break a run."""


@runtime_checkable
class Recalls(Protocol):
    """A sink that wants to know what a run did before it was taken up again here."""

    def recall(self, facts: Sequence[Event]) -> None: ...


StopRule = Callable[[State, Step], Stop | None]
ModelHandler = Callable[[ModelRequest], Awaitable[ModelReply]]
ToolHandler = Callable[[ToolCall], Awaitable[ToolResult]]
Admission = Callable[[Message], Awaitable[Usage]]
Repair = Callable[[Any, "ToolContext"], Awaitable[ToolResult | None]]
ContextPart = Callable[[tuple[Message, ...], RunView], Awaitable[Sequence[Message]]]
"""One part of what the model sees: takes the messages as they are so far, gives them as they are to be. Parts are asked in
their order, for each call of the model; the first gets the instructions and the whole history."""


class Policy:
    """May it, and how: wraps the only two things an agent does to the world. Override what you need.

    Attributes:
        default_place: Where the policy stands if kaname added it; empty if the user wrote it. See `chain.joined`.
        stands_alone: If a root and a member both have a policy of this class, only the member's is around the member's calls.
    """

    default_place: Literal["", "outermost", "innermost"] = ""
    stands_alone = False

    async def admit(self, question: Message, next: Admission, view: RunView) -> Usage:
        """Judge what the user said, before each model call and before anything is made of it: no part of the context has seen
        it yet. Raise `Halt` to end the run. Returns what judging has cost."""
        return await next(question)

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        return await next(request)

    def received(self, message: Message) -> Message:
        """A message of the user, as it is to be written down; nobody has seen it yet."""
        return message

    def allows_substitute(self, call: ToolCall, view: RunView) -> bool:
        """True if this policy would allow `call` in place of another tool, or with arguments that a person has changed.

        A policy that overrides `tool` and not this one allows none."""
        return getattr(self.tool, "__func__", None) is Policy.tool

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        return await next(call)

    def check(self, tools: Mapping[str, Action]) -> None:
        """Before a run, with all its tools there: raise `ConfigError` for what cannot be meant, such as a tool's wrong name."""


@record
class ToolContext(Generic[DepsT]):
    """What a tool may know of the run. A function asks for it with a parameter of this type; the model never sees it.

    `ToolContext[Database]`: the tool wants the program's own things, which `agent.run(…, deps=database)` brings.
    """

    run_id: str
    session: str
    user: str
    agent: str
    call_id: str
    idempotency_key: str
    attempt: int
    scope: Scope

    @property
    def deps(self) -> DepsT:
        """What was passed with `deps=…`. It is never recorded: who resumes a run brings it again."""
        return cast(DepsT, self.scope.deps)

    async def run_child(self, agent: Any, user_input: Any, *, name: str = "") -> Any:
        """Run another agent, a workflow or an orchestrator as a part of this call, and return its `Result`. Its facts are in
        the same journal, under this call's name. A workflow's input are its parameters: a mapping, or a JSON object as text.

        What it spends counts for this run, and so do this run's limits on money and time for it; if this run is stopped, so is
        it; a question of its is asked here; it gets the same `deps`. A call that runs children should say
        `effect="idempotent"`: tried again, it finds them as they are. `name`: for more than one child of a call.
        """
        if self.scope.open_child is None:
            raise ConfigError(
                notice("child.not_here", "a child cannot be run here: this is a replay, or a tool that was called by hand")
            )
        return await self.scope.open_child(self.scope, self, agent, user_input, name)

    async def progress(self, text: str) -> None:
        """Show something to the caller while the tool works."""
        await self.scope.emit(text, "progress", self.call_id)


@record
class Recipe:
    """An agent, fully resolved: what the kernel runs."""

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

    def altered(self, **changes: Any) -> Recipe:
        return replace(self, **changes, memo=Memo())
