"""`RunView`: what policies, context parts and tools can use of a run. A run itself is a `Scope`, which has more members."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..core.messages import Message, ToolCall, ToolResult, Usage
from ..core.state import State

if TYPE_CHECKING:
    from .ports import Action, Journal, Policy, Recipe, StopRule, ToolContext

Fetch = Callable[[], Awaitable[Any]]
Summarise = Callable[[Sequence[Message]], Awaitable[tuple[str, Usage]]]

current_view: ContextVar[Callable[[], RunView | None]] = ContextVar("current_view", default=lambda: None)
"""Returns the run that this task executes. It holds a weak reference: timers keep the context in which they were set."""


@runtime_checkable
class RunView(Protocol):
    """What policies, context parts and tools can use of a run. Read the state; do not change it."""

    @property
    def run_id(self) -> str: ...
    @property
    def state(self) -> State: ...

    @property
    def agent(self) -> Recipe:
        """Return the agent at work."""

    @property
    def root(self) -> Recipe:
        """Return the agent that the run was started with."""

    @property
    def deps(self) -> Any:
        """Return the object passed as `deps=…`."""

    @property
    def journal(self) -> Journal:
        """Return the journal of the run. Read from it; do not append to it."""

    @property
    def scratch(self) -> dict[Any, Any]:
        """Return a place where policies keep what they need during the run. It is not recorded."""

    @property
    def unbilled(self) -> Usage:
        """Return the cost of calls without a reply that is not recorded yet."""

    @property
    def stops(self) -> tuple[StopRule, ...]:
        """Return the stop rules of the agent at work."""

    @property
    def is_read(self) -> bool:
        """Return True if a reader or a sink may have seen the pieces of the reply that is being written."""

    async def confirm(self) -> None:
        """Make sure that the run is still this process's. Await it before an effect, such as undoing a call."""

    def now(self) -> float:
        """Return the time of the run's own clock, which does not follow changes of the system clock."""

    def place(self, part: Any) -> int:
        """Return the index of a context part. It distinguishes two parts of the same class in the record."""

    def tools(self, call: ToolCall) -> Mapping[str, Action]:
        """Return the tools of the agent that made the call."""

    def as_received(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that its tool would receive. Raises `BadArguments`."""

    def as_sent(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that the model sent, unless a policy has changed them."""

    def policies(self, call: ToolCall | None = None) -> tuple[Policy, ...]:
        """Return the policies around the call, or around the agent at work, the outermost first."""

    async def decide(self, call: ToolCall) -> ToolResult | None:
        """Return None if the call can run now, or the result that the model reads instead. Raises `Suspend` to ask a person.

        A policy calls it before it returns a result without running the tool, such as one from a cache. Nothing is started, so
        that limits on the number of calls do not apply.
        """

    async def allows(self, call: ToolCall) -> bool:
        """Return True if the call could run now without asking a person."""

    def may_start(self, call: ToolCall, limit: float, counts: Mapping[str, int] | None = None) -> bool:
        """Return True if the tool of the call was started fewer than `limit` times, as `counts` says (default: in this turn).

        Every start counts: of a retry, of a tool that stands in for another, and of calls at the same time. Call this next to
        the tool, on the call that will really run: if it returns True, the call counts as being started until it has started
        or is refused.
        """

    def tool_context(self, call_id: str, key: str, attempt: int) -> ToolContext:
        """Return the context that a tool receives. Its agent is the one that made the call."""

    def charge(self, usage: Usage, call_id: str = "") -> None:
        """Record what was spent and is in no reply: with the result of a call, or else with the next reply, or at the end."""

    def spent_by_children(self, call_id: str) -> Usage:
        """Return the usage of the children of a call so far."""

    def withdraw_question(self, call_id: str) -> None:
        """Drop the question that a child asks through the call: the call answers without it."""

    async def run_child(self, context: ToolContext, agent: Any, user_input: Any, name: str) -> Any:
        """Run another agent, a workflow or an orchestrator as a part of a call. See `ToolContext.run_child`."""

    async def emit(self, text: str, kind: str = "text", call_id: str = "") -> None:
        """Show a piece of a reply to the run's readers, without recording it."""

    def tell(self, data: Mapping[str, Any]) -> None:
        """Show a `status` chunk to the readers of the run, without recording it. `data["status"]` names the status."""

    async def warn(self, source: str, text: str) -> None:
        """Record a warning."""

    async def note(self, name: str, data: Any, *, shown: bool = True) -> None:
        """Record a custom fact: it is stored in `state.custom[name]` and, if `shown`, shown as a chunk of that type."""

    async def report_error(self, about: Mapping[str, Any]) -> None:
        """Record an `error` chunk for the reader of the run, which continues."""

    async def recall(self, name: str, fetch: Fetch, *, turn: bool = False) -> Any:
        """Return the value that `fetch` returns, and record it for the next model call, or for the whole turn.

        A run that is resumed or replayed gets the recorded value, even if `fetch` would return another by now.

        Args:
            name: The name of the custom fact.
            fetch: Reads the value from outside. It must be JSON.
            turn: True to keep the value for the whole turn.
        """

    async def look_up(self, name: str, fetch: Fetch) -> Any:
        """Return the value that `fetch` returns now, and record it, for a replay; None is not recorded.

        Unlike `recall`, it fetches the value again each time: what has been revoked since is not returned.
        """

    async def withhold(self, messages: Sequence[Message]) -> None:
        """Remove earlier user messages with these texts from the conversation, because they are blocked. The facts stay."""

    async def compact(self, upto: int, summarise: Summarise) -> None:
        """Replace the first `upto` messages of the conversation by a summary, and record it as a fact.

        A run that is resumed or replayed has the same summary. A call and its results stay together: `upto` must be the start
        of a message or a step. Raises `ConfigError` if it is not.
        """
