"""Time limits on what is under way: a model call, a tool call, the whole turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from ..core.errors import Halt, ModelError
from ..core.language import say
from ..core.messages import ModelReply, ModelRequest, ToolCall, ToolResult
from ..core.steps import Stop
from ..kernel.ports import ModelHandler, Policy, ToolHandler

if TYPE_CHECKING:
    from ..kernel.scope import Scope

T = TypeVar("T")


class Timeout(Policy):
    """Innermost: the time of the call itself, not of a question or a retry around it. A tool's own `timeout` is kept here."""

    def __init__(self, model_seconds: float | None = 600.0) -> None:
        self.model_seconds = model_seconds

    async def model(self, request: ModelRequest, next: ModelHandler, scope: Scope) -> ModelReply:
        limit = asyncio.timeout(self.model_seconds)
        try:
            async with limit:
                return await next(request)
        except TimeoutError as late:
            if not limit.expired():
                raise
            raise ModelError(
                say(f"no reply within {self.model_seconds:g} s", f"{self.model_seconds:g} 秒以内に返答がありません")
            ) from late

    async def tool(self, call: ToolCall, next: ToolHandler, scope: Scope) -> ToolResult:
        tool = scope.agent.tools.get(call.name, None)
        if tool is None or tool.timeout is None:
            return await next(call)
        limit = asyncio.timeout(tool.timeout)
        try:
            async with limit:
                return await next(call)
        except TimeoutError:
            if not limit.expired():
                raise
        after = "" if tool.effect == "pure" else "; it may or may not have taken effect, so check before you repeat it"
        return ToolResult(error=f"timed out after {tool.timeout:g} s{after}")


class Deadline(Policy):
    """Outermost: ends the run when the turn's working time is used up, also in the middle of a call."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def model(self, request: ModelRequest, next: ModelHandler, scope: Scope) -> ModelReply:
        return await self._within(next(request), scope)

    async def tool(self, call: ToolCall, next: ToolHandler, scope: Scope) -> ToolResult:
        return await self._within(next(call), scope)

    async def _within(self, work: Awaitable[T], scope: Scope) -> T:
        state = scope.state
        used = state.spent.seconds + max(0.0, scope.clock() - state.time)
        limit = asyncio.timeout(self.seconds - used)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
        used_up = say(f"the time limit of {self.seconds:g} s is used up", f"制限時間の {self.seconds:g} 秒を使い切りました")
        raise Halt(Stop("deadline", used_up))
