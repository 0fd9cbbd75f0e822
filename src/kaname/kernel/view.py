"""`RunView`: what a policy or a context part may read of a run, and the little it may do to it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.chunks import RESERVED
from ..core.codec import dump
from ..core.errors import ConfigError, ModelError, ReplayDiverged
from ..core.events import Compacted, Custom, Warned, withheld
from ..core.messages import Message, ToolCall, Usage
from ..core.notices import notice
from ..core.runs import titled
from ..core.state import State

if TYPE_CHECKING:
    from .ports import Action, Emit, Policy, Recipe, StopRule, ToolContext
    from .scope import Scope

Fetch = Callable[[], Awaitable[Any]]
Summarise = Callable[[Sequence[Message]], Awaitable[tuple[str, Usage]]]


COMPACTED = "compacted"  # a summary, among what a replay finds recorded


class RunView:
    """A narrow window on one run. The state is to be read, not changed."""

    __slots__ = ("_scope",)

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
        """Who is at work."""
        return self._scope.agent

    @property
    def deps(self) -> Any:
        """What the program passed with `deps=…`."""
        return self._scope.deps

    def place(self, part: Any) -> int:
        """Which of the agent's parts of the context it is: what tells two of a kind apart in the record."""
        return next((place for place, one in enumerate(self.agent.context) if one is part), 0)

    def now(self) -> float:
        """The run's own clock: nobody can set it."""
        return self._scope.clock()

    def tools(self, call: ToolCall) -> Mapping[str, Action]:
        """The tools of the agent that made the call."""
        return self._scope.caller(call).tools

    def as_received(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that its tool would receive. Raises `BadArguments`."""
        return self._scope.as_received(call)

    def as_sent(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that the model sent, unless a policy has changed them."""
        return self._scope.as_sent(call)

    def policies(self, call: ToolCall | None = None) -> tuple[Policy, ...]:
        """All that stand around the call, or around who is at work, the outermost first."""
        return self._scope.policies(self.agent if call is None else self._scope.caller(call))

    @property
    def stops(self) -> tuple[StopRule, ...]:
        """The stop rules that hold for who is at work."""
        return self._scope.stops(self.agent)

    def tool_context(self, call_id: str, key: str, attempt: int) -> ToolContext:
        return self._scope.context(call_id, key, attempt)

    @property
    def emit(self) -> Emit:
        """Where the pieces of a reply go, to the run's readers."""
        return self._scope.emit

    async def warn(self, source: str, text: str) -> None:
        await self._scope.record(Warned(source, text))

    async def note(self, name: str, data: Any) -> None:
        """Record a fact of your own: `state.custom[name]`, and a chunk of that type."""
        await self._scope.record(custom(name, data))

    async def recall(self, name: str, fetch: Fetch, *, turn: bool = False) -> Any:
        """What `fetch` brings in from outside, for the next model call, or for the whole `turn`. It is recorded: a run that is
        resumed or replayed gets what it was given then, whatever the outside says now."""
        number, known = self.state.replied + 1, self.state.custom.get(name)
        mark = ("turn", self.state.turns) if turn else ("reply", number)
        if isinstance(known, Mapping) and "value" in known and known.get(mark[0]) == mark[1]:
            return known["value"]
        value = self._recorded(name, number) if self._scope.recalled is not None else await fetch()
        value = json.loads(dump(value))  # as it will be read from the record
        fact = custom(name, {"reply": number, "value": value, mark[0]: mark[1]}, shown=False)  # it may be one person's alone
        await self._scope.record(fact)
        return value

    def _recorded(self, name: str, number: int) -> Any:
        recorded = self._scope.recalled or {}
        if (name, number) not in recorded:
            raise ReplayDiverged(f"{name!r} was not recalled for reply {number} when the run was recorded")
        return recorded[name, number]

    def _recorded_summary(self) -> tuple[str, Usage]:
        made = (self._scope.recalled or {}).get((COMPACTED, self.state.replied + 1))
        if not made:
            raise ModelError(notice("compact.not_recorded", "no summary was had here when the run was recorded"))
        found: tuple[str, Usage] = made.pop(0)
        return found

    async def withhold(self, texts: Sequence[str]) -> None:
        """Take earlier messages of the user with these texts out of the conversation: they are blocked. The facts stay."""
        await self._scope.record(withheld(texts, [titled(text) for text in texts]))

    async def compact(self, upto: int, summarise: Summarise) -> None:
        """Have a summary stand in the place of the first `upto` messages of the conversation. A fact: a run that is resumed or
        replayed has the same summary. A call and its results stay together: `upto` is where a message or a step begins."""
        messages = self.state.messages
        if not 0 < upto < len(messages) or messages[upto].role == "tool":
            raise ConfigError(
                notice("compact.upto", "upto is a place between two steps of the conversation, not {upto}", upto=upto)
            )
        if self._scope.recalled is None:
            summary, usage = await summarise(messages[:upto])
        else:
            summary, usage = self._recorded_summary()
        await self._scope.record(Compacted(upto, summary, usage))


def custom(name: str, data: Any, *, shown: bool = True) -> Custom:
    if not name or name in RESERVED:
        raise ConfigError(
            notice("fact.name", "{name!r} cannot be the name of a fact: it is empty, or a chunk's own type", name=name)
        )
    return Custom(name, data, shown)
