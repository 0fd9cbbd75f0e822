"""Ask a person before some calls. The run is parked, not held: any process can take it up with the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..core.durations import seconds
from ..core.errors import BadArguments, ConfigError, Suspend
from ..core.messages import ToolCall, ToolResult
from ..core.notices import Notice, notice
from ..core.people.answers import APPROVAL, NO, YES, read_approval
from ..core.people.visible import shown_call, visible
from ..core.record import replace
from ..core.values import identity, read_json
from ..kernel.bases import ActionBase, optional
from ..kernel.boundary import Border
from ..kernel.ports import Action, Policy, ToolHandler
from ..kernel.threads import runs_on_loop
from .names import known_tools, objector

if TYPE_CHECKING:
    from ..kernel.view import RunView


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
            told = notice("approve.terms", 'Approve: by must be "other" or left out, and then must be "refuse" or "approve"')
            raise ConfigError(told)
        self._by, self._then = by, then
        self._expires = None if expires is None else seconds(expires)
        if when is not None and runs_on_loop(when):
            raise ConfigError(
                notice(
                    "approve.when_async",
                    "`when` of Approve must be a plain function that returns a bool, not an async function",
                )
            )
        self._tools, self._when = frozenset(_flat(tools)), when

    def asks_about(self, call: ToolCall) -> bool:
        """Return True if a person is asked before this call. What cannot be decided is asked."""
        if self._when is None:
            return not self._tools or call.name in self._tools
        with Border():
            return bool(self._when(call))
        return True  # a condition that cannot be told must not let the call through

    @staticmethod
    def key(call: ToolCall) -> str:
        """Return the key of the question about a call."""
        return f"{APPROVAL}{call.id}"

    def check(self, tools: Mapping[str, Action]) -> None:
        """A name that is no tool's guards nothing."""
        if self._when is None:
            known_tools("Approve", self._tools, tools)

    def allows_substitute(self, call: ToolCall, view: RunView) -> bool:
        return not self.asks_about(call)

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        key, answers = self.key(call), view.state.answers
        if key not in answers:
            if not self.asks_about(call) or await _is_granted(call, view, self._by):
                return await next(call)
            raise Suspend(key, self.prompt(call, view), (YES, NO), about=call, by=self._by, **self._expiry())
        decision, lasting = read_approval(answers[key])
        if decision is None:
            told = notice(
                "approve.unclear",
                "not run: the answer {answer!r:.200} is neither yes, nor no, nor {{'args': …}}",
                answer=answers[key],
            )
            return ToolResult(error=told)
        if not decision.approved:
            refused = notice("approve.refused", "the user did not allow this call")
            return ToolResult(error=refused + f": {decision.reason}" if decision.reason else refused)
        if lasting is not None:
            from .lasting import keep_if_lasting

            await keep_if_lasting(key, call, view)
        shown = view.state.subjects.get(key, call)
        if decision.args is None and identity(shown.args) == identity(call.args):
            return await next(call)
        # Else the tool's code, or a default that is made anew, has changed since: what was shown is what runs.
        args = decision.args if decision.args is not None else shown.args if isinstance(shown.args, Mapping) else {}
        changed = apply_edits(view.as_sent(call), shown, args, call.args)
        if why := self.objection(changed, view):
            told = notice("approve.not_run", "{name} was not run with the approved arguments: {why}", name=call.name, why=why)
            return ToolResult(error=told)
        return await next(changed)

    def _expiry(self) -> dict[str, Any]:
        if self._expires is None:
            return {}
        late = notice("approve.expired", "the question was not answered in time")
        then = True if self._then == "approve" else {"approved": False, "reason": late}
        return {"until": time.time() + self._expires, "then": then}

    def prompt(self, call: ToolCall, view: RunView) -> Notice:
        """Return the question about a call, with what it will do in the words of its tool, if it has any."""
        asked, does = shown_call(call.name, call.args), _effect_of(call, view)
        if does:
            return notice("approve.describes", "{does}\nRun {asked}?", does=visible(does), asked=asked)
        return notice("approve.run", "Run {asked}?", asked=asked)

    def objection(self, changed: ToolCall, view: RunView) -> str:
        """Say why a call may not be run with arguments that an approver has changed; nothing if it may."""
        try:
            seen = view.as_received(changed)
        except BadArguments as problem:
            return str(problem)
        return objector(seen, self, view, by_a_person=True)  # the other policies have seen the model's call, not this one


def _effect_of(call: ToolCall, view: RunView) -> str:
    """Return what a call will do, as its tool says; nothing if it does not say, or cannot."""
    tool = view.tools(call).get(call.name, None)
    describe = None if tool is None else optional(tool, ActionBase, "describe")
    with Border():
        return "" if tool is None or describe is None else str(describe(tool.prepare(view.as_sent(call))))
    return ""


async def _is_granted(call: ToolCall, view: RunView, by: str) -> bool:
    from .lasting import is_granted  # not before something is asked about

    return await is_granted(call, view, by)


def apply_edits(sent: ToolCall, shown: ToolCall, args: Mapping[str, Any], now: Any = None) -> ToolCall:
    """Return the call with an approver's arguments. What is left as it was shown stays as it was sent, or as its default is:
    what is shown of a secret, for example, is not its value. `now`: the arguments as they would be shown now."""
    given: Any = sent.args
    if isinstance(given, str):
        try:
            given = read_json(given)
        except ValueError:
            given = {}
    given, known, now = [one if isinstance(one, Mapping) else {} for one in (given, shown.args, now)]
    made = dict(args)
    for name in [name for name in args if name in known and identity(args[name]) == identity(known[name])]:
        if name in given:
            made[name] = given[name]
        elif name in now and identity(now[name]) == identity(known[name]):
            del made[name]
    return replace(sent, args=made)


def _flat(tools: Iterable[str]) -> Iterable[str]:
    for tool in tools:
        yield from ([tool] if isinstance(tool, str) else tool)
