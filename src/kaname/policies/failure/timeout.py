"""Time limits on what is under way: a model call, a tool call, the whole turn."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.durations import seconds
from ...core.errors import Halt, ModelTimeout
from ...core.messages import NOTHING, Message, ModelReply, ModelRequest, ToolCall, ToolResult, Usage
from ...core.notices import notice
from ...core.steps import Stop
from ...kernel.alarms import Late, within
from ...kernel.bases import PolicyInfo, bound_of, model_info, options_of
from ...kernel.chain import let_in
from ...kernel.ports import Admission, ModelHandler, Policy, StopRule, ToolHandler
from ...kernel.results import timeout_result

if TYPE_CHECKING:
    from ...kernel.view import RunView

T = TypeVar("T")


async def run_with_timeout(seconds: float, work: Awaitable[ToolResult], effect: str) -> ToolResult:
    """The result of a call, or an error that says what is known of its effect."""
    try:
        return await within(seconds, work)
    except Late:
        pass
    return timeout_result(seconds, in_doubt=effect != "pure")


class Timeout(Policy):
    """Limits the time of each call itself, not of a question or a retry around it. It is on by default.

    Args:
        model_seconds: The time for a model's reply, such as 1800 or "30m"; None for no limit. By default it is what the model
            itself needs: 600 seconds, or more if it runs on this machine.

    A tool's own `timeout` is kept here as well.
    """

    place = "timeout"
    about = PolicyInfo(stands_alone=True, replayed=False)

    def __init__(self, model_seconds: float | str | None = 0.0) -> None:
        self.model_seconds = seconds(model_seconds) if model_seconds else model_seconds

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        own = request.settings.get("timeout")
        allowed: Any = self.model_seconds if own is None else seconds(own)
        if allowed == 0.0:
            allowed = model_info(request.model or view.agent.model).patience
        if allowed is None:
            return await next(request)
        try:
            return await within(allowed, next(request))
        except Late:
            limit = f"{allowed:g}"
            late = ModelTimeout.of("model.no_reply_within", "no reply within {limit} s", limit=limit)
            late.retryable = False  # it has had all the time that it is given
            raise late from None

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        tool = view.tools(call).get(call.name, None)
        if tool is None or (limit := options_of(tool).timeout) is None:
            return await next(call)
        return await run_with_timeout(limit, next(call), tool.effect)


class Deadline(Policy):
    """Outermost: ends the run when the turn's working time is used up, also in the middle of a call.

    The limit is that of the stop rule `deadline(…)`, the shortest if there are several.
    """

    place = "turn"
    about = PolicyInfo(replayed=False)

    def __init__(self) -> None:
        self._judged: tuple[tuple[StopRule, ...], float] = ((), 0.0)

    async def admit(self, question: Message, next: Admission, view: RunView) -> Usage:
        return NOTHING if next is let_in else await self._within(next(question), view)

    def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> Coroutine[Any, Any, ModelReply]:
        return self._within(next(request), view)

    def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> Coroutine[Any, Any, ToolResult]:
        return self._within(next(call), view)

    async def _within(self, work: Awaitable[T], view: RunView) -> T:
        if not (limit := self._limit(view.stops)):
            return await work
        state = view.state
        used = state.spent.seconds + max(0.0, view.now() - state.time)
        try:
            return await within(max(0.0, limit - used), work)
        except Late:
            pass
        used_up = notice("stop.deadline", "the time limit of {limit:g} s was reached", limit=limit)
        raise Halt(Stop("deadline", used_up))

    def _limit(self, rules: tuple[StopRule, ...]) -> float:
        """Return the shortest deadline in seconds; 0 if there is none. A parent's has no limit here if it stands around
        the whole child. The last answer is kept, because the rules are the same at every call of a run."""
        if rules is not self._judged[0]:
            limits = [bound.most for bound in map(bound_of, rules) if bound.kind == "deadline"]
            self._judged = rules, min([limit for limit in limits if limit], default=0.0)
        return self._judged[1]
