"""`RunView`: the parts of a run that a policy or a context part can read, and the few actions it can take."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..core.chunks import RESERVED
from ..core.codec import dump
from ..core.errors import ConfigError, ModelError, ReplayDiverged
from ..core.events import Compacted, Custom, Warned, withholding_fact
from ..core.messages import NOTHING, Message, ToolCall, ToolResult, Usage
from ..core.reading.as_read import read_text
from ..core.runs import title_of
from ..core.state import State
from .bases import SinkBase, optional
from .door import decide

if TYPE_CHECKING:
    from .ports import Action, Emit, Journal, Policy, Recipe, StopRule, ToolContext
    from .scope import Scope

Fetch = Callable[[], Awaitable[Any]]
Summarise = Callable[[Sequence[Message]], Awaitable[tuple[str, Usage]]]


COMPACTED = "compacted"  # a summary, among what a replay finds recorded


current_view: ContextVar[Callable[[], RunView | None]] = ContextVar("current_view", default=lambda: None)
"""Returns the run that this task executes. It holds a weak reference: timers keep the context in which they were set."""


class RunView:
    """A limited view of one run. Read the state; do not change it."""

    __slots__ = ("__weakref__", "_scope")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def run_id(self) -> str:
        return self._scope.run_id

    @property
    def state(self) -> State:
        return self._scope.state

    @property
    def agent(self) -> Recipe:
        """Return the agent at work."""
        return self._scope.agent

    @property
    def root(self) -> Recipe:
        """Return the agent that the run was started with."""
        return self._scope.root

    @property
    def deps(self) -> Any:
        """Return the object passed as `deps=…`."""
        return self._scope.deps

    @property
    def journal(self) -> Journal:
        """Return the journal of the run. Read from it; do not append to it."""
        return self._scope.journal

    def place(self, part: Any) -> int:
        """Return the index of a context part. It distinguishes two parts of the same class in the record."""
        return next((place for place, one in enumerate(self.agent.context) if one is part), 0)

    def now(self) -> float:
        """Return the time of the run's own clock, which does not follow changes of the system clock."""
        return self._scope.clock()

    def tools(self, call: ToolCall) -> Mapping[str, Action]:
        """Return the tools of the agent that made the call."""
        return self._scope.caller(call).tools

    def as_received(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that its tool would receive. Raises `BadArguments`."""
        return self._scope.as_received(call)

    def reader(self) -> Callable[[ToolCall], ToolCall]:
        """Return `as_received` for many calls, without a detour through this view."""
        return self._scope.as_received

    def as_sent(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that the model sent, unless a policy has changed them."""
        return self._scope.as_sent(call)

    async def decide(self, call: ToolCall) -> ToolResult | None:
        """Return None if the call can run now, or the result that the model reads instead. Raises `Suspend` to ask a person.

        A policy calls it before it returns a result without running the tool, such as one from a cache. Nothing is started, so
        that limits on the number of calls do not apply.
        """
        self._scope.unstarted.add(call.id)
        try:
            return await decide(call, self._scope)
        finally:
            self._scope.unstarted.discard(call.id)

    async def allows(self, call: ToolCall) -> bool:
        """Return True if the call could run now without asking a person."""
        return await decide(call, self._scope, may_ask=False) is None

    def policies(self, call: ToolCall | None = None) -> tuple[Policy, ...]:
        """Return the policies around the call, or around the agent at work, the outermost first."""
        return self._scope.policies(self.agent if call is None else self._scope.caller(call))

    @property
    def stops(self) -> tuple[StopRule, ...]:
        """Return the stop rules of the agent at work."""
        scope = self._scope
        return scope.stops(scope.agent)

    def tool_context(self, call_id: str, key: str, attempt: int) -> ToolContext:
        return self._scope.context(call_id, key, attempt)

    @property
    def emit(self) -> Emit:
        """Return the function that shows pieces of a reply to the run's readers."""
        return self._scope.emit

    @property
    def scratch(self) -> dict[Any, Any]:
        """Return a place where policies keep what they need during the run. It is not recorded."""
        return self._scope.scratch

    @property
    def unbilled(self) -> Usage:
        """Return the cost of calls without a reply that is not recorded yet."""
        return self._scope.unbilled

    def charge(self, usage: Usage, call_id: str = "") -> None:
        """Record what was spent and is in no reply: with the result of a call, or else with the next reply, or at the end."""
        if not call_id:
            self._scope.unbilled += usage
            return
        self._scope.family(call_id).charged += usage

    def spent_by_children(self, call_id: str) -> Usage:
        """Return the usage of the children of a call so far."""
        return self._scope.families[call_id].spent if call_id in self._scope.families else NOTHING

    def may_start(self, call: ToolCall, limit: float, counts: Mapping[str, int] | None = None) -> bool:
        """Return True if the tool of the call was started fewer than `limit` times, as `counts` says (default: in this turn).

        Every start counts: of a retry, of a tool that stands in for another, and of calls at the same time. Call this next to
        the tool, on the call that will really run: if it returns True, the call counts as being started until it has started
        or is refused.
        """
        return self._scope.may_start(call, limit, self.state.starts if counts is None else counts)

    def tell(self, data: Mapping[str, Any]) -> None:
        """Show a `status` chunk to the readers of the run, without recording it. `data["status"]` names the status."""
        self._scope.tell(data)

    @property
    def is_read(self) -> bool:
        """Return True if a reader or a sink may have seen the pieces of the reply that is being written."""
        channel = self._scope.channel
        read = channel is not None and channel.is_read
        return read or any("deltas" in optional(sink, SinkBase, "wants") for sink in self._scope.sinks)

    async def warn(self, source: str, text: str) -> None:
        await self._scope.record(Warned(source, text))

    async def note(self, name: str, data: Any, *, shown: bool = True) -> None:
        """Record a custom fact: it is stored in `state.custom[name]` and, if `shown`, shown as a chunk of that type."""
        await self._scope.record(custom(name, data, shown=shown))

    async def report_error(self, about: Mapping[str, Any]) -> None:
        """Record an `error` chunk for the reader of the run, which continues."""
        await self._scope.record(Custom("error", about))

    async def run_child(self, context: ToolContext, agent: Any, user_input: Any, name: str) -> Any:
        """Run another agent, a workflow or an orchestrator as a part of a call. See `ToolContext.run_child`."""
        if self._scope.open_child is None:
            raise ConfigError.of("child.not_here", "run_child() cannot be used in a replay")
        return await self._scope.open_child(self._scope, context, agent, user_input, name)

    def withdraw_question(self, call_id: str) -> None:
        """Drop the question that a child asks through the call: the call answers without it."""
        self._scope.family(call_id).question = None

    async def recall(self, name: str, fetch: Fetch, *, turn: bool = False) -> Any:
        """Return the value that `fetch` returns, and record it for the next model call, or for the whole turn.

        A run that is resumed or replayed gets the recorded value, even if `fetch` would return another by now.

        Args:
            name: The name of the custom fact.
            fetch: Reads the value from outside. It must be JSON.
            turn: True to keep the value for the whole turn.
        """
        number, known = self.state.replied + 1, self.state.custom.get(name)
        mark = ("turn", self.state.turns) if turn else ("reply", number)
        if isinstance(known, Mapping) and "value" in known and known.get(mark[0]) == mark[1]:
            return known["value"]
        value = self._recorded_value(name, number) if self._scope.recalled is not None else await fetch()
        value = json.loads(dump(value))  # as it will be read from the record
        await self._note_found(name, {"reply": number, "value": value, mark[0]: mark[1]})
        return value

    async def look_up(self, name: str, fetch: Fetch) -> Any:
        """Return the value that `fetch` returns now, and record it, for a replay; None is not recorded.

        Unlike `recall`, it fetches the value again each time: what has been revoked since is not returned.
        """
        number, known = self.state.replied + 1, self.state.custom.get(name)
        value = await fetch() if self._scope.recalled is None else self._scope.recalled.get((name, number))
        if value is not None and not (isinstance(known, Mapping) and known == {"reply": number, "value": value}):
            await self._note_found(name, {"reply": number, "value": value})
        return value

    async def _note_found(self, name: str, data: Any) -> None:
        """Record what was found, unless the run is only looked at: answers are checked before the run is opened."""
        if self._scope.epoch:
            await self._scope.record(custom(name, data, shown=False))  # it may be one person's alone

    def _recorded_value(self, name: str, number: int) -> Any:
        recorded = self._scope.recalled or {}
        if (name, number) not in recorded:
            raise ReplayDiverged(f"{name!r} was not recalled for reply {number} when the run was recorded")
        return recorded[name, number]

    def _recorded_summary(self) -> tuple[str, Usage]:
        made = (self._scope.recalled or {}).get((COMPACTED, self.state.replied + 1))
        if not made:
            raise ModelError.of("compact.not_recorded", "the recorded run has no summary at this point")
        found: tuple[str, Usage] = made.pop(0)
        return found

    async def withhold(self, messages: Sequence[Message]) -> None:
        """Remove earlier user messages with these texts from the conversation, because they are blocked. The facts stay."""
        await self._scope.record(withholding_fact([read_text(one) for one in messages], [title_of(one) for one in messages]))

    async def compact(self, upto: int, summarise: Summarise) -> None:
        """Replace the first `upto` messages of the conversation by a summary, and record it as a fact.

        A run that is resumed or replayed has the same summary. A call and its results stay together: `upto` must be the start
        of a message or a step. Raises `ConfigError` if it is not.
        """
        messages = self.state.messages
        if not 0 < upto < len(messages) or messages[upto].role == "tool":
            raise ConfigError.of(
                "compact.upto", "upto must be an index between two steps of the conversation, not {upto}", upto=upto
            )
        if self._scope.recalled is None:
            summary, usage = await summarise(messages[:upto])
        else:
            summary, usage = self._recorded_summary()
        await self._scope.record(Compacted(upto, summary, usage))


def custom(name: str, data: Any, *, shown: bool = True) -> Custom:
    if not name or name in RESERVED:
        raise ConfigError.of(
            "fact.name", "{name!r} cannot be the name of a fact: it is empty or reserved for a type of chunk", name=name
        )
    return Custom(name, data, shown)
