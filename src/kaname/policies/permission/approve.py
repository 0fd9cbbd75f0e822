"""Ask a person before some calls. The run is parked, not held: any process can take it up with the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from ...core.demands import Ask
from ...core.durations import seconds
from ...core.errors import ConfigError
from ...core.messages import ToolCall
from ...core.people.answers import APPROVAL
from ...kernel.boundary import Border
from ...kernel.identity import code_identity
from ...kernel.ports import Action, Policy
from ...kernel.threads import runs_on_loop
from ..names import known_tools

if TYPE_CHECKING:
    from ...kernel.view import RunView


class Approve(Policy):
    """Ask before calls of these tools: `Approve("pay", "delete")`. Without a name, every call is asked about.

    `Approve(when=lambda call: call.args["yen"] > 1000)` asks where the condition holds. It sees the arguments as the tool
    receives them: parsed, typed, with defaults. A condition that raises asks.

    Answers: "yes" or True; "no", False or a text with the reason; {"args": {…}} to run it with other arguments;
    {"approved": True, "for": "run"} or {"approved": True, "for": "always"} to allow later calls like it as well.

    Args:
        tools: The names of the tools.
        when: The condition.
        by: "other" if another person than the user of the run must answer. `agent.resume(…, by=…)` says who answers.
        expires: How long the question stays open: seconds, or text such as "1h". By default it does not expire.
        then: What happens when it has expired: "refuse" (default) or "approve".
    """

    def __init__(
        self,
        *tools: str,
        when: Callable[[ToolCall], bool] | None = None,
        by: Literal["", "other"] = "",
        expires: float | str | None = None,
        then: Literal["refuse", "approve"] = "refuse",
    ) -> None:
        if by not in ("", "other") or then not in ("refuse", "approve"):
            raise ConfigError.of(
                "approve.terms", 'Approve: by must be "other" or left out, and then must be "refuse" or "approve"'
            )
        self._by, self._then = by, then
        self._expires = None if expires is None else seconds(expires)
        if when is not None and runs_on_loop(when):
            raise ConfigError.of(
                "approve.when_async",
                "`when` of Approve must be a plain function that returns a bool, not an async function",
            )
        self._tools, self._when = frozenset(_flat(tools)), when

    @property
    def rule(self) -> str:
        """Return the name of the rule: the same in every process, and another one for every other condition or person."""
        when = "" if self._when is None else f" when {code_identity(self._when)}"
        terms = [self._by and "by other", self._expires is not None and f"{self._then} after {self._expires:g} s"]
        return f"{APPROVAL}{','.join(sorted(self._tools)) or '*'}{when} {' '.join([one for one in terms if one])}".strip()

    def asks_about(self, call: ToolCall) -> bool:
        """Return True if a person is asked before this call. What cannot be decided is asked."""
        if self._when is None:
            return not self._tools or call.name in self._tools
        with Border():
            return bool(self._when(call))
        return True  # a condition that cannot be told must not let the call through

    def check(self, tools: Mapping[str, Action]) -> None:
        """A name that is no tool's guards nothing."""
        if self._when is None:
            known_tools("Approve", self._tools, tools)

    async def demand(self, call: ToolCall, view: RunView) -> Ask | None:
        if not self.asks_about(call):
            return None
        from .lasting import is_granted, keep_lasting  # not before something is asked about

        await keep_lasting(self.rule, call, view)
        if await is_granted(self.rule, call, view, self._by):
            return None
        until = 0.0 if self._expires is None else time.time() + self._expires
        return Ask(self.rule, by=self._by, until=until, then=self._then == "approve")


def _flat(tools: Iterable[str]) -> Iterable[str]:
    for tool in tools:
        yield from ([tool] if isinstance(tool, str) else tool)
