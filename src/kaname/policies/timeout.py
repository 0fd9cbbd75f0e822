"""Time limits on what is under way: a model call, a tool call, the whole turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from ..core.errors import Halt, ModelError
from ..core.messages import NOTHING, Message, ModelReply, ModelRequest, ToolCall, ToolResult, Usage
from ..core.notices import notice
from ..core.steps import Stop
from ..kernel.chain import let_in
from ..kernel.ports import Admission, ModelHandler, Policy, StopRule, ToolHandler
from ..kernel.results import timed_out

if TYPE_CHECKING:
    from ..kernel.view import RunView

T = TypeVar("T")


class Late(Exception):
    """The time was up first."""


async def within(seconds: float, work: Awaitable[T]) -> T:
    """What `asyncio.timeout` does, without what it does besides: this stands around every call of every step."""
    task = asyncio.current_task()
    assert task is not None
    rang, before = False, task.cancelling()

    def ring() -> None:
        nonlocal rang
        rang = True
        task.cancel()

    alarm = asyncio.get_running_loop().call_later(seconds, ring)
    try:
        return await work
    except asyncio.CancelledError:
        if rang and task.uncancel() <= before:
            raise Late from None
        raise
    finally:
        alarm.cancel()


async def timed(seconds: float, work: Awaitable[ToolResult], effect: str) -> ToolResult:
    """The result of a call, or an error that says what is known of its effect."""
    try:
        return await within(seconds, work)
    except Late:
        pass
    return timed_out(seconds, in_doubt=effect != "pure")


class Timeout(Policy):
    """Innermost: the time of the call itself, not of a question or a retry around it. A tool's own `timeout` is kept here."""

    def __init__(self, model_seconds: float | None = 600.0) -> None:
        self.model_seconds = model_seconds

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        if self.model_seconds is None:
            return await next(request)
        try:
            return await within(self.model_seconds, next(request))
        except Late:
            limit = f"{self.model_seconds:g}"
            raise ModelError(notice("model.no_reply_within", "no reply within {limit} s", limit=limit)) from None

    def allows_substitute(self, call: ToolCall, view: RunView) -> bool:
        return True

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        tool = view.tools(call).get(call.name, None)
        if tool is None or tool.timeout is None:
            return await next(call)
        return await timed(tool.timeout, next(call), tool.effect)


class Deadline(Policy):
    """Outermost: ends the run when the turn's working time is used up, also in the middle of a call.

    The limit is that of the stop rule `deadline(…)`, the shortest if there are several.
    """

    def __init__(self) -> None:
        self._judged: tuple[tuple[StopRule, ...], float] = ((), 0.0)

    async def admit(self, question: Message, next: Admission, view: RunView) -> Usage:
        return NOTHING if next is let_in else await self._within(next(question), view)

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        return await self._within(next(request), view)

    def allows_substitute(self, call: ToolCall, view: RunView) -> bool:
        return True

    async def tool(self, call: ToolCall, next: ToolHandler, view: RunView) -> ToolResult:
        return await self._within(next(call), view)

    async def _within(self, work: Awaitable[T], view: RunView) -> T:
        limit, state = self._limit(view.stops), view.state
        if not limit:
            return await work
        used = state.spent.seconds + max(0.0, view.now() - state.time)
        try:
            return await within(max(0.0, limit - used), work)
        except Late:
            pass
        used_up = notice("stop.deadline", "the time limit of {limit:g} s is used up", limit=limit)
        raise Halt(Stop("deadline", used_up))

    def _limit(self, rules: tuple[StopRule, ...]) -> float:
        """Return the shortest deadline in seconds; 0 if there is none. A parent's has no limit here: it stands around the
        whole child. The last answer is kept, because the rules are the same at every call of a run."""
        if rules is not self._judged[0]:
            limits = [getattr(rule, "limit", None) for rule in rules if getattr(rule, "kind", "") == "deadline"]
            self._judged = rules, min([limit for limit in limits if limit], default=0.0)
        return self._judged[1]
